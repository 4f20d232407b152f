"""Views of a text that know the origin of each character, so that the findings of a rule can be marked in the
original.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

PUNCTUATION = string.punctuation
"""The 32 punctuation marks of ASCII; IFBench removes these and no others."""
CHUNK = re.compile(r"\S+")
"""Pattern of a piece between white space: the same pieces as those of `str.split()`."""
DIGITS = re.compile(r"\d+")
WORD = re.compile(r"\w+")
EDGES = PUNCTUATION + " "
"""Characters that IFBench removes at the ends of a word."""
CharRange = tuple[int, int]
"""Characters `start:end` of a text."""


@dataclass(frozen=True)
class View:
    """A changed text; character `i` of it was made of character `at[i]` of the original."""

    text: str
    at: tuple[int, ...]

    def place(self, start: int, end: int) -> CharRange:
        """Return the characters of the original behind `start:end` (not empty) of the view."""
        inside = self.at[start:end]
        return min(inside), max(inside) + 1

    def part(self, start: int, end: int) -> View:
        return View(self.text[start:end], self.at[start:end])

    def words(self) -> list[View]:
        """Return the pieces between white space."""
        return [self.part(*chunk.span()) for chunk in CHUNK.finditer(self.text)]

    def stripped(self, marks: str | None = None) -> View:
        """Return the view without white space (or the marks) at its ends."""
        start = len(self.text) - len(self.text.lstrip(marks))
        return self.part(start, start + len(self.text.strip(marks)))

    def where(self) -> CharRange:
        """Return the characters of the original behind the whole view (not empty)."""
        return self.place(0, len(self.text))


def whole(text: str) -> View:
    """Return the text as it is."""
    return View(text, tuple(range(len(text))))


def lowered(view: View) -> View:
    """Return the text in lower case, as `str.lower` makes it. A character may become two (U+0130)."""
    lower = view.text.lower()
    if len(lower) == len(view.text):
        return View(lower, view.at)
    at = [place for character, place in zip(view.text, view.at, strict=True) for _ in character.lower()]
    return View(lower, tuple(at))


def without(view: View, marks: str = PUNCTUATION) -> View:
    """Return the text without the marks: "3.14" becomes "314", as IFBench counts it."""
    kept = [index for index, character in enumerate(view.text) if character not in marks]
    return View("".join(view.text[index] for index in kept), tuple(view.at[index] for index in kept))


def bare_words(text: str) -> list[View]:
    """Return the words without ASCII punctuation; a piece of punctuation alone is no word."""
    return without(whole(text)).words()


def bare_lower_words(text: str) -> list[View]:
    """Return `bare_words` in lower case."""
    return without(lowered(whole(text))).words()


def lines(text: str) -> list[View]:
    r"""Return the pieces between `\n`; they may be empty."""
    view = whole(text)
    return [view.part(*line) for line in pieces_between(re.compile("\n"), text)]


def pieces_between(divider: re.Pattern[str], text: str) -> list[CharRange]:
    """Return the places of the pieces that `divider.split` yields."""
    result, start = [], 0
    for match in divider.finditer(text):
        result.append((start, match.start()))
        start = match.end()
    return [*result, (start, len(text))]


def trimmed(text: str, place: CharRange) -> CharRange:
    """Return the place without the white space at its ends."""
    start, end = place
    inside = text[start:end]
    return start + len(inside) - len(inside.lstrip()), start + len(inside.rstrip())


def full_and_hollow(text: str, pieces: list[CharRange]) -> tuple[list[CharRange], list[CharRange]]:
    """Return the pieces that are not blank, and the blank ones that are neither the first nor the last."""

    def blank(place: CharRange) -> bool:
        return not text[slice(*place)].strip()

    return [place for place in pieces if not blank(place)], [place for place in pieces[1:-1] if blank(place)]


def ranges(pattern: re.Pattern[str], text: str, group: int = 0) -> list[CharRange]:
    """Return the characters of each match, or of its group."""
    return [match.span(group) for match in pattern.finditer(text)]


def occurrences(needle: str, text: str) -> list[CharRange]:
    """Return the places where the needle occurs, without overlaps; case-sensitive."""
    return ranges(re.compile(re.escape(needle)), text) if needle else []


def occurrences_of_any(needles: Iterable[str], text: str) -> list[CharRange]:
    """Return the places where each of the needles occurs, one needle after the other; case-sensitive."""
    return [place for needle in needles for place in occurrences(needle, text)]


def occurrences_anycase(needle: str, text: str) -> list[CharRange]:
    """Return the places where the needle occurs in any case (both in lower case), in characters of `text`."""
    view = lowered(whole(text))
    return [view.place(*span) for span in occurrences(needle.lower(), view.text)]


def runs(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield neighbouring characters as one place each: 3, 4, 7 gives 3:5 and 7:8."""
    start = end = None
    for place in places:
        if start is not None and place == end:
            end = place + 1
            continue
        if start is not None and end is not None:
            yield start, end
        start, end = place, place + 1
    if start is not None and end is not None:
        yield start, end


def count_words(text: str) -> int:
    r"""Return the number of runs of letters, digits and underscores (`\w+`), as IFEval counts: "don't" is two words,
    "well-known" two.
    """
    return sum(1 for _ in WORD.finditer(text))

"""Search for the characters that a quote refers to.

Annotators, reward models and judges point to a part of a text by repeating it, rarely letter by letter. The search
tries the exact quote first. The second step ignores differences in white space, in the shape of quote marks and dashes,
and in the Unicode encoding of a character. If a threshold is given, the last step searches for a similar passage.
Counts report how quotes were found, and how many were not.

Left out: quotes with a gap ("the first ... the last"), and guesses from what surrounds a span.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from fgrl.base import lazy
from fgrl.feedback.similar_stretch import most_similar

fuzz = lazy.load("rapidfuzz.fuzz")
regex = lazy.load("regex")

Kind = Literal["exact", "normalised", "fuzzy"]
Occurrence = Literal["first", "all"]
KINDS: tuple[Kind, ...] = ("exact", "normalised", "fuzzy")
USUAL_UNMATCHED = 0.025
"""Limit of the share of spans that are not found: in the annotations of Text2Grad the share is below this (its Table
15).
"""

_MARKS = {ord(mark): "'" for mark in "\u2018\u2019\u201a\u201b\u2032\u2035\u2039\u203a\u02bc`"}
_MARKS |= {ord(mark): '"' for mark in "\u201c\u201d\u201e\u201f\u00ab\u00bb\u301d\u301e\u301f"}
_DASHES = {ord(dash): "-" for dash in "\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\u2e3a\u2e3b"}
_UNSEEN = dict.fromkeys([0x00AD, 0x200B, 0x2060, 0xFE0E, 0xFE0F, 0xFEFF])
"""Soft hyphen, zero-width space, word joiner, the two variation selectors of emoji, byte order mark."""
_IN_A_WORD = r"(?V1)[\w--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]{2}"
"""Two neighbouring characters of one word, in scripts that put spaces between words."""
_ALIKE = {**_MARKS, **_DASHES, **_UNSEEN}


@dataclass(frozen=True)
class Match:
    """The characters `start:end` of a text that a quote refers to."""

    start: int
    end: int
    kind: Kind
    score: float
    """Similarity, 0 to 1, of the normalised quote and the normalised match; 1 unless the match is fuzzy."""


def locate(
    quote: str, text: str, occurrence: Occurrence = "first", fuzzy: float | None = None, *, ignore_case: bool = False
) -> list[Match]:
    """Return the places of a quote in a text; empty if there is none, and for a quote of white space alone.

    1. `exact`: every place where the text has the quote letter by letter. Preferred are places that cut no character in
       two (an e from the accent after it, an emoji from its skin tone), and among these the places that cut no word or
       number in two (he from The, 12 from 1200)
    2. `normalised`: as `exact`, after both texts are normalised: runs of white space become one space, quote marks and
       dashes have one shape each, invisible characters are dropped, and all encodings of a character in Unicode are
       equal (NFKC). `ignore_case` folds case too. Again, places that cut no word or number in two are preferred
    3. `fuzzy`: stretches whose normalised form has at least the similarity `fuzzy` to that of the quote (0 to 1; the
       normalised indel similarity of rapidfuzz); None skips this step. Of overlapping stretches only the best is
       returned

    The first step with a result ends the search. Steps 2 and 3 never cut a character (an extended grapheme cluster) in
    two.

    occurrence: `first` gives one match, the best of fuzzy matches; `all` gives every match from left to right (fuzzy
    matches with the best first), even if exact matches overlap. Raises ValueError for an invalid threshold.
    """
    if fuzzy is not None and not 0 < fuzzy <= 1:
        raise ValueError(f"fuzzy is {fuzzy}: a similarity is above 0 and at most 1")
    if occurrence not in ("first", "all"):
        raise ValueError(f"occurrence is {occurrence!r}: first or all")
    if not quote.strip() or not text:
        return []
    matches = _exact(quote, text)
    if not matches:
        normalised_text, normalised_quote = _flatten(text, ignore_case), _flatten(quote, ignore_case).inside()
        matches = _normalised(normalised_quote, normalised_text, text)
        if not matches and fuzzy is not None:
            matches = _fuzzy(normalised_quote, normalised_text, fuzzy, all_of_them=occurrence == "all")
    return matches[:1] if occurrence == "first" else matches


def locate_each(
    quotes: Sequence[str],
    text: str,
    occurrence: Occurrence = "first",
    fuzzy: float | None = None,
    *,
    ignore_case: bool = False,
) -> list[list[Match]]:
    """Return the result of `locate` for several quotes of one text; an empty list for a quote that is not found.

    With `occurrence: first`, a quote that is given n times refers to its first n places.
    """
    seen: Counter[str] = Counter()
    located = []
    for quote in quotes:
        repeated = occurrence == "first" and seen[quote]
        matches = locate(quote, text, "all" if repeated else occurrence, fuzzy, ignore_case=ignore_case)
        if repeated and matches:
            matches = [matches[min(seen[quote], len(matches) - 1)]]
        seen[quote] += 1
        located.append(matches)
    return located


@dataclass
class Located:
    """Statistics of how quotes were found: counts of quotes (not of places) by the kind of their matches."""

    kinds: Counter[Kind] = field(default_factory=Counter)
    unmatched: int = 0
    lowest: float = 1.0
    """Lowest score of a match."""

    def add(self, located: Iterable[Sequence[Match]]) -> None:
        """Count quotes by their matches; an empty entry is a quote that was not found."""
        for matches in located:
            if matches:
                self.kinds[matches[0].kind] += 1
                self.lowest = min(self.lowest, *(match.score for match in matches))
            else:
                self.unmatched += 1

    @property
    def quotes(self) -> int:
        """Number of quotes."""
        return self.kinds.total() + self.unmatched

    @property
    def rate(self) -> float:
        """Share of the quotes that were not found; 0 if there are no quotes."""
        return self.unmatched / self.quotes if self.quotes else 0.0

    def counts(self) -> dict[str, Any]:
        """Return the counts for a stage's summary: `quotes`, `quotes: exact` and so on, `unmatched quotes`, `unmatched
        rate`.
        """
        counts: dict[str, Any] = {"quotes": self.quotes}
        counts |= {f"quotes: {kind}": self.kinds[kind] for kind in KINDS if self.kinds[kind]}
        if self.kinds["fuzzy"]:
            counts["lowest score"] = round(self.lowest, 4)
        return counts | {"unmatched quotes": self.unmatched, "unmatched rate": round(self.rate, 4)}

    def alarm(self, limit: float = USUAL_UNMATCHED) -> str | None:
        """Return the warning if more than this share was not found; None otherwise."""
        if self.rate <= limit:
            return None
        return (
            f"{self.unmatched:,} of {self.quotes:,} quotes ({self.rate:.1%}) were not found in their texts, more than "
            f"{limit:.1%}: look at what is quoted, ask for exact quotes, or set a lower threshold for `fuzzy`"
        )


# -- normalised texts --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Piece:
    """A character as a reader sees it, or a run of white space."""

    text: str
    """Normalised text; never empty."""
    start: int
    end: int
    """Position after the last character of the original that the piece represents."""


@dataclass(frozen=True)
class _Flat:
    """A normalised text and the origins of its pieces."""

    pieces: tuple[_Piece, ...]
    text: str
    begins: dict[int, int]
    """Index of the piece that starts at a position of `text`."""
    ends: dict[int, int]
    """Index of the piece that ends at a position of `text`."""

    def inside(self) -> str:
        """Return the text without white space at either end."""
        pieces = [piece.text for piece in self.pieces]
        if pieces[:1] == [" "]:
            pieces = pieces[1:]
        return "".join(pieces[:-1] if pieces[-1:] == [" "] else pieces)


@lru_cache(maxsize=256)
def _flatten(text: str, ignore_case: bool) -> _Flat:
    pieces: list[_Piece] = []
    for grapheme in regex.finditer(r"\X", text):
        start, end = grapheme.span()
        cluster = _normal(grapheme[0], ignore_case)
        if not cluster:
            continue
        if cluster.isspace():
            cluster = " "
            if pieces and pieces[-1].text == " ":
                start = pieces.pop().start
        pieces.append(_Piece(cluster, start, end))
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    length = 0
    for index, piece in enumerate(pieces):
        begins[length] = index
        length += len(piece.text)
        ends[length] = index
    return _Flat(tuple(pieces), "".join(piece.text for piece in pieces), begins, ends)


def _normal(cluster: str, ignore_case: bool) -> str:
    """Return one form for all encodings of a character: NFKD has the same equivalence classes as NFKC."""
    cluster = unicodedata.normalize("NFKD", cluster).translate(_ALIKE)
    return unicodedata.normalize("NFKD", cluster.casefold()) if ignore_case else cluster


@lru_cache(maxsize=256)
def _edges(text: str) -> frozenset[int]:
    """Return the positions between characters as a reader sees them."""
    return frozenset({0, *(grapheme.end() for grapheme in regex.finditer(r"\X", text))})


# -- the three kinds of matches ----------------------------------------------------------------------------------------------------


def _positions(part: str, text: str) -> Iterable[int]:
    position = text.find(part)
    while position >= 0:
        yield position
        position = text.find(part, position + 1)


def _exact(quote: str, text: str) -> list[Match]:
    matches = [Match(start, start + len(quote), "exact", 1.0) for start in _positions(quote, text)]
    if not matches:
        return []
    edges = _edges(text)
    whole = [match for match in matches if match.start in edges and match.end in edges] or matches
    return _of_whole_words(whole, text)


def _of_whole_words(matches: list[Match], text: str) -> list[Match]:
    """Return the matches that cut no word or number in two; all matches if each of them cuts one."""
    return [match for match in matches if not _cuts(text, match.start) and not _cuts(text, match.end)] or matches


def _cuts(text: str, position: int) -> bool:
    """Return True if a letter, digit or underscore stands on both sides of the position."""
    return position > 0 and regex.match(_IN_A_WORD, text, pos=position - 1) is not None


def _normalised(quote: str, flat: _Flat, text: str) -> list[Match]:
    if not quote:
        return []
    stretches = ((start, start + len(quote)) for start in _positions(quote, flat.text))
    matches = [
        Match(flat.pieces[flat.begins[start]].start, flat.pieces[flat.ends[end]].end, "normalised", 1.0)
        for start, end in stretches
        if start in flat.begins and end in flat.ends
    ]
    return _of_whole_words(matches, text)


def _fuzzy(quote: str, flat: _Flat, threshold: float, *, all_of_them: bool) -> list[Match]:
    """Return the best stretch. To find all stretches, also return the best one to its left and to its right, and so on.
    The best come first.
    """
    owner = [index for index, piece in enumerate(flat.pieces) for _ in piece.text]
    stretches: list[tuple[float, int, int]] = []
    open_ranges = [(0, len(flat.pieces))] if quote else []
    while open_ranges:
        first, last = open_ranges.pop()
        best = _best(quote, flat, owner, first, last, threshold)
        if best is not None:
            stretches.append(best)
            open_ranges += [(first, best[1]), (best[2], last)] if all_of_them else []
    stretches.sort(key=lambda stretch: (-stretch[0], stretch[1]))
    return [
        Match(flat.pieces[first].start, flat.pieces[last - 1].end, "fuzzy", round(score, 4))
        for score, first, last in stretches
    ]


def _best(
    quote: str, flat: _Flat, owner: Sequence[int], first: int, last: int, threshold: float
) -> tuple[float, int, int] | None:
    """Return the stretch of pieces `first:last` most similar to the quote: (similarity, first piece, index behind the
    last piece).

    The most similar stretch of characters is extended to whole pieces, and white space at its ends is removed. It must
    still reach the threshold.
    """
    pieces = flat.pieces
    if first >= last:
        return None
    offset = _start(flat, first)
    text = "".join(piece.text for piece in pieces[first:last])
    found = most_similar(quote, text, threshold)
    if found is None:
        return None
    start, end = found
    low, high = owner[offset + start], owner[offset + end - 1] + 1
    low += pieces[low].text == " "
    high -= pieces[high - 1].text == " "
    score = fuzz.ratio(quote, "".join(piece.text for piece in pieces[low:high])) / 100
    return (score, low, high) if low < high and score >= threshold else None


def _start(flat: _Flat, index: int) -> int:
    """Return the position of a piece in the normalised text."""
    return sum(len(piece.text) for piece in flat.pieces[:index])

"""Differences between two texts, word by word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from fgrl.base import lazy
from fgrl.pages.report.escaping import render

distance = lazy.load("rapidfuzz.distance")

MOST_COMPARED = 20_000
"""Number of characters of a text that are compared, from its start."""
CONTEXT = 160
"""Characters of a long unchanged stretch that are drawn beside a change."""

Change = Literal["same", "removed", "added"]

# A word, or white space, or another character, each with the combining characters and joined emoji that belong to it.
# Scripts without spaces count character by character.
_UNIT = re.compile(
    r"(?:[^\W\u2e80-\u9fff]+|\s+|.)(?:[\u0300-\u036f\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]|(?<=\u200d).)*", re.DOTALL
)
_WORD = re.compile(r"\w")


@dataclass
class Part:
    """Part of a text that is in both texts, only in the first, or only in the second."""

    change: Change
    text: str

    @property
    def html(self) -> Markup:
        """Return the text, escaped, with line ends and hidden characters as marks."""
        return render(self.text)


@dataclass
class Folded:
    """Unchanged part of a text that is not drawn."""

    characters: int
    change: Literal["folded"] = "folded"


def parts(before: str, after: str) -> list[Part]:
    """Return both texts as one sequence of parts: `same` and `removed` together are `before`, `same` and `added`
    together `after`.

    The longest common subsequence of words is `same` (rapidfuzz, Indel). An unchanged part between two changes counts
    as changed if it has no word, or if it is a single word that is shorter than both changes: a rewritten sentence
    would otherwise be split into small pieces. Only the first `MOST_COMPARED` characters of each text are compared.
    """
    old, new = (_UNIT.findall(text[:MOST_COMPARED]) for text in (before, after))
    found: list[Part] = []
    for step in distance.Indel.opcodes(old, new):
        removed, added = "".join(old[step.src_start : step.src_end]), "".join(new[step.dest_start : step.dest_end])
        found += [Part("same", removed)] if step.tag == "equal" else [Part("removed", removed), Part("added", added)]
    found = [part for part in found if part.text]
    return _in_order(_without_islands(_in_order(found)))


def _in_order(every: Iterable[Part]) -> list[Part]:
    """Return the parts with at most one removed part and then at most one added part between two unchanged parts."""
    result: list[Part] = []
    changed: dict[Change, str] = {"removed": "", "added": ""}

    def close() -> None:
        result.extend(Part(change, text) for change, text in changed.items() if text)
        changed.update({"removed": "", "added": ""})

    for part in every:
        if part.change != "same":
            changed[part.change] += part.text
            continue
        close()
        if result and result[-1].change == "same":
            result[-1] = Part("same", result[-1].text + part.text)
        else:
            result.append(part)
    close()
    return result


def _without_islands(every: Sequence[Part]) -> list[Part]:
    """Return the parts with small unchanged parts between two changes turned into changes."""
    result: list[Part] = []
    for place, part in enumerate(every):
        if part.change == "same" and _is_island(
            part.text, every[max(0, place - 2) : place], every[place + 1 : place + 3]
        ):
            result += [Part("removed", part.text), Part("added", part.text)]
        else:
            result.append(part)
    return result


def _is_island(text: str, before: Sequence[Part], after: Sequence[Part]) -> bool:
    changes = [max((len(part.text) for part in side if part.change != "same"), default=0) for side in (before, after)]
    if 0 in changes or "\n" in text:
        return False
    count = words(text)
    return count == 0 or (count == 1 and len(text) < min(changes))


def folded(every: Sequence[Part]) -> list[Part | Folded]:
    """Return the parts, with long unchanged parts cut to the text beside the changes."""
    result: list[Part | Folded] = []
    for place, part in enumerate(every):
        head = "" if place == 0 else _up_to(part.text, CONTEXT)
        tail = "" if place == len(every) - 1 else _up_to(part.text[::-1], CONTEXT)[::-1]
        hidden = len(part.text) - len(head) - len(tail)
        if part.change != "same" or hidden <= CONTEXT:
            result.append(part)
            continue
        result += [Part("same", head)] * bool(head) + [Folded(hidden)] + [Part("same", tail)] * bool(tail)
    return result


def _up_to(text: str, most: int) -> str:
    """Return the first characters of a text, at most `most`, up to a space if there is one."""
    return text[:most].rpartition(" ")[0] or text[:most]


def words(text: str) -> int:
    """Return the number of words of a text, or of characters in scripts without spaces."""
    return sum(bool(_WORD.search(unit)) for unit in _UNIT.findall(text))

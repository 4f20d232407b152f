"""Check that a step of an improvement chain is one edit that addresses one disliked passage (CH-Wang et al. 2025,
section 3).

The paper discards a chain with "multi-edit steps or non-contiguous rewrites" by "a Levenshtein distance heuristic"
whose thresholds it does not give. Here a step is accepted when, compared with the text before it,

1. exactly the tags of the addressed passage are gone, and none are new;
2. the text changed, not only in the number of spaces between words, and at most a share `max_change` of it (normalised Levenshtein distance);
3. everything that changed lies in one window around the passage, which extends at most `reach` beyond it, and in which no more
   than `gap` characters in a row outside the passage stay as they are;
4. the other highlights before and behind the window are in their old places, so the text inside them is unchanged. If a
   highlight overlaps the window, its part inside the window may have changed. Only then may a liked passage lose its
   tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field

from fgrl.base import lazy
from fgrl.registry import Settings
from fgrl.types import Highlight, Marked

distance = lazy.load("rapidfuzz.distance")

TAG_KEPT = "addressed passage still tagged"
OTHER_TAG = "another passage untagged instead"
MORE_TAGS = "several passages untagged"
NEW_TAG = "new highlight"
LIKE_LOST = "liked passage untagged"
UNCHANGED = "unchanged"
TOO_LARGE = "changed too much"
ELSEWHERE = "changed elsewhere"
SEVERAL = "several edits"
TOO_FAR = "reaches too far"
MOVED = "highlight moved"
PROBLEMS = (
    TAG_KEPT, OTHER_TAG, MORE_TAGS, NEW_TAG, LIKE_LOST, UNCHANGED, TOO_LARGE, ELSEWHERE, SEVERAL, TOO_FAR, MOVED
)  # fmt: skip

_SPACES = re.compile(r"[^\S\n]+")
"""White space within a line: a new line may be the edit that was asked for."""


class BrokenStep(ValueError):
    """A step that is not one edit that addresses its passage."""

    def __init__(self, problem: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = problem
        """Problem of the step, one of `PROBLEMS`."""


@dataclass(frozen=True)
class Edit:
    """The characters `start:end` of a text became `start:new_end` of the next one."""

    start: int
    end: int
    new_end: int

    @property
    def shift(self) -> int:
        """Number of characters by which the text behind the edit moved."""
        return self.new_end - self.end


class EditLimits(Settings):
    """Limits of one edit. The paper gives no numbers; the defaults accept a rewritten sentence around a marked word."""

    reach: int = Field(200, ge=0)
    """Number of characters beyond the addressed passage that an edit may extend to, on either side."""
    gap: int = Field(20, ge=0)
    """Number of characters in a row, outside the addressed passage, that may be unchanged between two changes of one
    edit.
    """
    max_change: float = Field(0.5, gt=0, le=1)
    """Maximum share of the response that one step may change (normalised Levenshtein distance, characters)."""

    def check(self, before: Marked, after: Marked, number: int) -> Edit:
        """Return the edit of a step that addresses dislike `number`. Raises `BrokenStep`, with a reason that a model
        can act on.
        """
        lost = _check_tags(before, after, number)
        if same_words(before.text, after.text):
            raise BrokenStep(UNCHANGED, "the text is the one before, but for spaces")
        change = distance.Levenshtein.normalized_distance(before.text, after.text)
        if change > self.max_change:
            raise BrokenStep(TOO_LARGE, f"{change:.0%} of the text changed, and {self.max_change:.0%} may")
        target = before.disliked(number)
        problem: BrokenStep | None = None
        for edit in windows(before.text, after.text, target, self.reach):
            try:
                self._check_window(before.text, after.text, target, edit)
                _check_places(before, after, edit, lost)
            except BrokenStep as broken:
                problem = problem or broken
            else:
                return edit
        raise problem or BrokenStep(TOO_FAR, f"the edit extends more than {self.reach} characters beyond the passage")

    def _check_window(self, before: str, after: str, target: Highlight, edit: Edit) -> None:
        far = max(target.start - edit.start, edit.end - target.end)
        if edit.end - edit.start > LARGEST or edit.new_end - edit.start > LARGEST:
            problem = TOO_FAR if far > self.reach else TOO_LARGE
            raise BrokenStep(problem, f"it changes more than {LARGEST:,} characters from the first change to the last")
        clusters = _clusters(_changes(before, after, edit), (target.start, target.end), self.gap)
        if len(clusters) > 1:
            around = next(changed for changed, has_target in clusters if has_target)
            if around:
                raise BrokenStep(SEVERAL, f"{len(clusters)} separate passages changed, and one step is one edit")
            raise BrokenStep(ELSEWHERE, "the marked passage and what is next to it are unchanged")
        if far > self.reach:
            raise BrokenStep(
                TOO_FAR, f"the edit extends {far} characters beyond the marked passage, and {self.reach} are allowed"
            )


LARGEST = 20_000
"""Maximum length in characters of a window that is compared character by character: the comparison takes memory for the
square of this number.
"""


def same_words(before: str, after: str) -> bool:
    """Return True if two texts differ at most in the number of spaces between words."""
    return _SPACES.sub(" ", before) == _SPACES.sub(" ", after)


def _check_tags(before: Marked, after: Marked, number: int) -> list[Highlight]:
    """Return the liked passages that lost their tags."""
    names = {one.key: str(one) for marked in (before, after) for one in marked.highlights}
    gone, new = before.keys() - after.keys(), after.keys() - before.keys()
    dislikes = {key for key in gone if key[0] == "dislike"}
    others = ", ".join(sorted(names[key] for key in dislikes - {("dislike", number)}))
    if new:
        raise BrokenStep(NEW_TAG, f"{', '.join(sorted(names[key] for key in new))} was not marked before this step")
    if ("dislike", number) not in gone:
        if others:
            raise BrokenStep(OTHER_TAG, f"it should untag dislike {number}, and untags {others}")
        raise BrokenStep(TAG_KEPT, f"dislike {number} still has its tags")
    if others:
        raise BrokenStep(MORE_TAGS, f"it should untag dislike {number} alone, and also untags {others}")
    return [one for one in before.highlights if one.key in gone - dislikes]


def windows(before: str, after: str, target: Highlight, reach: int) -> Iterator[Edit]:
    """Yield every smallest window of `before` that contains the target and outside which `after` is the same text.

    There are several windows only if the deleted text has an equal copy beside it: the two texts do not show which copy
    was deleted. The windows that extend at most `reach` beyond the target are then yielded, or a single one that
    extends further if none of them does.
    """
    prefix = min(_common_prefix(before, after), target.start)
    suffix = min(_common_prefix(before[::-1], after[::-1]), len(before) - target.end)
    excess = max(0, prefix + suffix - len(after))
    least = max(0, target.start - prefix)
    beyond = max(0, len(before) - suffix - target.end)
    choices = [given for given in range(excess + 1) if least + given <= reach and beyond + excess - given <= reach]
    for given in choices or [0]:
        start, end = prefix - given, len(before) - suffix + excess - given
        yield Edit(start, end, end + len(after) - len(before))


def _common_prefix(one: str, other: str) -> int:
    """Return the number of characters at the beginning of both texts that are equal."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _changes(before: str, after: str, edit: Edit) -> list[tuple[int, int]]:
    """Return the characters of `before` that an edit replaces or deletes. An insertion is the place where it happens
    (start = end).
    """
    codes = distance.Levenshtein.opcodes(before[edit.start : edit.end], after[edit.start : edit.new_end])
    return [(edit.start + one.src_start, edit.start + one.src_end) for one in codes if one.tag != "equal"]


def _clusters(changes: list[tuple[int, int]], target: tuple[int, int], gap: int) -> list[tuple[bool, bool]]:
    """Return a pair for each cluster of changes and the target that are at most `gap` apart: whether the cluster has a
    change, and whether it has the target.
    """
    clusters: list[tuple[bool, bool]] = []
    reached = 0
    for (start, end), is_change in sorted([*((change, True) for change in changes), (target, False)]):
        if clusters and start - reached <= gap:
            has_change, has_target = clusters[-1]
            clusters[-1] = has_change or is_change, has_target or not is_change
        else:
            clusters.append((is_change, not is_change))
        reached = max(reached, end)
    return clusters


def _check_places(before: Marked, after: Marked, edit: Edit, lost: list[Highlight]) -> None:
    """Raise `BrokenStep` if another highlight is not at its right place after the edit."""
    places = {one.key: one for one in after.highlights}
    for one in before.highlights:
        new = places.get(one.key)
        if new is None:
            if one in lost and not (one.start <= edit.end and edit.start <= one.end):
                raise BrokenStep(LIKE_LOST, f"{one} lost its tags, and the edit does not touch it")
            continue
        if not (_start_fits(one, new.start, edit) and _end_fits(one, new.end, edit)):
            raise BrokenStep(MOVED, f"{one} does not mark the same text as before")


def _start_fits(one: Highlight, new: int, edit: Edit) -> bool:
    if one.start < edit.start:
        return new == one.start
    if one.start > edit.end or (one.start == edit.end and edit.start < edit.end and one.start < one.end):
        return new == one.start + edit.shift
    return edit.start <= new <= edit.new_end


def _end_fits(one: Highlight, new: int, edit: Edit) -> bool:
    if one.end > edit.end:
        return new == one.end + edit.shift
    if one.end < edit.start or (one.end == edit.start and edit.start < edit.end and one.start < one.end):
        return new == one.end
    return edit.start <= new <= edit.new_end


# -- where highlights go -----------------------------------------------------------------------------------------------


def replaced(marked: Marked, number: int, start: int, end: int, text: str) -> Marked:
    """Return the next step of a chain: the characters `start:end` become `text`, dislike `number` loses its tags, and
    the other highlights stay with their text.

    If a highlight overlaps the changed text in part, the rest of it remains marked. A highlight inside the changed text
    marks all of the new text.
    """
    target = marked.disliked(number)
    whole = marked.text[:start] + text + marked.text[end:]
    first, last = min(start, target.start), max(end, target.end)
    edits = windows(marked.text, whole, target, len(marked.text))
    edit = next(one for one in edits if first <= one.start and one.end <= last)

    def moved(one: Highlight) -> Highlight:
        if edit.start <= one.start < edit.end and edit.start < one.end <= edit.end and one.start < one.end:
            return one.at(edit.start, edit.new_end)  # inside
        begin = one.start if one.start <= edit.start else max(one.start, edit.end) + edit.shift
        close = one.end + edit.shift if one.end >= edit.end else min(one.end, edit.start)
        return one.at(*(begin, close) if begin <= close else (edit.start, edit.start))

    return Marked.of(whole, (moved(one) for one in marked.highlights if one.key != target.key))


def with_ends_of(original: str, marked: Marked) -> Marked:
    """Return the step with the white space that the original has at its ends: models omit it."""
    body = original.strip()
    lead, tail = original[: original.index(body)], original[original.index(body) + len(body) :]
    text = marked.text.strip()
    shift = len(lead) - (len(marked.text) - len(marked.text.lstrip()))
    whole = lead + text + tail

    def place(old: int) -> int:
        return min(max(old + shift, 0), len(whole))

    return Marked.of(whole, (one.at(place(one.start), place(one.end)) for one in marked.highlights))

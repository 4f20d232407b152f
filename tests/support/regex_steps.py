"""A backtracking matcher that counts its steps: how much work a pattern of `re` is, without a clock."""

from __future__ import annotations

import re
from collections.abc import Callable
from re import _constants as op
from re import _parser as parser
from typing import Any

Then = Callable[[int], int | None]
"""Matches what follows; the end of the whole match, or None."""
REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
SINGLE = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)
CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_SPACE: r"\s", op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


class Matcher:
    """One pattern on one text, matched as `re` does: from left to right, the first alternative first."""

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self.tree, self.flags, self.text, self.steps = (
            parser.parse(pattern.pattern, pattern.flags),
            pattern.flags,
            text,
            0,
        )

    def find_all(self, anchored: bool = False) -> list[tuple[int, int]]:
        """What `finditer` finds; anchored: what `match` finds."""
        result, at = [], 0
        while at <= len(self.text):
            end = self._run(list(self.tree), at, lambda place: place)
            if end is not None:
                result.append((at, end))
            if anchored:
                break
            at = end if end is not None and end > at else at + 1
        return result

    def _run(self, nodes: list[Any], at: int, then: Then) -> int | None:
        if not nodes:
            return then(at)
        (kind, value), rest = nodes[0], nodes[1:]

        def after(place: int) -> int | None:
            return self._run(rest, place, then)

        if kind in SINGLE:
            return after(at + 1) if self._fits(kind, value, at) else None
        if kind == op.AT:
            return after(at) if self._is_at(value, at) else None
        if kind == op.SUBPATTERN:
            return self._run(list(value[-1]), at, after)
        if kind == op.BRANCH:
            return next((end for branch in value[1] if (end := self._run(list(branch), at, after)) is not None), None)
        if kind in (op.ASSERT, op.ASSERT_NOT):
            start = at if value[0] > 0 else at - value[1].getwidth()[0]
            held = start >= 0 and self._run(list(value[1]), start, lambda place: place) is not None
            return after(at) if held == (kind == op.ASSERT) else None
        assert kind in REPEATS, kind
        return self._repeat(kind, *value, at, after)

    def _repeat(self, kind: Any, low: int, high: Any, body: Any, at: int, after: Then) -> int | None:
        ends, place = [at], at
        while len(ends) <= high:  # bodies have no choice of their own here: each repetition ends at one place
            end = self._run(list(body), place, lambda reached: reached)
            if end is None or end == place:
                break
            ends.append(place := end)
        reached = ends[low:]
        if kind == op.POSSESSIVE_REPEAT:
            return after(reached[-1]) if reached else None
        order = reached if kind == op.MIN_REPEAT else reached[::-1]
        return next((end for place in order if (end := after(place)) is not None), None)

    def _fits(self, kind: Any, value: Any, at: int) -> bool:
        self.steps += 1
        if at >= len(self.text):
            return False
        character = self.text[at]
        if kind == op.ANY:
            return character != "\n" or bool(self.flags & re.DOTALL)
        cases = {character, character.lower(), character.upper()} if self.flags & re.IGNORECASE else {character}
        if kind == op.LITERAL:
            return chr(value) in cases
        if kind == op.NOT_LITERAL:
            return chr(value) not in cases
        negated = value[0][0] == op.NEGATE
        return any(_in_class(item, case) for item in value for case in cases if item[0] != op.NEGATE) != negated

    def _is_at(self, where: Any, at: int) -> bool:
        self.steps += 1
        if where == op.AT_BEGINNING:
            return at == 0 or bool(self.flags & re.MULTILINE and self.text[at - 1] == "\n")
        if where == op.AT_END:
            return self.text[at:] in ("", "\n") or bool(self.flags & re.MULTILINE and self.text[at] == "\n")
        assert where == op.AT_BOUNDARY, where
        return bool(re.compile(r"\b").match(self.text, at))


def _in_class(item: Any, character: str) -> bool:
    kind, value = item
    if kind == op.LITERAL:
        return chr(value) == character
    if kind == op.RANGE:
        return value[0] <= ord(character) <= value[1]
    return re.match(CATEGORIES[value], character) is not None


def literals(pattern: re.Pattern[str]) -> list[str]:
    """Characters that the pattern names."""
    named: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, parser.SubPattern):
            node = list(node)
        if isinstance(node, tuple) and len(node) == 2 and node[0] in (op.LITERAL, op.NOT_LITERAL):
            named.append(chr(node[1]))
        elif isinstance(node, tuple | list):
            for inner in node:
                visit(inner)

    visit(parser.parse(pattern.pattern, pattern.flags))
    return list(dict.fromkeys(named))

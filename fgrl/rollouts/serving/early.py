"""Criteria that end a response early, applied to the token ids of a response in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.feedback.llm.json_object import first_object

if TYPE_CHECKING:
    from fgrl import rollouts
    from fgrl.kinds import Early
else:
    rollouts = lazy.load("fgrl.rollouts")

Complete = Callable[[Sequence[int]], bool]
"""Test whether the last of the token ids of a response completes it."""


def complete(early: Early, tokenizer: Any) -> Complete:
    """Return the test of `early` for token ids of a tokenizer."""

    @cache
    def closes(token: int) -> bool:
        return "}" in tokenizer.decode([token])

    def test(ids: Sequence[int]) -> bool:
        if ids[-1] in early.ids:
            return True
        if early.json_object and closes(ids[-1]) and first_object(rollouts.decode(tokenizer, ids)) is not None:
            return True
        if not early.strings:
            return False
        text = rollouts.decode(tokenizer, ids)
        return any(string in text for string in early.strings)

    return test

"""Held-out prompts that a model was trained on: they are found and reported, refused or left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fgrl.base import lazy
from fgrl.base.errors import DataError
from fgrl.types import Message

trained_prompts = lazy.load("fgrl.rollouts.trained_prompts")

OverlapPolicy = Literal["warn", "refuse", "drop"]
ADVICE = "evaluate on prompts that no training reads (`skip`, `limit`), or set `overlap: drop`, which leaves these out"


@dataclass(frozen=True)
class HeldOutItem:
    """Item to measure on, with its prompt."""

    item: Any
    digests: tuple[int, int]
    """Digests of the prompt: `fgrl.rollouts.trained_prompts.digests`."""
    text: str
    """Beginning of the prompt, for messages."""

    @classmethod
    def of(cls, item: Any, prompt: str | list[Message]) -> HeldOutItem:
        text = prompt if isinstance(prompt, str) else prompt[-1].content
        return cls(item, trained_prompts.digests(prompt), text)

    def is_among(self, known: Collection[int]) -> bool:
        return any(digest in known for digest in self.digests)


def seen(items: Sequence[HeldOutItem], known: Collection[int]) -> str:
    """Return the number of prompts that match the digests, with the first of them; empty if there are none. As in `3 of
    the 64 prompts that it is evaluated on (2 word for word, 1 up to case, spaces and final punctuation), such as
    "Why?"`.
    """
    shared = [item for item in items if item.is_among(known)]
    if not shared:
        return ""
    exact = sum(item.digests[0] in known for item in shared)
    kinds = [f"{exact:,} word for word"] * bool(exact)
    kinds += [f"{len(shared) - exact:,} up to case, spaces and final punctuation"] * (exact < len(shared))
    text = json.dumps(shared[0].text, ensure_ascii=False)
    example = text if len(text) <= 90 else f"{text[:89]}…"
    return (
        f"{len(shared):,} of the {len(items):,} prompts that it is evaluated on ({', '.join(kinds)}), such as {example}"
    )


def settle(
    policy: OverlapPolicy,
    known: Mapping[str, Collection[int]],
    items: Sequence[HeldOutItem],
    say: Callable[[str], None],
) -> list[Any]:
    """Return the items to measure on.

    known: digests of the prompts that each model was trained on, by the model's name. `warn` reports the prompts that
    are among them and keeps all; `drop` leaves out the prompts that any of the models was trained on. Raises
    `DataError` with `refuse`, and if no item is left.
    """
    for name, digests in known.items() if policy != "drop" else ():
        if words := seen(items, digests):
            if policy == "refuse":
                raise DataError(f"{name} was trained on {words}, and `overlap: refuse` forbids that: {ADVICE}")
            say(f"warning: {name} was trained on {words}, so its numbers say little about other prompts: {ADVICE}")
    if policy != "drop":
        return [item.item for item in items]
    kept = [item.item for item in items if not any(item.is_among(digests) for digests in known.values())]
    if len(kept) < len(items):
        say(f"overlap: left out {len(items) - len(kept):,} of {len(items):,} held-out prompts, which were trained on")
    if items and not kept:
        raise DataError(
            "all held-out prompts were trained on, so `overlap: drop` leaves nothing to measure: hold others out"
        )
    return kept

"""What makers of negatives share: which criterion is broken, the form of the new sample, and what a rule says of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

from fgrl.kinds import Verifier
from fgrl.types import Criterion, Response, Sample

RUBRIC = Literal["whole", "broken"]
Told = Literal["broken", "kept", "undecided", "unknown"]
"""What is known of a criterion in a response; `unknown`: no rule can say."""


def told(rule: Verifier | None, response: str) -> Told:
    """What the rule of a criterion says of a response; `unknown` without a rule."""
    if rule is None:
        return "unknown"
    kept = rule.verdict(response)
    return "undecided" if kept is None else "kept" if kept else "broken"


def drawn(items: Sequence[int], count: int | None, seed: int, owner: str) -> list[int]:
    """Some of the items, in order; None takes all. The draw hangs on the seed and on `owner` alone."""
    if count is None:
        return list(items)

    def lot(item: int) -> bytes:
        return hashlib.blake2b(f"{seed}\n{owner}\n{item}".encode("utf-8", "surrogatepass"), digest_size=8).digest()

    return sorted(sorted(items, key=lot)[:count])


def negative(
    sample: Sample, response: str, number: int, how: str, *, made_of: str, rubric: RUBRIC, certain: bool, **more: Any
) -> Sample:
    """A sample with a response that breaks (or was written without) criterion `number` of the rubric.

    `meta` gets `negative` (how it was made), `broken` (the criterion's text), `criterion` (its number), `from` (the id of what
    it was made of), `certain` (a rule says that it is broken), and `more`.
    """
    broken = sample.rubric[number]
    about = {
        "negative": how,
        "broken": broken.text,
        "criterion": number,
        "from": made_of,
        "certain": certain,
        **more,
    }
    return sample.only_with(
        Response(text=response),
        id=f"{made_of}/{how}/{number}",
        rubric=list(sample.rubric) if rubric == "whole" else [broken],
        meta={**sample.meta, **about},
    )


def beside(samples: Sequence[Sample], made: Sequence[Sequence[Sample]], *, originals: bool) -> list[Sample]:
    """Each sample (when they are kept) followed by the negatives that were made of it."""
    return [one for sample, some in zip(samples, made, strict=True) for one in [*([sample] * originals), *some]]


def listed(rubric: Sequence[Criterion]) -> str:
    """Criteria as a prompt shows them: numbered, one a line."""
    return "\n".join(f"{number}. {one.text.strip()}" for number, one in enumerate(rubric, start=1)) or "(none)"

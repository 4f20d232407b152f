"""Common parts of makers of negatives: responses that break one criterion of a rubric, each in a separate sample."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from fgrl.feedback.asking_annotator import AskingAnnotator
from fgrl.kinds import Verifier
from fgrl.types import Criterion, Response, Sample

Status = Literal["broken", "kept", "undecided", "unknown"]
"""State of a criterion in a response; `unknown`: no rule can decide it."""


def status(rule: Verifier | None, response: str) -> Status:
    """Return the verdict of a criterion's rule on a response; `unknown` without a rule."""
    if rule is None:
        return "unknown"
    kept = rule.verdict(response)
    return "undecided" if kept is None else "kept" if kept else "broken"


def draw(items: Sequence[int], count: int | None, seed: int, owner: str) -> list[int]:
    """Return `count` of the items, in order; None takes all. The draw depends on the seed and on `owner` alone."""
    if count is None:
        return list(items)

    def lot(item: int) -> bytes:
        return hashlib.blake2b(f"{seed}\n{owner}\n{item}".encode("utf-8", "surrogatepass"), digest_size=8).digest()

    return sorted(sorted(items, key=lot)[:count])


def listed(rubric: Sequence[Criterion]) -> str:
    """Return the criteria as a prompt shows them: numbered, one per line."""
    return (
        "\n".join(f"{number}. {criterion.text.strip()}" for number, criterion in enumerate(rubric, start=1)) or "(none)"
    )


@dataclass(frozen=True)
class Target:
    """A criterion of a sample's rubric that a negative is to break."""

    owner: int
    """Place of the sample among the given samples."""
    sample: Sample
    number: int
    """Place of the criterion in the rubric."""
    rule: Verifier | None
    """Rule that decides the criterion; None if there is none."""
    made_of: str
    """Identifier of the sample or response that the negative is made of."""
    response: str = ""
    """The response to change; empty if a new one is written."""

    @property
    def criterion(self) -> Criterion:
        return self.sample.rubric[self.number]

    def status(self, response: str) -> Status:
        """Return the state of the criterion in a response."""
        return status(self.rule, response)


class NegativeMaker(AskingAnnotator):
    """Maker of negatives: it asks for responses that break a criterion, and puts each into a separate sample."""

    rubric: Literal["whole", "broken"] = "whole"
    """Criteria of a negative: the whole rubric, or only the criterion that it was made to break."""
    keep_originals: bool = True
    """Also return the given samples, each before its negatives."""
    seed: int = Field(0, ge=0)
    """Random seed of the draw of criteria."""
    max_tokens: int | None = Field(4096, ge=1)

    def negative(self, target: Target, response: str, how: str, *, certain: bool, **more: Any) -> Sample:
        """Return a sample with a response that breaks (or was written without) the target's criterion.

        `meta` gets `negative` (how it was made), `broken` (the criterion's text), `criterion` (its number), `from` (the
        id of the sample or response that it was made of), `certain` (a rule decided that it is broken), and `more`.
        """
        about = {
            "negative": how,
            "broken": target.criterion.text,
            "criterion": target.number,
            "from": target.made_of,
            "certain": certain,
            **more,
        }
        return target.sample.only_with(
            Response(text=response),
            id=f"{target.made_of}/{how}/{target.number}",
            rubric=list(target.sample.rubric) if self.rubric == "whole" else [target.criterion],
            meta={**target.sample.meta, **about},
        )

    def with_originals(self, samples: Sequence[Sample], negatives: Iterable[tuple[Target, Sample]]) -> list[Sample]:
        """Return each given sample (if `keep_originals` is set), followed by its negatives."""
        groups = [[sample] if self.keep_originals else [] for sample in samples]
        for target, sample in negatives:
            groups[target.owner].append(sample)
        return [sample for group in groups for sample in group]

"""Preference pairs from the answers of two stages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fgrl.base.errors import DataError
from fgrl.data.sliced_reader import SlicedReader
from fgrl.registry import register
from fgrl.types import Pair, Ref, Sample, Samples


@register("versus")
class Versus(SlicedReader):
    """The answers of one stage are preferred to those of another, prompt by prompt:
    `{name: versus, better: "${out:strong}", worse: "${out:weak}"}`.

    An answer is a sample's chosen response, or else its first one. Prompts that only one stage answers, or that both
    answer with the same text, make no pair and are counted.
    """

    better: Ref[Samples]
    """The stage with the preferred answers."""
    worse: Ref[Samples]
    """The stage with the rejected answers."""

    def read(self) -> Iterator[Sample]:
        raise DataError(
            "the reader 'versus' has pairs, not samples: read one of its stages with {name: samples, of: ...}"
        )

    def pairs(self) -> Iterator[Pair]:
        better, worse = (_by_id(self.product(ref), ref) for ref in (self.better, self.worse))
        pairs = [
            Pair(id=key, prompt=sample.prompt, chosen=chosen, rejected=rejected)
            for key, sample in better.items()
            if key in worse
            and (chosen := _answer_of(sample)) is not None
            and (rejected := _answer_of(worse[key])) is not None
            and chosen != rejected
        ]
        alone = len(better.keys() ^ worse.keys())
        self.say(
            f"versus: {len(pairs):,} pairs; {alone:,} prompts only one side has; "
            f"{len(better.keys() & worse.keys()) - len(pairs):,} with the same answer twice or none"
        )
        return (pairs[row] for row in self.chosen(len(pairs), f"{self.better} versus {self.worse}"))


def _by_id(folder: Path, ref: Ref[Samples]) -> dict[str, Sample]:
    """Return a stage's samples by their ids. Raise `DataError` if two have the same id."""
    samples: dict[str, Sample] = {}
    for sample in Samples(folder).read():
        if sample.id in samples:
            raise DataError(
                f"{ref} has two samples {sample.id!r}: versus pairs them by id, so each prompt may be there once"
            )
        samples[sample.id] = sample
    return samples


def _answer_of(sample: Sample) -> str | None:
    """Return the text of the chosen response, or else of the first one."""
    return sample.responses[sample.chosen or 0].text if sample.responses else None

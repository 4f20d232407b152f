"""What another stage of the recipe made, as data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from fgrl.data.pairs import as_sample
from fgrl.data.sliced import Sliced
from fgrl.errors import DataError
from fgrl.kinds import Expected, Peek
from fgrl.registry import register
from fgrl.types import Pair, Pairs, Ref, Sample, Samples


@register("samples")
class SamplesReader(Sliced):
    """The samples that another stage made: `{name: samples, of: "${out:stage}"}`."""

    of: Ref[Samples]
    """The stage."""

    _folder: Path | None = PrivateAttr(default=None)

    def setup(self, run: Any) -> None:
        super().setup(run)
        self._folder = run.path(self.of)

    def expects(self, peek: Peek) -> Expected | None:
        expected = peek.expects(self.of)
        return None if expected is None else expected.after(self.skip, self.limit)

    def read(self) -> Iterator[Sample]:
        assert self._folder is not None, "setup(run) comes first"
        samples = list(Samples(self._folder).read())
        return (samples[row] for row in self.chosen(len(samples), repr(self.of)))


@register("pairs")
class PairsReader(Sliced):
    """The preference pairs that another stage made: `{name: pairs, of: "${out:stage}"}`.

    Read as samples, the rejected response comes first, then the chosen one.
    """

    of: Ref[Pairs]
    """The stage."""

    _folder: Path | None = PrivateAttr(default=None)

    def setup(self, run: Any) -> None:
        super().setup(run)
        self._folder = run.path(self.of)

    def pairs(self) -> Iterator[Pair]:
        assert self._folder is not None, "setup(run) comes first"
        pairs = list(Pairs(self._folder).read())
        return (pairs[row] for row in self.chosen(len(pairs), repr(self.of)))

    def read(self) -> Iterator[Sample]:
        return map(as_sample, self.pairs())


@register("versus")
class Versus(Sliced):
    """The answers of one stage are preferred to those of another, prompt by prompt:
    `{name: versus, better: "${out:strong}", worse: "${out:weak}"}`.

    An answer is a sample's chosen response, or else its first one. Prompts that only one side has, or that both answer with
    the same text, make no pair and are counted.
    """

    better: Ref[Samples]
    """The stage whose answers are preferred."""
    worse: Ref[Samples]
    """The stage whose answers are not."""

    _folders: tuple[Path, Path] | None = PrivateAttr(default=None)

    def setup(self, run: Any) -> None:
        super().setup(run)
        self._folders = run.path(self.better), run.path(self.worse)

    def expects(self, peek: Peek) -> Expected | None:
        sides = [peek.expects(self.better), peek.expects(self.worse)]
        known = [side.samples for side in sides if side is not None]
        return Expected(min(known)).after(self.skip, self.limit) if known else None

    def read(self) -> Iterator[Sample]:
        raise DataError(
            "the reader 'versus' has pairs, not samples: read one of its stages with {name: samples, of: ...}"
        )

    def pairs(self) -> Iterator[Pair]:
        assert self._folders is not None, "setup(run) comes first"
        better, worse = (
            by_id(folder, ref) for folder, ref in zip(self._folders, (self.better, self.worse), strict=True)
        )
        found = [
            Pair(id=key, prompt=sample.prompt, chosen=good, rejected=bad)
            for key, sample in better.items()
            if key in worse
            and (good := answer(sample)) is not None
            and (bad := answer(worse[key])) is not None
            and good != bad
        ]
        alone = len(better.keys() ^ worse.keys())
        self.say(
            f"versus: {len(found):,} pairs; {alone:,} prompts only one side has; "
            f"{len(better.keys() & worse.keys()) - len(found):,} with the same answer twice or none"
        )
        return (found[row] for row in self.chosen(len(found), f"{self.better} versus {self.worse}"))


def by_id(folder: Path, ref: Ref[Samples]) -> dict[str, Sample]:
    """A stage's samples by their ids. Raises `DataError` when two have the same."""
    found: dict[str, Sample] = {}
    for sample in Samples(folder).read():
        if sample.id in found:
            raise DataError(
                f"{ref} has two samples {sample.id!r}: versus pairs them by id, so each prompt may be there once"
            )
        found[sample.id] = sample
    return found


def answer(sample: Sample) -> str | None:
    """The text of the chosen response, or else of the first one."""
    return sample.responses[sample.chosen or 0].text if sample.responses else None

"""Samples and pairs from another stage of the recipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fgrl.data.formats.converter import as_sample
from fgrl.data.sliced_reader import SlicedReader
from fgrl.kinds import Expected, Peek
from fgrl.registry import register
from fgrl.types import Pair, Pairs, Ref, Sample, Samples


class _OfStage(SlicedReader):
    of: Ref[Any]

    def expects(self, peek: Peek) -> Expected | None:
        expected = peek.expects(self.of)
        return super().expects(peek) if expected is None else expected.after(self.skip, self.limit)


@register("samples")
class SamplesReader(_OfStage):
    """Reader of the samples of another stage: `{name: samples, of: "${out:stage}"}`."""

    of: Ref[Samples]
    """The stage whose samples are read."""

    def read(self) -> Iterator[Sample]:
        samples = list(Samples(self.product(self.of)).read())
        return (samples[row] for row in self.chosen(len(samples), repr(self.of)))


@register("pairs")
class PairsReader(_OfStage):
    """Reader of the preference pairs of another stage: `{name: pairs, of: "${out:stage}"}`.

    If they are read as samples, the rejected response comes first, then the chosen one.
    """

    of: Ref[Pairs]
    """The stage whose pairs are read."""

    def pairs(self) -> Iterator[Pair]:
        pairs = list(Pairs(self.product(self.of)).read())
        return (pairs[row] for row in self.chosen(len(pairs), repr(self.of)))

    def read(self) -> Iterator[Sample]:
        return map(as_sample, self.pairs())

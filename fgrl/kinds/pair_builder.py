"""Pair builders, which make preference pairs of the responses of a sample."""

from __future__ import annotations

from abc import ABC, abstractmethod

from fgrl.registry import Component, kind
from fgrl.types import Pair, Sample


@kind("pair_builder")
class PairBuilder(Component, ABC):
    """Pair builder: it makes preference pairs of a sample's responses."""

    @abstractmethod
    def build(self, sample: Sample) -> list[Pair]:
        """Return the pairs of one prompt, possibly none."""

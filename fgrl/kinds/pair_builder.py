"""Pair builders: preference pairs of the responses of a sample."""

from __future__ import annotations

from abc import ABC, abstractmethod

from fgrl.registry import Component, kind
from fgrl.types import Pair, Sample


@kind("pair_builder")
class PairBuilder(Component, ABC):
    """Makes preference pairs of a sample's responses."""

    @abstractmethod
    def build(self, sample: Sample) -> list[Pair]:
        """Pairs of one prompt, possibly none."""

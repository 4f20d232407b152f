"""Normalizers: they centre and scale segment rewards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from fgrl.registry import Component, kind
from fgrl.types import Ref, Stats

if TYPE_CHECKING:
    from torch import Tensor


@kind("normalizer")
class Normalizer(Component, ABC):
    """Centres and scales segment rewards."""

    needs_fit: ClassVar[bool] = True

    fitted: Ref[Stats] | None = None
    """The statistics to apply: `${out:stage}` of a `calibrate` stage."""

    def ready(self) -> bool:
        """Can `apply` be called: is no fit needed, or does the recipe specify one?"""
        return not self.needs_fit or self.fitted is not None

    @abstractmethod
    def fit(self, rewards: Tensor, locations: Tensor, valid: Tensor) -> dict[str, Any]:
        """Statistics of calibration rewards: `rewards`, `locations`, `valid` [B,S]. JSON-ready."""

    @abstractmethod
    def apply(self, rewards: Tensor, locations: Tensor, valid: Tensor, stats: Mapping[str, Any] | None) -> Tensor:
        """Normalized rewards, shaped as `rewards`; 0 where not valid. `stats` is what `fit` returned."""

"""Normalizers, which centre and scale segment rewards."""

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
    """Normalizer that centres and scales segment rewards."""

    needs_fit: ClassVar[bool] = True

    fitted: Ref[Stats] | None = None
    """The statistics to apply: `${out:stage}` of a `calibrate` stage."""

    def ready(self) -> bool:
        """Return True if `apply` can be called: no fit is needed, or the recipe names the statistics."""
        return not self.needs_fit or self.fitted is not None

    @abstractmethod
    def fit(self, rewards: Tensor, locations: Tensor, valid: Tensor) -> dict[str, Any]:
        """Return statistics of calibration rewards, ready for JSON. `rewards`, `locations` and `valid` are [B,S]."""

    @abstractmethod
    def apply(self, rewards: Tensor, locations: Tensor, valid: Tensor, stats: Mapping[str, Any] | None) -> Tensor:
        """Return normalized rewards with the shape of `rewards`; 0 if not valid. `stats` is a result of `fit`."""

"""Rewards without normalization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import model_validator

from fgrl.base import lazy
from fgrl.kinds import Normalizer
from fgrl.registry import register

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")


@register("none")
class NoNormalizer(Normalizer):
    """Leaves rewards unchanged ("No Reward Normalization" of the segment paper's Table 5)."""

    needs_fit: ClassVar[bool] = False

    @model_validator(mode="after")
    def _check(self) -> NoNormalizer:
        if self.fitted is not None:
            raise ValueError("the normalizer `none` does not use `fitted`; remove it or choose another normalizer")
        return self

    def fit(self, rewards: Tensor, locations: Tensor, valid: Tensor) -> dict[str, Any]:
        """Return the name of the normalizer: there is nothing to fit."""
        return {"normalizer": "none"}

    def apply(self, rewards: Tensor, locations: Tensor, valid: Tensor, stats: Mapping[str, Any] | None) -> Tensor:
        """Return `rewards` [B,S], with 0 where not valid."""
        return torch.where(valid, rewards, torch.zeros_like(rewards))

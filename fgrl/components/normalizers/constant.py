"""One mean and one standard deviation for all rewards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, model_validator

from fgrl.base import lazy
from fgrl.base.errors import DataError
from fgrl.kinds import Normalizer
from fgrl.registry import register
from fgrl.rollouts.calibration import calibration_rewards, fit_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")


class Constant(Normalizer):
    """(r - mean) / std with the statistics of calibration rewards (segment paper, appendix H)."""

    label: ClassVar[str]

    mean: float | None = None
    """Fixed mean, instead of a fit; requires `std`."""
    std: float | None = Field(None, gt=0, le=1e6)
    """Fixed standard deviation, instead of a fit; requires `mean`."""
    min_std: float = Field(1e-3, gt=0, le=1e6)
    """Lower bound of the standard deviation, which prevents a division by 0 if all rewards are equal."""

    @model_validator(mode="after")
    def _check(self) -> Constant:
        if (self.mean is None) != (self.std is None):
            raise ValueError("`mean` and `std` go together: give both, or fit them with a `calibrate` stage")
        if self.mean is not None and self.fitted is not None:
            raise ValueError("`mean` and `std` are set, and `fitted` too: remove either")
        return self

    def ready(self) -> bool:
        return self.mean is not None or super().ready()

    @abstractmethod
    def chosen(self, valid: Tensor) -> Tensor:
        """Return a mask of the rewards that count, bool [B,S]."""

    def fit(self, rewards: Tensor, locations: Tensor, valid: Tensor) -> dict[str, Any]:
        """Return mean and population standard deviation. Raise `DataError` if there is no reward or one is not finite."""
        if self.mean is not None:
            raise DataError(f"the {self.label} normalizer has its `mean` and `std`: there is nothing to calibrate")
        chosen = self.chosen(valid)
        values = calibration_rewards(rewards, chosen)
        return {
            "normalizer": self.label,
            "mean": float(values.mean()),
            "std": float(values.std(correction=0)),
            "min_std": self.min_std,
            "rewards": len(values),
            "responses": int(chosen.any(dim=1).sum()),
        }

    def apply(self, rewards: Tensor, locations: Tensor, valid: Tensor, stats: Mapping[str, Any] | None) -> Tensor:
        """Return (r - mean) / max(std, min_std), [B,S]; 0 where not valid. Raise `DataError` without a fit of this
        kind.
        """
        if self.mean is not None and self.std is not None:
            mean, std = self.mean, self.std
        else:
            fit = fit_of(self.label, stats)
            mean, std = fit["mean"], fit["std"]
        return torch.where(valid, (rewards - mean) / max(std, self.min_std), torch.zeros_like(rewards))


@register("global")
class Global(Constant):
    """Centers and scales by the statistics of all segment rewards ("Global Statistics of All" of Table 5).

    With the segmenter `bandit`, which makes one segment per response, this is the classical normalizer of RLHF.
    """

    label: ClassVar[str] = "global"

    def chosen(self, valid: Tensor) -> Tensor:
        return valid


@register("last")
class Last(Constant):
    """Centers and scales by the statistics of each response's last segment ("Statistics of the Last Rewards")."""

    label: ClassVar[str] = "last"

    def chosen(self, valid: Tensor) -> Tensor:
        return valid & (valid.long().cumsum(dim=1) == valid.sum(dim=1, keepdim=True))

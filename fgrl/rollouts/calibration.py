"""Calibration of normalizers: the rewards for the fit, and the check of a fit before its use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fgrl.base.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor


def calibration_rewards(rewards: Tensor, chosen: Tensor) -> Tensor:
    """Return the chosen rewards [N], float64 on the CPU. Raises `DataError` if there are none, or if one is not finite.

    rewards: [B,S]; chosen: bool [B,S].
    """
    values = rewards[chosen].detach().double().cpu()
    if not len(values):
        raise DataError("no segment rewards to calibrate on: the calibration data has no response with a segment")
    not_finite = int((~values.isfinite()).sum())
    if not_finite:
        raise DataError(
            f"{not_finite} of {len(values)} calibration rewards are NaN or infinite: check the reward model"
        )
    return values


def fit_of(normalizer: str, stats: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return `stats`, if they are a fit of the normalizer with this name. Raises `DataError` for no fit and for a fit
    of another normalizer.
    """
    if stats is None:
        raise DataError(
            f"the {normalizer} normalizer has no fit: run a stage `name: calibrate` with `normalizer: {normalizer}`, "
            "and set `fitted: ${out:that stage}` in this normalizer"
        )
    if stats.get("normalizer") != normalizer:
        raise DataError(
            f"the {normalizer} normalizer was given a fit of {stats.get('normalizer')!r}: "
            f"calibrate with `normalizer: {normalizer}`, or choose the normalizer that was calibrated"
        )
    return stats

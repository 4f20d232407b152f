"""Mean and standard deviation as functions of a segment's location in the response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

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

MIN_STD = 0.1
HUBER_EPSILON, HUBER_ALPHA = 1.35, 1e-4


@register("location")
class Location(Normalizer):
    """Centers and scales by statistics that depend on the location p = (i + 1) / S of segment i of S.

    Mean(p) = w_mean log p + b_mean and Std(p) = w_std log p + b_std (segment paper, Eq. 6, 11 and 12, appendix F),
    fitted to the mean and the population standard deviation of the calibration rewards at each p (rounded), with one
    point of equal weight for every distinct p. The fitted Std(p) has a floor: as p goes to 0, a line on log p may cross
    zero, and a division by a negative number would reward the worst segments.
    """

    version = 2

    regression: Literal["huber", "ols"] = "huber"
    """Regression method. `huber`: robust, as in appendix F (scikit-learn, epsilon 1.35, alpha 1e-4). `ols`: least
    squares, as in Eq. 6.
    """
    min_std: float | None = Field(None, gt=0, le=1e6)
    """Lower bound of the fitted standard deviation. null: the bound of the fit, and 0.1 if that was null too."""
    decimals: int = Field(3, ge=1, le=6)
    """Number of decimals to which locations are rounded before they are grouped, in the same way as when printing (3/80
    is 0.037). Only used when fitting.
    """
    min_count: int = Field(1, ge=1)
    """Minimum number of rewards of a location. Locations with fewer rewards are left out (a single reward has standard
    deviation 0). Only used when fitting.
    """
    coefficients: Annotated[list[float], Field(min_length=4, max_length=4)] | None = None
    """Fixed coefficients [w_mean, w_std, b_mean, b_std], in the order of the authors' release, instead of `fitted`."""

    @model_validator(mode="after")
    def _check(self) -> Location:
        if self.coefficients is not None and self.fitted is not None:
            raise ValueError("both `coefficients` and `fitted` are set: remove one of them")
        return self

    def ready(self) -> bool:
        return self.coefficients is not None or super().ready()

    def fit(self, rewards: Tensor, locations: Tensor, valid: Tensor) -> dict[str, Any]:
        """Fit both lines to calibration rewards: `rewards`, `locations`, `valid` [B,S].

        Returns the coefficients, the fitted points (`points`: p, mean, std, count, used), the floor, the share of
        calibration rewards on which the floor acts (`floored`), and a `note` when the fit is degenerate: with a single
        location the slopes cannot be determined, and the lines are the constants of that location. Raises `DataError`
        when there is nothing to fit.
        """
        if self.coefficients is not None:
            raise DataError("the location normalizer has its `coefficients`: there is nothing to calibrate")
        values = calibration_rewards(rewards, valid)
        p, mean, std, count = self._points(values, locations[valid].detach().double().cpu())
        used = count >= self.min_count
        if not used.any():
            raise DataError(
                f"no location has {self.min_count} calibration rewards (the most at one is {int(count.max())}): "
                "calibrate on more responses, or lower `min_count`"
            )
        x = p[used].log()
        w_mean, b_mean = self._line(x, mean[used])
        w_std, b_std = self._line(x, std[used])
        floor = MIN_STD if self.min_std is None else self.min_std
        stats: dict[str, Any] = {
            "normalizer": "location",
            "regression": self.regression,
            "w_mean": w_mean,
            "b_mean": b_mean,
            "w_std": w_std,
            "b_std": b_std,
            "min_std": floor,
            "floored": float(count[w_std * p.log() + b_std < floor].sum() / count.sum()),
            "rewards": len(values),
            "responses": int(valid.any(dim=1).sum()),
            "points": [
                dict(zip(("p", "mean", "std", "count", "used"), point, strict=True))
                for point in zip(*(column.tolist() for column in (p, mean, std, count, used)), strict=True)
            ],
        }
        if len(x) == 1:
            stats["note"] = f"one location only (p = {float(p[used]):g}): mean and standard deviation are constants"
        return stats

    def _points(self, values: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the distinct rounded locations [N], and mean, population std and number of the rewards at each."""
        distinct, place = p.unique(return_inverse=True)
        # multiplied by a power of ten, halves would be exact that the numbers themselves are not
        rounded = torch.tensor([round(value, self.decimals) for value in distinct.tolist()], dtype=torch.float64)
        # a location below half a step would round to 0, whose logarithm is infinite
        rounded = rounded.clamp(min=10.0**-self.decimals)
        bins, index, count = rounded[place].unique(return_inverse=True, return_counts=True)
        zero = torch.zeros(len(bins), dtype=values.dtype)
        mean = zero.index_add(0, index, values) / count
        var = zero.index_add(0, index, (values - mean[index]).square()) / count
        return bins, mean, var.sqrt(), count

    def _line(self, x: Tensor, y: Tensor) -> tuple[float, float]:
        """Return slope and intercept of y on x = log p."""
        if len(x) == 1:
            return 0.0, float(y)
        centred = x - x.mean()
        slope = float((centred * (y - y.mean())).sum() / centred.square().sum())
        line = slope, float(y.mean()) - slope * float(x.mean())
        residual = y - line[0] * x - line[1]
        # points on a line need no regression; scikit-learn's solver fails on them, because its scale goes to 0
        exact = float(residual.abs().max()) <= 1e-9 * max(1.0, float(y.abs().max()))
        return line if self.regression == "ols" or exact else _huber(x, y)

    def apply(self, rewards: Tensor, locations: Tensor, valid: Tensor, stats: Mapping[str, Any] | None) -> Tensor:
        """Return (r - Mean(p)) / max(Std(p), min_std) (Eq. 12), [B,S]; 0 where not valid.

        rewards, locations, valid: [B,S], 0 < p <= 1. Raises `DataError` without a fit of this kind.
        """
        if self.coefficients is not None:
            w_mean, w_std, b_mean, b_std = self.coefficients
            fitted_floor = MIN_STD
        else:
            fit = fit_of("location", stats)
            w_mean, w_std, b_mean, b_std = (float(fit[key]) for key in ("w_mean", "w_std", "b_mean", "b_std"))
            fitted_floor = fit["min_std"]
        floor = fitted_floor if self.min_std is None else self.min_std
        x = torch.where(valid, locations, torch.ones_like(locations)).log()
        std = (w_std * x + b_std).clamp(min=floor)
        normalized = (rewards - (w_mean * x + b_mean)) / std
        return torch.where(valid, normalized.to(rewards.dtype), torch.zeros_like(rewards))


def _huber(x: Tensor, y: Tensor) -> tuple[float, float]:
    from sklearn.linear_model import HuberRegressor  # slow to import, and only fitting needs it

    regression = HuberRegressor(epsilon=HUBER_EPSILON, alpha=HUBER_ALPHA, max_iter=1000)
    try:
        regression.fit(x[:, None].numpy(), y.numpy())
    except ValueError as error:
        raise DataError(f"the Huber fit of the location normalizer failed ({error}); try `regression: ols`") from error
    return float(regression.coef_[0]), float(regression.intercept_)

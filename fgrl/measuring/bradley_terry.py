"""Fit of a Bradley-Terry model to tables of points between models (Zermelo 1929; Bradley and Terry 1952).

See `elo.py` for the meaning of the numbers, and for the condition for a finite maximum.
"""

from __future__ import annotations

import math
from typing import Any

from fgrl.base import lazy
from fgrl.base.errors import DataError

np = lazy.load("numpy")

POINTS_PER_NAT = 400 / math.log(10)
"""Rating points per nat of log-odds, with base 10 and scale 400."""
STEPS, HALVINGS = 100, 50
PRECISION = 1e-8
"""Size of a Newton step, in nats, below which it is the last one; the remaining error is about its square."""
ROUNDING = 1e-15
"""Share of the log-likelihood: a step with a smaller expected gain is also the last one."""


def won_against(points: Any) -> Any:
    """Return `[D,M,M]`: True if model i won or tied against model j, at least indirectly, and for every model against
    itself.
    """
    size = points.shape[-1]
    reach = ((points > 0) | np.eye(size, dtype=bool)).astype(np.float32)
    for _ in range(max(1, size - 1).bit_length()):
        reach = (reach @ reach > 0).astype(np.float32)
    return reach > 0


def strengths(points: Any, ridge: float = 0.0) -> Any:
    """Return strengths [D,M] in nats that maximise the likelihood of D tables of points [D,M,M], by Newton's method
    with halved steps.

    sum_ij points_ij log sigmoid(s_i - s_j) - ridge / 2 sum_i s_i^2. Without a ridge each group (see the docstring of
    `elo.py`) is fitted by its own games and has mean 0; with a ridge the mean of all models is 0.
    """
    reach = won_against(points)
    same = reach & reach.swapaxes(1, 2) if ridge == 0 else np.ones(points.shape, dtype=bool)
    points = points * same
    games = points + points.swapaxes(1, 2)
    size = points.shape[-1]
    # The likelihood does not change when a group moves as a whole, and with a ridge the mean is 0: `mean` holds each group's at 0.
    mean = same / same.sum(-1, keepdims=True)
    s = np.zeros(points.shape[:2])
    value = _log_likelihood(points, s, ridge)
    for _ in range(STEPS):
        p = _sigmoid(s[:, :, None] - s[:, None, :])
        slope = (points - games * p).sum(-1) - ridge * s
        curve = games * p * (1 - p)
        hessian = (curve.sum(-1)[:, :, None] + ridge) * np.eye(size) - curve + mean
        step = np.linalg.solve(hessian, slope[:, :, None])
        step = (step - mean @ step)[:, :, 0]
        gain = (slope * step).sum(-1)
        done = (np.abs(step).max(-1) < PRECISION) | (gain < ROUNDING * (1 - value))
        if done.all():
            return s + step
        length = np.ones(len(s))
        for _ in range(HALVINGS):
            tried = _log_likelihood(points, s + length[:, None] * step, ridge)
            short = tried < value + 1e-4 * length * gain - 1e-12 * (1 + np.abs(value))
            if not short.any():
                break
            length = np.where(short, length / 2, length)
        s = s + length[:, None] * step
        value = _log_likelihood(points, s, ridge)
    raise DataError(
        f"the Elo ratings have not converged in {STEPS} Newton steps (the last was {np.abs(step).max():.2g} nats): a larger `ridge` "
        "helps where a model lost nearly every game"
    )


def gaps(points: Any, ridge: float = 0.0) -> Any:
    """Return `[D,M,M]`: strength of model i minus that of model j, in nats: infinite between groups of which one won
    every game; NaN between groups that no games link, or that are linked only through other groups that lost to both or
    won against both.
    """
    s = strengths(points, ridge)
    gap = s[:, :, None] - s[:, None, :]
    if ridge > 0:
        return gap
    reach = won_against(points)
    back = reach.swapaxes(1, 2)
    return np.where(reach & back, gap, np.where(reach, np.inf, np.where(back, -np.inf, np.nan)))


def _log_likelihood(points: Any, s: Any, ridge: float) -> Any:
    return -(points * np.logaddexp(0, s[:, None, :] - s[:, :, None])).sum((1, 2)) - ridge / 2 * (s * s).sum(1)


def _sigmoid(x: Any) -> Any:
    return np.exp(-np.logaddexp(0, -x))

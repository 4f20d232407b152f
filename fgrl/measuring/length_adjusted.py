"""Win rates at equal length: a minimal logistic model, after the idea of length-controlled AlpacaEval (Dubois et al.
2024).

The probability that a model wins a comparison is sigmoid(a + b x), with x = tanh of the difference of the two answers'
lengths over that difference's standard deviation; the number is sigmoid(a), the win rate if both were always of one
length.

Not included: the difficulty of each instruction (fitted on many models at once), the two gamed baselines that hold the
coefficient of length, and cross-validated L1. So this is not AlpacaEval's LC win rate, and must not be called so.
"""

from __future__ import annotations

from typing import Any

from fgrl.base import lazy

np = lazy.load("numpy")

STEP, STEPS, PRECISION = 2.0, 100, 1e-10
FAR = 30.0
"""Log-odds beyond which a probability counts as 0 or 1: if every comparison is lost, Newton's method would not
converge.
"""


def fit(x: Any, y: Any, times: Any, ridge: float) -> tuple[Any, Any]:
    """Return intercepts and slopes [D] of D weighted ridge logistic regressions, by Newton's method.

    x, y: [N] feature, and outcome in 0..1; times: [D,N] weight of each row. Minimises
    sum_i times_i * cross_entropy(y_i, sigmoid(a + b x_i)) + ridge / 2 * b^2: the intercept is free.
    """
    a, b = np.zeros(len(times)), np.zeros(len(times))
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-(a[:, None] + b[:, None] * x)))
        rest, curve = times * (p - y), times * p * (1 - p)
        slope_a, slope_b = rest.sum(1), rest @ x + ridge * b
        aa, ab, bb = curve.sum(1) + 1e-12, curve @ x, curve @ (x * x) + ridge
        determinant = aa * bb - ab * ab
        step_a = np.clip((bb * slope_a - ab * slope_b) / determinant, -STEP, STEP)
        step_b = np.clip((aa * slope_b - ab * slope_a) / determinant, -STEP, STEP)
        a, b = np.clip(a - step_a, -FAR, FAR), b - step_b
        if max(np.abs(step_a * (np.abs(a) < FAR)).max(), np.abs(step_b).max()) < PRECISION:
            break
    return a, b


def rate_at_equal_length(won: Any, longer: Any, times: Any, ridge: float) -> Any:
    """Return win rates at equal length [D]; NaN if a sample has no comparison."""
    spread = longer.std() if len(longer) else 0.0
    x = np.tanh(longer / spread) if spread > 0 else np.zeros(len(longer))
    a, _slope = fit(x, won, times, ridge)
    value = 1 / (1 + np.exp(-a))
    value[times.sum(1) == 0] = np.nan
    return value

"""Bayesian search against random draws, and what stopping early saves, on objectives with known values.

1. Both searches of `fgrl sweep` get 60 points, at 50 seeds, of an analytic objective: a Branin function of the logarithms of a learning rate and
   of a KL weight, plus the cost of a category. Reported: the regret (best value found minus the minimum), and the difference of the two searches,
   paired by seed (their first 10 points are the same), with Student's interval.
2. The same 60 random points as learning curves that end at the objective's value, with noise: the share of the iterations that stopping early
   saves, and by how much the best of the finished points is worse.

    python benchmarks/sweep_search.py [--seeds 50] [--points 60]
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

import numpy as np

from fgrl.experiments.pipeline.sweep_search import FIRST_RANDOM, EarlyStopping
from fgrl.experiments.recipe.sweeps import EarlyTermination, Parameter
from fgrl.measuring.statistics import student
from fgrl.runs.results.sweep_records import PointRecord

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from searches import searched, sweep_of

MINIMUM = 0.397887357729738
"""Of the Branin function (Dixon and Szego 1978), at three places."""
COSTS = {"even": 0.0, "last": 4.0, "repeat": 8.0}
ITERATIONS, NOISE = 27, 0.3

PARAMETERS = {
    "lr": Parameter(distribution="log_uniform_values", min=1e-7, max=1e-4),
    "kl_coef": Parameter(distribution="log_uniform_values", min=1e-3, max=1.0),
    "spread": Parameter(values=list(COSTS)),
}


def objective(values: dict) -> float:
    x = 15 * (math.log10(values["lr"]) + 7) / 3 - 5
    y = 15 * (math.log10(values["kl_coef"]) + 3) / 3
    branin = (y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6) ** 2
    return branin + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 + COSTS[values["spread"]] - MINIMUM


def best(points: list[PointRecord]) -> float:
    return min(point.value.mean for point in points)


def stopped(points: list[PointRecord], seed: int) -> tuple[float, float, float]:
    """Return the share of iterations saved, the best final value of all points, and that of those that ran to their ends."""
    stopping = EarlyStopping(EarlyTermination(type="hyperband", min_iter=3, eta=3.0), "minimize")
    draw = np.random.default_rng([seed, 7])
    spent, finals, finished = 0, [], []
    for point in points:
        final, tau = point.value.mean, draw.uniform(3, 9)
        curve = final + 60 * np.exp(-np.arange(1, ITERATIONS + 1) / tau) + NOISE * draw.standard_normal(ITERATIONS)
        end = next((n for n, value in enumerate(curve, start=1) if stopping.stops(point, n, float(value))), None)
        spent += end or ITERATIONS
        finals.append(final)
        if end is None:
            finished.append(final)
    return 1 - spent / (ITERATIONS * len(points)), min(finals), min(finished)


def interval(values: list[float]) -> str:
    shown = student(values)
    return f"{shown.mean:+.4f} [{shown.low:+.4f}, {shown.high:+.4f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50, help="at least 2")
    parser.add_argument("--points", type=int, default=60)
    options = parser.parse_args()
    seeds, most = options.seeds, options.points
    print(
        f"{seeds} seeds, {most} points; bayes: optuna's GPSampler after {FIRST_RANDOM} random points, which both searches share"
    )
    began, regrets, saved = time.perf_counter(), {"random": [], "bayes": []}, []
    for seed in range(seeds):
        for method, own in regrets.items():
            points = searched(sweep_of(PARAMETERS, method, "minimize"), seed, most, objective)
            own.append(best(points))
            if method == "random":
                saved.append(stopped(points, seed))
    for method, own in regrets.items():
        print(f"regret of {method}: mean {np.mean(own):.4f}, median {np.median(own):.4f}")
    difference = [bayes - random for bayes, random in zip(regrets["bayes"], regrets["random"], strict=True)]
    print(
        f"bayes minus random, paired by seed: {interval(difference)}; better at {sum(d < 0 for d in difference)} of {seeds} seeds"
    )
    shares, whole, left = zip(*saved, strict=True)
    print(
        f"stopping early: saves {100 * np.mean(shares):.1f}% of the iterations ({100 * min(shares):.1f} to {100 * max(shares):.1f})"
    )
    print(f"  best finished point minus best of all: {interval([b - a for a, b in zip(whole, left, strict=True)])}; the same at "
          f"{sum(a == b for a, b in zip(whole, left, strict=True))} of {seeds} seeds")  # fmt: skip
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

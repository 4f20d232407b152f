"""Differences between methods of the credit benchmark, from the lines under results/: paired over seeds, corrected for their number, and
as shares of the oracle's advantage.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

import numpy as np

from fgrl.measuring.statistics import student
from fgrl_benchmark import benchmark

PRIMARY = "policy.right"
SCALAR, ORACLE = "even", "oracle"
DRAWS = 10_000
MORE = ("more_seeds", "more_tasks")
"""Phases that give methods the seeds and tasks of the test, planned after the first five seeds were seen."""
EQUAL_ITERATIONS = ("test", "rest", *MORE, "combined", "monte_carlo")
"""Phases in which all methods train for the same number of iterations."""
TEST = (*EQUAL_ITERATIONS, "equal_cost")
"""Phases whose lines are shown together. They have the same seeds, but some methods have fewer."""
PLANNED = ("test", "rest", "monte_carlo", "smollm2")
"""Phases that were planned before the first run of the test."""
EXACT = '{"bias": 0.5}'
"""Mistakes of the exact oracle: a constant, which the baseline cancels."""
QUALITY = ("precision", "recall", "auc")
"""Measures of the place of the credit."""
Methods = dict[str, dict[int, dict]]
"""Lines of a task by method and seed."""
Values = dict[str, Methods]
"""Lines by task, method and seed."""


def by_task(*phases: str) -> Values:
    """Return the lines of phases by task. A method has one setting in each of them."""
    found: Values = defaultdict(lambda: defaultdict(dict))
    for line in chain.from_iterable(map(benchmark.lines, phases)):
        found[line["task"]][line["method"]][line["seed"]] = line
    return found


def made_worse() -> Values:
    """Return the lines of the oracle made worse, by mistakes (as JSON), with the lines of the scalar and of the oracle
    with the same seeds.
    """
    found = by_task("worse_even")
    for line in benchmark.lines("worse"):
        mistakes = json.dumps(benchmark.mistakes_of(line["settings"]))
        found[line["task"]][ORACLE if mistakes == EXACT else mistakes][line["seed"]] = line
    return found


def with_credit(methods: Methods, measures: Sequence[str] = QUALITY) -> Methods:
    """Return the methods whose credit was measured on answers of the start model."""
    every = benchmark.read("methods.yaml")
    return {
        name: lines for name, lines in methods.items()
        if "begins" not in every.get(name, {}) and all(number in line for line in lines.values() for number in measures)
    }  # fmt: skip


def shared_seeds(methods: Methods, *names: str) -> list[int]:
    """Return the seeds that all of these methods have."""
    return sorted(set.intersection(*(set(methods.get(name, {})) for name in names)))


def paired(methods: Methods, method: str, other: str, number: str = PRIMARY) -> list[float]:
    """Return the differences of two methods, one for each seed that both have."""
    return [
        methods[method][seed][number] - methods[other][seed][number] for seed in shared_seeds(methods, method, other)
    ]


def shown(values: Sequence[float]) -> str:
    """Return the mean of one value per seed with its 95% interval (Student's t), as text."""
    over = student(values)
    bounds = "" if over.low is None or over.high is None else f" [{over.low:.3f}, {over.high:.3f}]"
    return f"{over.mean:.3f}{bounds}"


def shown_change(change: Sequence[float]) -> str:
    """Return the mean of differences with its interval, as text; empty if there are fewer than two."""
    return shown(change) if len(change) > 1 else ""


def power_of(effect: float, seeds: int, level: float = 0.05) -> float:
    """Return the probability that a paired t-test finds a difference of `effect` standard deviations, with the right
    sign, with this number of seeds.
    """
    from scipy.stats import nct, t

    return float(nct.sf(t.ppf(1 - level / 2, seeds - 1), seeds - 1, effect * seeds**0.5))


def detectable(change: Sequence[float], seeds: int = 20, power: float = 0.8) -> float:
    """Return the difference that the test finds with probability `power`, with the spread of these differences and this
    number of seeds.
    """
    from scipy.optimize import brentq

    return float(brentq(lambda effect: power_of(effect, seeds) - power, 0.0, 10.0)) * statistics.stdev(change)


def seeds_for(change: Sequence[float], power: float = 0.8, most: int = 1000) -> int | None:
    """Return the number of seeds with which the test finds the mean of these differences; None if it is above
    `most`.
    """
    effect = abs(statistics.mean(change)) / statistics.stdev(change)
    return next((seeds for seeds in range(2, most + 1) if power_of(effect, seeds) >= power), None)


def p_value(change: Sequence[float]) -> float:
    """Return the two-sided p-value of a paired t-test, by its distribution's exact tail; 1 if no run differs."""
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(change, 0.0).pvalue) if any(change) else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def share_of_oracle(methods: Methods, method: str) -> tuple[float, float, float] | None:
    """Return (method - scalar) / (oracle - scalar) with its 95% interval, bootstrapped jointly over the seeds that all three have.

    None if the oracle's advantage is not significantly different from 0: a share of it has no meaning.
    """
    shared, advantage = shared_seeds(methods, method, SCALAR, ORACLE), paired(methods, ORACLE, SCALAR)
    if len(shared) < 2 or (student(advantage).low or 0.0) <= 0:
        return None
    values = np.array([[methods[name][seed][PRIMARY] for seed in shared] for name in (method, SCALAR, ORACLE)])
    draws = np.random.default_rng(0).integers(0, len(shared), (DRAWS, len(shared)))
    own, scalar, oracle = values[:, draws].mean(axis=2)
    low, high = np.percentile((own - scalar) / (oracle - scalar), [2.5, 97.5])
    mean = values.mean(axis=1)
    return float((mean[0] - mean[1]) / (mean[2] - mean[1])), float(low), float(high)


def differences(found: Values) -> list[tuple[str, str, str, list[float], float]]:
    """Return the information that a method is told, its name, a task, the differences to the scalar over seeds, and p.

    p is corrected for the number of planned comparisons, and separately for the comparisons that were added later.
    """
    told = benchmark.read("methods.yaml")
    cells = [
        (group, method, name, paired(found[name], method, SCALAR))
        for group in dict.fromkeys(each["told"] for each in told.values())
        for method, each in told.items() if each["told"] == group and method != SCALAR
        for name in found if len(paired(found[name], method, SCALAR)) > 1
    ]  # fmt: skip
    first = listed(*PLANNED) - listed(*MORE)
    corrected: dict[int, float] = {}
    for family in (True, False):
        places = [place for place, cell in enumerate(cells) if (cell[1] in first) == family]
        corrected |= zip(places, holm([p_value(cells[place][3]) for place in places]), strict=True)
    return [(*cell, corrected[place]) for place, cell in enumerate(cells)]


def listed(*phases: str) -> set[str]:
    """Return the methods that the plan lists in its phases."""
    plan = benchmark.read("plan.yaml")
    return {name for phase in phases for name in plan[phase]["methods"]}

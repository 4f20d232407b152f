"""Tables of the credit benchmark, from the lines under results/.

python benchmarks/credit/tables.py power          what can be told apart, per task (phase pilot)
python benchmarks/credit/tables.py tuned          the settings that tuning chose
python benchmarks/credit/tables.py defaults       what methods teach with the settings of their rows (phase untuned)
python benchmarks/credit/tables.py methods        the table of methods (phases test, rest, equal_cost, combined, monte_carlo)
python benchmarks/credit/tables.py headline       the same, a row for each method
python benchmarks/credit/tables.py costs          tokens and seconds of each method, and what it changes besides
python benchmarks/credit/tables.py smollm2        the same of phase smollm2
python benchmarks/credit/tables.py claims         what the papers claim of pairs of methods (phase claims and those of `methods`)
python benchmarks/credit/tables.py losses         what losses on pairs do to the probability of the chosen answers (the same phases)
python benchmarks/credit/tables.py worse          credit made worse on purpose
python benchmarks/credit/tables.py predicts       which measure of credit says what it teaches
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain

import benchmark
import numpy as np

from fgrl.evaluation.statistics import student

PRIMARY = "policy.right"
SCALAR, ORACLE = "even", "oracle"
DRAWS = 10_000
EQUAL_ITERATIONS = ("test", "rest", "combined", "monte_carlo")
"""Phases in which all methods train for as many iterations."""
TEST = (*EQUAL_ITERATIONS, "equal_cost")
"""Phases whose lines are shown together: the same seeds, of which some methods have fewer."""
PLANNED = ("test", "rest", "monte_carlo", "smollm2")
"""Phases that were planned before the first run of the test."""
Methods = dict[str, dict[int, dict]]
"""Lines of a task by method and seed."""
Values = dict[str, Methods]
"""By task, too."""


def by_task(*phases: str) -> Values:
    """Return the lines of phases, those of methods with one setting each."""
    found: Values = defaultdict(lambda: defaultdict(dict))
    for line in chain.from_iterable(map(benchmark.lines, phases)):
        found[line["task"]][line["method"]][line["seed"]] = line
    return found


def shown(values: Sequence[float]) -> str:
    """Mean of one value per seed with its 95% interval (Student's t)."""
    over = student(values)
    bounds = "" if over.low is None or over.high is None else f" [{over.low:.3f}, {over.high:.3f}]"
    return f"{over.mean:.3f}{bounds}"


def shown_change(change: Sequence[float]) -> str:
    """Return the same of differences, nothing where there are fewer than two."""
    return shown(change) if len(change) > 1 else ""


def paired(methods: Methods, method: str, other: str, number: str = PRIMARY) -> list[float]:
    """Return the differences of two methods, one for each seed that both have."""
    shared = sorted(methods.get(method, {}).keys() & methods.get(other, {}).keys())
    return [methods[method][seed][number] - methods[other][seed][number] for seed in shared]


def detectable(change: Sequence[float], seeds: int = 20, power: float = 0.8) -> float:
    """Difference that a paired test at 5% finds with probability `power`, with this spread and so many seeds (normal approximation)."""
    return factor(power) * statistics.stdev(change) / math.sqrt(seeds)


def seeds_for(change: Sequence[float], power: float = 0.8) -> int:
    """Number of seeds with which such a test finds the mean of these differences."""
    mean = statistics.mean(change)
    return max(2, math.ceil((factor(power) * statistics.stdev(change) / mean) ** 2)) if mean else 0


def factor(power: float) -> float:
    """Standard errors that a true difference must have."""
    normal = statistics.NormalDist()
    return normal.inv_cdf(0.975) + normal.inv_cdf(power)


def p_value(change: Sequence[float]) -> float:
    """Two-sided p-value of a paired t-test, by its distribution's exact tail."""
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(change, 0.0).pvalue)


def shown_p(p: float) -> str:
    """Return a p-value with four digits, or that it is smaller."""
    return f"{p:.4f}" if p >= 1e-4 else "<0.0001"


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values that are corrected for their number (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def share_of_oracle(methods: Methods, method: str) -> tuple[float, float, float] | None:
    """Return (method - scalar) / (oracle - scalar) with its 95% interval, bootstrapped jointly over the seeds that all three have."""
    shared = sorted(set.intersection(*(set(methods.get(name, {})) for name in (method, SCALAR, ORACLE))))
    if len(shared) < 2:
        return None
    values = np.array([[methods[name][seed][PRIMARY] for seed in shared] for name in (method, SCALAR, ORACLE)])
    draws = np.random.default_rng(0).integers(0, len(shared), (DRAWS, len(shared)))
    own, scalar, oracle = values[:, draws].mean(axis=2)
    low, high = np.percentile((own - scalar) / (oracle - scalar), [2.5, 97.5])
    mean = values.mean(axis=1)
    return float((mean[0] - mean[1]) / (mean[2] - mean[1])), float(low), float(high)


def power() -> None:
    """Print per task: right words before and after, differences to the scalar, and how many seeds they take."""
    print(
        "| task | method | right words | before | difference to the scalar | seeds for it | smallest difference of 20 seeds |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, methods in by_task("pilot").items():
        for method, lines in methods.items():
            change = paired(methods, method, SCALAR) if method != SCALAR else []
            told = len(change) > 1
            cells = [
                name, method, shown([line[PRIMARY] for line in lines.values()]),
                f"{statistics.mean(line['start.right'] for line in lines.values()):.3f}",
                shown(change) if told else "", str(seeds_for(change)) if told else "", f"{detectable(change):.3f}" if told else "",
            ]  # fmt: skip
            print(f"| {' | '.join(cells)} |")


def tuned() -> None:
    """Print the settings that tuning chose."""
    print("| method | settings | right words |\n|---|---|---|")
    for method, settings in benchmark.tuned().items():
        values = [
            line[PRIMARY]
            for line in benchmark.lines("tune")
            if line["method"] == method and line["settings"] == settings
        ]
        print(f"| {method} | {json.dumps(settings)} | {statistics.mean(values):.3f} |")


def methods() -> None:
    """Print each method on each task, among those that are told the same."""
    found = by_task(*TEST)
    compared(found)
    say_missing(found)


def smollm2() -> None:
    """Print each method on each task with the larger model."""
    compared(by_task("smollm2"))


def headline() -> None:
    """Print for each method and task its difference to the scalar, in bold if it is told apart from 0 after the correction, and its share
    of the oracle's advantage.
    """
    found = by_task(*TEST)
    rows: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for group, method, name, change, p in differences(found):
        share = share_of_oracle(found[name], method)
        cell = bold(shown(change), p)
        rows[group, method][name] = cell if share is None or method == ORACLE else f"{cell}; {share[0]:.2f}"
    tasks = [name for name in found if any(name in cells for cells in rows.values())]
    print(f"| told | method | {' | '.join(f'`{name}`' for name in tasks)} |\n|{'---|' * (2 + len(tasks))}")
    for (group, method), cells in rows.items():
        print(f"| {group} | `{method}` | {' | '.join(cells.get(name, '') for name in tasks)} |")
    say_missing(found)


def differences(found: Values) -> list[tuple[str, str, str, list[float], float]]:
    """Return what a method is told, its name, a task, the differences to the scalar over seeds, and p.

    p is corrected for the comparisons that were planned, and for those that were added later apart from them.
    """
    told = benchmark.read("methods.yaml")
    cells = [
        (group, method, name, paired(found[name], method, SCALAR))
        for group in dict.fromkeys(each["told"] for each in told.values())
        for method, each in told.items() if each["told"] == group and method != SCALAR
        for name in found if len(paired(found[name], method, SCALAR)) > 1
    ]  # fmt: skip
    first = listed(*PLANNED)
    corrected: dict[int, float] = {}
    for family in (True, False):
        places = [place for place, cell in enumerate(cells) if (cell[1] in first) == family]
        corrected |= zip(places, holm([p_value(cells[place][3]) for place in places]), strict=True)
    return [(*cell, corrected[place]) for place, cell in enumerate(cells)]


def listed(*phases: str) -> set[str]:
    """Return the methods that the plan has for phases."""
    plan = benchmark.read("plan.yaml")
    return {name for phase in phases for name in plan[phase]["methods"]}


def say_missing(found: Values) -> None:
    """Name the methods of the test's phases, or of no phase, that have no line."""
    elsewhere = listed("claims", "smollm2") - listed(*TEST)
    missing = set(benchmark.read("methods.yaml")) - elsewhere - {name for lines in found.values() for name in lines}
    if missing:
        print(f"without a line: {', '.join(sorted(missing))}", file=sys.stderr)


def compared(found: Values) -> None:
    """Print the methods' differences to the scalar, corrected together."""
    print(
        "| told | method | task | seeds | right words | difference to the scalar | p (Holm) | share of the oracle's advantage |",
        end="",
    )
    print(" curve | precision | recall | AUC | KL | seconds of the policy | seconds before |")
    print("|" + "---|" * 15)
    for group, method, name, change, p in differences(found):
        lines = list(found[name][method].values())
        share = share_of_oracle(found[name], method)
        row = [
            group, method, name, str(len(change)), shown([line[PRIMARY] for line in lines]), shown(change), shown_p(p),
            "" if share is None else f"{share[0]:.2f} [{share[1]:.2f}, {share[2]:.2f}]",
            *(mean(lines, key) for key in ("curve", "precision", "recall", "auc", "policy.kl")),
            *(mean(lines, key, statistics.median) for key in ("seconds of the policy", "seconds before")),
        ]  # fmt: skip
        print(f"| {' | '.join(row)} |")


def claims() -> None:
    """Print what the papers claim of pairs of methods, and what came out: in bold if it is told apart from 0 after the correction."""
    found, tasks = by_task(*TEST, "claims"), benchmark.read("plan.yaml")["claims"]["tasks"]
    every = benchmark.read("claims.yaml")
    cells = {
        (number, name): change
        for number, claim in enumerate(every) for name in tasks
        if len(change := paired(found[name], claim["more"], claim["than"])) > 1
    }  # fmt: skip
    corrected = dict(zip(cells, holm([p_value(change) for change in cells.values()]), strict=True))
    print(f"| paper | claim | seeds | {' | '.join(f'`{name}`' for name in tasks)} |\n|{'---|' * (3 + len(tasks))}")
    for number, claim in enumerate(every):
        own = {name: cells[number, name] for name in tasks if (number, name) in cells}
        row = [
            f"{bold(shown(own[name]), corrected[number, name])}: {verdict(own[name])}" if name in own else ""
            for name in tasks
        ]
        seeds = ", ".join(dict.fromkeys(str(len(change)) for change in own.values()))
        print(f"| {claim['paper']} | {claim['claim']} | {seeds} | {' | '.join(row)} |")


def bold(text: str, p: float) -> str:
    """Return a text in bold if p is below 0.05."""
    return f"**{text}**" if p < 0.05 else text


def defaults() -> None:
    """Print what methods teach with the settings of their rows, and how much more with tuned ones, paired over seeds."""
    found, own = by_task(*TEST), by_task("untuned")
    columns = "".join(f" `{name}`: defaults | less `even` with defaults | tuned less defaults |" for name in own)
    print(f"| told | method |{columns}\n|{'---|' * (2 + 3 * len(own))}")
    for method, each in benchmark.read("methods.yaml").items():
        row: list[str] = []
        for name, lines in own.items():
            sides = {
                "tuned": found[name].get(method, {}),
                "defaults": lines.get(method, {}),
                SCALAR: lines.get(SCALAR, {}),
            }
            row += [
                shown([line[PRIMARY] for line in sides["defaults"].values()]) if sides["defaults"] else "",
                shown_change(paired(sides, "defaults", SCALAR)),
                shown_change(paired(sides, "tuned", "defaults")),
            ]
        if any(row):
            print(f"| {each['told']} | `{method}` | {' | '.join(row)} |")


COSTS = {
    "tokens drawn": "drawn", "tokens the policy reads for the reward": "read", "s an iteration": "seconds an iteration",
    "s of the policy": "seconds of the policy", "s before": "seconds before", "KL": "policy.kl", "distinct word pairs": "distinct",
}  # fmt: skip


def costs() -> None:
    """Print what methods cost and what they change besides: medians over seeds; what reward models read is in the seconds alone."""
    print(f"| method | task | {' | '.join(COSTS)} |\n|{'---|' * (2 + len(COSTS))}")
    for name, methods in by_task(*TEST).items():
        for method, lines in methods.items():
            values = (mean(list(lines.values()), key, statistics.median) for key in COSTS.values())
            print(f"| `{method}` | `{name}` | {' | '.join(values)} |")


def losses() -> None:
    """Print for each training on pairs how it moved the log-probability of the chosen answers, and what it taught."""
    print(
        "| method | task | seeds | change of the chosen answers' log-probability, nats per answer | right words | before |\n|---|---|---|---|---|---|"
    )
    for name, methods in by_task(*TEST, "claims").items():
        for method, every in methods.items():
            lines = [line for line in every.values() if "chosen" in line]
            if lines:
                before = statistics.mean(line["start.right"] for line in lines)
                values = (shown([line[number] for line in lines]) for number in ("chosen", PRIMARY))
                print(f"| `{method}` | `{name}` | {len(lines)} | {' | '.join(values)} | {before:.3f} |")


def verdict(change: Sequence[float]) -> str:
    """Say of a claimed gain whether its interval over seeds excludes 0, and on which side."""
    over = student(change)
    if over.low is None or over.high is None or over.low <= 0 <= over.high:
        return "cannot be told"
    return "holds" if over.low > 0 else "the opposite"


EXACT = '{"bias": 0.5}'
"""The oracle among its mistakes: a constant, which the baseline cancels."""


def worse() -> None:
    """Print the oracle made worse: where its credit is, what it teaches, and what the mistakes cost, paired over seeds."""
    found = made_worse()
    tasks = list(dict.fromkeys(name for name, _ in found))
    columns = "".join(f" `{name}`: precision, recall | right words | less those of the oracle |" for name in tasks)
    print(f"| mistakes |{columns}\n|{'---|' * (1 + 3 * len(tasks))}")
    for mistakes in dict.fromkeys(each for _, each in found):
        row = [", ".join(f"{name} {value}" for name, value in json.loads(mistakes).items())]
        for name in tasks:
            lines = found.get((name, mistakes), [])
            runs = {kind: {line["seed"]: line for line in found.get((name, kind), [])} for kind in (mistakes, EXACT)}
            change = paired(runs, mistakes, EXACT) if mistakes != EXACT else []
            row += [
                f"{mean(lines, 'precision')}, {mean(lines, 'recall')}", shown([line[PRIMARY] for line in lines]) if lines else "",
                shown_change(change),
            ]  # fmt: skip
        print(f"| {' | '.join(row)} |")


QUALITY = ("precision", "recall", "auc")


def predicts() -> None:
    """Print the rank correlation of right words with the quality of the credit, over mistakes and the methods of some phases."""
    from scipy.stats import spearmanr

    found = made_worse()
    methods_of = {phases: by_task(*phases) for phases in (("test",), EQUAL_ITERATIONS)}
    print(f"| task | mistakes, and methods of | credits | {' | '.join(QUALITY)} |\n|{'---|' * (3 + len(QUALITY))}")
    for name in dict.fromkeys(name for name, _ in found):
        for phases, methods in methods_of.items():
            every = [lines for (task, _), lines in found.items() if task == name]
            every += [list(lines.values()) for lines in methods[name].values()]
            every = [lines for lines in every if all(number in line for line in lines for number in QUALITY)]
            taught = [statistics.mean(line[PRIMARY] for line in lines) for lines in every]
            cells = [
                f"{spearmanr([statistics.mean(line[number] for line in lines) for lines in every], taught).statistic:.2f}"
                for number in QUALITY
            ]
            print(f"| `{name}` | {', '.join(phases)} | {len(every)} | {' | '.join(cells)} |")


def gain(lines: Sequence[dict], methods: Methods) -> float:
    """Return (right words - those of the scalar) / (those of the oracle - those of the scalar), means over all seeds of each."""
    own, scalar, oracle = (
        statistics.mean(line[PRIMARY] for line in each)
        for each in (lines, methods[SCALAR].values(), methods[ORACLE].values())
    )
    return (own - scalar) / (oracle - scalar)


def made_worse() -> dict[tuple[str, str], list[dict]]:
    """Return the lines of phase `worse` by task and mistakes (as JSON)."""
    found: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for line in benchmark.lines("worse"):
        found[line["task"], json.dumps(benchmark.mistakes_of(line["settings"]))].append(line)
    return found


def mean(lines: Sequence[dict], key: str, middle: Callable[[Sequence[float]], float] = statistics.mean) -> str:
    """Return the mean, or another middle, of a number over the lines that have it."""
    values = [line[key] for line in lines if key in line]
    return f"{middle(values):.{0 if middle(values) >= 100 else 2}f}" if values else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shown_tables = {
        each.__name__: each
        for each in (power, tuned, defaults, methods, headline, costs, smollm2, claims, losses, worse, predicts)
    }
    parser.add_argument("table", choices=shown_tables)
    shown_tables[parser.parse_args().table]()


if __name__ == "__main__":
    main()

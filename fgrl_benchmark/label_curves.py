"""Effect of models that learn from labels, by their number of labels: the lines of phases `labels` and `labels_64k`,
beside the oracle and one number per answer with the same seeds. As a program it draws docs/credit-benchmark-labels.svg.

python -m fgrl_benchmark.label_curves
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fgrl.measuring.statistics import student
from fgrl_benchmark import benchmark
from fgrl_benchmark.comparisons import ORACLE, PRIMARY, SCALAR, Methods, Values, by_task, paired, shown, shown_change

TARGET = Path(__file__).resolve().parents[1] / "docs" / "credit-benchmark-labels.svg"
PHASES = ("labels_bounds", "labels", "labels_64k")
BOUNDS = {ORACLE: "black", SCALAR: "#888888"}
"""Lines of the figure without labels, and their colours."""
DRAWN = {"right words after training": PRIMARY, "AUC of the first advantages": "auc"}
"""Rows of the figure."""
MEANS = {
    "AUC": "auc", "precision": "precision", "recall of right": "recall of right", "recall of wrong": "recall of wrong",
    "held-out loss": "held-out loss", "held-out accuracy": "held-out accuracy", "best step": "best step",
}  # fmt: skip
"""Columns of the table, and the numbers that they are means of."""
MEDIANS = {"s before": "seconds before", "s of the policy": "seconds of the policy"}


def amounts() -> dict[str, dict[int, str]]:
    """Return the entries of label_methods.yaml by method and number of labels."""
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for name, each in benchmark.read("label_methods.yaml").items():
        found[each["of"]][each["labels"]] = name
    return {method: dict(sorted(entries.items())) for method, entries in found.items()}


def table(found: Values) -> Iterator[str]:
    """Yield the lines of a table of methods by their number of labels, on each task."""
    heads = [
        "task",
        "method",
        "labels",
        *MEANS,
        "right words",
        f"less `{SCALAR}`",
        "less those with fewer labels",
        *MEDIANS,
    ]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for task, methods in found.items():
        for bound in (each for each in BOUNDS if each in methods):
            yield row(task, bound, "", methods, bound, "")
        for method, entries in amounts().items():
            fewer = ""
            for labels, entry in entries.items():
                if entry in methods:
                    yield row(task, method, f"{labels:,}", methods, entry, fewer)
                    fewer = entry


def row(task: str, method: str, labels: str, methods: Methods, entry: str, fewer: str) -> str:
    """Return a row of the table. fewer: the entry with fewer labels."""
    lines = list(methods[entry].values())

    def middle(key: str, of: Any) -> str:
        values = [line[key] for line in lines if key in line]
        return f"{of(values):.{0 if of(values) >= 10 else 3}f}" if values else ""

    cells = [
        f"`{task}`", f"`{method}`", labels, *(middle(key, statistics.mean) for key in MEANS.values()),
        shown([line[PRIMARY] for line in lines]), shown_change(paired(methods, entry, SCALAR)) if entry != SCALAR else "",
        shown_change(paired(methods, entry, fewer)) if fewer else "", *(middle(key, statistics.median) for key in MEDIANS.values()),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def draw(target: Path, found: Values) -> Path:
    """Draw right words and AUC against labels, a curve for each method with 95% intervals over seeds, and return the file."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams |= {"svg.hashsalt": "fgrl", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
    plt.rcParams |= {"axes.spines.right": False, "figure.facecolor": "white"}
    figure, grid = plt.subplots(
        len(DRAWN), len(found), figsize=(4.6 * len(found), 6.4), layout="constrained", squeeze=False, sharex=True, sharey="row"
    )  # fmt: skip
    counts = sorted({labels for entries in amounts().values() for labels in entries})
    for panels, (title, number) in zip(grid, DRAWN.items(), strict=True):
        for axis, (task, methods) in zip(panels, found.items(), strict=True):
            axis.set_xscale("log", base=4)
            axis.set_xticks(counts, [f"{count // 1024}k" for count in counts])
            axis.set_title(task)
            for bound, colour in BOUNDS.items():
                if values := values_of(methods, bound, number):
                    axis.axhline(statistics.mean(values), color=colour, linestyle="--", linewidth=1, label=bound)
            for place, (method, entries) in enumerate(amounts().items()):
                values = {labels: values_of(methods, entry, number) for labels, entry in entries.items()}
                curve(axis, method, place, values)
        panels[0].set_ylabel(title)
    for axis in grid[-1]:
        axis.set_xlabel("labels")
    named = {label: handle for handle, label in zip(*grid[0][0].get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(target, metadata={"Date": None})
    plt.close(figure)
    return target


def values_of(methods: Methods, entry: str, number: str) -> list[float]:
    """Return a number from the lines of an entry that have it."""
    return [line[number] for line in methods.get(entry, {}).values() if number in line]


def curve(axis: Any, method: str, place: int, values: dict[int, list[float]]) -> None:
    """Draw the means of a method by the number of labels, with their intervals next to those of other methods."""
    means = {labels: student(each) for labels, each in values.items() if each}
    if not means:
        return
    across = [labels * 1.06 ** (place - 2.5) for labels in means]
    middles = [each.mean for each in means.values()]
    below = [each.mean - (each.mean if each.low is None else each.low) for each in means.values()]
    above = [(each.mean if each.high is None else each.high) - each.mean for each in means.values()]
    style = {"color": f"C{place}", "marker": "o", "markersize": 4, "linewidth": 1.3, "capsize": 2}
    axis.errorbar(across, middles, yerr=[below, above], label=method, **style)


if __name__ == "__main__":
    sys.stdout.write(f"{draw(TARGET, by_task(*PHASES))}\n")

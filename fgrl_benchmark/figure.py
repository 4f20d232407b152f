"""Effect of credit against its precision, recall and AUC, from the lines of phase `worse` and of methods that all train
for as many iterations. As a program it draws docs/credit-benchmark.svg.

python -m fgrl_benchmark.figure
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from sklearn.isotonic import IsotonicRegression

from fgrl_benchmark import benchmark, comparisons

matplotlib.use("svg")
import matplotlib.pyplot as plt

LABELS = {"auc": "AUC", "sign": "share of turns with the right sign"}
"""Labels of the measures of credit, if they differ from their names."""
TARGET = Path(__file__).resolve().parents[1] / "docs" / "credit-benchmark.svg"


@dataclass(frozen=True)
class Place:
    """Means of several runs with the same credit."""

    name: str
    quality: Mapping[str, float]
    """Precision, recall and area under the curve."""
    gain: float
    """Share of the oracle's advantage over the scalar."""


def placed(
    methods: comparisons.Methods, names: Mapping[str, str], measures: Sequence[str] = comparisons.QUALITY
) -> list[Place]:
    """Return the places of methods whose credit was measured. Their gain is over the seeds that the oracle and the
    scalar have, too. names: names of the places of some methods.
    """
    found = []
    for method, lines in comparisons.with_credit(methods, measures).items():
        share = comparisons.share_of_oracle(methods, method)
        if share and method in names:
            quality = {each: statistics.mean(line[each] for line in lines.values()) for each in measures}
            found.append(Place(names[method], quality, share[0]))
    return found


def kind(mistakes: Mapping[str, Any]) -> str:
    """Return the kind of the mistakes, without their size."""
    return ", ".join("no baseline" if value == "none" else name for name, value in mistakes.items())


def named(axis: Any, places: Sequence[Place], number: str, own: str = "") -> None:
    """Draw methods with their names, which are moved apart if they would overlap. own: a method to highlight."""
    order = sorted(places, key=lambda each: each.gain)
    bottom, top = axis.get_ylim()
    left, right = axis.get_xlim()
    gaps = np.arange(len(order)) * 0.032 * (top - bottom)
    heights = IsotonicRegression().fit_transform(gaps, [each.gain for each in order] - gaps) + gaps
    for each, height in zip(order, heights, strict=True):
        across, is_own = each.quality[number], each.name == own
        axis.scatter(across, each.gain, color="#d62728" if is_own else "black", marker="D", s=60 if is_own else 14)
        axis.annotate(
            each.name, (across, each.gain), (across + 0.04 * (right - left), height), va="center",
            fontsize=10 if is_own else 7, color="#d62728" if is_own else "black", weight="bold" if is_own else "normal", arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2},
        )  # fmt: skip


def draw(
    target: Path, found: comparisons.Values, mistakes_of: comparisons.Values, measures: Sequence[str] = comparisons.QUALITY,
    *, own: str = "",
) -> Path:  # fmt: skip
    """Draw the figure of methods and return its file.

    found: the methods by task; a row of panels for each. mistakes_of: mistakes of the oracle on some tasks. measures:
    measures of the credit, a column for each. own: a method to highlight.
    """
    plt.rcParams |= {"svg.hashsalt": "fgrl", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
    plt.rcParams |= {"axes.spines.right": False, "figure.facecolor": "white"}
    figure, grid = plt.subplots(
        len(found),
        len(measures),
        figsize=(11.5, 5.2 * len(found)),
        layout="constrained",
        squeeze=False,
        sharey="row",
    )
    names = {
        each: kind(json.loads(each)) for methods in mistakes_of.values() for each in methods if each.startswith("{")
    }
    kinds = list(dict.fromkeys(names.values()))
    for row, (task, lines) in zip(grid, found.items(), strict=True):
        worse = placed(mistakes_of[task], names, measures) if task in mistakes_of else []
        methods = placed(lines, {name: name for name in lines}, measures)
        gains = [each.gain for each in (*worse, *methods)]
        for axis, number in zip(row, measures, strict=True):
            left = 0.45 if number == "auc" else -0.04
            axis.set(
                xlabel=LABELS.get(number, number),
                title=task,
                xlim=(left, 1.18 if left < 0 else 1.08),
                ylim=(min(gains, default=0) - 0.3, max(gains, default=1) + 0.8),
            )
            axis.axhline(0, color="#bbbbbb", linewidth=0.8)
            axis.axhline(1, color="#bbbbbb", linewidth=0.8)
            for number_of, mistake in enumerate(kinds):
                some = [each for each in worse if each.name == mistake]
                axis.scatter(
                    [each.quality[number] for each in some], [each.gain for each in some],
                    label=mistake, s=28, color=f"C{number_of}",
                )  # fmt: skip
            if methods:
                named(axis, methods, number, own)
        row[0].set(ylabel="share of the oracle's advantage")
    if kinds:
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=4, title="mistakes of the oracle", frameon=False
        )
    figure.savefig(target, metadata={"Date": None})
    plt.close(figure)
    return target


def draw_all(target: Path) -> Path:
    """Draw the figure of the page: all methods, on the tasks on which the oracle was made worse."""
    every = comparisons.by_task(*comparisons.EQUAL_ITERATIONS)
    chosen = benchmark.read("plan.yaml")["worse"]["tasks"]
    return draw(target, {task: every[task] for task in chosen}, comparisons.made_worse())


if __name__ == "__main__":
    sys.stdout.write(f"{draw_all(TARGET)}\n")

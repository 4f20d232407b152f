"""Draw docs/credit-benchmark.svg: what credit teaches against its precision, recall and AUC, from the lines of phase `worse` and of
methods that all train for as many iterations.

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

TARGET = Path(__file__).resolve().parents[1] / "docs" / "credit-benchmark.svg"


@dataclass(frozen=True)
class Place:
    """Means of several runs with the same credit."""

    name: str
    quality: Mapping[str, float]
    """Precision, recall and area under the curve."""
    gain: float
    """Share of the oracle's advantage over the scalar."""


def placed(methods: comparisons.Methods, names: Mapping[str, str]) -> list[Place]:
    """Return where methods are whose credit was measured; their gain is over the seeds that the oracle and the scalar have, too.

    names: of some methods, with the names of their places.
    """
    found = []
    for method, lines in comparisons.with_credit(methods).items():
        share = comparisons.share_of_oracle(methods, method)
        if share and method in names:
            quality = {each: statistics.mean(line[each] for line in lines.values()) for each in comparisons.QUALITY}
            found.append(Place(names[method], quality, share[0]))
    return found


def kind(mistakes: Mapping[str, Any]) -> str:
    """Return what is wrong, without how much."""
    return ", ".join("no baseline" if value == "none" else name for name, value in mistakes.items())


def named(axis: Any, places: Sequence[Place], number: str) -> None:
    """Draw methods with their names, which are moved apart where they would cover each other."""
    order = sorted(places, key=lambda each: each.gain)
    bottom, top = axis.get_ylim()
    left, right = axis.get_xlim()
    gaps = np.arange(len(order)) * 0.032 * (top - bottom)
    heights = IsotonicRegression().fit_transform(gaps, [each.gain for each in order] - gaps) + gaps
    for each, height in zip(order, heights, strict=True):
        across = each.quality[number]
        axis.scatter(across, each.gain, color="black", marker="D", s=14)
        axis.annotate(
            each.name, (across, each.gain), (across + 0.04 * (right - left), height), fontsize=7, va="center",
            arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2},
        )  # fmt: skip


def draw() -> Path:
    """Draw the figure and return its file."""
    found, mistakes_of = comparisons.by_task(*comparisons.EQUAL_ITERATIONS), comparisons.made_worse()
    chosen = benchmark.read("plan.yaml")["worse"]["tasks"]
    plt.rcParams |= {"svg.hashsalt": "fgrl", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
    plt.rcParams |= {"axes.spines.right": False, "figure.facecolor": "white"}
    figure, grid = plt.subplots(
        len(chosen),
        len(comparisons.QUALITY),
        figsize=(11.5, 5.2 * len(chosen)),
        layout="constrained",
        squeeze=False,
        sharey="row",
    )
    names = {
        each: kind(json.loads(each)) for methods in mistakes_of.values() for each in methods if each.startswith("{")
    }
    kinds = list(dict.fromkeys(names.values()))
    for row, task in zip(grid, chosen, strict=True):
        worse = placed(mistakes_of[task], names)
        methods = placed(found[task], {name: name for name in found[task]})
        gains = [each.gain for each in (*worse, *methods)]
        for axis, number in zip(row, comparisons.QUALITY, strict=True):
            left = 0.45 if number == "auc" else -0.04
            axis.set(
                xlabel=number.replace("auc", "AUC"),
                title=task,
                xlim=(left, 1.18 if left < 0 else 1.08),
                ylim=(min(gains) - 0.3, max(gains) + 0.8),
            )
            axis.axhline(0, color="#bbbbbb", linewidth=0.8)
            axis.axhline(1, color="#bbbbbb", linewidth=0.8)
            for number_of, mistake in enumerate(kinds):
                some = [each for each in worse if each.name == mistake]
                axis.scatter(
                    [each.quality[number] for each in some], [each.gain for each in some],
                    label=mistake, s=28, color=f"C{number_of}",
                )  # fmt: skip
            named(axis, methods, number)
        row[0].set(ylabel="share of the oracle's advantage")
    if kinds:
        handles, names = grid[0][0].get_legend_handles_labels()
        figure.legend(
            handles, names, loc="outside lower center", ncols=4, title="mistakes of the oracle", frameon=False
        )
    figure.savefig(TARGET, metadata={"Date": None})
    return TARGET


if __name__ == "__main__":
    sys.stdout.write(f"{draw()}\n")

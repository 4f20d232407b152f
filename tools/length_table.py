"""The table of docs/length.md: recipes/small/length.yaml and its rows with several seeds. Runs what is missing.

    python tools/length_table.py --seeds 0,1,2,3,4

Each number is the mean over seeds with its 95% interval (Student's t). The first line is the model before the training; the last
column is the difference to it, seed by seed (rows that bound the length are compared with the start under the same bound).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import fgrl
from fgrl.experiments.recipe import rows
from fgrl.measuring.statistics import student

RECIPE = Path(__file__).resolve().parents[1] / "recipes" / "small" / "length.yaml"
COLUMNS = {"quality.f1": "F1", "quality.precision": "right words", "length.words": "words", "kl.sum": "KL, nats"}


def shown(values: Sequence[float], digits: int = 3) -> str:
    """The mean of one value per seed, with its interval."""
    over = student(values)
    bounds = "" if over.low is None or over.high is None else f" [{over.low:.{digits}f}, {over.high:.{digits}f}]"
    return f"{over.mean:.{digits}f}{bounds}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", default="0,1,2,3,4")
    options.add_argument("--runs", default="runs")
    chosen = options.parse_args()
    seeds = [int(seed) for seed in chosen.seeds.split(",")]
    print(f"| | {' | '.join(COLUMNS.values())} | F1, difference to the start |\n|---|---|---|---|---|---|")
    for place, address in enumerate([str(RECIPE), *(f"{RECIPE}::{row}" for row in rows(RECIPE))]):
        before, after = ({name: [] for name in COLUMNS} for _ in range(2))
        for seed in seeds:
            run = fgrl.run(address, seed=seed, runs=chosen.runs, progress=False)
            for model, values in (("start", before), ("policy", after)):
                for row in run.numbers().where(model=model):
                    if row["number"] in COLUMNS:
                        values[row["number"]].append(row["mean"])
        if place == 0:
            print(f"| start | {' | '.join(shown(before[name]) for name in COLUMNS)} | |")
        change = [new - old for old, new in zip(before["quality.f1"], after["quality.f1"], strict=True)]
        name = address.partition("::")[2] or "tokens"
        print(f"| {name} | {' | '.join(shown(after[column]) for column in COLUMNS)} | {shown(change)} |", flush=True)


if __name__ == "__main__":
    main()

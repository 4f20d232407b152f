"""Seconds of finished runs, as `fgrl plan` predicts them for a card, and as the runs recorded them.

    python benchmarks/plan_seconds.py [runs/small-rla/2026* ...] [--card card.yaml] [--least 20]

Without runs the newest of the quickstart in runs/ is taken. Without a card, this machine is measured first, as `fgrl doctor --measure` does:
it has to be the one of the runs, with as many threads. Each run is planned from the recipe in its folder, as if nothing of it had run.

Prints a Markdown table of the stages that took at least `--least` seconds and that the plan counts, and of all that it counts together. Names
on stderr the stages of that length that it does not count, and those where one time is more than 1.5 times the other.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fgrl import doctor
from fgrl.experiments import pipeline, recipe
from fgrl.experiments.recipe.machines import Card

BOUND = 1.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", help="folders of finished runs")
    parser.add_argument("--card", type=Path, help="a machine file with a card")
    parser.add_argument("--least", type=float, default=20.0, help="recorded seconds of a stage that gets a line")
    options = parser.parse_args()
    runs = options.runs or [max(Path("runs/quickstart").iterdir())]
    with tempfile.TemporaryDirectory() as folder:
        file = options.card or Path(folder) / "card.yaml"
        if options.card is None:
            doctor(measure=file)
        card = recipe.read(file).card
    assert card is not None, f"{file} names no card"
    print("| run | stage | predicted, s | recorded, s | predicted / recorded |\n|---|---|--:|--:|--:|")
    for run in runs:
        for name, predicted, recorded in lines(run, card, options.least):
            ratio = predicted / recorded
            print(f"| {run.parent.name} | {name} | {predicted:.0f} | {recorded:.0f} | {ratio:.2f} |", flush=True)
            if not 1 / BOUND <= ratio <= BOUND:
                print(f"{run.parent.name}, {name}: off by more than {BOUND}", file=sys.stderr)


def lines(run: Path, card: Card, least: float) -> Iterator[tuple[str, float, float]]:
    """Yield stages of a run, and then all together, with their predicted and their recorded seconds."""
    stages = json.loads((run / "summary.json").read_text(encoding="utf-8"))["stages"]
    recorded = {name: each["seconds"] for name, each in stages.items() if each["done"]}
    with tempfile.TemporaryDirectory() as nowhere:
        estimates = pipeline.estimates(pipeline.plan(recipe.load(run / "recipe.yaml", []), Path(nowhere)), None, card)
    costs = {name: estimates.get(name, {}).get("costs", {}) for name in recorded}
    predicted = {name: each["seconds"] for name, each in costs.items() if "seconds" in each}
    for name, seconds in predicted.items():
        if recorded[name] >= least:
            yield name, seconds, recorded[name]
    if predicted:
        yield "together", sum(predicted.values()), sum(recorded[name] for name in predicted)
    for name, seconds in recorded.items():
        if name not in predicted and seconds >= least:
            why = costs[name].get("unknown", "it says nothing about its work")
            print(f"{run.parent.name}: {name} took {seconds:.0f} s and is not counted: {why}", file=sys.stderr)


if __name__ == "__main__":
    main()

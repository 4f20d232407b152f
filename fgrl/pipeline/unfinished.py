"""Recipes of a comparison or a table that have not finished, run one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from fgrl.console import Console
from fgrl.pipeline.execution import execute
from fgrl.pipeline.finished import FinishedRecipe
from fgrl.pipeline.planning import Options
from fgrl.pipeline.sweep_points import load_point


def run_unfinished(
    recipes: Iterable[FinishedRecipe],
    command: Sequence[str],
    console: Console,
    machines: Path | None = None,
    *,
    dry_run: bool = False,
) -> int:
    """Run them, those without a recipe left out; dry_run: only say their commands. Returns the exit code of the first
    that fails, else 0.
    """
    for finished in recipes:
        if finished.recipe is None:
            continue
        console.say(finished.command)
        if dry_run:
            continue
        options = Options(arguments=finished.overrides, command=command)
        placed = finished.recipe
        if machines is not None:
            placed = load_point(placed.address, finished.overrides, str(machines))
        if code := execute(placed, finished.runs.root, options, console).exit:
            console.say(f"not finished: {finished.command}")
            return code
    return 0

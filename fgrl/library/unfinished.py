"""Recipes of a comparison or a table that have not finished, run one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from fgrl.base.console import Console
from fgrl.experiments.pipeline.execution import execute
from fgrl.experiments.pipeline.planning import Options
from fgrl.experiments.pipeline.sweep_points import load_point
from fgrl.library.named import NamedRecipe
from fgrl.runs.run import Run


def run_unfinished(
    recipes: Iterable[Run],
    command: Sequence[str],
    console: Console,
    machines: Path | None = None,
    *,
    dry_run: bool = False,
) -> int:
    """Run the unfinished recipes; folders of runs are left out. dry_run: only print their commands. Return the exit
    code of the first that fails, else 0.
    """
    for named in recipes:
        if not isinstance(named, NamedRecipe):
            continue
        console.say(named.command)
        if dry_run:
            continue
        options = Options(arguments=named.overrides, command=command)
        placed = named.recipe
        if machines is not None:
            placed = load_point(placed.address, named.overrides, str(machines))
        if code := execute(placed, named.runs.root, options, console).exit:
            console.say(f"not finished: {named.command}")
            return code
    return 0

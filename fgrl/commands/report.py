"""`fgrl report`: a new version of the page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgrl.base import lazy
from fgrl.commands.shared import RUNS, AsJson, RunsFolder, Seeds, SetValues, echo, emit, existing, overrides, seed_list

library = lazy.load("fgrl.library")

EXAMPLES = """
\b
Examples:
  fgrl report recipes/small/segment_ppo.yaml                  regenerate report.html of the newest run
  fgrl report recipes/small/segment_ppo.yaml --seeds 0,1,2    of the newest run with each seed
  fgrl report R stages.policy.algorithm.kl_coef=0.1           of the newest run with this value
  fgrl report runs/small-segment_ppo/20260501T093000Z-3fa9c1d2
  fgrl report runs/sweeps/kl_by_cutoff-1f0c93ab               the index of a sweep
"""


def report(
    context: typer.Context,
    recipe: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="A recipe, or the folder of a run, of several, or of a sweep.", show_default=False
        ),
    ],
    seeds: Seeds = None,
    set_values: SetValues = None,
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Regenerate report.html of a recipe's newest run, and print its path (stdout) and the conclusions of its first
    screen (stderr). Overrides may follow the recipe.
    """
    words = overrides(context.args, context)
    written = library.report(existing(recipe), words, seeds=seed_list(seeds, words), runs=runs)
    if as_json:
        each = [
            {"report": str(one.report), "folder": str(one.folder)}
            | ({} if one.conclusions is None else {"verdict": one.conclusions.as_json()})
            for one in written
        ]
        emit(each[0] if len(each) == 1 else {"reports": each})
        return
    for one in written:
        echo(str(one.report))
        for line in [] if one.conclusions is None else one.conclusions.lines():
            echo(line, err=True)

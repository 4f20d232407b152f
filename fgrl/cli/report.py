"""`fgrl report`: the page of a run, written again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgrl import lazy
from fgrl.cli.shared import RUNS, AsJson, RunsFolder, Seeds, SetValues, echo, emit, existing, overrides, seed_list

finished = lazy.load("fgrl.pipeline.finished")
page = lazy.load("fgrl.report")

EXAMPLES = """
\b
Examples:
  fgrl report recipes/small/segment_ppo.yaml                  regenerate report.html of the newest run
  fgrl report recipes/small/segment_ppo.yaml --seeds 0,1,2    of the newest run with each seed
  fgrl report R stages.policy.algorithm.kl_coef=0.1           of the newest run with this value
  fgrl report runs/small-segment_ppo/20260501T093000Z-3fa9c1d2
"""


def report(
    context: typer.Context,
    recipe: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="A recipe, or the folder of a run or of several.", show_default=False),
    ],
    seeds: Seeds = None,
    set_values: SetValues = None,
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Regenerate report.html of a recipe's newest run, and print its path. Overrides may follow the recipe."""
    words = overrides(context.args, context)
    folders = finished.newest_runs(existing(recipe), runs, words, seed_list(seeds, words))
    written = [{"report": str(page.write(folder)), "folder": str(folder)} for folder in folders]
    if as_json:
        emit(written[0] if len(written) == 1 else {"reports": written})
    else:
        echo("\n".join(each["report"] for each in written))

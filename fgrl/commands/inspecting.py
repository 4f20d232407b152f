"""`fgrl inspect`: samples of a stage as the model sees them."""

from __future__ import annotations

from typing import Annotated

import typer

from fgrl.base import lazy
from fgrl.commands import completion
from fgrl.commands.shared import RUNS, AsJson, Limit, RecipeFile, RunsFolder, SetValues, emit, load

library = lazy.load("fgrl.library")
terminal = lazy.load("fgrl.pages.report.terminal")

EXAMPLES = """
\b
Examples:
  fgrl inspect recipes/small/segment_ppo.yaml                          the first stage that shows samples
  fgrl inspect recipes/small/segment_ppo.yaml --stage policy -n 5
  fgrl inspect R --stage reward_model stages.reward_model.algorithm.segmenter.cutoff=1.0

Special tokens are visible, segments are marked, tokens are coloured by reward; a rubric reward also shows each criterion
with its verdict and the tokens that the verdict depends on. Nothing is trained or kept.
"""


def inspect(
    context: typer.Context,
    recipe: RecipeFile,
    stage: Annotated[
        str | None,
        typer.Option("--stage", metavar="STAGE", help="Stage of the samples.", autocompletion=completion.stages),
    ] = None,
    count: Annotated[int, typer.Option("-n", "--count", metavar="N", min=1, help="Number of samples.")] = 3,
    set_values: SetValues = None,
    runs: RunsFolder = RUNS,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Show a few samples as the model sees them: tokens, masks, segments, rewards. Overrides may follow the recipe."""
    found = library.inspect(
        load(recipe, context.args, context), stage=stage, count=count, runs=runs, limit=limit,
        show=lambda sample: None if as_json else terminal.print_tokens([sample]),
    )  # fmt: skip
    if as_json:
        emit({"stage": found.stage, "samples": [sample.as_json() for sample in found.samples]})

"""`fgrl inspect`: what goes into a stage, as the model sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgrl import lazy
from fgrl.cli import completion
from fgrl.cli.shared import RUNS, AsJson, Limit, RecipeFile, RunsFolder, SetValues, emit, load
from fgrl.errors import UsageError

if TYPE_CHECKING:
    from fgrl.pipeline.planning import Plan, Planned
console = lazy.load("fgrl.console")
kinds = lazy.load("fgrl.kinds")
pipeline = lazy.load("fgrl.pipeline")
registry = lazy.load("fgrl.registry")
stage_run = lazy.load("fgrl.pipeline.run")
terminal = lazy.load("fgrl.report.terminal")

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
        typer.Option("--stage", metavar="STAGE", help="Which stage's samples.", autocompletion=completion.stages),
    ] = None,
    count: Annotated[int, typer.Option("-n", "--count", metavar="N", min=1, help="How many samples.")] = 3,
    set_values: SetValues = None,
    runs: RunsFolder = RUNS,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Show a few samples as the model sees them: tokens, masks, segments, rewards. Overrides may follow the recipe."""
    progress = console.Console()
    samples: list[dict[str, Any]] = []
    with console.listening(progress):
        progress.enter("loading")
        plan = pipeline.plan(load(recipe, context.args, context), runs, limit=limit)
        chosen = _inspectable(plan, stage)
        with stage_run.scratch_run(chosen.name, **plan.surroundings(chosen), console=progress, limit=limit) as run:
            run.cache.mkdir(parents=True, exist_ok=True)
            progress.say(f"{plan.name}: stage {chosen.name} ({chosen.component}): loading")
            run.seed_libraries()
            inspectable: Any = chosen.stage
            for shown, sample in enumerate(inspectable.inspect(run, count)):
                if shown == count:
                    break
                if as_json:
                    samples.append(sample.as_json())
                else:
                    terminal.print_tokens([sample])
    if as_json:
        emit({"stage": chosen.name, "samples": samples})


def _inspectable(plan: Plan, name: str | None) -> Planned:
    able = [stage for stage in plan.stages if isinstance(stage.stage, kinds.Inspectable)]
    if name is None:
        if not able:
            raise UsageError("no stage of this recipe shows samples")
        name = next((stage.name for stage in able if not _missing(plan, stage)), able[0].name)
    if name not in [stage.name for stage in plan.stages]:
        raise UsageError(registry.unknown("stage", name, [stage.name for stage in plan.stages]))
    if plan[name] not in able:
        raise UsageError(f"stage {name} has no samples to show; these have: {', '.join(stage.name for stage in able)}")
    if missing := _missing(plan, plan[name]):
        commands = " ".join(f"--only {upstream}" for upstream in missing)
        raise UsageError(f"stage {name} needs {', '.join(missing)} first: fgrl run {plan.recipe.address} {commands}")
    return plan[name]


def _missing(plan: Plan, stage: Planned) -> list[str]:
    return [name for name in stage.upstream if not plan[name].cached]

"""`fgrl run`: execution of a recipe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fgrl.base import lazy
from fgrl.base.visible import quantity
from fgrl.commands import completion
from fgrl.commands.checking import print_plan
from fgrl.commands.shared import (
    RUNS,
    AsJson,
    Limit,
    MachineFile,
    MLflowExperiment,
    RecipeFile,
    RunsFolder,
    SetValues,
    WandbProject,
    card_of,
    echo,
    emit,
    existing,
    load,
    overrides,
)
from fgrl.commands.sweep_shared import quick
from fgrl.pages.report.text_tables import columns, number_text

if TYPE_CHECKING:
    from fgrl.experiments.pipeline import Summary
    from fgrl.experiments.recipe import Recipe
    from fgrl.runs.records import UsedStage
    from fgrl.runs.results.conclusions import Conclusions
console = lazy.load("fgrl.base.console")
explaining = lazy.load("fgrl.registry.explaining")
folders = lazy.load("fgrl.runs.folders")
named = lazy.load("fgrl.library.named")
pipeline = lazy.load("fgrl.experiments.pipeline")
planning = lazy.load("fgrl.experiments.pipeline.planning")
ranks = lazy.load("fgrl.base.ranks")
runs_on_disk = lazy.load("fgrl.runs.run")
tables = lazy.load("fgrl.runs.results.table")
concluding = lazy.load("fgrl.runs.results.concluding")

EXAMPLES = """
\b
Examples:
  fgrl run recipes/small/segment_ppo.yaml
  fgrl run R stages.policy.algorithm.kl_coef=0.1 seed=1
  fgrl run R seed=0,1,2                   each value: a grid, with a page of its own (see fgrl sweep)
  fgrl run R --dry-run                    what would run
  fgrl run R --limit 8                    a quick trial of the whole recipe
  fgrl run R --only evaluate              one stage; what it needs must be done
  fgrl run R --from policy                a stage and those after it
  fgrl run R --wandb my-project           also log to Weights & Biases (WANDB_MODE=offline works)
  fgrl run R --tensorboard                event files for `tensorboard --logdir runs`

\b
Stages that are done are taken from the cache. After a kill or Ctrl-C the same command continues.
Exit codes: 0 done, 1 run time, 2 recipe or usage, 3 data, 4 budget, 5 diverged or alarm, 6 disk,
7 your own code failed (a function or a component), 8 a process of a distributed training was lost,
9 a point of a grid failed,
130 interrupted.
"""


def run(
    context: typer.Context,
    recipe: RecipeFile,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="STAGE", help="Run only this stage (may be repeated).", autocompletion=completion.stages
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="STAGE", help="Run this stage and those after it.", autocompletion=completion.stages
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, and stop: `fgrl plan`.")] = False,
    limit: Limit = None,
    set_values: SetValues = None,
    machines: MachineFile = None,
    runs: RunsFolder = RUNS,
    wandb: WandbProject = None,
    mlflow: MLflowExperiment = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard event files to the folder of the run.")
    ] = False,
    tensorboard_dir: Annotated[
        Path | None,
        typer.Option("--tensorboard-dir", metavar="DIR", help="Write them below this folder.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only results and errors.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show library logs.")] = False,
) -> None:
    """Run the missing stages of a recipe. Overrides `a.b=value` may follow it; `a.b=1,2` runs each value (`fgrl
    sweep`).
    """
    quick(existing(recipe), overrides(context.args, context), context.params, as_json=as_json, quiet=quiet)
    progress = console.Console(quiet=quiet, verbose=verbose)
    if ranks.rank() == 0:
        context.with_resource(progress.beating())
        progress.enter("loading")
    loaded = load(recipe, context.args, context)
    if dry_run:
        print_plan(pipeline.plan(loaded, runs, limit=limit), as_json, limit, card_of(context))
        return
    options = pipeline.Options(
        only=[name for text in only or [] for name in text.split(",")],
        start=start,
        limit=limit,
        wandb=wandb,
        mlflow=mlflow,
        tensorboard=str(tensorboard_dir) if tensorboard_dir is not None else "" if tensorboard else None,
        arguments=overrides(context.args, context),
        command=["fgrl", *(word for word in sys.argv[1:] if word != "--json")],
        swept=planning.SweptPoint.here(),
    )
    summary = pipeline.execute(loaded, runs, options, progress)
    if summary.worker:
        return
    if as_json:
        folders = {"folder": summary.folder, "report": summary.report, "nothing_to_do": summary.nothing_to_do}
        verdict = {} if summary.report is None else {"verdict": _conclusions(summary.report).as_json()}
        emit({**summary.model_dump(exclude={"conclusions"}), **folders, **verdict})
    else:
        if summary.exit == 0 and not quiet:
            echo(_results(loaded, runs, limit))
        echo(_summary(summary, quiet=quiet))
    raise typer.Exit(summary.exit)


def _results(loaded: Recipe, runs: Path, limit: int | None) -> str:
    """Return the results of the recipe's evaluations; empty if there are none."""
    results = tables.results_of(named.NamedRecipe(loaded, (), folders.Runs(runs), limit))
    return number_text(tables.table_of([results])) if results.evaluations else ""


def _summary(summary: Summary, *, quiet: bool) -> str:
    lines: list[str] = []
    if summary.exit:  # the error is the last thing said
        where = "" if summary.folder is None else f"; log and report: {explaining.nearby(summary.folder)}"
        return f"not finished (exit code {summary.exit}): the same command continues{where}"
    done = sum(stage.done for stage in summary.stages.values())
    if summary.nothing_to_do:
        lines.append(f"nothing to do: {quantity(done, 'stage')} done (run of {summary.finished})")
    elif not quiet:
        rows = [(name, _state(stage), _seconds(stage), Path(stage.dir).name) for name, stage in summary.stages.items()]
        lines.append(columns(rows))
    if summary.folder is not None:
        lines.append(f"folder: {explaining.nearby(summary.folder)}")
    if summary.report is not None:
        lines.append(f"report: {explaining.nearby(summary.report)}")
        lines += _conclusions(summary.report).lines()
    return "\n".join(lines)


def _conclusions(page: Path) -> Conclusions:
    conclusions: Conclusions = concluding.conclusions_of(runs_on_disk.Run(page.parent))
    return conclusions


def _state(stage: UsedStage) -> str:
    return "cached" if stage.cached else "done" if stage.done else "unfinished"


def _seconds(stage: UsedStage) -> str:
    return "" if stage.seconds is None or stage.cached else console.duration(stage.seconds)

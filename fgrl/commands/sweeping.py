"""`fgrl sweep`, and `fgrl run R a=1,2`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.commands.shared import AsJson, MLflowExperiment, WandbProject, WrongWord, echo
from fgrl.commands.sweep_shared import planned, run_sweep

if TYPE_CHECKING:
    from fgrl.experiments.pipeline.sweep_points import Needs, Sweep
    from fgrl.runs.results.sweep_records import PointRecord, SweepRecord
console = lazy.load("fgrl.base.console")
files = lazy.load("fgrl.base.files")
points = lazy.load("fgrl.experiments.pipeline.sweep_points")
search = lazy.load("fgrl.experiments.pipeline.sweep_search")
sweep_files = lazy.load("fgrl.experiments.recipe.sweeps")
sweeping = lazy.load("fgrl.experiments.pipeline.sweeping")
sweeps = lazy.load("fgrl.library.sweeps")
workers = lazy.load("fgrl.experiments.pipeline.sweep_worker")

EXAMPLES = """
\b
Examples:
  fgrl sweep sweeps/small/kl_by_cutoff.yaml
  fgrl sweep S.yaml --dry-run             the points, the stages that they share, and what they cost
  fgrl sweep S.yaml --jobs 4              four points at a time; devices are shared out
  fgrl sweep S.yaml --points 30           of method random or bayes
  fgrl sweep S.yaml --slurm               write array jobs for Slurm (--dry-run prints them)
  fgrl run R stages.policy.algorithm.kl_coef=0.1,0.2 seed=0,1     a grid without a file

\b
Sweep files have the format of W&B: `wandb sweep S.yaml` and `wandb agent` run them too. After a kill or Ctrl-C the same
command continues; a point that failed runs again.
Exit codes: 0 all points are done, 9 a point failed (the list has each one's own code), 130 interrupted; others as of
`fgrl run`.
"""
Points = Annotated[
    int | None, typer.Option("--points", metavar="N", min=1, help="At most N points.", show_default=False)
]


def sweep(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sweep file (YAML).", show_default=False)],
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=1, max=512, help="Points at a time.")] = 1,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            metavar="N",
            min=1,
            show_default=False,
            help="Threads of each point. Default: OMP_NUM_THREADS, or a quarter of the cores.",
        ),
    ] = None,
    number: Points = None,
    seed: Annotated[int, typer.Option("--seed", metavar="K", min=0, help="Seed of the draws.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, and stop.")] = False,
    slurm: Annotated[bool, typer.Option("--slurm", help="Write array jobs for Slurm instead of running.")] = False,
    point: Annotated[
        int | None, typer.Option("--point", metavar="K", min=1, help="Run point K alone, here.", show_default=False)
    ] = None,
    shared: Annotated[
        int | None,
        typer.Option("--shared", metavar="K", min=1, help="Run shared stages K alone, here.", show_default=False),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option("--runs", metavar="DIR", help="Where runs and cached stages live.", show_default="runs"),
    ] = None,
    wandb: WandbProject = None,
    mlflow: MLflowExperiment = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only results and errors.")] = False,
) -> None:
    """Run the points of a sweep file: every combination, random draws, or Bayesian search."""
    made = sweeps.of_file(file, runs=runs, seed=seed, wandb=wandb, mlflow=mlflow)
    for note in sweep_files.texts_for_wandb(file):
        echo(f"note: {note}", err=True)
    if slurm or point is not None or shared is not None:
        _of_array(made, number, threads, slurm=slurm, dry_run=dry_run, point=point, shared=shared)
        return
    run_sweep(made, number, jobs, threads, dry_run=dry_run, as_json=as_json, quiet=quiet)


# -- several machines --------------------------------------------------------------------------------------------------


def _of_array(
    made: Sweep,
    number: int | None,
    threads: int | None,
    *,
    slurm: bool,
    dry_run: bool,
    point: int | None,
    shared: int | None,
) -> None:
    """Write or print array jobs, or run what one task of them runs."""
    if made.file.method == "bayes" or made.file.early_terminate is not None:
        raise UsageError(
            "points of method: bayes, and those that may be stopped early, depend on each other: run `fgrl sweep` with --jobs, or "
            "W&B agents"
        )
    asked = search.Search(made.file, made.seed, number)
    record = sweeping.begin(made, ["fgrl", *sys.argv[1:]], threads, sweeps.default_threads())
    record.points = []
    needs = planned(made, asked, record)
    groups = list(
        points.shared_groups(needs, list(needs.plans), also_done=True)
    )  # the same at every task, whatever is done by then
    if slurm:
        waiting = any(key not in needs.done for stages, _users in groups for key in stages.values())
        _slurm(made, record, len(groups) if waiting else 0, number, dry_run=dry_run)
        return
    if shared is not None:
        if shared > len(groups):
            raise WrongWord(f"{shared}: the points share {len(groups)} groups of stages", param_hint="--shared")
        stages, users = groups[shared - 1]
        chosen: PointRecord = record.points[users[0] - 1]
        only = _with_upstream(needs, users[0], stages)
        task = sweeping.task_of(made, chosen, only)
    else:
        assert point is not None
        if point > len(record.points):
            raise WrongWord(f"{point}: the sweep has {len(record.points)} points", param_hint="--point")
        task = sweeping.task_of(made, record.points[point - 1])
    reply = workers.work(task, console.Console())
    raise typer.Exit(reply.exit)


def _with_upstream(needs: Needs, number: int, stages: dict[str, str]) -> list[str]:
    """Return the stages, and those before them that are not done: another task may run them, and holds their locks."""
    plan = needs.plans[number]
    wanted = set(stages)
    for stage in reversed(plan):
        if stage.name in wanted:
            wanted |= {name for name, key in stage.upstream.items() if key not in needs.done}
    return [stage.name for stage in plan if stage.name in wanted]


def _slurm(made: Sweep, record: SweepRecord, groups: int, number: int | None, *, dry_run: bool) -> None:
    options = ["--threads", str(record.threads), "--seed", str(made.seed), "--runs", str(made.runs)]
    options += [] if number is None else ["--points", str(number)]
    options += [] if made.wandb is None else ["--wandb", made.wandb]
    options += [] if made.mlflow is None else ["--mlflow", made.mlflow]
    jobs = {"shared": groups, "point": len(record.points)}
    texts = {
        what: points.sbatch(made, what=what, count=count, threads=record.threads, options=options)
        for what, count in jobs.items()
        if count
    }
    if dry_run:
        for text in texts.values():
            echo(text)
        return
    made.folder.mkdir(parents=True, exist_ok=True)
    scripts = {what: made.folder / f"{what}.sbatch" for what in texts}
    for what, script in scripts.items():
        files.write_text(script, texts[what])
    echo("Submit with:")
    if "shared" in scripts:
        echo(f"  first=$(sbatch --parsable {scripts['shared']})")
        echo(f"  sbatch --dependency=afterany:$first {scripts['point']}")
    else:
        echo(f"  sbatch {scripts['point']}")
    echo(f"Afterwards `fgrl sweep {made.path}` collects the points, runs what is missing, and writes the page.")

"""`fgrl sweep`, and `fgrl run R a=1,2`: execution of a recipe with several values of its settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.commands.shared import AsJson, MLflowExperiment, WandbProject, WrongWord
from fgrl.commands.sweep_shared import run_sweep

if TYPE_CHECKING:
    from fgrl.experiments.pipeline.sweep_points import Sweep
    from fgrl.runs.results.sweep_records import PointRecord
search = lazy.load("fgrl.experiments.pipeline.sweep_search")
sweeping = lazy.load("fgrl.experiments.pipeline.sweeping")
sweeps = lazy.load("fgrl.library.sweeps")

EXAMPLES = """
\b
Examples:
  fgrl sweep sweeps/small/kl_by_cutoff.yaml
  fgrl sweep S.yaml --dry-run             the points, the stages that each runs, and what they cost
  fgrl sweep S.yaml --jobs 4              four points at a time; devices are shared out
  fgrl sweep S.yaml --points 30           of method random or bayes
  fgrl sweep S.yaml --point 3             one point alone, as in a job of a cluster
  fgrl run R stages.policy.algorithm.kl_coef=0.1,0.2 seed=0,1     a grid without a file

\b
Sweep files have the format of W&B: `wandb sweep S.yaml` and `wandb agent` run them too. After a kill or Ctrl-C the same
command continues; a point that failed runs again.
Exit codes: 0 all points are done, 9 a point failed (the list has each one's own code), 130 interrupted; others as of
`fgrl run`.
"""
Points = Annotated[
    int | None, typer.Option("--points", metavar="N", min=1, help="Maximum number of points.", show_default=False)
]


def sweep(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sweep file (YAML).", show_default=False)],
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=1, max=512, help="Number of parallel points.")] = 1,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            metavar="N",
            min=1,
            show_default=False,
            help="Number of threads of each point. Default: OMP_NUM_THREADS, or a quarter of the cores.",
        ),
    ] = None,
    number: Points = None,
    seed: Annotated[int, typer.Option("--seed", metavar="K", min=0, help="Seed of the draws.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, and stop.")] = False,
    point: Annotated[
        int | None, typer.Option("--point", metavar="K", min=1, help="Run point K alone, here.", show_default=False)
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option("--runs", metavar="DIR", help="Folder of runs and cached stages.", show_default="runs"),
    ] = None,
    wandb: WandbProject = None,
    mlflow: MLflowExperiment = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only results and errors.")] = False,
) -> None:
    """Run the points of a sweep file: every combination, random draws, or Bayesian search."""
    made = sweeps.of_file(file, runs=runs, seed=seed, wandb=wandb, mlflow=mlflow)
    if point is not None and not dry_run:
        _become(made, number, threads, point)
    run_sweep(made, number, jobs, threads, dry_run=dry_run, as_json=as_json, quiet=quiet)


def _become(made: Sweep, number: int | None, threads: int | None, point: int) -> NoReturn:
    """Run one point of a sweep alone, in this process."""
    if made.file.method == "bayes" or made.file.early_terminate is not None:
        raise UsageError(
            "points of method: bayes, and those that may be stopped early, depend on each other: run `fgrl sweep` with --jobs, or "
            "W&B agents"
        )
    asked = search.Search(made.file, made.seed, number)
    if point > asked.count:
        raise WrongWord(f"{point}: the sweep has {asked.count} points", param_hint="--point")
    drawn: list[PointRecord] = []
    while len(drawn) < point:
        drawn.append(asked.draw(drawn))
    threads = sweeping.begin(made, [], threads, sweeps.default_threads()).threads
    command = [sys.executable, "-P", "-m", *made.command(drawn[-1])]
    os.execve(sys.executable, command, made.environment(drawn[-1], threads, None))

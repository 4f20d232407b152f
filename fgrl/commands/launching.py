"""`fgrl launch`: submission of a recipe to a cluster."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fgrl.base import files, lazy
from fgrl.commands.shared import (
    RUNS,
    Limit,
    MachineFile,
    RecipeFile,
    RunsFolder,
    SetValues,
    echo,
    existing,
    load,
    overrides,
)

machine_files = lazy.load("fgrl.experiments.recipe.machines")
pipeline = lazy.load("fgrl.experiments.pipeline")
slurm = lazy.load("fgrl.experiments.pipeline.slurm")

EXAMPLES = """
\b
Examples:
  fgrl launch R --machines machines/cluster.yaml --slurm --dry-run     print the batch file
  fgrl launch R --machines machines/cluster.yaml --slurm               submit it
  fgrl launch R --machines machines/cluster.yaml --slurm seed=1 --runs /scratch/me/runs

\b
The file has a line for each stage; one on several nodes is started by `srun torchrun`. Before SLURM ends the job, the
run writes a checkpoint and the job is queued again: it continues where it was. The folder of runs (--runs), the recipe and its
data have to be on a disk that all nodes share. See docs/how-to/several-nodes.md for what has been tried, and what has not.
Exit codes: 0 submitted or printed, 2 recipe or usage, no SLURM here, or a job that it does not take.
"""


def launch(
    context: typer.Context,
    recipe: RecipeFile,
    by_slurm: Annotated[bool, typer.Option("--slurm", help="Submit with SLURM: write a file for sbatch.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the file, and submit nothing.")] = False,
    limit: Limit = None,
    set_values: SetValues = None,
    machines: MachineFile = None,
    runs: RunsFolder = RUNS,
) -> None:
    """Submit a recipe as a job of a cluster. Overrides `a.b=value` may follow it."""
    if not by_slurm:
        raise typer.BadParameter("name what starts the job: --slurm", param_hint="--slurm")
    loaded = load(recipe, context.args, context)
    run = ["fgrl", "run", str(existing(recipe)), "--runs", str(runs), *overrides(context.args, context)]
    run += [] if machines is None else ["--machines", str(machines)]
    run += [] if limit is None else ["--limit", str(limit)]
    settings = machine_files.Machines() if machines is None else machine_files.read(machines)
    plan = pipeline.plan(loaded, runs, limit=limit)
    text = slurm.script(plan, settings, run, ["fgrl", *sys.argv[1:]])
    if dry_run:
        echo(text, end="")
        return
    slurm.check_machine()
    file = runs / f"{plan.name}.sbatch"
    runs.mkdir(parents=True, exist_ok=True)
    files.write_text(file, text)
    job = slurm.submit(file)
    echo(f"job {job} is submitted: {file}\nit prints to slurm-{job}.out; `squeue --job {job}` shows where it is")

"""SLURM batch file that runs a recipe: one line for each stage, with `srun torchrun` for a stage on several nodes."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fgrl.base.errors import Unavailable, UsageError
from fgrl.experiments.pipeline.planning import Plan
from fgrl.experiments.recipe.machines import Machines
from fgrl.kinds import Engine, Stage
from fgrl.registry import walk

SPARE = 20
"""Seconds that are reserved for queueing the job again, between SLURM's warning and the end of the job."""
SCRIPT = """\
#!/bin/bash
# Written by `{command}`
{options}

set -u
export PATH={bin}:$PATH
export FGRL_LEAVE=$PWD/slurm-$SLURM_JOB_ID.leave  # once this file is there, the run ends with a checkpoint
rm -f "$FGRL_LEAVE"
{setup}FIRST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
PORT=$((20000 + SLURM_JOB_ID % 10000))
STEP=

again() {{  # at SLURM's warning, {signal} seconds before the end: the job is queued again, and continues
  touch "$FGRL_LEAVE"
  for _ in $(seq {wait}); do kill -0 "$STEP" 2>/dev/null || break; sleep 1; done
  scontrol requeue "$SLURM_JOB_ID"
  exit
}}
trap again USR1

step() {{  # the job ends with the first stage that fails
  "$@" & STEP=$!
  wait "$STEP" || exit
}}

{steps}
"""
RANKS = (
    "srun --nodes {nodes} --ntasks-per-node 1 --relative 0 --kill-on-bad-exit=1 --cpu-bind=none torchrun --nnodes {nodes} "
    '--nproc-per-node {each} --rdzv-backend c10d --rdzv-endpoint "$FIRST:$PORT" --rdzv-id "$SLURM_JOB_ID" -m '
)
"""Prefix of `fgrl run`: an agent on each node, which starts a process for each device."""


def script(plan: Plan, machines: Machines, run: Sequence[str], command: Sequence[str]) -> str:
    """Return the text of the file. run: `fgrl run RECIPE` with its options. command: the command that writes the file."""
    stages, slurm = [(each.name, each.stage) for each in plan.stages], machines.slurm
    gpus = 0 if machines.train.accelerator == "cpu" else max((_gpus(stage) for _name, stage in stages), default=0)
    options = {
        "job-name": plan.name, "nodes": max((stage.nodes() for _name, stage in stages), default=1), "ntasks-per-node": 1,
        "gpus-per-node": gpus or None, "partition": slurm.partition, "account": slurm.account, "time": slurm.time,
        "signal": f"B:USR1@{slurm.signal}", "open-mode": "append",
    }  # fmt: skip
    lines = [f"--{name}={value}" for name, value in options.items() if value is not None]
    steps = [f"step {_ranks(stage)}{shlex.join([*run, '--only', name])}" for name, stage in stages]
    return SCRIPT.format(
        command=shlex.join(command).replace("\n", " "), options="\n".join(f"#SBATCH {line}" for line in [*lines, "--requeue", *slurm.options]),
        bin=shlex.quote(str(Path(sys.executable).parent)), setup="".join(f"{line}\n" for line in slurm.before), signal=slurm.signal,
        wait=slurm.signal - SPARE, steps="\n".join([*steps, f"step {shlex.join(run)}"]),
    )  # fmt: skip


def submit(file: Path) -> str:
    """Submit a file to SLURM. Return the number of the job."""
    done = subprocess.run(["sbatch", "--parsable", str(file)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"sbatch does not take {file}: {done.stderr.strip()}")
    return done.stdout.strip().partition(";")[0]


def check_machine() -> None:
    """Raise `Unavailable` if SLURM is not installed."""
    if shutil.which("sbatch") is None:
        raise Unavailable(
            "sbatch is not on the PATH, so nothing was submitted: run the command on a login node of the cluster, or print the file with --dry-run"
        )


def _ranks(stage: Stage) -> str:
    nodes = stage.nodes()
    return RANKS.format(nodes=nodes, each=stage.processes() // nodes) if nodes > 1 else ""


def _gpus(stage: Stage) -> int:
    """Return the number of devices of a node that a stage uses: for its processes, and for servers."""
    own = 0 if stage.accelerator() == "cpu" else stage.processes() // stage.nodes()
    places = [place for _path, part in walk(stage) if isinstance(part, Engine) and (place := part.elsewhere())]
    return max(own, *(1 + device for place in places for device in place.devices or ()), 0)

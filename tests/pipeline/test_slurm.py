"""`fgrl launch --slurm`: the batch file, word for word, and what it does under stand-ins for SLURM's programs.

The stand-ins set SLURM's variables and start two agents of torchrun on this machine. Nothing here has met a real SLURM.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
import tiny_recipe
import torch
from patience import HUNG
from pipeline_helpers import HERE, environment, fgrl, fgrl_here
from safetensors.torch import load_file

MACHINES = """
train: {devices: 1, nodes: 2, accelerator: cpu}
slurm: {partition: short, account: mine, time: "1-00:30:00", signal: 600, options: [--exclusive], before: [export LOADED=yes]}
"""
SHORT = ("vars.strategy=ddp", "stages.policy=null", "stages.evaluate=null")
SCRIPT = """\
#!/bin/bash
# Written by `fgrl launch tiny.yaml --slurm --machines cluster.yaml --dry-run vars.strategy=ddp stages.policy=null stages.evaluate=null`
#SBATCH --job-name=tiny
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --partition=short
#SBATCH --account=mine
#SBATCH --time=1-00:30:00
#SBATCH --signal=B:USR1@600
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --exclusive

set -u
export PATH=BIN:$PATH
export FGRL_LEAVE=$PWD/slurm-$SLURM_JOB_ID.leave  # once this file is there, the run ends with a checkpoint
rm -f "$FGRL_LEAVE"
export LOADED=yes
FIRST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
PORT=$((20000 + SLURM_JOB_ID % 10000))
STEP=

again() {  # at SLURM's warning, 600 seconds before the end: the job is queued again, and continues
  touch "$FGRL_LEAVE"
  for _ in $(seq 580); do kill -0 "$STEP" 2>/dev/null || break; sleep 1; done
  scontrol requeue "$SLURM_JOB_ID"
  exit
}
trap again USR1

step() {  # the job ends with the first stage that fails
  "$@" & STEP=$!
  wait "$STEP" || exit
}

step srun --nodes 2 --ntasks-per-node 1 --relative 0 --kill-on-bad-exit=1 --cpu-bind=none torchrun --nnodes 2 --nproc-per-node 1 \
--rdzv-backend c10d --rdzv-endpoint "$FIRST:$PORT" --rdzv-id "$SLURM_JOB_ID" -m \
RUN --only reward_model
step RUN --only calibrate
step RUN
"""
RUN = "fgrl run tiny.yaml --runs runs vars.strategy=ddp stages.policy=null stages.evaluate=null --machines cluster.yaml"
SRUN = """#!/bin/bash
# stands in for srun --kill-on-bad-exit: a task for each node, on this machine
nodes=$2
while [ "$1" != torchrun ]; do shift; done
shift
for ((node = 0; node < nodes; node++)); do
  env SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=$nodes SLURM_STEP_NUM_TASKS=$nodes SLURM_NODEID=$node SLURM_PROCID=$node SLURM_LOCALID=0 \\
    torchrun --local-addr 127.0.0.1 "$@" & tasks+=($!)
done
while wait -n; do ((++ended == nodes)) && exit; done
code=$?
kill -KILL "${tasks[@]}"
exit $code
"""
SCONTROL = """#!/bin/bash
# stands in for scontrol
if [ "$1" = show ]; then echo localhost; else echo "$*" >> asked.txt; fi
"""
SBATCH = """#!/bin/bash
# stands in for sbatch
if [ "$1" != --parsable ]; then exit 1; fi
if [ -e full ]; then echo "sbatch: error: Batch job submission failed: Invalid partition" >&2; exit 1; fi
cp "$2" submitted.txt
echo "4711;cluster"
"""


@pytest.fixture
def folder(tmp_path: Path, tiny_model_dir: Path) -> Path:
    recipe = tiny_recipe.write(tmp_path, tiny_model_dir)
    recipe.write_text(recipe.read_text() + f"imports: ['{HERE / 'leave_spy.py'}']\n")
    (tmp_path / "cluster.yaml").write_text(MACHINES)
    (tmp_path / "bin").mkdir()
    for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
        program(tmp_path, name, text)
    return tmp_path


def program(folder: Path, name: str, text: str) -> None:
    file = folder / "bin" / name
    file.write_text(text)
    file.chmod(0o755)


def launch(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = f"{folder / 'bin'}:{Path(shutil.which('bash') or '').parent}"
    arguments = ("launch", "tiny.yaml", "--slurm", "--machines", "cluster.yaml", *words, *SHORT)
    with mock.patch.dict(os.environ, {"PATH": path}), mock.patch.object(sys, "argv", ["fgrl", *arguments]):
        return fgrl_here(*arguments, cwd=folder)


def test_the_file_is_printed(folder: Path) -> None:
    printed = launch(folder, "--dry-run")
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout == SCRIPT.replace("RUN", RUN).replace("BIN", str(Path(sys.executable).parent))
    assert not (folder / "runs").exists()


def test_it_is_submitted_and_the_job_is_named(folder: Path) -> None:
    program(folder, "sbatch", SBATCH)
    submitted = launch(folder)
    assert submitted.returncode == 0, submitted.stderr
    assert "job 4711 is submitted: runs/tiny.sbatch" in submitted.stdout
    assert (folder / "submitted.txt").read_text() == (folder / "runs" / "tiny.sbatch").read_text()
    (folder / "full").touch()
    refused = launch(folder)
    assert refused.returncode == 2
    assert "Invalid partition" in refused.stderr


def test_without_slurm_nothing_is_written(folder: Path) -> None:
    refused = launch(folder)
    assert refused.returncode == 2
    assert "sbatch is not on the PATH" in refused.stderr
    assert "--dry-run" in refused.stderr
    assert not (folder / "runs").exists()
    nothing = fgrl_here("launch", "tiny.yaml", cwd=folder)
    assert nothing.returncode == 2
    assert "--slurm" in nothing.stderr


def test_one_process_refuses_a_stage_of_two_nodes(folder: Path) -> None:
    refused = fgrl_here("run", "tiny.yaml", *SHORT, "--machines", "cluster.yaml", cwd=folder)
    assert refused.returncode == 2
    assert "stage reward_model trains on 2 nodes" in refused.stderr
    assert "fgrl launch" in refused.stderr


def test_a_job_leaves_at_the_warning_and_another_one_goes_on(folder: Path) -> None:
    changed = ("stages.calibrate=null", "vars.dropout=0.0")  # each process draws what it drops
    script = launch(folder, "--dry-run", *changed).stdout
    (folder / "job.sh").write_text(script)
    first = started(folder)
    until = time.monotonic() + HUNG
    while not (folder / "here").exists():
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    first.send_signal(signal.SIGUSR1)
    said = first.communicate(timeout=HUNG)[0]
    assert first.returncode == 0, said
    (stage,) = (folder / "runs" / "stages").glob("reward_model-*")
    assert (stage / "last.ckpt").exists(), said
    assert not (stage / "stage.json").exists(), said
    asked = (folder / "asked.txt").read_text().split()
    assert asked[0] == "requeue"
    second = started(folder, asked[1])
    said = second.communicate(timeout=HUNG)[0]
    assert second.returncode == 0, said
    assert "nothing to do: 1 stage done" in said, "the last line of the file reports"
    alone = fgrl("run", "tiny.yaml", *SHORT, *changed, "--runs", "alone", cwd=folder)
    assert alone.returncode == 0, alone.stderr
    ours, theirs = (load_file(next(folder.glob(f"{runs}/stages/*/out/*.safetensors"))) for runs in ("runs", "alone"))
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=0, atol=1e-5)


def started(folder: Path, job: str = "") -> subprocess.Popen[str]:
    """Run the file as SLURM does on the first of two nodes."""
    variables = {
        "SLURM_JOB_ID": job or free_port(), "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2",
        "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
        "GLOO_SOCKET_IFNAME": "lo", "SPY": str(folder), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.Popen(
        ["bash", "job.sh"], cwd=folder, env=environment() | variables | {"PATH": path}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def free_port() -> str:
    """Return the number of a job whose port is free."""
    for port in range(20_000, 30_000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return str(port - 20_000 + 40_000)
    raise OSError("no port is free")

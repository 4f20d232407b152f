"""The rank of this process in a distributed stage, read from the variables of its launcher: torchrun, whose agent `fgrl
run` starts as well, or Slurm's `srun`.

Only this module reads Slurm's variables. A batch script has them too (`SLURM_NTASKS`, `SLURM_PROCID`), although it did
not start several processes; libraries that rely on these variables are therefore wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fgrl.base import lazy

distributed = lazy.load("torch.distributed")

_apart = False

LOOPBACK = ("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
"""Variable and value that restrict gloo to the loopback interface, which other machines cannot reach. Used if all
processes are on this machine.
"""
STORE = "FGRL_RANKS"
"""Environment variable with the name of a file in the stage's folder. The processes of one attempt at a stage find each
other through this file.
"""
LAUNCHER = (
    "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", STORE,
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_NNODES",
    "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", "SLURM_STEP_TASKS_PER_NODE",
)  # fmt: skip
"""Variables that are removed from the environment of a process that does not belong to the distributed stage."""
KEY = "FGRL_STAGE_KEY"
"""Environment variable of the processes of one distributed stage: the expected key of the stage."""
INVOCATION = "FGRL_INVOCATION"
"""Environment variable of the processes of one distributed stage: the folder of their invocation."""


def launched(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of `srun` for this process under the names of torchrun; {} if srun has not started several
    processes.
    """
    if "RANK" in environment or environment.get("SLURM_STEP_NUM_TASKS", "1") in ("", "1"):
        return {}
    step = (environment.get(f"SLURM_{part}", "0") for part in ("JOB_ID", "STEP_ID", "RESTART_COUNT"))
    return {
        "RANK": environment["SLURM_PROCID"], "LOCAL_RANK": environment["SLURM_LOCALID"],
        "GROUP_RANK": environment.get("SLURM_NODEID", "0"), "WORLD_SIZE": environment["SLURM_STEP_NUM_TASKS"],
        "GROUP_WORLD_SIZE": environment.get("SLURM_STEP_NUM_NODES", "1"), STORE: "-".join(step),
    }  # fmt: skip


def rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return the global rank; 0 without a launcher."""
    told = {**environment, **launched(environment)}
    return next((int(told[name]) for name in ("RANK", "LOCAL_RANK") if told.get(name, "").isdigit()), 0)


def local_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return the rank among the processes of this machine, which is also the number of its GPU."""
    return int({**environment, **launched(environment)}.get("LOCAL_RANK", "0"))


def nodes(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of machines on which a launcher has started the processes of the stage."""
    return int(environment.get("GROUP_WORLD_SIZE", "1"))


def on_first_node(environment: Mapping[str, str] = os.environ) -> bool:
    """Return True on the machine of rank 0, the only one that writes to SQLite files and asks judges."""
    return environment.get("GROUP_RANK", "0") == "0"


def started(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the number of processes that a launcher has started for the stage; None without a launcher."""
    return int(environment["WORLD_SIZE"]) if {"LOCAL_RANK", "WORLD_SIZE"} <= environment.keys() else None


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for processes that do not belong to the stage, or that a launcher will start."""
    return {name: value for name, value in environment.items() if name not in LAUNCHER}


# -- the processes of a stage, once they are connected -------------------------------------------------------------------


def world() -> int:
    """Return the number of connected processes of the stage, including this one."""
    loaded = "torch.distributed" in sys.modules  # whoever connects processes has loaded it
    return distributed.get_world_size() if loaded and distributed.is_available() and distributed.is_initialized() else 1


def connected() -> int:
    """Return the number of processes that cooperate, including this one: all processes of the stage, or 1 inside
    `apart`.
    """
    return 1 if _apart else world()


@contextmanager
def apart() -> Iterator[None]:
    """Let this process work alone while the block runs, whatever the other processes do."""
    global _apart
    before, _apart = _apart, True
    try:
        yield
    finally:
        _apart = before


def place() -> int:
    """Return the number of this process among the connected ones, from 0."""
    return distributed.get_rank() if connected() > 1 else 0


def meet() -> None:
    """Wait until all connected processes have reached this point."""
    if connected() > 1:
        distributed.barrier()


def is_mine(number: int) -> bool:
    """Return True if this process has the part with this number, from 0, of work that is divided among the processes."""
    return number % connected() == place()


def leave() -> bool:
    """End the cooperation of the processes of a stage. Return True in the process that continues alone with their joint
    results.
    """
    first = place() == 0
    if connected() > 1:
        meet()
        distributed.destroy_process_group()
    return first

"""The rank of this process in a distributed stage, by the variables of its launcher: torchrun, whose agent `fgrl run` starts, too, or
Slurm's `srun`.

Slurm's variables are read here alone. A batch script has them, too (`SLURM_NTASKS`, `SLURM_PROCID`), though nothing was
started several times there; so a library that guesses by them is wrong.
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
"""A variable and its value. Keeps gloo on the interface that other machines do not reach, where all processes are on this one."""
STORE = "FGRL_RANKS"
"""Names the file in the stage's folder by which the processes of one attempt at a stage find each other."""
LAUNCHER = (
    "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", STORE,
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_NNODES",
    "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", "SLURM_STEP_TASKS_PER_NODE",
)  # fmt: skip
"""Variables that a process which takes no part must not see."""
KEY = "FGRL_STAGE_KEY"
"""Set for the process of one distributed stage: the key that it must find."""
INVOCATION = "FGRL_INVOCATION"
"""Set for the process of one distributed stage: the folder of the invocation that it belongs to."""


def launched(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what `srun` says about this process, in the words of torchrun; {} where it has not started several."""
    if "RANK" in environment or environment.get("SLURM_STEP_NUM_TASKS", "1") in ("", "1"):
        return {}
    step = (environment.get(f"SLURM_{part}", "0") for part in ("JOB_ID", "STEP_ID", "RESTART_COUNT"))
    return {
        "RANK": environment["SLURM_PROCID"], "LOCAL_RANK": environment["SLURM_LOCALID"],
        "GROUP_RANK": environment.get("SLURM_NODEID", "0"), "WORLD_SIZE": environment["SLURM_STEP_NUM_TASKS"],
        "GROUP_WORLD_SIZE": environment.get("SLURM_STEP_NUM_NODES", "1"), STORE: "-".join(step),
    }  # fmt: skip


def rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return the global rank; 0 when nobody launched us."""
    told = {**environment, **launched(environment)}
    return next((int(told[name]) for name in ("RANK", "LOCAL_RANK") if told.get(name, "").isdigit()), 0)


def local_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return the rank among the processes of this machine, which is the number of its GPU."""
    return int({**environment, **launched(environment)}.get("LOCAL_RANK", "0"))


def nodes(environment: Mapping[str, str] = os.environ) -> int:
    """Return on how many machines a launcher has started the processes of the stage."""
    return int(environment.get("GROUP_WORLD_SIZE", "1"))


def on_first_node(environment: Mapping[str, str] = os.environ) -> bool:
    """Return True on the machine of rank 0, the only one that writes to SQLite files and asks judges."""
    return environment.get("GROUP_RANK", "0") == "0"


def started(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return how many processes a launcher has started for the stage; None where none has."""
    return int(environment["WORLD_SIZE"]) if {"LOCAL_RANK", "WORLD_SIZE"} <= environment.keys() else None


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of processes that take no part, or are to be launched."""
    return {name: value for name, value in environment.items() if name not in LAUNCHER}


# -- the processes of a stage, once they are connected -------------------------------------------------------------------


def world() -> int:
    """Return how many processes the stage has, this one among them, as far as they are connected."""
    loaded = "torch.distributed" in sys.modules  # whoever connects processes has loaded it
    return distributed.get_world_size() if loaded and distributed.is_available() and distributed.is_initialized() else 1


def connected() -> int:
    """Return how many processes work with each other, this one among them: all of the stage, one inside `apart`."""
    return 1 if _apart else world()


@contextmanager
def apart() -> Iterator[None]:
    """Inside, this process works as if it were alone, whatever the others do meanwhile."""
    global _apart
    before, _apart = _apart, True
    try:
        yield
    finally:
        _apart = before


def place() -> int:
    """Return the number of this process among those that are connected, from 0."""
    return distributed.get_rank() if connected() > 1 else 0


def meet() -> None:
    """Wait until all that are connected are here."""
    if connected() > 1:
        distributed.barrier()


def is_mine(number: int) -> bool:
    """Return True if this process has the part of this number, from 0, of work that is shared out."""
    return number % connected() == place()


def leave() -> bool:
    """End what the processes of a stage do together. Return True in the one that goes on, alone, with what all have made."""
    first = place() == 0
    if connected() > 1:
        meet()
        distributed.destroy_process_group()
    return first

"""The rank of this process in a distributed stage, and the environment that its launcher must not see."""

from __future__ import annotations

import os
from collections.abc import Mapping

LAUNCHER = (
    "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
KEY = "FGRL_STAGE_KEY"
"""Set for the process of one distributed stage: the key that it must find."""
INVOCATION = "FGRL_INVOCATION"
"""Set for the process of one distributed stage: the folder of the invocation that it belongs to."""


def rank(environment: Mapping[str, str] = os.environ) -> int:
    """Global rank by the launcher's variables (torchrun, Slurm, Lightning's own); 0 when nobody launched us."""
    for name in ("RANK", "LOCAL_RANK"):
        if environment.get(name, "").isdigit():
            return int(environment[name])
    several = environment.get("SLURM_NTASKS", "1") not in ("", "1")
    return int(environment["SLURM_PROCID"]) if several and environment.get("SLURM_PROCID", "").isdigit() else 0


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for our own launcher."""
    return {name: value for name, value in environment.items() if name not in LAUNCHER}

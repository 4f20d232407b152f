"""Imported by a recipe in every process of a distributed stage: writes down how many train, and where they listen."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from torch import distributed

from fgrl.modules.training_module import TrainingModule

training_step = TrainingModule.training_step


def listening() -> list[str]:
    """The addresses, as the kernel writes them, at which this process waits for connections over TCP."""
    own = {str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path("/proc/net", name).read_text().splitlines()[1:]]
    return sorted({row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own})


def spied_step(self: Any, batch: Any, index: int) -> Any:
    seen = {"world": distributed.get_world_size(), "rows": len(batch.mask), "listening": listening()}
    file = Path(os.environ["SPY"]) / f"rank-{distributed.get_rank()}.json"
    file.write_text(json.dumps(seen))
    return training_step(self, batch, index)


if TrainingModule.training_step.__name__ != "spied_step":
    TrainingModule.training_step = spied_step  # type: ignore[method-assign]

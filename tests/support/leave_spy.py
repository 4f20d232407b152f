"""Imported by a recipe: once, after the first checkpoint, rank 0 writes `here` to the folder `SPY` and waits until its run is to leave."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from fgrl.base import ranks, stops
from fgrl.training import checkpoints
from fgrl.training.training_module import TrainingModule

training_step = TrainingModule.training_step


def spied_step(self: Any, batch: Any, index: int) -> Any:
    here = Path(os.environ.get("SPY", "/")) / "here"
    if "SPY" in os.environ and ranks.rank() == 0 and checkpoints.last(self.run.dir) and not here.exists():
        here.touch()
        while not stops.is_to_leave():
            time.sleep(0.01)
    return training_step(self, batch, index)


if TrainingModule.training_step.__name__ != "spied_step":
    TrainingModule.training_step = spied_step  # type: ignore[method-assign]

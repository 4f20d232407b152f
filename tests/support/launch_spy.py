"""Imported by a recipe in every process of a distributed stage: writes down how many train, and where they listen."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from torch import distributed

from fgrl.training.training_module import TrainingModule

sys.path.insert(0, str(Path(__file__).parent))
from listening import listening

training_step = TrainingModule.training_step


def spied_step(self: Any, batch: Any, index: int) -> Any:
    if "SPY" not in os.environ:  # the process of the tests has read the recipe, too
        return training_step(self, batch, index)
    seen = {"world": distributed.get_world_size(), "rows": len(batch.mask), "listening": listening()}
    file = Path(os.environ["SPY"]) / f"rank-{distributed.get_rank()}.json"
    file.write_text(json.dumps(seen))
    return training_step(self, batch, index)


if TrainingModule.training_step.__name__ != "spied_step":
    TrainingModule.training_step = spied_step  # type: ignore[method-assign]

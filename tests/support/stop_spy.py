"""Imported by a recipe: makes a chosen process wait at a chosen moment, so that a test can end it exactly there.

`SPY` is a folder: `pid-RANK` (`pid-parent` for the process that waits for a stage of several) is a process of the run, and
`here-RANK` appears when the process of `SPY_AT` (`moment:rank`) is in the middle of the moment. There it waits until its run is asked to
stop; "hangs" instead of a moment is a reward that never comes back. `after-RANK` has a byte for each pass that is made afterwards.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from fgrl import rollouts
from fgrl.base import ranks, stops
from fgrl.components.engines import hf
from fgrl.rollouts import collecting
from fgrl.training import online
from fgrl.training.training_module import TrainingModule

FOLDER = Path(os.environ["SPY"])
MOMENT, RANK = os.environ.get("SPY_AT", "never:0").split(":")
rank = str(ranks.rank())
inside = {"moment": "drawing"}
seen: dict[str, int] = {}


def note(name: str, text: str = "") -> None:
    """Whole from the beginning: the test reads it as soon as it is there."""
    (FOLDER / f"writing-{name}").write_text(text)
    (FOLDER / f"writing-{name}").rename(FOLDER / name)


def reach(moment: str) -> None:
    """The second time, something of the moment is done, and something is left."""
    seen[moment] = seen.get(moment, 0) + 1
    here = FOLDER / f"here-{rank}"
    if here.exists():
        with (FOLDER / f"after-{rank}").open("a") as file:
            file.write(moment[0])
    elif (moment, rank, seen[moment]) == (MOMENT, RANK, 2):
        note(here.name)
        while MOMENT == "hanging" or not stops.asked(threading.get_ident()):
            time.sleep(0.01)


step, score, draw, training_step, scored = (
    hf._step, collecting.score, rollouts.draw, TrainingModule.training_step, online.OnlineRounds._scored,
)  # fmt: skip


def spied_step(*arguments: Any) -> Any:
    reach(inside["moment"])
    return step(*arguments)


def spied_draw(*arguments: Any, **options: Any) -> Any:
    inside["moment"] = "evaluating"
    try:
        return draw(*arguments, **options)
    finally:
        inside["moment"] = "drawing"


def spied_score(model: Any, reference: Any, tokens: Any, needs: Any, **options: Any) -> Any:
    """Of the first model that is asked, pass by pass."""
    states = model.states

    def spied_states(*arguments: Any, **options: Any) -> Any:
        reach("scoring")
        return states(*arguments, **options)

    model.states = spied_states
    try:
        return score(model, reference, tokens, needs, **options)
    finally:
        del model.states


def spied_training_step(self: Any, batch: Any, index: int) -> Any:
    reach("training")
    return training_step(self, batch, index)


def spied_scored(self: Any, rollout: Any) -> Any:
    reach("hanging")
    return scored(self, rollout)


if hf._step.__name__ != "spied_step":  # a file that a recipe imports runs again before each stage
    hf._step = spied_step
    rollouts.draw = spied_draw
    collecting.score = spied_score
    TrainingModule.training_step = spied_training_step  # type: ignore[method-assign]
    online.OnlineRounds._scored = spied_scored  # type: ignore[method-assign]
    note(f"pid-{rank}" if ranks.KEY in os.environ or "SPY_ALONE" in os.environ else "pid-parent", str(os.getpid()))

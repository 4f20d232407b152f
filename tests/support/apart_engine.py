"""The engine `apart` (registered by `apart_registered.py`), which draws from a copy of the model as an engine in another process would.

It can draw from older weights, in another type, unlike itself from run to run, with wrong log-probabilities, and it can fail or hang.
"""

from __future__ import annotations

import copy
import itertools
import threading
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch

from fgrl import models
from fgrl.base import stops
from fgrl.components.engines.hf import HF
from fgrl.kinds import Correction, Drawer, DrawRequest, Elsewhere, Engine
from fgrl.registry import Unkeyed
from fgrl.rollouts import collecting, pad
from fgrl.types import DrawnResponse

DRAWS: list[tuple[str, int, list[tuple[int, int]]]] = []
"""Of all drawers, as they ended: the thread, the version, and (seed, row) of each request."""
OPEN: list[int] = []
"""One item for each drawer that is not closed."""
_calls = itertools.count()


class Apart(Engine):
    """Draws from a copy of the model."""

    correct: Literal["none", "truncate", "mask"] = "truncate"
    """As an engine in another process has it."""
    bound: float = 2.0
    """Of the importance weights."""
    ahead: Literal[0, 1] = 0
    """Rollouts that are drawn ahead."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the copy."""
    skips: int = 0
    """Of the weights that it is given, this many are taken after the first, and none after those; 0: all are taken."""
    off: float = 0.0
    """Added to the log-probability of each token that is given."""
    reproducible: bool = True
    """False: draws other responses each time."""
    fails: int | None = None
    """The number of the draw of the drawer that fails."""
    slow: float = 0.0
    """Seconds that a draw takes at least."""
    hangs: int | None = None
    """The number of the draw of the drawer that never ends."""
    copies: Annotated[int, Unkeyed] = 1
    """Servers."""
    tensor_parallel: Annotated[int, Unkeyed] = 1
    """Devices of each."""
    devices: Annotated[list[int] | None, Unkeyed] = None
    """Which ones."""
    transfer: Annotated[Literal["adapter", "files"], Unkeyed] = "files"
    """How weights go there."""
    memory: Annotated[float | None, Unkeyed] = None
    """Share of a device."""

    def open(self, model: Any) -> Drawer:
        return ApartDrawer(self, model)

    def correction(self) -> Correction:
        return Correction(self.correct, self.bound)

    def draws_ahead(self) -> Literal[0, 1]:
        return self.ahead

    def elsewhere(self) -> Elsewhere:
        devices = None if self.devices is None else tuple(self.devices)
        sends: Literal["adapter", "weights"] = "adapter" if self.transfer == "adapter" else "weights"
        return Elsewhere(self.copies, self.tensor_parallel, devices, self.dtype, self.transfer, sends, self.memory)


class ApartDrawer(Drawer):
    def __init__(self, engine: Apart, model: Any) -> None:
        self.engine, self.model, self.drawn = engine, _copied(model, engine.dtype), 0
        self.inner = HF().open(self.model)
        self.busy = threading.Lock()
        OPEN.append(id(self))

    def take(self, weights: Any, version: int) -> None:
        assert not self.busy.locked(), "weights came while it draws"
        if not self.engine.skips or version <= self.engine.skips:
            own = dict(self.model.net.named_parameters())
            with torch.no_grad():
                for name, value in weights.net.named_parameters():
                    own[name].copy_(value)
        super().take(weights, version)

    def draw(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        assert self.busy.acquire(blocking=False), "two draws at a time"
        try:
            number, self.drawn = self.drawn, self.drawn + 1
            if number == self.engine.fails:
                raise EngineDied(f"the server died in draw {number}")
            for _ in range(round(100 * self.engine.slow)):
                stops.point()
                time.sleep(0.01)
            while number == self.engine.hangs:
                stops.point()
                time.sleep(0.01)
            shift = 0 if self.engine.reproducible else 1000 * (1 + next(_calls)) + time.time_ns() % 997
            asked = [DrawRequest(one.prompt, one.sampling, one.seed + shift, one.row, one.early) for one in requests]
            drawn = self.inner.draw(asked)
            sampling = requests[0].sampling
            tokens = pad(
                [one.prompt for one in requests], drawn, self.model.pad_id, self.model.eos_ids, sampling.min_new_tokens
            )
            needs = frozenset({"old_logp"})
            with models.evaluating(self.model):
                scored = collecting.score(self.model, None, tokens, needs, temperature=sampling.temperature)
            rows = (scored["old_logp"] + self.engine.off).tolist()
            DRAWS.append((threading.current_thread().name, self.version, [(one.seed, one.row) for one in requests]))
            return [
                DrawnResponse(each.token_ids, each.finish, self.version, row[: len(each)])
                for each, row in zip(drawn, rows, strict=True)
            ]
        finally:
            self.busy.release()

    def close(self) -> None:
        OPEN.remove(id(self))


class EngineDied(RuntimeError):
    pass


def _copied(model: Any, dtype: str) -> Any:
    other = copy.deepcopy(model)
    return other.to(getattr(torch, dtype)).requires_grad_(False)

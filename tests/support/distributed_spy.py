"""Imported by a recipe in every process of a distributed stage: writes down what a process saw, and breaks one on demand.

`SPY` is a folder for what was seen, `SPY_BREAK` is `what:rank:call`: at its `call`-th micro-batch, `rank` crashes
("crash"), loses its loss ("nan"), or finds the disk full at its `call`-th checkpoint ("full").
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch

from fgrl.models.decoding.copies import whole
from fgrl.training import callbacks, online
from fgrl.training.training_module import TrainingModule

FOLDER = Path(os.environ["SPY"])
WHAT, RANK, CALL = [*os.environ.get("SPY_BREAK", "nothing:0:0").split(":"), ""][:3]
calls = iter(range(10**6))
fit, start, training_step, before_step, save = (
    TrainingModule.fit, online.OnlineRounds.start, TrainingModule.training_step,
    TrainingModule.on_before_optimizer_step, callbacks.save,
)  # fmt: skip


def spied_fit(self: Any, *arguments: Any, **options: Any) -> None:
    fit(self, *arguments, **options)
    trained = {name: whole(value.detach()) for name, value in self.named_parameters() if value.requires_grad}
    digest = hashlib.sha256(b"".join(value.numpy().tobytes() for _, value in sorted(trained.items()))).hexdigest()
    (FOLDER / f"weights-{self.run.stage}-{self.run.rank}.json").write_text(json.dumps(digest))


def spied_start(self: Any, number: int, process: Any) -> Any:
    loader = start(self, number, process)
    rollout = loader.units.rollout
    ids = [row[: int(mask.sum())].tolist() for row, mask in zip(rollout.response_ids, rollout.mask, strict=True)]
    write(self, "rollouts", {"ids": ids, "group": rollout.group.tolist()})
    return loader


def spied_step(self: Any, batch: Any, index: int) -> Any:
    mine = FOLDER / f"pid-{self.run.rank}"
    if not mine.exists():  # once, and whole: this process may be killed at any later moment
        mine.with_name(f"writing-{mine.name}").write_text(str(os.getpid()))
        mine.with_name(f"writing-{mine.name}").rename(mine)
    if self.run.rank == int(RANK) and next(calls) == int(CALL):
        if WHAT == "crash":
            raise RuntimeError("rank fell over")
        if WHAT == "nan":
            with torch.no_grad():
                next(value for value in self.parameters() if value.requires_grad).fill_(float("nan"))
    loss = training_step(self, batch, index)
    share = float(loss.detach()) / batch.scale if batch.scale else 0.0  # of the loss of the whole optimizer step
    write(
        self, "losses", {"step": self.trainer.global_step, "loss": share, "rows": len(batch.mask) * bool(batch.scale)}
    )
    return loss


def spied_before_step(self: Any, optimizer: Any) -> None:
    """Gradients are whole (of all pieces and ranks), and not yet clipped. DeepSpeed keeps them in buffers of its own."""
    before_step(self, optimizer)
    squares = [value.grad.double().square().sum() for value in self.parameters() if value.grad is not None]
    if squares:
        write(self, "gradients", {"step": self.trainer.global_step, "norm": float(torch.stack(squares).sum().sqrt())})


def write(module: Any, what: str, told: dict[str, Any]) -> None:
    with (FOLDER / f"{what}-{module.run.stage}-{module.run.rank}.jsonl").open("a") as file:
        file.write(json.dumps(told) + "\n")


def spied_save(trainer: Any, folder: Path) -> None:
    if WHAT == "full" and trainer.global_rank == int(RANK) and next(calls) >= int(CALL):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    save(trainer, folder)


if TrainingModule.fit.__name__ != "spied_fit":  # a file that a recipe imports runs again before each stage
    TrainingModule.fit = spied_fit  # type: ignore[method-assign]
    online.OnlineRounds.start = spied_start  # type: ignore[method-assign]
    TrainingModule.training_step = spied_step  # type: ignore[method-assign]
    TrainingModule.on_before_optimizer_step = spied_before_step  # type: ignore[method-assign]
    if WHAT == "full":
        callbacks.save = spied_save

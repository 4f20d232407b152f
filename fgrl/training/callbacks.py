"""Between two rounds: the checkpoint, the evaluation, and stopping after Ctrl-C or where no better model is in
sight.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint

from fgrl.base import console
from fgrl.base.files import remove
from fgrl.kinds import Run
from fgrl.training.checkpoints import seal


class BetweenRounds(Checkpoint):
    """Writes `last.ckpt` after every `every` rounds, after the last one and before an evaluation; then evaluates. Stops
    after a round that was interrupted, and where `evaluate` returns that it is enough.

    It is a `Checkpoint`, because Lightning calls those after the module's own `on_train_epoch_end`: the round is
    already counted and logged, so that a process killed right after the checkpoint has lost nothing.
    """

    def __init__(self, run: Run, every: int, due: Callable[[], bool], evaluate: Callable[[], bool]) -> None:
        self.run, self.every, self.due, self.evaluate = run, every, due, evaluate

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        done = trainer.current_epoch + 1  # Lightning counts it after this hook
        interrupted = trainer.strategy.reduce_boolean_decision(self.run.interrupted, all=False)
        due = self.due()
        if interrupted or due or done % self.every == 0 or done == trainer.max_epochs:
            console.phase("saving")
            save(trainer, self.run.dir)
        if due:
            console.phase("evaluating")
        pl_module.interrupted = interrupted  # in all processes, whichever was asked
        if interrupted or (due and self.evaluate()):
            trainer.should_stop = True
        console.phase("")


def save(trainer: Trainer, folder: Path) -> None:
    """`last.ckpt` in `folder`, finished by rename; every process calls this. A failure leaves the last one as it
    was.
    """
    path, partial, replaced = (folder / f"{name}.ckpt" for name in ("last", "writing", "replaced"))
    if trainer.is_global_zero:
        remove(partial)  # of a process that was killed while writing
    trainer.strategy.barrier("before the checkpoint")
    try:
        trainer.save_checkpoint(partial)
        if trainer.is_global_zero:
            seal(partial)
    except BaseException:
        with contextlib.suppress(OSError):
            remove(partial)
        raise
    if trainer.is_global_zero:
        if path.is_dir():  # DeepSpeed writes a folder, which cannot be replaced in one move
            remove(replaced)
            path.rename(replaced)
        partial.rename(path)
        remove(replaced)
    trainer.strategy.barrier("checkpoint")

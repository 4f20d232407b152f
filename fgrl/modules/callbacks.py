"""What happens between two rounds: the checkpoint, and leaving on Ctrl-C."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from fgrl.kinds import Run


class BetweenRounds(Checkpoint):
    """Writes `last.ckpt` after every `every` rounds and after the last one; ends training after a round in which we were asked to.

    A `Checkpoint`, because Lightning calls those after the module's own `on_train_epoch_end`: the round is counted and
    logged by then, so that a process killed right after the checkpoint has lost nothing.
    """

    def __init__(self, run: Run, every: int) -> None:
        self.run, self.every = run, every

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        done = trainer.current_epoch + 1  # Lightning counts it after this hook
        leave = trainer.strategy.reduce_boolean_decision(self.run.interrupted, all=False)
        if leave:
            trainer.should_stop = True
        if leave or done % self.every == 0 or done == trainer.max_epochs:
            save(trainer, self.run.dir)


def save(trainer: Trainer, folder: Path) -> None:
    """`last.ckpt` in `folder`, finished by rename; called by every process. A failure leaves the last one as it was."""
    path, partial, replaced = (folder / f"{name}.ckpt" for name in ("last", "writing", "replaced"))
    if trainer.is_global_zero:
        _remove(partial)  # of a process that was killed while writing
    trainer.strategy.barrier("before the checkpoint")
    try:
        trainer.save_checkpoint(partial)
    except BaseException:
        with contextlib.suppress(OSError):
            _remove(partial)
        raise
    if trainer.is_global_zero:
        if path.is_dir():  # DeepSpeed writes a folder, which cannot be replaced in one move
            _remove(replaced)
            path.rename(replaced)
        partial.rename(path)
        _remove(replaced)
    trainer.strategy.barrier("checkpoint")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

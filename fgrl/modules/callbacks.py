"""Between two rounds: the checkpoint, and stopping after Ctrl-C."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from fgrl.kinds import Run


class BetweenRounds(Checkpoint):
    """Writes `last.ckpt` after every `every` rounds and after the last one, and stops after a round that was interrupted.

    It is a `Checkpoint`, because Lightning calls those after the module's own `on_train_epoch_end`: the round is already
    counted and logged, so that a process killed right after the checkpoint has lost nothing.
    """

    def __init__(self, run: Run, every: int) -> None:
        self.run, self.every = run, every

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        done = trainer.current_epoch + 1  # Lightning counts it after this hook
        interrupted = trainer.strategy.reduce_boolean_decision(self.run.interrupted, all=False)
        if interrupted:
            trainer.should_stop = True
        if interrupted or done % self.every == 0 or done == trainer.max_epochs:
            save(trainer, self.run.dir)


def save(trainer: Trainer, folder: Path) -> None:
    """`last.ckpt` in `folder`, finished by rename; every process calls this. A failure leaves the last one as it was."""
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

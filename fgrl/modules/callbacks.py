"""Checkpoints between rounds, and leaving on Ctrl-C."""

from __future__ import annotations

import shutil

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from fgrl.components.kinds import Run


class RoundCheckpoint(Callback):
    """Writes `last.ckpt` after every `every` rounds and after the last one, finished by rename."""

    def __init__(self, run: Run, every: int) -> None:
        self.run, self.every = run, every

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        done = trainer.current_epoch + 1
        if done % self.every and done != trainer.max_epochs and not self.run.interrupted:
            return
        path = self.run.dir / "last.ckpt"
        temporary = self.run.dir / "writing.ckpt"
        trainer.save_checkpoint(temporary)
        if trainer.is_global_zero:
            if path.is_dir():  # DeepSpeed writes a folder, which cannot be replaced in one move
                shutil.rmtree(path)
            temporary.replace(path)
        trainer.strategy.barrier("checkpoint")


class Interrupt(Callback):
    """Ends training after the round in which Ctrl-C was pressed; the checkpoint of that round is on disk by then."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.run.interrupted:
            trainer.should_stop = True

"""Actions between two rounds: the checkpoint, the evaluation, and stopping after Ctrl-C or when no better model is in
sight.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint

from fgrl.base import console
from fgrl.base.files import remove
from fgrl.kinds import Run
from fgrl.training.checkpoints import install, seal
from fgrl.training.shards import Shards


class BetweenRounds(Checkpoint):
    """Callback that writes `last.ckpt` after every `every` rounds (if at least `minutes` have passed since the previous
    one), after the last round and before an evaluation; then it evaluates. It stops after a round that was interrupted,
    and when `evaluate` returns that training may stop.

    It is a `Checkpoint`, because Lightning calls these after the module's own `on_train_epoch_end`: the round is
    already counted and logged, so that a process killed right after the checkpoint has lost nothing.
    """

    def __init__(
        self, run: Run, every: int, minutes: float, due: Callable[[], bool], evaluate: Callable[[], bool]
    ) -> None:
        self.run, self.every, self.due, self.evaluate = run, every, due, evaluate
        self.seconds, self._since = 60 * minutes, time.monotonic()
        self._saved = deque([0, 0, 0], maxlen=3)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        done = trainer.current_epoch + 1  # Lightning counts it after this hook
        any_process = partial(trainer.strategy.reduce_boolean_decision, all=False)
        interrupted, due = any_process(self.run.interrupted), self.due()
        now = interrupted or due or done == trainer.max_epochs
        if now or (done % self.every == 0 and any_process(time.monotonic() - self._since >= self.seconds)):
            console.phase("saving")
            save(trainer, self.run.dir)
            self._since = time.monotonic()
            self._saved.append(done)
            # of shards two are kept, while a third one is written
            pl_module.rounds.resumable = self._saved[0 if isinstance(trainer.strategy, Shards) else -1]
        if now:
            finish(trainer)
        if due:
            console.phase("evaluating")
        pl_module.interrupted = interrupted  # in all processes, whichever was asked
        if interrupted or (due and self.evaluate()):
            trainer.should_stop = True
        console.phase("")


def finish(trainer: Trainer) -> None:
    """Wait for a checkpoint that is being written during the training."""
    if isinstance(trainer.strategy, Shards):
        trainer.strategy.finish()


def save(trainer: Trainer, folder: Path) -> None:
    """Write `last.ckpt` in `folder`, finished by rename; every process calls this. After a failure the previous
    checkpoint is unchanged. A checkpoint in shards gets its name later.
    """
    finish(trainer)
    writing = folder / "writing.ckpt"
    whole = trainer.is_global_zero and not isinstance(trainer.strategy, Shards)
    if trainer.is_global_zero:
        remove(writing)  # of a process that was killed while writing
    trainer.strategy.barrier("before the checkpoint")
    try:
        trainer.save_checkpoint(writing)
        if whole:
            seal(writing)
    except BaseException:
        with contextlib.suppress(OSError):
            remove(writing)
        raise
    if whole:
        install(writing)
    trainer.strategy.barrier("checkpoint")

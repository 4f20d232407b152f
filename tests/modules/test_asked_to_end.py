"""A training that one of several processes was asked to end is unfinished in all of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fgrl.experiments.stages import training
from fgrl.training import callbacks


def test_none_takes_it_for_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[str] = []
    run = SimpleNamespace(interrupted=False, stop_if_interrupted=lambda: None, rank=0, dir=tmp_path, out=tmp_path)
    another_was_asked = SimpleNamespace(reduce_boolean_decision=lambda mine, all: True)
    monkeypatch.setattr(callbacks, "save", lambda *_: saved.append("checkpoint"))

    class Module(SimpleNamespace):
        interrupted = False
        rounds = SimpleNamespace(resumable=0)

        def fit(self, checkpoint_every: int) -> None:
            trainer: Any = SimpleNamespace(current_epoch=0, max_epochs=9, strategy=another_was_asked, should_stop=False)
            between: Any = callbacks.BetweenRounds(run, checkpoint_every, 0, lambda: False, lambda: False)  # type: ignore[arg-type]
            between.on_train_epoch_end(trainer, self)
            assert trainer.should_stop

    monkeypatch.setattr(training.training_module, "TrainingModule", lambda *_: Module())
    stage: Any = SimpleNamespace(save=lambda *_: saved.append("product"))
    with pytest.raises(KeyboardInterrupt):
        training.TrainingStage.fit(stage, run, None, 5, None)  # type: ignore[arg-type]
    assert saved == ["checkpoint"]

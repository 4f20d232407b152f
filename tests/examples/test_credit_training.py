"""The methods of examples/credit train alike with other micro-batches, and after SIGKILL; test_credit_training_grid.py has all cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from credit_training import (
    METHODS,
    OF_PAIRS,
    OTHER_MICRO_BATCHES,
    overrides_of,
    relative_difference,
    train,
    train_in_two_processes,
    train_until_killed,
    weights_of_all,
)
from tiny_recipe import log

from fgrl.training.training_module import TrainingModule


@pytest.mark.parametrize("method", METHODS)
def test_other_micro_batches_train_alike(
    method: str, tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training_step, passes = TrainingModule.training_step, []

    def counted(self: Any, batch: Any, index: int) -> Any:
        passes.append(index)
        return training_step(self, batch, index)

    monkeypatch.setattr(TrainingModule, "training_step", counted)
    overrides = [*overrides_of(method, tmp_path, tiny_model_dir)]
    overrides.append("stages.policy.train.epochs=1" if method in OF_PAIRS else "stages.policy.train.iterations=2")
    whole = train(method, tmp_path / "whole", overrides)
    passes_of_whole = len(passes)
    cut = train(method, tmp_path / "cut", [*overrides, *OTHER_MICRO_BATCHES])
    assert len(passes) - passes_of_whole == 4 * passes_of_whole, "micro-batches of 1 instead of 4"
    assert relative_difference(whole, cut) < 1e-4


@pytest.mark.parametrize("method", ["top_entropy", "prime", "delta"])
def test_two_processes_train_alike(method: str, tmp_path: Path, tiny_model_dir: Path) -> None:
    overrides = [*overrides_of(method, tmp_path, tiny_model_dir), "stages.policy.train.iterations=2"]
    whole = train(method, tmp_path / "whole", overrides)
    assert relative_difference(whole, train_in_two_processes(method, tmp_path / "two", overrides)) < 1e-4


@pytest.mark.parametrize("method", ["vine", "prime"])
def test_a_training_goes_on_after_a_kill_as_if_there_had_been_none(
    method: str, tmp_path: Path, tiny_model_dir: Path
) -> None:
    overrides = overrides_of(method, tmp_path, tiny_model_dir)
    whole = train(method, tmp_path / "whole", overrides)
    train_until_killed(method, tmp_path / "killed", overrides, passes=3)
    assert (tmp_path / "killed" / "last.ckpt").exists()
    assert weights_of_all(train(method, tmp_path / "killed", overrides)) == weights_of_all(whole)
    assert log(tmp_path / "killed") == log(tmp_path / "whole")


def test_the_distance_over_the_vocabulary_trains_alike(tmp_path: Path, tiny_model_dir: Path) -> None:
    """Prompts of the policy that is told are columns of a width of their own."""
    overrides = [
        *overrides_of("self_distillation", tmp_path, tiny_model_dir), "stages.policy.train.iterations=2",
        "stages.policy.algorithm={name: told_distance}",
    ]  # fmt: skip
    whole = train("self_distillation", tmp_path / "whole", overrides)
    assert all(row["told_distance"] > 0 for row in log(tmp_path / "whole"))
    cut = train("self_distillation", tmp_path / "cut", [*overrides, *OTHER_MICRO_BATCHES])
    assert relative_difference(whole, cut) < 1e-4
    two = train_in_two_processes("self_distillation", tmp_path / "two", overrides)
    assert relative_difference(whole, two) < 1e-4


def test_ppo_over_turns_depends_on_neither_processes_nor_kills(tmp_path: Path, tiny_model_dir: Path) -> None:
    """All conversations are truncated, so that the values behind their ends count."""
    overrides = [
        *overrides_of("mt_grpo", tmp_path, tiny_model_dir), "stages.policy.train.critic_lr=1e-2", "stages.policy.train.iterations=2",
        "stages.policy.algorithm={name: ppo, gae_over: turn, kl_coef: 0.0, aggregate: sum}",
        f"stages.policy.critic={{base: '{tiny_model_dir}', dtype: float32, lora: {{r: 4, alpha: 8}}}}",
    ]  # fmt: skip
    whole = train("turns", tmp_path / "whole", overrides)
    assert {row["truncated"] for row in log(tmp_path / "whole")} == {1.0}
    assert relative_difference(whole, train_in_two_processes("turns", tmp_path / "two", overrides)) < 1e-4
    train_until_killed("turns", tmp_path / "killed", overrides, passes=3)
    assert weights_of_all(train("turns", tmp_path / "killed", overrides)) == weights_of_all(whole)

"""Every method of examples/credit: other micro-batches, two processes (DDP, ZeRO-2), and SIGKILL with resume give the same training."""

from __future__ import annotations

from pathlib import Path

import pytest
from credit_training import (
    METHODS,
    OTHER_MICRO_BATCHES,
    overrides_of,
    relative_difference,
    train,
    train_in_two_processes,
    train_until_killed,
    weights_of_all,
)
from tiny_recipe import log

pytestmark = pytest.mark.evidence


@pytest.mark.parametrize("method", METHODS)
def test_the_training_depends_on_neither_batching_nor_processes_nor_kills(
    method: str, tmp_path: Path, tiny_model_dir: Path
) -> None:
    overrides = overrides_of(method, tmp_path, tiny_model_dir)
    whole = train(method, tmp_path / "whole", overrides)
    # 1. two kills, each before a later micro-batch than the last checkpoint: the same bytes, and the same log
    for passes in (3, 1):
        train_until_killed(method, tmp_path / "killed", overrides, passes)
        assert (tmp_path / "killed" / "last.ckpt").exists()
    assert weights_of_all(train(method, tmp_path / "killed", overrides)) == weights_of_all(whole)
    assert log(tmp_path / "killed") == log(tmp_path / "whole")
    # 2. other micro-batches and other processes: the same weights up to rounding
    cut = train(method, tmp_path / "cut", [*overrides, *OTHER_MICRO_BATCHES])
    two = {
        strategy: train_in_two_processes(method, tmp_path / strategy, overrides, strategy)
        for strategy in ("ddp", "deepspeed_stage_2")
    }
    others = {"micro-batches": cut, **{f"two processes, {strategy}": made for strategy, made in two.items()}}
    differences = {name: relative_difference(whole, made) for name, made in others.items()}
    print(method, {name: f"{difference:.1e}" for name, difference in differences.items()})
    assert max(differences.values()) < 1e-4

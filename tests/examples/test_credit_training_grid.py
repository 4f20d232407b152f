"""Every method of examples/credit: other micro-batches, two processes, and SIGKILL with resume give the same training."""

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
)
from tiny_recipe import log, weights

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
    assert weights(train(method, tmp_path / "killed", overrides)) == weights(whole)
    assert log(tmp_path / "killed") == log(tmp_path / "whole")
    # 2. other micro-batches and other processes: the same weights up to rounding
    cut = train(method, tmp_path / "cut", [*overrides, *OTHER_MICRO_BATCHES])
    two = train_in_two_processes(method, tmp_path / "two", overrides)
    differences = {"micro-batches": relative_difference(whole, cut), "two processes": relative_difference(whole, two)}
    print(method, {name: f"{difference:.1e}" for name, difference in differences.items()})
    assert max(differences.values()) < 1e-4

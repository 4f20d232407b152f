"""Checkpoints in shards: a killed training goes on, on any number of processes; what is damaged is not read."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from shard_folders import write_shards
from test_strategies import GRID, python
from torch.distributed.checkpoint.api import CheckpointException
from training_helpers import a_run

from fgrl.training import callbacks, checkpoints, shards
from fgrl.training.trainer import TrainSettings


@pytest.mark.usefixtures("warm")
def test_a_killed_training_goes_on_with_the_same_bytes_or_on_fewer_processes() -> None:
    """Reinforcement learning; both processes are killed in the second iteration."""
    done = python(GRID, "--kill", "2-2", "2-1", "--algorithms", "grpo", "--json")
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    same, fewer = json.loads(done.stdout.splitlines()[-1])
    assert [(case["begun on"], case["continued on"]) for case in (same, fewer)] == [(2, 2), (2, 1)]
    assert same["bytes"] == 0
    assert max(same["weights"], fewer["weights"]) <= 1e-6


# -- what is on disk ---------------------------------------------------------------------------------------------------


@pytest.fixture
def said(tmp_path: Path) -> Callable[[], list[str]]:
    """Removes what is damaged in the folder, and returns what is said of it."""

    def remove() -> list[str]:
        run = a_run(tmp_path)
        texts: list[str] = []
        run.say = texts.append  # type: ignore[method-assign]
        checkpoints.remove_damaged(run, folder=True)
        return texts

    return remove


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def shard_of(folder: Path) -> Path:
    (file,) = folder.glob("*.safetensors")
    return file


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a shard": (lambda last: flip(shard_of(last)), r"the checksum of shard-.*\.safetensors differs"),
    "a cut shard": (lambda last: shard_of(last).write_bytes(b"cut"), r"the checksum of shard-.*\.safetensors differs"),
    "the rest": (lambda last: flip(last / shards.REST), r"the checksum of rest\.ckpt differs"),
    "no shard": (lambda last: shard_of(last).unlink(), r"shard-.*\.safetensors is missing"),
    "another file": (lambda last: (last / "shard-9.safetensors").touch(), r"shard-9\.safetensors is not listed"),
    "the manifest": (lambda last: (last / checkpoints.MANIFEST).write_text("{"), r"manifest\.json cannot be read"),
    "no manifest": (lambda last: (last / checkpoints.MANIFEST).unlink(), "a folder without checkpoints"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_removed_and_the_one_before_is_taken(
    damage: str, tmp_path: Path, said: Callable[[], list[str]]
) -> None:
    for number in (1.0, 2.0):
        write_shards(tmp_path, {"model.a": torch.full((3, 2), number)})
    assert said() == []
    break_it, words = DAMAGES[damage]
    break_it(tmp_path / "last.ckpt")
    (text,) = said()
    assert re.match(rf"last\.ckpt is damaged \({words}", text)
    assert text.endswith("it is removed, and the training continues from replaced.ckpt")
    assert checkpoints.last(tmp_path) == tmp_path / "replaced.ckpt"
    assert torch.equal(shards.whole_weights(tmp_path / "replaced.ckpt")["model.a"], torch.ones(3, 2))


def test_where_both_are_damaged_the_training_begins_again(tmp_path: Path, said: Callable[[], list[str]]) -> None:
    for _ in range(2):
        write_shards(tmp_path, {"model.a": torch.ones(3)})
    for name in checkpoints.NAMES:
        flip(shard_of(tmp_path / name))
    first, second = said()
    assert "continues from replaced.ckpt" in first
    assert second.startswith("replaced.ckpt is damaged (")
    assert second.endswith("the training starts from its beginning")
    assert checkpoints.last(tmp_path) is None


def test_two_are_kept_and_the_older_goes_only_when_the_newer_is_complete(tmp_path: Path) -> None:
    def kept() -> list[float]:
        return [float(shards.whole_weights(tmp_path / name)["a"]) for name in checkpoints.NAMES]

    for number in (1.0, 2.0, 3.0):
        write_shards(tmp_path, {"a": torch.tensor([number])})
    assert kept() == [3, 2]
    write_shards(tmp_path, {"a": torch.tensor([4.0])}, sealed=False)
    assert kept() == [3, 2]
    assert checkpoints.last(tmp_path) == tmp_path / "last.ckpt"


# -- while the training goes on ----------------------------------------------------------------------------------------


def test_a_full_disk_of_any_process_ends_the_training_and_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    write_shards(tmp_path, {"a": torch.ones(1)})
    (tmp_path / "writing.ckpt").mkdir()
    full = OSError(errno.ENOSPC, "No space left on device")
    writing: Future[Any] = Future()
    writing.set_exception(CheckpointException("write", {1: (full, None)}))  # type: ignore[dict-item]
    strategy: Any = SimpleNamespace(_writing=writing, _partial=tmp_path / "writing.ckpt", is_global_zero=True)
    with pytest.raises(OSError, match="No space left"):
        shards.Shards.finish(strategy)
    assert not (tmp_path / "writing.ckpt").exists(), "half a checkpoint keeps the disk full"
    assert checkpoints.damage(tmp_path / "last.ckpt") == ""


def saved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **train: Any) -> tuple[list[int], list[int]]:
    """After which of six rounds a checkpoint is written, and from which round on rollouts are kept after each."""
    written: list[int] = []
    kept: list[int] = []
    settings = TrainSettings(lr=1e-3, batch_size=1, accelerator="cpu", **train)
    minutes = settings.minutes_between_checkpoints
    between = callbacks.BetweenRounds(a_run(tmp_path), 1, minutes, lambda: False, lambda: False)
    strategy: Any = shards.Shards() if train["strategy"] == "fsdp" else SimpleNamespace()
    strategy.reduce_boolean_decision = lambda value, all: value
    trainer: Any = SimpleNamespace(strategy=strategy, max_epochs=6)
    module = SimpleNamespace(rounds=SimpleNamespace(resumable=0))
    monkeypatch.setattr(callbacks, "save", lambda trainer, folder: written.append(trainer.current_epoch + 1))
    for number in range(6):
        trainer.current_epoch = number
        between.on_train_epoch_end(trainer, module)
        kept.append(module.rounds.resumable)
    return written, kept


@pytest.mark.parametrize(
    ("train", "written"),
    [
        ({"strategy": "auto"}, [1, 2, 3, 4, 5, 6]),
        ({"strategy": "fsdp"}, [6]),
        ({"strategy": "fsdp", "checkpoint_minutes": 0}, [1, 2, 3, 4, 5, 6]),
        ({"strategy": "auto", "checkpoint_minutes": 100_000}, [6]),
    ],
)
def test_large_models_are_saved_by_minutes(
    train: dict[str, Any], written: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert saved(monkeypatch, tmp_path, **train)[0] == written


def test_what_was_drawn_is_kept_for_every_checkpoint_that_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of shards two are complete while a third is being written."""
    assert saved(monkeypatch, tmp_path, strategy="auto")[1] == [1, 2, 3, 4, 5, 6]
    assert saved(monkeypatch, tmp_path, strategy="fsdp", checkpoint_minutes=0)[1] == [0, 0, 1, 2, 3, 4]

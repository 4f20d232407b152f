"""A training that was stopped anywhere goes on and ends with the same bytes and the same log."""

from __future__ import annotations

import errno
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
import torch
from crashes import Bomb, crash_around_saving, crashing
from tiny_recipe import a_run, alone, log, weights

from fgrl.base.errors import Stopped
from fgrl.experiments.pipeline.run import Run
from fgrl.runs.stage import Stage
from fgrl.training import callbacks
from fgrl.training.online import OnlineRounds
from fgrl.training.training_module import TrainingModule

ONE_STEP = [
    "stages.policy.algorithm={name: grpo, kl_coef: 0.05}", "stages.policy.rollout.per_prompt=3",
    "stages.policy.train.batch_size=12",
]  # fmt: skip
"""The policy is not scored before the step: what its entropy and KL were is known after it."""
CASES = {
    "policy": ("policy", []),
    "policy, all weights": ("policy", ["stages.policy.model.lora=null"]),
    "policy, one step a round": ("policy", ONE_STEP),
    "reward model": ("reward_model", []),
    "reward model, all weights": ("reward_model", ["stages.reward_model.model.lora=null"]),
}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    return tiny_recipe.write(tmp_path_factory.mktemp("recipe"), tiny_model_dir)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, recipe: Path) -> Callable[[str], Path]:
    """Folder of a case's undisturbed run."""
    made: dict[str, Path] = {}

    def of(case: str) -> Path:
        if case not in made:
            made[case] = tmp_path_factory.mktemp("undisturbed") / "run"
            stage, overrides = CASES[case]
            alone(recipe, stage, *overrides).run(a_run(made[case]))
        return made[case]

    return of


def crash_inside(patch: pytest.MonkeyPatch, call: int) -> None:
    """Crash in the `call`-th micro-batch of this process."""
    whole, calls = TrainingModule.training_step, iter(range(10_000))

    def training_step(self: Any, batch: Any, index: int) -> Any:
        if next(calls) == call:
            raise Bomb
        return whole(self, batch, index)

    patch.setattr(TrainingModule, "training_step", training_step)


def crash_while_collecting(patch: pytest.MonkeyPatch, call: int) -> None:
    whole, calls = TrainingModule.seed_round, iter(range(10_000))

    def seed_round(self: Any) -> None:
        whole(self)
        if next(calls) == call:
            raise Bomb

    patch.setattr(TrainingModule, "seed_round", seed_round)


def crash_after_all_rounds(patch: pytest.MonkeyPatch) -> None:
    whole = callbacks.save

    def save(trainer: Any, folder: Path) -> None:
        whole(trainer, folder)
        if trainer.current_epoch + 1 == trainer.max_epochs:
            raise Bomb

    patch.setattr(callbacks, "save", save)


CRASHES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "in the first round": lambda patch: crash_inside(patch, 1),
    "while collecting": lambda patch: crash_while_collecting(patch, 1),
    "before a checkpoint": lambda patch: crash_around_saving(patch, 0, before=True),
    "after a checkpoint": lambda patch: crash_around_saving(patch, 0, before=False),
    "in a later round": lambda patch: crash_inside(patch, 5),
    "after the last checkpoint": crash_after_all_rounds,
}
"""Of processes that go on one after another."""


def rollouts(folder: Path) -> list[str]:
    """The lines of the product's rollouts; none of an offline training."""
    path = folder / "out" / "rollouts.jsonl"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@pytest.mark.parametrize("case", CASES)
def test_crashes_change_nothing(
    case: str, recipe: Path, undisturbed: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any moment; at least three of the runs went on from a checkpoint, and the last had all rounds behind it."""
    wanted, folder = undisturbed(case), tmp_path / "run"
    stage, overrides = CASES[case]
    found = []
    for crash in CRASHES.values():
        with crashing(monkeypatch, crash):
            alone(recipe, stage, *overrides).run(a_run(folder))
        found.append((folder / "last.ckpt").exists())
    assert found[3:] == [True] * 3
    saved = [torch.load(place / "last.ckpt", weights_only=False)["round"] for place in (folder, wanted)]
    assert saved[0] == saved[1]
    alone(recipe, stage, *overrides).run(a_run(folder))
    assert weights(folder / "out") == weights(wanted / "out")
    assert log(folder) == log(wanted)
    assert rollouts(folder) == rollouts(wanted)


def test_many_crashes_change_nothing(
    recipe: Path, undisturbed: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process gets a round further than the one before, and sees the log grow."""
    folder, crashes = tmp_path / "run", 0
    while True:
        try:
            with monkeypatch.context() as patch:
                crash_inside(patch, 5)  # a round has four micro-batches
                alone(recipe, "policy").run(a_run(folder))
            break
        except Bomb:
            crashes += 1
    assert crashes == 4
    assert weights(folder / "out") == weights(undisturbed("policy") / "out")
    assert log(folder) == log(undisturbed("policy"))
    assert rollouts(folder) == rollouts(undisturbed("policy"))


def test_the_undisturbed_run_is_a_fair_witness(undisturbed: Callable[[str], Path]) -> None:
    """Its coefficient moved, its rounds differ and its dropout was on: things that a resume could lose."""
    rows = log(undisturbed("policy"))
    assert [row["step"] for row in rows] == list(range(5))
    assert len({row["kl_coef"] for row in rows}) == 5
    assert len({row["reward"] for row in rows}) == 5
    assert [json.loads(line)["iteration"] for line in rollouts(undisturbed("policy"))] == [0] * 4 + [2] * 4 + [4] * 4
    steps = log(undisturbed("reward model"))
    assert [row["step"] for row in steps] == list(range(1, len(steps) + 1))
    assert len(steps) % 2 == 0, "an odd count would leave the last checkpoint shorter"
    assert steps[0]["lr"] < steps[1]["lr"] or steps[0]["lr"] > steps[-1]["lr"]


def test_dropout_is_drawn_anew_in_every_round(recipe: Path, tmp_path: Path, undisturbed: Callable[[str], Path]) -> None:
    """(The first step does not show it: a fresh adapter adds nothing, whatever is dropped.)"""
    alone(recipe, "reward_model", "vars.dropout=0.0").run(a_run(tmp_path / "run"))
    assert log(tmp_path / "run")[-1]["loss"] != log(undisturbed("reward model"))[-1]["loss"]


def test_online_training_has_no_dropout_also_after_a_resume(
    recipe: Path, tmp_path: Path, undisturbed: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first optimizer step of a rollout sees a ratio of 1: policies with and without dropout train alike."""
    folder = tmp_path / "run"
    with crashing(monkeypatch, lambda patch: crash_inside(patch, 9)):
        alone(recipe, "policy", "vars.dropout=0.0").run(a_run(folder))
    alone(recipe, "policy", "vars.dropout=0.0").run(a_run(folder))
    assert weights(folder / "out") == weights(undisturbed("policy") / "out")


def test_lightning_counts_as_we_do(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`current_epoch`, `global_step`, the scheduler and the progress line go on where they were."""
    folder = tmp_path / "run"
    with crashing(monkeypatch, lambda patch: crash_around_saving(patch, 1, before=False)):
        alone(recipe, "policy").run(a_run(folder))
    saved = torch.load(folder / "last.ckpt", weights_only=False)
    assert (saved["round"], saved["epoch"], saved["global_step"]) == (2, 2, 4)
    assert saved["lr_schedulers"][0]["last_epoch"] == 4
    seen: list[tuple[int, int, int]] = []
    whole = TrainingModule.training_step

    def training_step(self: Any, batch: Any, index: int) -> Any:
        seen.append((self.round, self.trainer.current_epoch, self.trainer.global_step))
        return whole(self, batch, index)

    monkeypatch.setattr(TrainingModule, "training_step", training_step)
    shown: list[tuple[str, int, int]] = []
    run = a_run(folder)
    bar = run.progress
    monkeypatch.setattr(
        run, "progress", lambda what, total, done=0: shown.append((what, total, done)) or bar(what, total, done)
    )
    alone(recipe, "policy").run(run)
    assert [(r, s) for r, _e, s in seen] == [(r, 2 * r + s) for r in (2, 3, 4) for s in (0, 0, 1, 1)]
    assert all(r == e for r, e, _s in seen)
    assert ("iterations", 5, 2) in shown


def test_a_checkpoint_of_another_round_is_refused(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with crashing(monkeypatch, lambda patch: crash_around_saving(patch, 0, before=False)):
        alone(recipe, "policy").run(a_run(folder))
    saved = torch.load(folder / "last.ckpt", weights_only=False)
    torch.save(saved | {"round": 3}, folder / "last.ckpt")
    with pytest.raises(RuntimeError, match="epoch 1, this training in round 3"):
        alone(recipe, "policy").run(a_run(folder))


def test_checkpoints_hold_only_what_training_changes(undisturbed: Callable[[str], Path]) -> None:
    state = torch.load(undisturbed("policy") / "last.ckpt", weights_only=False)["state_dict"]
    assert all("lora_" in name or name.startswith("model.critic") for name in state)
    assert any("actor" in name for name in state)


def test_alarms_keep_their_streaks(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An alarm with patience 3 that is broken from the first round rings in the third, also across a crash."""
    alarm = "stages.policy.alarms.tokens={above: 0.0, patience: 3, action: stop}"
    folder = tmp_path / "run"
    with crashing(monkeypatch, lambda patch: crash_around_saving(patch, 1, before=False)):
        alone(recipe, "policy", alarm).run(a_run(folder))
    with pytest.raises(Stopped, match="tokens"):
        alone(recipe, "policy", alarm).run(a_run(folder))
    assert len(log(folder)) == 2, "the third rollout rang; its round was not trained"
    assert [(alarm.name, alarm.since) for alarm in Stage(folder).alarms or []] == [("tokens", 2)]


def test_alarms_that_hear_after_the_step_keep_their_streaks(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alarm = "stages.policy.alarms.entropy={above: 0.0, patience: 3, action: stop}"
    folder = tmp_path / "run"
    with crashing(monkeypatch, lambda patch: crash_around_saving(patch, 1, before=False)):
        alone(recipe, "policy", *ONE_STEP, alarm).run(a_run(folder))
    for _again in range(2):  # who is stopped and starts again is stopped again
        with pytest.raises(Stopped, match="entropy"):
            alone(recipe, "policy", *ONE_STEP, alarm).run(a_run(folder))
        assert len(log(folder)) == 3
        assert torch.load(folder / "last.ckpt", weights_only=False)["round"] == 2


def test_an_alarm_remembers_the_first_value(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    with crashing(monkeypatch, lambda patch: crash_around_saving(patch, 2, before=False)):
        alone(recipe, "policy").run(a_run(folder))
    watch, rows = torch.load(folder / "last.ckpt", weights_only=False)["watch"], log(folder)
    firsts = {name: next(row[name] for row in rows if row[name] > 0) for name in watch["first"] if name in rows[0]}
    assert {"tokens", "kl"} <= firsts.keys()
    assert {name: watch["first"][name] for name in firsts} == firsts
    assert any(value != rows[2][name] for name, value in firsts.items())


@pytest.mark.parametrize("stage", ["policy", "reward_model"])
def test_asked_to_leave(stage: str, recipe: Path, undisturbed: Callable[[str], Path], tmp_path: Path) -> None:
    """After Ctrl-C in a round, that round is finished and saved; nothing is handed on; the rest comes later."""
    folder = tmp_path / "run"
    passes = [False] if stage == "reward_model" else []  # the pass that finds its segments asks as well
    asked = iter([*passes, False, True])
    run: Run = a_run(folder, interrupted=lambda: next(asked, True))
    with pytest.raises(KeyboardInterrupt):
        alone(recipe, stage).run(run)
    assert run.noticed
    assert torch.load(folder / "last.ckpt", weights_only=False)["round"] == 2
    assert not list((folder / "out").iterdir())
    alone(recipe, stage).run(a_run(folder))
    assert weights(folder / "out") == weights(undisturbed(stage.replace("_", " ")) / "out")


def test_asked_to_leave_between_checkpoints(recipe: Path, tmp_path: Path) -> None:
    """A checkpoint is written on leaving even when it is not its turn."""
    asked = iter([True])
    with pytest.raises(KeyboardInterrupt):
        alone(recipe, "policy", "stages.policy.train.checkpoint_every=3").run(
            a_run(tmp_path / "run", interrupted=lambda: next(asked, True))
        )
    assert torch.load(tmp_path / "run" / "last.ckpt", weights_only=False)["round"] == 1


def test_a_full_disk_leaves_the_last_checkpoint(
    recipe: Path, undisturbed: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lightning.pytorch import Trainer

    folder, calls, whole = tmp_path / "run", iter(range(100)), Trainer.save_checkpoint
    before: list[bytes] = []

    def save_checkpoint(self: Any, path: Path, *args: Any, **options: Any) -> None:
        if next(calls) == 2:
            before.append((folder / "last.ckpt").read_bytes())
            Path(path).write_bytes(b"half of")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(self, path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save_checkpoint", save_checkpoint)
        with pytest.raises(OSError, match="No space left"):
            alone(recipe, "policy").run(a_run(folder))
    assert (folder / "last.ckpt").read_bytes() == before[0]
    assert not (folder / "writing.ckpt").exists(), "half a checkpoint keeps the disk full"
    alone(recipe, "policy").run(a_run(folder))
    assert weights(folder / "out") == weights(undisturbed("policy") / "out")


def test_leftovers_of_a_killed_process_do_not_matter(
    recipe: Path, undisturbed: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    (folder / "writing.ckpt").mkdir(parents=True)
    (folder / "writing.ckpt" / "latest").write_text("checkpoint")
    (folder / ".holdout_before.json.123.partial").write_text('{"lo')
    alone(recipe, "reward_model").run(a_run(folder))
    assert weights(folder / "out") == weights(undisturbed("reward model") / "out")
    assert not (folder / "writing.ckpt").exists()


def test_the_summary_is_the_same_when_only_the_product_was_missing(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the last round: nothing is sampled again, and what is told at the end is still known."""
    folder = tmp_path / "run"
    wanted = dict(alone(recipe, "policy").run(a_run(folder)))
    assert {"last response reward", "last kl"} <= set(wanted)
    monkeypatch.setattr(OnlineRounds, "start", lambda self, number, process: pytest.fail("sampled a round too many"))
    assert dict(alone(recipe, "policy").run(a_run(folder))) == wanted
    assert json.dumps(wanted)


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped"])
def test_a_damaged_checkpoint_is_reported_and_the_training_starts_again(
    damage: str,
    recipe: Path,
    tmp_path: Path,
    undisturbed: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "run"
    with crashing(monkeypatch, lambda patch: crash_around_saving(patch, 1, before=False)):
        alone(recipe, "policy").run(a_run(folder))
    path = folder / "last.ckpt"
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
    content[largest.header_offset + largest.file_size // 2 + 64] ^= 1
    path.write_bytes({"empty": b"", "cut": bytes(content[: len(content) // 2]), "flipped": bytes(content)}[damage])
    run = a_run(folder)
    said: list[str] = []
    run.say = said.append  # type: ignore[method-assign]
    alone(recipe, "policy").run(run)
    assert any(text.startswith("last.ckpt is damaged (") for text in said)
    assert weights(folder / "out") == weights(undisturbed("policy") / "out")
    assert log(folder) == log(undisturbed("policy"))

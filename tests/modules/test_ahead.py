"""One rollout is drawn while the one before is trained on; a training that is killed at any moment goes on with what is drawn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apart_engine
import pytest
import tiny_recipe
import torch
from apart_engine import Apart, EngineDied
from pipeline_helpers import HERE
from scratch_registry import scratch_imports
from test_online import by_ids, fitted, module_of, reward_of

from fgrl import rollouts
from fgrl.base import stops
from fgrl.components.algorithms.grpo import GRPO
from fgrl.experiments.pipeline.log import read_log
from fgrl.kinds import DrawRequest
from fgrl.kinds.specs import Sampling
from fgrl.rollouts import kept
from fgrl.rollouts.kept import FOLDER
from fgrl.training import callbacks
from fgrl.training.evaluations import Evaluations
from fgrl.training.online import OnlineRounds
from fgrl.training.training_module import TrainingModule
from fgrl.types import Prompt, Rewards, Rollout

SETTINGS: dict[str, Any] = {"per_prompt": 2, "batch_size": 6, "lr": 1e-2, "warmup": 0.0, "lora": None, "iterations": 4}


class Bomb(Exception):
    """Stands for a kill."""


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    apart_engine.DRAWS.clear()
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "draw ahead"]


def module(model_dir: Path, folder: Path, engine: Any, reward: Any = None, **more: Any) -> Any:
    return module_of(
        model_dir, folder, reward or reward_of(by_ids), algorithm=GRPO(), engine=engine, **SETTINGS | more
    )  # fmt: skip


def trained(made: Any) -> list[dict[str, Any]]:
    with made.rounds.draws:
        return fitted(made)


def weights(made: Any) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in made.model.named_parameters() if value.requires_grad}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


def test_the_same_requests_are_drawn_from_the_weights_before(tiny_model_dir: Path, tmp_path: Path) -> None:
    asked = {}
    for ahead in (0, 1):
        apart_engine.DRAWS.clear()
        rows = trained(module(tiny_model_dir, tmp_path / str(ahead), Apart(ahead=ahead)))
        asked[ahead] = [requests for _thread, _version, requests in apart_engine.DRAWS]
        assert [version for _thread, version, _requests in apart_engine.DRAWS] == (
            [0, 0, 1, 2] if ahead else [0, 1, 2, 3]
        )
        threads = [thread for thread, _version, _requests in apart_engine.DRAWS]
        assert threads[1:] == ["draw ahead" if ahead else "MainThread"] * 3
        assert threads[0] == "MainThread"
        assert [row["staleness"] for row in rows] == ([0, 1, 1, 1] if ahead else [0] * 4)
        assert ["seconds/wait" in row for row in rows] == [bool(ahead)] * 4
        assert [row["mismatch"] > 1e-4 for row in rows] == ([False, *[True] * 3] if ahead else [False] * 4)
    assert asked[0] == asked[1]
    assert len({seed for requests in asked[0] for seed, _row in requests}) == 4


def test_it_draws_while_it_trains(tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the other in the middle, so that neither could be finished before the other began."""
    step, drawing = threading.Event(), threading.Event()
    whole = TrainingModule.training_step

    def training_step(self: Any, batch: Any, index: int) -> Any:
        if self.round == 0:
            assert drawing.wait(60)
            step.set()
        return whole(self, batch, index)

    monkeypatch.setattr(TrainingModule, "training_step", training_step)
    made = module(tiny_model_dir, tmp_path, Apart(ahead=1), iterations=2)
    draw = made.rounds.drawer.draw

    def waiting(requests: Any) -> Any:
        if threading.current_thread().name == "draw ahead":
            drawing.set()
            assert step.wait(60)
        return draw(requests)

    made.rounds.drawer.draw = waiting
    trained(made)
    assert step.is_set()


def killed_in(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, when: Callable[..., bool], after: bool = False
) -> None:
    """Kill in (or right after) the first call for which `when` holds."""
    whole, done = getattr(owner, name), []

    def killed(*given: Any, **named: Any) -> Any:
        hit = not done and when(*given)
        if hit and not after:
            done.append(True)
            raise Bomb
        value = whole(*given, **named)
        if hit:
            done.append(True)
            raise Bomb
        return value

    monkeypatch.setattr(owner, name, killed)


def at_round(number: int) -> Callable[..., bool]:
    return lambda self, *_given: self.round == number


KILLS: dict[str, Callable[[pytest.MonkeyPatch, int], None]] = {
    "after a draw": lambda patch, _saved: killed_in(patch, rollouts, "collect", calls(3), after=True),
    "after scoring": lambda patch, _saved: killed_in(patch, OnlineRounds, "_scored", calls(3), after=True),
    "in training": lambda patch, _saved: killed_in(patch, TrainingModule, "training_step", at_round(2)),
    "before the log": lambda patch, _saved: killed_in(patch, OnlineRounds, "report", calls(3)),
    "before the checkpoint": lambda patch, saved: killed_in(patch, callbacks, "save", calls(saved)),
    "after the checkpoint": lambda patch, saved: killed_in(patch, callbacks, "save", calls(saved), after=True),
}
"""Each takes the number of the checkpoint of the third iteration, from 1."""


def calls(number: int) -> Callable[..., bool]:
    """Holds at the call of this number, from 1."""
    counter = iter(range(1, 1000))
    return lambda *_given: next(counter) == number


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("ahead", [0, 1])
def test_a_kill_at_any_moment_ends_with_the_same_bytes(
    ahead: Any, every: int, tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an engine that draws other responses each time: what a killed training drew is what the next one takes, so that it
    ends like one that was not killed and read the same responses.
    """
    for moment, kill in KILLS.items():
        folder, archive = tmp_path / moment, tmp_path / f"{moment} archive"
        with monkeypatch.context() as patch:
            archived(patch, archive)
            with monkeypatch.context() as inner:
                kill(inner, 3 // every)
                first = module(tiny_model_dir, folder, Apart(reproducible=False, ahead=ahead), checkpoint_every=every)
                with pytest.raises(Bomb), first.rounds.draws:
                    first.fit(checkpoint_every=every)
            copy(folder / FOLDER, archive)
            again = module(tiny_model_dir, folder, Apart(reproducible=False, ahead=ahead), checkpoint_every=every)
            with again.rounds.draws:
                again.fit(checkpoint_every=every)
            copy(folder / FOLDER, archive)  # where nothing that was drawn has been drawn again
        # a training that reads the same responses and is not killed has the same weights
        whole = tmp_path / f"{moment} undisturbed"
        copy(archive, whole / FOLDER)
        apart_engine.DRAWS.clear()
        undisturbed = module(tiny_model_dir, whole, Apart(reproducible=False, ahead=ahead))
        trained(undisturbed)
        assert not apart_engine.DRAWS, "it has drawn by itself"
        assert same(weights(again), weights(undisturbed)), moment
        assert numbers(folder) == numbers(whole), moment


def test_a_reproducible_engine_ends_with_the_bytes_of_a_run_that_nobody_killed(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draw that is slower than everything else is finished before the checkpoint of the weights after it."""
    undisturbed = module(tiny_model_dir, tmp_path / "undisturbed", Apart(ahead=1))
    trained(undisturbed)
    for moment, kill in KILLS.items():
        with monkeypatch.context() as patch:
            kill(patch, 3)
            first = module(tiny_model_dir, tmp_path / moment, Apart(ahead=1, slow=0.7))
            with pytest.raises(Bomb), first.rounds.draws:
                first.fit(checkpoint_every=1)
        again = module(tiny_model_dir, tmp_path / moment, Apart(ahead=1))
        trained(again)
        assert same(weights(again), weights(undisturbed)), moment
        assert numbers(tmp_path / moment) == numbers(tmp_path / "undisturbed"), moment


def archived(patch: pytest.MonkeyPatch, archive: Path) -> None:
    """Responses are copied before they are deleted."""
    forget = kept.Draws.forget

    def copied(self: Any, before: int) -> None:
        copy(self._folder, archive)
        forget(self, before)

    patch.setattr(kept.Draws, "forget", copied)


def copy(source: Path, target: Path) -> None:
    """Raises AssertionError where other responses to the same requests are there."""
    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if (target / file.name).exists():
            assert (target / file.name).read_bytes() == file.read_bytes(), file.name
        (target / file.name).write_bytes(file.read_bytes())


def numbers(folder: Path) -> list[dict[str, Any]]:
    rows = {row["step"]: row for row in read_log(folder / "log.jsonl")}
    return [{k: v for k, v in row.items() if k != "time" and not k.startswith("seconds/")} for row in rows.values()]


def test_only_what_a_resume_may_need_stays_on_disk(tiny_model_dir: Path, tmp_path: Path) -> None:
    trained(module(tiny_model_dir, tmp_path / "1", Apart(ahead=1)))
    assert sorted(path.name for path in (tmp_path / "1" / FOLDER).iterdir()) == ["0-3.jsonl"]
    third = module(tiny_model_dir, tmp_path / "3", Apart(ahead=1), iterations=6)
    with third.rounds.draws:
        third.fit(checkpoint_every=3)
    assert sorted(path.name for path in (tmp_path / "3" / FOLDER).iterdir()) == ["0-3.jsonl", "0-4.jsonl", "0-5.jsonl"]


def test_an_unfinished_draw_is_made_again_from_the_newest_weights(tiny_model_dir: Path, tmp_path: Path) -> None:
    """It failed while iteration 1 was trained on: that iteration is saved, the error comes then, and the next run draws."""
    made = module(tiny_model_dir, tmp_path, Apart(ahead=1, fails=2))
    with pytest.raises(EngineDied, match="died in draw 2"):
        trained(made)
    assert [row["step"] for row in read_log(tmp_path / "log.jsonl")] == [0, 1]
    assert torch.load(tmp_path / "last.ckpt", weights_only=False)["round"] == 2
    apart_engine.DRAWS.clear()
    rows = trained(module(tiny_model_dir, tmp_path, Apart(ahead=1)))
    assert [version for _thread, version, _requests in apart_engine.DRAWS] == [2, 2]
    assert [row["staleness"] for row in rows] == [0, 1, 0, 1]


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_stop_ends_a_draw_that_hangs(ahead: Any, tiny_model_dir: Path, tmp_path: Path) -> None:
    made = module(tiny_model_dir, tmp_path, Apart(ahead=ahead, hangs=1))
    main = threading.get_ident()
    waits = threading.Thread(target=lambda: (logged(tmp_path, ahead), stops.ask(main)))
    waits.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            trained(made)
    finally:
        waits.join()
        stops.forget(main)
    apart_engine.DRAWS.clear()
    trained(module(tiny_model_dir, tmp_path, Apart(ahead=ahead)))


def logged(folder: Path, ahead: int) -> None:
    """Return when the training cannot go on: iteration 0 is trained on, and the draw of iteration 1 hangs."""
    if ahead:
        while not any(thread.name == "draw ahead" for thread in threading.enumerate()):
            time.sleep(0.01)
    else:
        while not (folder / "log.jsonl").exists():
            time.sleep(0.01)
    time.sleep(0.2)


def test_an_engine_that_does_not_look_ends_when_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "END", 0.05)
    closed = threading.Event()

    class Deaf(apart_engine.Drawer):
        def draw(self, requests: Any) -> Any:
            closed.wait()
            raise EngineDied

        def close(self) -> None:
            closed.set()

    with Deaf() as drawer, kept.Draws(drawer, tmp_path, 0) as draws:
        draws.begin(0, [DrawRequest(Prompt((1, 2)), Sampling(max_new_tokens=2), 0, 0)])
        (thread,) = [each for each in threading.enumerate() if each.name == "draw ahead"]
    thread.join()
    assert not stops.asked(thread.ident or 0), "a later thread with its number would stop"
    assert not list((tmp_path / FOLDER).iterdir())


def test_continuations_are_drawn_before_the_next_rollout(tiny_model_dir: Path, tmp_path: Path) -> None:
    """By a reward that asks the policy: they come from the weights of their iteration, and never beside another draw."""

    class Asking(type(reward_of(by_ids))):  # type: ignore[misc]
        def needs(self) -> frozenset[str]:
            return frozenset({"policy"})

        def score(self, rollout: Rollout) -> Rewards:
            rollout.policy.continuations_at([(row, 0) for row in range(len(rollout.mask))], 1)
            return super().score(rollout)

    reward = Asking()
    reward._worth = by_ids
    rows = trained(module(tiny_model_dir, tmp_path, Apart(ahead=1), reward, iterations=3))
    assert [(thread, version) for thread, version, _requests in apart_engine.DRAWS] == [
        ("MainThread", 0), ("MainThread", 0), ("draw ahead", 0), ("MainThread", 1), ("draw ahead", 1), ("MainThread", 2),
    ]  # fmt: skip
    assert [row["staleness"] for row in rows] == [0, 1, 1]


def test_an_evaluation_does_not_draw_beside_a_rollout(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the weights are those of a training without evaluations."""
    path = tiny_recipe.write(tmp_path / "recipe", tiny_model_dir)
    path.write_text(f"{path.read_text()}imports: [{HERE}/apart_registered.py]\n")
    take, drawing = Evaluations.take, []

    def watched(self: Any, *given: Any) -> None:
        drawing.append(any(thread.name == "draw ahead" for thread in threading.enumerate()))
        take(self, *given)

    monkeypatch.setattr(Evaluations, "take", watched)
    evaluate = (
        f"stages.policy.evaluate={{every: 1, sets: {{held_out: {{prompts: {{name: lines, path: {path.parent}/topics.txt, limit: 4}}, "
        "metrics: [length], sampling: {max_new_tokens: 6}, engine: apart}}}"
    )
    with scratch_imports():
        for name, more in (("plain", []), ("evaluated", [evaluate])):
            engine = "stages.policy.rollout.engine={name: apart, ahead: 1, slow: 0.3}"
            tiny_recipe.alone(path, "policy", engine, *more).run(tiny_recipe.a_run(tmp_path / name))
    assert drawing == [False] * 6
    assert tiny_recipe.weights(tmp_path / "evaluated" / "out") == tiny_recipe.weights(tmp_path / "plain" / "out")

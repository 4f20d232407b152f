"""A run that is asked to stop, or loses a process, ends at once with a message, leaves no process, and goes on to the same bytes.

Each test starts `fgrl run`, whose ranks torchrun's agent starts (gloo, CPU); `stop_spy` makes one of its processes wait at the right moment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tiny_recipe
import warm
import yaml
from patience import HUNG
from pipeline_helpers import HERE, lives, start
from tiny_recipe import log, weights

pytestmark = pytest.mark.usefixtures("warm")

TWO = ("vars.devices=2", "vars.strategy=ddp")
SOON = 25.0
"""Seconds in which no process of a run may be left: before the agent kills those that do not stop."""
LIMIT = 15.0
"""`train.wait_limit` where a rank hangs."""
MOMENTS = ("drawing", "scoring", "training", "evaluating")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    """The policy alone, evaluated before, between and after its four iterations."""
    path = tiny_recipe.write(tmp_path_factory.mktemp("recipe"), tiny_model_dir)
    data = yaml.safe_load(path.read_text())
    policy = data["stages"]["policy"]
    policy["reward"] = {"name": "segment_rm", "model": "${vars.base}", "segmenter": {"name": "ngram", "n": 3}}
    policy["train"] |= {"iterations": 4, "micro_batch_size": 2}
    policy["rollout"]["sampling"]["batch_size"] = 6
    held_out = {
        "prompts": {"name": "lines", "path": "topics.txt", "limit": 6}, "metrics": ["length"],
        "sampling": {"max_new_tokens": 6, "batch_size": 2},
    }  # fmt: skip
    policy["evaluate"] = {"every": 2, "sets": {"held_out": held_out}}
    data |= {"stages": {"policy": policy}, "imports": [str(HERE / "stop_spy.py")]}
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


@dataclass
class Started:
    """A run that has come to its moment."""

    folder: Path
    process: subprocess.Popen[str]

    @property
    def stage(self) -> Path:
        return next((self.folder / "runs" / "stages").glob("policy-*"))

    def pid(self, name: str) -> int:
        return int((self.folder / f"pid-{name}").read_text())

    def left(self) -> list[str]:
        """The processes of the run that live."""
        return [file.name for file in self.folder.glob("pid-*") if lives(int(file.read_text()))]

    def assert_gone(self, within: float = SOON) -> None:
        """No process of the run is left `within` seconds."""
        until = time.monotonic() + within
        while left := [*self.left(), *(["the command"] if self.process.poll() is None else [])]:
            assert time.monotonic() < until, f"{left} live"
            time.sleep(0.05)

    def said(self) -> str:
        return self.process.communicate(timeout=HUNG)[1]


def begin(recipe: Path, folder: Path, at: str | None, *overrides: str) -> Started:
    """Start a run; at a moment (`moment:rank`), wait until it is there."""
    folder.mkdir(exist_ok=True)
    for left in folder.glob("*-*"):
        left.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPY", str(folder))
        if at is not None:
            patch.setenv("SPY_AT", at)
        run = Started(folder, start("run", recipe, "--runs", folder / "runs", *overrides, cwd=folder))
    if at is not None:
        wait_until(lambda: (folder / f"here-{at[-1]}").exists(), run)
    return run


def wait_until(happened: Callable[[], bool], run: Started) -> None:
    until = time.monotonic() + HUNG
    while not happened():
        assert run.process.poll() is None, run.said()
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def started(recipe: Path, tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """`begin`, whose processes are killed after the test."""
    runs: list[Started] = []

    def begun(at: str | None, *overrides: str) -> Started:
        runs.append(begin(recipe, tmp_path / "run", at, *overrides))
        return runs[-1]

    yield begun
    for run in runs:
        for pid in (run.process.pid, *(run.pid(name.removeprefix("pid-")) for name in run.left())):
            if lives(pid):
                os.kill(pid, signal.SIGKILL)
        run.process.communicate()


def finished(recipe: Path, folder: Path, *overrides: str) -> Started:
    """A run without a disturbance."""
    run = begin(recipe, folder, None, *overrides)
    said = run.said()
    assert run.process.returncode == 0, said
    return run


@pytest.fixture(scope="module")
def undisturbed(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The stage of an undisturbed run in one process, or in two."""
    made: dict[int, Path] = {}

    def stage(world: int) -> Path:
        if world not in made:
            overrides = TWO if world == 2 else ()
            with warm.as_usual():
                made[world] = finished(recipe, tmp_path_factory.mktemp("undisturbed"), *overrides).stage
        return made[world]

    return stage


def assert_continues(recipe: Path, run: Started, overrides: tuple[str, ...], undisturbed: Path) -> None:
    """The same command ends with the bytes of an undisturbed run."""
    assert not (run.stage / "stage.json").exists()
    again = finished(recipe, run.folder, *overrides)
    assert weights(again.stage / "out") == weights(undisturbed / "out")
    assert log(again.stage) == log(undisturbed)


def stop(run: Started, rank: int) -> None:
    """SIGTERM to the command; `rank` waits in the middle of something, where rank 0 waits for it, or is as far."""
    run.process.send_signal(signal.SIGTERM)
    run.assert_gone()
    said = run.said()
    assert run.process.returncode == 130, said
    assert "stopping at the next step" in said
    assert "interrupted; what is finished is kept: run the same command" in said
    assert "Traceback" not in said
    assert not (run.folder / f"after-{rank}").exists(), "it has made another pass"


def kill_parent(run: Started) -> None:
    assert sorted(run.left()) == ["pid-0", "pid-1", "pid-parent"]
    os.kill(run.pid("parent"), signal.SIGKILL)
    run.assert_gone()


def kill_rank(run: Started, rank: str) -> None:
    """The other one waits for it, or does not notice it by itself yet."""
    os.kill(run.pid(rank), signal.SIGKILL)
    run.assert_gone()
    assert_tells_of(run, f"lost: rank {rank} was ended by SIGKILL")


def let_hang(run: Started, rank: str) -> None:
    run.assert_gone(within=LIMIT + 30)
    assert_tells_of(run, f"lost: rank {rank} did not come to a collective operation within train.wait_limit")


def assert_tells_of(run: Started, message: str) -> None:
    said = run.said()
    assert run.process.returncode == 8, said
    (line,) = [line for line in said.splitlines() if "lost: " in line]
    assert message in line
    assert "run the same command to continue from the last checkpoint" in line
    assert "Traceback" not in said
    assert "gloo" not in said


def test_whatever_happens_to_a_run_it_ends_and_continues(
    started: Callable[..., Started], recipe: Path, undisturbed: Callable[[int], Path]
) -> None:
    """One misfortune after another, in two processes."""
    stop(started("drawing:1", *TWO), 1)
    kill_parent(started("training:0", *TWO))
    kill_rank(started("scoring:1", *TWO), "1")
    let_hang(run := started("hanging:1", *TWO, f"stages.policy.train.wait_limit={LIMIT}"), "1")
    assert_continues(recipe, run, TWO, undisturbed(2))


@pytest.mark.evidence
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_stop_is_honoured_at_the_next_pass(
    started: Callable[..., Started], recipe: Path, undisturbed: Callable[[int], Path], moment: str, world: int
) -> None:
    overrides = TWO if world == 2 else ()
    run = started(f"{moment}:{world - 1}", *overrides)
    stop(run, world - 1)
    assert_continues(recipe, run, overrides, undisturbed(world))


@pytest.mark.evidence
@pytest.mark.parametrize("moment", MOMENTS)
def test_ranks_end_with_their_parent(
    started: Callable[..., Started], recipe: Path, undisturbed: Callable[[int], Path], moment: str
) -> None:
    run = started(f"{moment}:1", *TWO)
    kill_parent(run)
    assert_continues(recipe, run, TWO, undisturbed(2))


@pytest.mark.evidence
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_lost_rank_is_named(
    started: Callable[..., Started], recipe: Path, undisturbed: Callable[[int], Path], moment: str, rank: str
) -> None:
    run = started(f"{moment}:{rank}", *TWO)
    kill_rank(run, rank)
    assert_continues(recipe, run, TWO, undisturbed(2))


@pytest.mark.evidence
@pytest.mark.parametrize("how", ["in Python", "stopped"])
@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_rank_that_hangs_is_named_after_the_limit(
    started: Callable[..., Started], recipe: Path, undisturbed: Callable[[int], Path], rank: str, how: str
) -> None:
    """It runs Python and never comes, or nothing of it runs at all."""
    run = started(f"hanging:{rank}", *TWO, f"stages.policy.train.wait_limit={LIMIT}")
    if how == "stopped":
        os.kill(run.pid(rank), signal.SIGSTOP)
    let_hang(run, rank)
    assert_continues(recipe, run, TWO, undisturbed(2))

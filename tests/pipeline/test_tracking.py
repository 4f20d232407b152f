"""Metrics in TensorBoard and W&B: what is asked for in the recipe or on the command line, and curves that are whole after a kill."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pipeline_helpers import Bench, fake_recipe, fakes, fgrl, recipe_file

from fgrl.base.console import Console
from fgrl.base.errors import UsageError
from fgrl.experiments import recipe as recipes
from fgrl.experiments.pipeline import Options, execute
from fgrl.experiments.pipeline.tracking import Log, Trackers, to_tensorboard, to_wandb
from fgrl.experiments.recipe.tracking import TensorBoard, Wandb
from fgrl.registry import Problems

COUNTING = "{first: {name: counting, steps: 3}}"


@pytest.fixture
def stages():
    with fakes() as module:
        yield module


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every scalar below a folder, as TensorBoard reads it."""
    loader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_file_loader",
        reason="needs tensorboard: pip install 'fgrl[tensorboard]'",
    )
    read: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(folder.rglob("events.out.tfevents.*")):
        for event in loader.RawEventFileLoader(str(file)).Load():
            from tensorboard.compat.proto.event_pb2 import Event

            parsed = Event.FromString(event)
            for value in parsed.summary.value:
                read.setdefault(f"{file.parent.name}/{value.tag}", []).append((parsed.step, value.simple_value))
    return read


def test_event_files_are_read_by_tensorboard(tmp_path: Path) -> None:
    with to_tensorboard(tmp_path, "policy", {}) as log:
        log({"loss": 1.5, "kl/sum": -0.25}, 3, 1e9)
        log({"loss": float("nan")}, 300_000, 1e9)
    read = scalars(tmp_path)
    assert read["policy/kl/sum"] == [(3, -0.25)]
    assert read["policy/loss"][0] == (3, 1.5)
    assert read["policy/loss"][1][0] == 300_000


def test_a_run_writes_event_files_where_it_is_asked_to(tmp_path: Path, stages: ModuleType) -> None:
    bench = Bench(tmp_path)
    summary = bench.run(_options=Options(tensorboard=""), first=stages.Counting(steps=3))
    assert summary.folder is not None
    assert scalars(summary.folder / "tensorboard") == {"first/count": [(0, 0.0), (1, 1.0), (2, 2.0)]}
    recipe = fake_recipe(tmp_path, second=stages.Counting(steps=2))
    recipe.tracking = {"tensorboard": TensorBoard(folder=str(tmp_path / "tb"))}
    summary = execute(recipe, bench.runs, None, Console(stream=bench.stream))
    assert summary.folder is not None
    assert scalars(tmp_path / "tb" / "fake" / summary.folder.name) == {"second/count": [(0, 0.0), (1, 1.0)]}


class Recorder:
    """Remembers what it is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int, dict[str, float]]] = []
        self.closed: list[tuple[str, dict[str, Any], bool]] = []

    @contextlib.contextmanager
    def __call__(self, stage: str, summary: Any) -> Iterator[Log]:
        failed = True
        try:
            yield lambda metrics, step, _when: self.sent.append((stage, step, dict(metrics)))
            failed = False
        finally:
            self.closed.append((stage, dict(summary), failed))


@contextlib.contextmanager
def refuser(stage: str, summary: Any) -> Iterator[Log]:
    raise OSError("no connection")
    yield


def test_what_an_interrupted_run_logged_is_sent_first(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(
        '{"step": 0, "time": 1.0, "loss": 2.0}\n{"step": 1, "time": 2.0, "loss": null}\n{"step": 2, "time": 3.0, "loss": 1.0}\n'
    )
    recorder = Recorder()
    trackers = Trackers([recorder])
    with trackers.opened("policy", tmp_path) as summary:
        trackers.log({"loss": 0.5}, 2)
        trackers.log({"loss": 0.25}, 3)
        summary.update(loss=0.25)
    assert recorder.sent == [
        ("policy", 0, {"loss": 2.0}), ("policy", 1, {}), ("policy", 2, {"loss": 0.5}), ("policy", 3, {"loss": 0.25}),
    ]  # fmt: skip
    assert recorder.closed == [("policy", {"loss": 0.25}, False)]


@pytest.mark.parametrize("how", ["bug", "interrupt", "usage"])
def test_trackers_of_a_stage_that_fails_are_closed(
    tmp_path: Path, stages: ModuleType, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    recorder = Recorder()
    monkeypatch.setattr("fgrl.experiments.pipeline.invocation.trackers", lambda *_args, **_named: Trackers([recorder]))
    with contextlib.suppress(UsageError):
        Bench(tmp_path).run(first=stages.Counting(steps=2), bad=stages.Failing(how=how))
    assert [(stage, failed) for stage, _summary, failed in recorder.closed] == [("first", False), ("bad", True)]
    assert [bool(summary) for _stage, summary, _failed in recorder.closed] == [True, False]


def test_a_tracker_is_closed_when_a_later_one_cannot_be_opened(tmp_path: Path) -> None:
    recorder = Recorder()
    with pytest.raises(OSError, match="no connection"), Trackers([recorder, refuser]).opened("policy", tmp_path):
        pytest.fail("the stage ran")
    assert recorder.closed == [("policy", {}, True)]


@pytest.mark.parametrize("failed", [False, True])
def test_wandb_learns_whether_the_stage_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: bool) -> None:
    ends: list[int] = []
    session = SimpleNamespace(summary={}, define_metric=lambda *_names, **_options: None)
    session.finish = lambda exit_code: ends.append(exit_code)
    module = SimpleNamespace(init=lambda **_options: session, Settings=lambda **_options: None)
    monkeypatch.setitem(sys.modules, "wandb", module)
    with contextlib.suppress(OSError), to_wandb(Wandb(project="p"), "r", tmp_path, {}, "policy", {"loss": 0.5}):
        if failed:
            raise OSError("a disk")
    assert ends == [int(failed)]
    assert session.summary == {"policy/loss": 0.5}


def loaded(folder: Path, track: str) -> Any:
    path = recipe_file(folder, COUNTING)
    path.write_text(f"{path.read_text()}track: {track}\n")
    return recipes.load(path)


def test_the_recipe_names_its_trackers(tmp_path: Path) -> None:
    recipe = loaded(tmp_path, "[tensorboard, {wandb: {project: p, tags: [a]}}]")
    assert recipe.tracking == {"tensorboard": TensorBoard(), "wandb": Wandb(project="p", tags=["a"])}
    assert recipes.load(recipe_file(tmp_path, COUNTING, "none.yaml")).tracking == {}
    again = tmp_path / "again.yaml"
    again.write_text(recipe.to_yaml())
    assert recipes.load(again).tracking == recipe.tracking


@pytest.mark.parametrize(
    ("track", "words"),
    [
        ("tensorboard", "write [tensorboard]"),
        ("[tensorbord]", 'did you mean "tensorboard"'),
        ("[{wandb: {}}]", "project: missing"),
        ("[{wandb: {projct: p}}]", 'did you mean "project"'),
        ("[tensorboard, tensorboard]", "named twice"),
        ("[3]", "choices: tensorboard, wandb, mlflow"),
    ],
)
def test_mistakes_in_track_are_explained(tmp_path: Path, track: str, words: str) -> None:
    with pytest.raises(Problems) as raised:
        loaded(tmp_path, track)
    assert words in str(raised.value)
    assert "track" in str(raised.value)


def test_trackers_do_not_change_keys(tmp_path: Path) -> None:
    plain = fgrl("plan", recipe_file(tmp_path, COUNTING), "--json", cwd=tmp_path).stdout
    tracked = fgrl("plan", recipe_file(tmp_path, COUNTING), "track=[tensorboard]", "--json", cwd=tmp_path)
    assert tracked.stdout == plain, tracked.stderr

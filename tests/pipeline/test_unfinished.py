"""What ends early, lies in a wrong place, or cannot lie anywhere never looks like success, and never ends in a traceback."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pipeline_helpers import Bench, fake_recipe, fakes

from fgrl.base.errors import DiskError, UsageError, UserCodeError
from fgrl.commands import chatting
from fgrl.exchange.publishing import exporting
from fgrl.experiments.pipeline import child_process, plan
from fgrl.pages import report


@pytest.fixture
def stages() -> Any:
    with fakes() as module:
        yield module


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(report, "write", lambda folder: folder / "report.html")
    return Bench(tmp_path)


def test_a_stage_whose_process_ends_before_it_is_done(
    bench: Bench, stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "_command", lambda *_: ["-c", "pass"])
    monkeypatch.setattr(child_process, "is_needed", lambda *_: True)
    summary = bench.run(first=stages.Counting(steps=1))
    assert summary.exit == UserCodeError.exit_code
    assert "ended with exit code 0 before the stage was done" in bench.stream.getvalue()


def test_a_record_of_another_stage_does_not_count(bench: Bench, stages: ModuleType) -> None:
    bench.run(first=stages.Counting(steps=1))
    record = next(bench.runs.glob("stages/first-*/stage.json"))
    record.write_text(json.dumps(json.loads(record.read_text()) | {"key": "0123456789ab"}))
    planned = plan(fake_recipe(bench.folder, first=stages.Counting(steps=1)), bench.runs)["first"]
    assert not planned.cached
    assert "is the record of another stage, with the key 0123456789ab: runs again" in planned.why
    assert bench.run(first=stages.Counting(steps=1)).exit == 0


IMPOSSIBLE = ["/proc/nowhere/runs", "/dev/null/runs", "x" * 300, "a/" * 3000]


@pytest.mark.parametrize("place", IMPOSSIBLE, ids=["proc", "device", "long", "deep"])
def test_runs_cannot_lie_in_an_impossible_place(
    place: str, bench: Bench, stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    bench.runs = Path(place)
    with pytest.raises((UsageError, DiskError)):
        bench.run(first=stages.Counting(steps=1))
    assert not list(bench.folder.iterdir())


@pytest.mark.parametrize("place", IMPOSSIBLE, ids=["proc", "device", "long", "deep"])
def test_an_export_cannot_lie_in_an_impossible_place(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UsageError, DiskError)):
        exporting.check_target(Path(place), force=False)
    assert not list(tmp_path.iterdir())


def test_an_export_leaves_no_trial_behind(tmp_path: Path) -> None:
    exporting.check_target(tmp_path / "new" / "model", force=False)
    assert not list(tmp_path.iterdir())


def test_piped_input_that_is_not_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"))
    chat = chatting._Chat([SimpleNamespace()], None, wide=False)
    with pytest.raises(UsageError, match="not UTF-8"):
        chat.hold()

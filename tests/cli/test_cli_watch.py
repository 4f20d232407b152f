"""`fgrl watch`, and the tool that measures silence."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import script_files
from fake_runs import fake_run, write_json, write_lines
from filelock import FileLock
from pipeline_helpers import ROOT
from typer.testing import CliRunner

from fgrl import cli
from fgrl.runs.folders import LOCK


def watch(*words: object) -> Any:
    return CliRunner().invoke(cli.app, ["watch", *map(str, words)])


def test_a_finished_run_is_shown_once_with_its_exit_code(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    done = watch(run)
    assert done.exit_code == 0
    assert done.output.splitlines()[0] == f"{run}: finished"
    assert watch(tmp_path / "runs").output == done.output, "the newest run of the folder"
    assert json.loads(watch(run, "--json").output)["state"] == "finished"


def test_a_run_that_works_shows_its_phase_and_last_numbers(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    record = json.loads((run / "summary.json").read_text())
    policy = run / record["stages"]["policy"]["dir"]
    (policy / "stage.json").unlink()
    record["stages"]["policy"]["done"] = False
    write_json(run / "summary.json", record | {"exit": None, "finished": None})
    write_lines(policy / "log.jsonl", [{"step": 4, "time": 1.0, "reward": 0.25, "kl": 0.5}])
    (run / "run.log").write_text("09:30:00 [5/6] policy · iterations  4/7  scoring 12s  ETA 3:20\n")
    with FileLock(run / LOCK):
        shown = watch(run, "--once")
        assert shown.exit_code == 0
        lines = [line.strip() for line in shown.output.splitlines()]
        assert lines[0] == f"{run}: running"
        assert "[5/6] policy: works" in lines[5]
        assert "step 4  reward 0.25  kl 0.5" in lines
        assert lines[-1] == "09:30:00 [5/6] policy · iterations  4/7  scoring 12s  ETA 3:20"


def test_a_folder_without_runs_is_a_mistake(tmp_path: Path) -> None:
    refused = watch(tmp_path)
    assert refused.exit_code == 2
    assert "no run in it" in refused.output


@pytest.fixture(scope="module")
def tool() -> Any:
    return script_files.loaded(ROOT / "tools" / "longest_silence.py")


def test_silence_belongs_to_the_stage_that_was_named_last(tool: Any) -> None:
    code = "import time; print('loading', flush=True); print('[1/2] first: new', flush=True); time.sleep(1.2); print('[2/2] last: new')"
    longest, exit_code = tool.silences([sys.executable, "-c", code], echo=False)
    assert exit_code == 0
    assert list(longest) == ["start", "first", "last"]
    assert longest["first"] >= 0.6
    assert tool.silences([sys.executable, "-c", "raise SystemExit(3)"], echo=False)[1] == 3

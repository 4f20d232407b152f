"""A link where fgrl writes and deletes is refused, by name; what killed processes left half written goes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pipeline_helpers import fgrl_here, recipe_file

from fgrl.base import files
from fgrl.base.files import MACHINE
from fgrl.runs.cleaning import Wanted, delete, deletions
from fgrl.runs.folders import Runs

STAGES = "{first: {name: counting, steps: 3}}"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Somebody else's folder."""
    folder = tmp_path / "foreign"
    (folder / "out").mkdir(parents=True)
    (folder / "out" / "work.txt").write_text("years of work")
    (folder / "notes.txt").write_text("notes")
    (folder / "stage.json").write_text("{}")
    return folder


def stage_of(tmp_path: Path) -> Path:
    """The folder that the next run will make."""
    done = fgrl_here("plan", tmp_path / "fake.yaml", "--json", cwd=tmp_path)
    return tmp_path / "runs" / "stages" / f"first-{json.loads(done.stdout)['stages']['first']['key']}"


def linked(place: Path, target: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
    return place


PLACES: dict[str, Callable[[Path, Path], Path]] = {
    "the stage": lambda stage, foreign: linked(stage, foreign),
    "the stage under another name": lambda stage, foreign: linked(
        stage.with_name(stage.name.replace("first", "old")), foreign
    ),
    "all stages": lambda stage, foreign: linked(stage.parent, foreign),
    "the locks": lambda stage, foreign: linked(stage.parent / ".locks", foreign),
    "a lock": lambda stage, foreign: linked(
        stage.parent / ".locks" / f"{stage.name.rpartition('-')[2]}.lock", foreign / "notes.txt"
    ),
    "the product": lambda stage, foreign: linked(stage / "out", foreign),
    "a log": lambda stage, foreign: linked(stage / "log.jsonl", foreign / "notes.txt"),
    "a checkpoint": lambda stage, foreign: linked(stage / "last.ckpt", foreign / "notes.txt"),
    "inside a folder": lambda stage, foreign: linked(stage / "rollouts" / "3.jsonl", foreign / "notes.txt"),
    "the runs of the recipe": lambda stage, foreign: linked(stage.parents[1] / "fake", foreign),
    "the cache": lambda stage, foreign: linked(stage.parents[1] / "cache", foreign),
    "a file of the cache": lambda stage, foreign: linked(
        stage.parents[1] / "cache" / "answers.sqlite", foreign / "notes.txt"
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_run_refuses_a_link(place: str, tmp_path: Path, foreign: Path) -> None:
    recipe = recipe_file(tmp_path, STAGES)
    link = PLACES[place](stage_of(tmp_path), foreign)
    before = contents(foreign)
    done = fgrl_here("run", recipe, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"{link.relative_to(tmp_path)} is a symbolic link to {link.readlink()}" in done.stderr
    assert "remove the link" in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(foreign) == before
    assert link.is_symlink()


def test_the_folder_of_runs_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to("disk")
    assert fgrl_here("run", recipe_file(tmp_path, STAGES), cwd=tmp_path).returncode == 0
    assert (tmp_path / "disk" / "stages").is_dir()


def test_doctor_and_clean_change_nothing_behind_a_link(tmp_path: Path, foreign: Path) -> None:
    recipe_file(tmp_path, STAGES)
    link = PLACES["the stage"](stage_of(tmp_path), foreign)
    before = contents(foreign)
    done = fgrl_here("doctor", "runs", cwd=tmp_path)
    assert done.returncode == 2
    assert f"{link.relative_to(tmp_path)} is a symbolic link" in done.stderr
    fgrl_here("clean", "--unreferenced", "--yes", cwd=tmp_path)
    assert contents(foreign) == before
    PLACES["the locks"](link, foreign)
    done = fgrl_here("clean", "--unreferenced", "--yes", cwd=tmp_path)
    assert (done.returncode, contents(foreign)) == (2, before)


def test_a_written_file_takes_the_place_of_a_link_and_not_of_what_it_leads_to(tmp_path: Path, foreign: Path) -> None:
    linked(tmp_path / f".a.json.{MACHINE}.{os.getpid()}.partial", foreign)
    linked(tmp_path / "a.json", foreign / "notes.txt")
    files.write_json(tmp_path / "a.json", [1])
    assert json.loads((tmp_path / "a.json").read_text()) == [1]
    assert (foreign / "notes.txt").read_text() == "notes"
    linked(tmp_path / "b", foreign)
    with (
        pytest.raises(files.LinkRefused, match=r"b is a symbolic link to .*foreign"),
        files.atomically(tmp_path / "b") as partial,
    ):
        partial.mkdir()
    assert (foreign / "out" / "work.txt").exists()
    files.remove(tmp_path / "b")
    assert (foreign / "out" / "work.txt").exists()


# -- leftovers ---------------------------------------------------------------------------------------------------------


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_next_run_and_clean_remove_what_killed_processes_left(tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, STAGES)
    stage, gone = stage_of(tmp_path), ended_process()
    other = tmp_path / "runs" / "stages" / "other-0000000000000000"
    left = [stage / f".log.jsonl.{MACHINE}.{gone}.partial", stage / f".folder.{MACHINE}.{gone}.partial" / "weights.bin"]
    old = [
        tmp_path / "runs" / "cache" / f".a.safetensors.{MACHINE}.{gone}.partial",
        tmp_path / "runs" / "fake" / "x" / f".summary.json.{MACHINE}.{gone}.partial",
        tmp_path / "runs" / "cache" / f".c.safetensors.another-machine.{os.getpid()}.partial",
    ]
    of_others = [other / f".stage.json.{MACHINE}.{gone}.partial"]
    alive = [
        stage / f".other.jsonl.{MACHINE}.{os.getpid()}.partial",
        tmp_path / "runs" / "cache" / f".b.{MACHINE}.{gone}.partial",
        stage / "notes.partial",
    ]
    for file in (*left, *old, *of_others, *alive):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("half")
    for file in (*old, *of_others):
        os.utime(file, (0, 0))
    assert fgrl_here("run", recipe, cwd=tmp_path).returncode == 0
    assert [file for file in (*left, *old) if file.exists()] == []
    assert all(file.exists() for file in (*alive, *of_others)), "another machine's process may be writing the fresh one"
    runs = Runs(tmp_path / "runs")
    chosen = deletions(runs, Wanted(unreferenced=True))
    assert [item.path for item in chosen.items if item.what == "leftover"] == [], "its stage goes as a whole"
    moved = runs.cache / f".c.{MACHINE}.{gone}.partial"
    of_others[0].rename(moved)
    chosen = deletions(runs, Wanted(unreferenced=True))
    assert [item.path for item in chosen.items if item.what == "leftover"] == [moved]
    delete(runs, chosen, lambda text: pytest.fail(text))
    assert not moved.exists()


# -- strict JSON -------------------------------------------------------------------------------------------------------


def test_json_has_null_for_numbers_that_are_not_finite(tmp_path: Path) -> None:
    values = {"a": math.inf, "b": [math.nan, (1.0, -math.inf)], "c": {"d": 2.5}}
    files.write_json(tmp_path / "a.json", values)
    files.write_json_lines(tmp_path / "b.jsonl", [values])

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    for text in ((tmp_path / "a.json").read_text(), (tmp_path / "b.jsonl").read_text()):
        assert json.loads(text, parse_constant=refuse) == {"a": None, "b": [None, [1.0, None]], "c": {"d": 2.5}}

"""One writer and one reader of the records of runs and stages: no other code opens their files."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import record_access
from import_walk import ROOT
from pipeline_helpers import fgrl_here, recipe_file

import fgrl
from fgrl.runs import records
from fgrl.runs.run import Run
from fgrl.runs.stage import Stage

CHAIN = "{first: {name: counting, steps: 3}, second: {name: counting, source: '${out:first}'}, evaluate: {name: measuring, value: 0.5}}"


def test_their_names_stand_in_one_file() -> None:
    named = [
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "fgrl").rglob("*.py")
        if re.search(r'"(stage|summary)\.json"', file.read_text(encoding="utf-8"))
    ]
    assert named == ["fgrl/runs/records.py"]


def test_no_command_opens_them_but_through_the_results(tmp_path: Path) -> None:
    recipe, before = recipe_file(tmp_path, CHAIN), len(record_access.opened)
    commands: list[list[object]] = [
        ["run", recipe], ["run", recipe], ["run", recipe, "stages.second.steps=7"], ["plan", recipe], ["runs"], ["table", recipe],
        ["table", "runs/fake"], ["compare", recipe, recipe], ["report", recipe], ["doctor", "runs"], ["clean", "--older-than", "9d"],
    ]  # fmt: skip
    for command in commands:
        done = fgrl_here(*command, cwd=tmp_path)
        assert done.returncode == 0, (command, done.stderr)
    (folder, *_) = sorted((tmp_path / "runs" / "fake").iterdir())
    assert fgrl.open_run(folder).stage("first").finished
    assert len(fgrl.table(folder)) == 2
    seen = record_access.opened[before:]
    assert len(seen) > 50
    assert {file for file in seen if not file.startswith(record_access.READER)} == set()


def test_the_hook_sees_what_others_open(tmp_path: Path) -> None:
    outside = compile("open(path).close()", f"{record_access.PACKAGE}pipeline/planted.py", "exec")
    record = tmp_path / records.STAGE
    record.write_text("{}")
    exec(outside, {"path": str(record)})
    assert record_access.opened.pop() == f"{record_access.PACKAGE}pipeline/planted.py"


def test_a_finished_run_of_today_is_found_again(tmp_path: Path) -> None:
    """Also one whose conclusions are not stored yet, and one with fields that this version does not know."""
    recipe = recipe_file(tmp_path, CHAIN)
    assert fgrl_here("run", recipe, cwd=tmp_path).returncode == 0
    (folder,) = (tmp_path / "runs" / "fake").iterdir()
    record = json.loads((folder / records.RUN).read_text())
    assert record.pop("conclusions") is not None
    for place in (folder, *(tmp_path / "runs" / "stages").glob("*-*")):
        file = next(place / name for name in (records.RUN, records.STAGE) if (place / name).exists())
        known = record if file.name == records.RUN else json.loads(file.read_text())
        file.write_text(json.dumps(known | {"later": 1}))
    again = fgrl_here("run", recipe, "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["nothing_to_do"]
    assert fgrl_here("report", recipe, cwd=tmp_path).returncode == 0
    assert json.loads((folder / records.RUN).read_text())["conclusions"] is not None, "concluded again, and stored"


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, CHAIN)
    assert fgrl_here("run", recipe, cwd=tmp_path).returncode == 0
    (folder,) = (tmp_path / "runs" / "fake").iterdir()
    run = Run(folder).record
    for name, used in run.stages.items():
        stage = Stage(folder / used.dir).check(contents=True)
        assert (stage.name, stage.key, stage.component) == (name, used.key, used.kind)
        shutil.copytree(folder / used.dir, tmp_path / "copy" / name)
        Stage(tmp_path / "copy" / name).finish(stage)
        assert Stage(tmp_path / "copy" / name).check() == stage
    (tmp_path / "again").mkdir()
    Run(tmp_path / "again").write(run)
    assert Run(tmp_path / "again").record == run


def test_a_damaged_part_is_noted_and_its_default(tmp_path: Path) -> None:
    (tmp_path / records.RUN).write_text(
        '{"recipe": "r", "exit": "a", "stages": {"x": 4, "y": {"seconds": []}}, "seed": 3}'
    )
    on_disk = Run(tmp_path)
    run = on_disk.record
    assert (run.recipe, run.seed, run.exit, run.state, run.stages) == ("r", 3, None, "unfinished", {})
    assert on_disk.damage == [
        "summary.json: exit cannot be read.",
        "summary.json: seconds cannot be read.",
        "summary.json: stages cannot be read.",
    ]

"""Running what is missing: the cache, folders, failures, locks. With fake stages, in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pipeline_helpers import Bench, environment, fake_recipe, fakes

from fgrl.base import ranks
from fgrl.base.console import Console
from fgrl.base.errors import Stopped, UsageError
from fgrl.base.files import write_json
from fgrl.experiments.pipeline import Options, Summary, execute, plan
from fgrl.experiments.pipeline.log import read_log
from fgrl.experiments.pipeline.run import Run
from fgrl.pages import report
from fgrl.runs.folders import Runs
from fgrl.runs.stage import Stage
from fgrl.types import AlarmRecord, Ref


@pytest.fixture
def stages() -> Iterator[ModuleType]:
    with fakes() as module:
        yield module


@pytest.fixture(autouse=True)
def _plain_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(folder: Path) -> Path:
        page = folder / "report.html"
        page.write_text("a page")
        return page

    monkeypatch.setattr(report, "write", write)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_alarms_are_written_when_they_go_off_and_kept_in_the_record(
    bench: Bench, stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a stage that does not finish they stand in a file of their own, which the next attempt does not see."""
    alarm = AlarmRecord(name="tokens", since=3, value=2.0, bound="below 10")
    count = stages.Counting.run
    stops = [True, False]

    def run(self: Any, run: Run) -> Any:
        assert not (run.dir / "alarms.json").exists()
        run.record_alarms([alarm])
        if stops.pop(0):
            raise Stopped("it diverged")
        return count(self, run)

    monkeypatch.setattr(stages.Counting, "run", run)
    assert bench.run(first=stages.Counting()).exit == Stopped.exit_code
    (folder,) = (bench.runs / "stages").glob("first-*")
    assert not (folder / "stage.json").exists()
    assert Stage(folder).alarms == [alarm]
    assert bench.run(first=stages.Counting()).exit == 0
    assert Stage(folder).record.alarms == Stage(folder).alarms == [alarm]
    assert not (folder / "alarms.json").exists()


def test_products_flow_and_everything_is_written_down(
    bench: Bench, stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hunter2-in-the-environment")
    summary = bench.run(first=stages.Counting(steps=2), second=stages.Counting(steps=3, source=Ref("first")))
    assert summary.exit == 0
    assert bench.product(summary, "second") == "0 1\n0 1 2\n"
    folder = summary.folder
    assert folder is not None
    assert folder.parent == bench.runs / "fake"
    files = {file.name for file in folder.iterdir()}
    assert files == {
        "recipe.yaml", "origins.json", "environment.json", "inputs.json", "stages", "summary.json", "report.html", "run.log"
    }  # fmt: skip
    told = json.loads((folder / "summary.json").read_text())
    assert (told["exit"], list(told["stages"]), told["key"]) == (0, ["first", "second"], folder.name.rpartition("-")[2])
    stage = folder / told["stages"]["second"]["dir"]
    assert (stage / "stage.json").is_file()
    assert json.loads((stage / "stage.json").read_text())["summary"] == {"counted": 3}
    assert [row["count"] for row in read_log(stage / "log.jsonl")] == [0, 1, 2]
    about = json.loads((folder / "environment.json").read_text())
    assert {"versions", "platform", "cores", "seed", "command"} <= set(about)
    inputs = json.loads((folder / "inputs.json").read_text())
    assert inputs["stages"]["second"] == {"source": {"product": told["stages"]["first"]["key"]}}
    for file in folder.rglob("*"):
        if file.is_file():
            assert "hunter2" not in file.read_text()


def test_finished_stages_are_found_by_key_whatever_they_are_called(bench: Bench, stages: ModuleType) -> None:
    bench.run(first=stages.Counting(steps=2), second=stages.Counting(source=Ref("first")))
    before = {folder.name for folder in (bench.runs / "stages").glob("*-*")}
    summary = bench.run(renamed=stages.Counting(steps=2), third=stages.Counting(source=Ref("renamed"), steps=5))
    assert [stage.cached for stage in summary.stages.values()] == [True, False]
    assert len({folder.name for folder in (bench.runs / "stages").glob("*-*")} - before) == 1


def test_a_finished_recipe_has_nothing_to_do(bench: Bench, stages: ModuleType) -> None:
    first = bench.run(only_stage=stages.Counting())
    again = bench.run(only_stage=stages.Counting())
    assert again.nothing_to_do
    assert (again.folder, again.report) == (first.folder, first.report)
    assert len(Runs(bench.runs).invocations("fake")) == 1
    changed = bench.run(only_stage=stages.Counting(steps=4))
    assert not changed.nothing_to_do


def test_two_equal_stages_of_a_recipe_are_made_once(bench: Bench, stages: ModuleType) -> None:
    summary = bench.run(a=stages.Counting(), b=stages.Counting())
    assert [stage.cached for stage in summary.stages.values()] == [False, True]


def test_half_written_work_is_not_taken_for_done(bench: Bench, stages: ModuleType) -> None:
    recipe = fake_recipe(bench.folder, first=stages.Counting(steps=4))
    folder = plan(recipe, bench.runs)["first"].dir
    (folder / "out").mkdir(parents=True)
    (folder / "out" / "leftover.txt").write_text("of a killed process")
    (folder / ".stage.json.123.partial").write_text("{")
    (folder / "state.txt").write_text("0:1 1:1")  # the stage's own checkpoint
    assert plan(recipe, bench.runs)["first"].why.startswith("started, not finished")
    summary = bench.run(first=stages.Counting(steps=4))
    assert bench.product(summary, "first") == "0 1 2 3\n"
    assert not (folder / "out" / "leftover.txt").exists()
    assert (folder / "state.txt").read_text().startswith("0:1 1:1 2:"), "went on from its checkpoint"


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("data", 3, "data: rows.jsonl:3: no prompt"),
        ("budget", 4, "over budget: 1.00 EUR"),
        ("stopped", 5, "stopped: kl is 40 nats"),
        ("full", 6, "the disk is full"),
        ("bug", 1, "ZeroDivisionError: a bug"),
        ("interrupt", 130, "interrupted; what is finished is kept: run the same command to continue"),
        ("abort", 130, "aborted; run the same command to continue from the last checkpoint"),
    ],
)
def test_failures_end_in_their_exit_code(bench: Bench, stages: ModuleType, how: str, code: int, words: str) -> None:
    before = time.monotonic()
    summary = bench.run(fine=stages.Counting(), bad=stages.Failing(how=how), never=stages.Counting(steps=9))
    assert time.monotonic() - before < 5
    assert (summary.exit, list(summary.stages)) == (code, ["fine", "bad"])
    said = bench.stream.getvalue()
    assert words in said
    assert ("Traceback" in said) == (how == "bug")
    assert summary.folder is not None
    told = json.loads((summary.folder / "summary.json").read_text())
    assert (told["exit"], told["stages"]["bad"]["done"], told["stages"]["fine"]["done"]) == (code, False, True)
    assert words in told["error"]
    assert (summary.folder / "report.html").exists() == (code != 130)


def test_ctrl_c_that_nobody_asked_about_does_not_throw_whole_work_away(bench: Bench, stages: ModuleType) -> None:
    summary = bench.run(first=stages.Failing(how="late"), second=stages.Counting())
    assert summary.exit == 130
    assert summary.stages["first"].done
    assert "second" not in summary.stages


def test_a_failing_page_is_shown_and_the_work_stays_done(
    bench: Bench, stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path) -> Path:
        raise RuntimeError("broken page")

    monkeypatch.setattr(report, "write", broken)
    summary = bench.run(first=stages.Counting())
    assert summary.exit == 1
    assert "broken page" in bench.stream.getvalue()
    assert plan(fake_recipe(bench.folder, first=stages.Counting()), bench.runs)["first"].cached


def test_only_and_from(bench: Bench, stages: ModuleType) -> None:
    recipe = {
        "first": stages.Counting(steps=1),
        "second": stages.Counting(steps=2, source=Ref("first")),
        "third": stages.Counting(steps=3, source=Ref("second")),
    }
    with pytest.raises(UsageError, match="needs first, which is not done yet"):
        bench.run(_options=Options(only=["second"]), **recipe)
    with pytest.raises(UsageError, match='no stage "thrid"; did you mean "third"'):
        bench.run(_options=Options(start="thrid"), **recipe)
    assert not bench.runs.exists(), "nothing was written for a wrong request"
    assert list(bench.run(_options=Options(only=["first", "second"]), **recipe).stages) == ["first", "second"]
    with pytest.raises(UsageError, match="needs second"):
        bench.run(_options=Options(only=["third"]), _seed=1, **recipe)
    summary = bench.run(_options=Options(start="second"), **recipe)
    assert {name: stage.cached for name, stage in summary.stages.items()} == {"second": True, "third": False}


def test_limit_is_part_of_the_key_and_reaches_the_stage(
    bench: Bench, stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int | None] = []
    real = stages.Counting.run
    monkeypatch.setattr(stages.Counting, "run", lambda self, run: seen.append(run.limit) or real(self, run))
    bench.run(first=stages.Counting())
    bench.run(_options=Options(limit=4), first=stages.Counting())
    assert seen == [None, 4]


HOLD = """
import sys, time
from pathlib import Path
from fgrl.runs.folders import Runs
with Runs(Path(sys.argv[1])).lock("abc", print, lambda: False):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_is_waited_for_says_who_has_it_and_dies_with_its_process(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    told: list[str] = []
    threading.Timer(0.6, holder.kill).start()  # SIGKILL: nobody cleans up
    began = time.monotonic()
    with Runs(tmp_path).lock("abc", told.append, lambda: False) as held:
        assert held
        assert time.monotonic() - began >= 0.4
    holder.wait()
    assert len(told) == 1
    assert f"process {holder.pid} on " in told[0]


def test_who_waits_for_a_lock_can_leave(tmp_path: Path) -> None:
    with (
        Runs(tmp_path).lock("abc", print, lambda: False),
        Runs(tmp_path).lock("abc", lambda _: None, lambda: True) as held,
    ):
        assert not held


def test_the_second_of_two_runs_waits_and_takes_the_result(bench: Bench, stages: ModuleType) -> None:
    recipe = fake_recipe(bench.folder, first=stages.Counting(steps=8, pause=0.1))
    done: list[Summary] = []
    other = threading.Thread(target=lambda: done.append(execute(recipe, bench.runs, None, Console(quiet=True))))
    other.start()
    time.sleep(0.3)
    mine = execute(recipe, bench.runs, None, Console(stream=bench.stream))
    other.join()
    assert f"[1/1] first: being run by process {os.getpid()} on" in bench.stream.getvalue()
    assert [summary.exit for summary in (mine, *done)] == [0, 0]
    assert [mine.stages["first"].cached, done[0].stages["first"].cached] == [True, False]
    assert mine.folder != done[0].folder


def test_a_page_of_another_plan_is_not_mistaken_for_this_one(bench: Bench, stages: ModuleType) -> None:
    first = bench.run(first=stages.Counting())
    assert first.folder is not None
    told = json.loads((first.folder / "summary.json").read_text())
    write_json(first.folder / "summary.json", {**told, "exit": 1})
    again = bench.run(first=stages.Counting())
    assert not again.nothing_to_do
    assert again.folder != first.folder
    assert again.stages["first"].cached


def test_workers_join_without_writing(bench: Bench, stages: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = {"first": stages.Counting(devices=2)}
    stage = plan(fake_recipe(bench.folder, **recipe), bench.runs)["first"].dir
    (stage / "out").mkdir(parents=True)
    monkeypatch.setenv(ranks.STORE, "1")
    (stage / "ranks-1").touch()  # rank 0 has begun
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="--only"):
        bench.run(**recipe, second=stages.Counting(steps=7))
    monkeypatch.delenv("WORLD_SIZE")
    summary = bench.run(_options=Options(only=["first"]), **recipe)
    assert summary.worker
    assert bench.stream.getvalue() == ""
    assert not (bench.runs / "fake").exists()
    assert not list((bench.runs / "stages").glob("*/stage.json"))

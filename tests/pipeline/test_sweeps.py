"""Sweeps: what points share runs once, nothing is repeated, failures do not end them, and points that fall behind are stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from patience import HUNG
from pipeline_helpers import FAKES, fgrl, start
from searches import searched, sweep_of

from fgrl.base.console import Console
from fgrl.base.errors import Aborted
from fgrl.experiments.pipeline.sweep_points import shares
from fgrl.experiments.pipeline.sweep_search import FIRST_RANDOM, EarlyStopping, Search
from fgrl.experiments.pipeline.sweeping import Sweeping, _Running, begin
from fgrl.experiments.recipe.sweeps import EarlyTermination, Parameter
from fgrl.library.sweeps import of_file
from fgrl.runs.results.sweep_records import PointRecord, SweepRecord, read_sweep_record

RECIPE = f"""
about: "A recipe of fakes."
imports: ["{FAKES}"]
vars: {{base: 2, level: 1.0, pause: 0.0, fails: false, dies: false, steps: 9}}
stages:
  first: {{name: counting, steps: 3, pause: "${{vars.pause}}"}}
  second: {{name: counting, steps: "${{vars.base}}", source: "${{out:first}}", pause: "${{vars.pause}}"}}
  last:
    name: descending
    level: "${{vars.level}}"
    steps: "${{vars.steps}}"
    pause: "${{vars.pause}}"
    fails: "${{vars.fails}}"
    dies: "${{vars.dies}}"
    of: "${{out:second}}"
"""


def sweep(folder: Path, parameters: str, more: str = "", words: str = "", method: str = "grid") -> Path:
    (folder / "r.yaml").write_text(RECIPE)
    file = folder / "s.yaml"
    file.write_text(
        f'program: fgrl\ncommand: ["${{program}}", run, r.yaml, {words}"${{args_no_hyphens}}"]\nmethod: {method}\n'
        f"metric: {{name: last/loss, goal: minimize}}\nparameters: {parameters}\n{more}\n"
    )
    return file


def record(folder: Path, runs: str = "runs") -> SweepRecord:
    (place,) = (folder / runs / "sweeps").iterdir()
    found = read_sweep_record(place)
    assert found is not None
    return found


def table(of: SweepRecord) -> list[tuple[Any, ...]]:
    return [(point.number, point.parameters, point.state, point.value and point.value.mean) for point in of.points]


def stage_runs(runs: Path) -> Counter[str]:
    """How often each stage began, by the folders' names, as the processes that counted in them say."""
    return Counter(
        file.parent.name for file in (runs / "stages").glob("*/state.txt") for _ in set(pids(file.read_text()))
    )


def pids(text: str) -> list[str]:
    return [word.partition(":")[2] for word in text.split()]


GRID = "{vars.base: {values: [1, 2]}, vars.level: {values: [1.0, 2.0, 3.0]}}"


def test_shared_stages_run_once_whatever_jobs_is_and_nothing_is_repeated(tmp_path: Path) -> None:
    file = sweep(tmp_path, GRID)
    one = fgrl("sweep", file, "--runs", "one", cwd=tmp_path)
    two = fgrl("sweep", file, "--runs", "two", "--jobs", "2", cwd=tmp_path)
    assert (one.returncode, two.returncode) == (0, 0), one.stderr + two.stderr
    assert table(record(tmp_path, "one")) == table(record(tmp_path, "two"))
    for runs in ("one", "two"):
        own = record(tmp_path, runs)
        stages = [
            folder.name.partition("-")[0] for folder in (tmp_path / runs / "stages").iterdir() if folder.name[0] != "."
        ]
        assert Counter(stages) == {"first": 1, "second": 2, "last": 6}
        assert set(stage_runs(tmp_path / runs).values()) == {1}
        assert own.threads == 1
    assert [point.value and point.value.mean for point in record(tmp_path, "one").points] == [
        level / 9 for _base in (1, 2) for level in (1.0, 2.0, 3.0)
    ]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "one" / "stages").rglob("*") if path.is_file()}
    runs_before = sorted((tmp_path / "one" / "r").iterdir())
    again = fgrl("sweep", file, "--runs", "one", cwd=tmp_path)
    assert again.stdout == one.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert sorted((tmp_path / "one" / "r").iterdir()) == runs_before


def test_killed_twice_it_goes_on_and_ends_with_the_same_table(tmp_path: Path) -> None:
    file = sweep(tmp_path, "{vars.base: {values: [2, 3]}, vars.level: {values: [1.0, 2.0]}}", words="vars.pause=0.05, ")
    whole = fgrl("sweep", file, "--runs", "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    for number, wanted in ((signal.SIGKILL, 1), (signal.SIGTERM, 3)):
        process = start("sweep", file, "--runs", "killed", cwd=tmp_path)
        until(lambda wanted=wanted: len(list((tmp_path / "killed" / "stages").glob("*/stage.json"))) >= wanted)
        time.sleep(0.1)
        os.kill(process.pid, number)
        code = process.wait(HUNG)
        assert code == (-9 if number == signal.SIGKILL else 130)
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "killed" / "stages").glob("*/stage.json")}
    ended = fgrl("sweep", file, "--runs", "killed", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert table(record(tmp_path, "killed")) == table(record(tmp_path, "whole"))
    assert {path: path.stat().st_mtime_ns for path in done} == done, "what was finished is left alone"
    stages = [
        folder.name.partition("-")[0] for folder in (tmp_path / "killed" / "stages").iterdir() if folder.name[0] != "."
    ]
    assert Counter(stages) == {"first": 1, "second": 2, "last": 4}
    for steps in (tmp_path / "killed" / "stages").glob("last-*/done.txt"):
        assert len(set(steps.read_text().split())) == 9


@pytest.mark.parametrize(
    ("parameters", "named"),
    [("{vars.api_key: {values: [planted-word-1, b]}}", "vars.api_key"), ("{vars.name: {value: planted-word-1}}", "vars.name")],
)  # fmt: skip
def test_a_sweep_that_holds_a_secret_is_refused_and_not_kept(parameters: str, named: str, tmp_path: Path) -> None:
    file = sweep(tmp_path, parameters)
    for start_number in range(2):
        refused = fgrl("sweep", file, cwd=tmp_path, SOME_SERVICE_TOKEN="planted-word-1")
        assert refused.returncode == 2, (start_number, refused.stderr)
        assert f"{named}: looks like a secret" in refused.stderr
        assert "planted-word-1" not in refused.stdout + refused.stderr
        assert not list((tmp_path / "runs").rglob("*"))


def test_a_sweep_over_the_value_of_a_variable_that_its_recipe_names_is_not_kept(tmp_path: Path) -> None:
    file = sweep(tmp_path, "{vars.word: {values: [planted words, b]}}")
    recipe = tmp_path / "r.yaml"
    changed = recipe.read_text().replace("vars: {", "vars: {word: a, key_env: MY_OWN, ")
    recipe.write_text(changed.replace("A recipe of fakes.", "Reads ${vars.key_env} for ${vars.word}."))
    refused = fgrl("sweep", file, cwd=tmp_path, MY_OWN="planted words")
    assert refused.returncode == 2, refused.stderr
    assert "vars.word: looks like a secret" in refused.stderr
    assert "planted words" not in refused.stdout + refused.stderr
    assert [path for path in (tmp_path / "runs").rglob("*") if path.is_file() and "planted" in path.read_text()] == []


def test_points_are_read_from_the_sweep_file(tmp_path: Path) -> None:
    file = sweep(
        tmp_path, "{vars.base: {values: [2, 3]}, vars.level: {min: 1.0, max: 2.0}}", "run_cap: 3", method="random"
    )
    assert fgrl("sweep", file, cwd=tmp_path).returncode == 0
    before = record(tmp_path)
    (place,) = (tmp_path / "runs" / "sweeps").iterdir()
    kept = json.loads((place / "sweep.json").read_text())
    for point in kept["points"]:
        point["parameters"] = dict.fromkeys(point["parameters"], "<key>")
    (place / "sweep.json").write_text(json.dumps(kept))
    again = fgrl("sweep", file, cwd=tmp_path)
    assert "3 points are finished already" in again.stderr
    assert table(record(tmp_path)) == table(before)


def until(holds: Any) -> None:
    for _ in range(int(HUNG / 0.02)):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError("it never came to that")


def test_a_failed_point_is_listed_and_the_others_run(tmp_path: Path) -> None:
    file = sweep(tmp_path, "{vars.fails: {values: [true, false]}, vars.dies: {values: [false, true]}}")
    done = fgrl("sweep", file, "--jobs", "2", cwd=tmp_path)
    assert done.returncode == 9, done.stderr
    own = record(tmp_path)
    assert [(point.state, point.exit) for point in own.points] == [
        ("failed", 3), ("failed", 1), ("finished", 0), ("failed", 1),
    ]  # fmt: skip
    assert "no prompt" in own.points[0].error
    assert "signal 9" in own.points[1].error
    assert all(point.seconds for point in own.points), "also of a process that was lost"
    assert "point 1 failed with exit code 3: data: rows.jsonl:3: no prompt" in done.stdout
    page = next((tmp_path / "runs" / "sweeps").glob("*/index.html")).read_text()
    assert "rows.jsonl:3: no prompt" in page
    again = fgrl("sweep", file, cwd=tmp_path)
    assert again.returncode == 9
    assert [point.state for point in record(tmp_path).points] == ["failed", "failed", "finished", "failed"]


def test_what_several_points_fail_with_is_said_once(tmp_path: Path) -> None:
    file = sweep(tmp_path, "{vars.fails: {values: [true]}, vars.level: {values: [1.0, 2.0, 3.0]}}")
    done = fgrl("sweep", file, cwd=tmp_path)
    assert done.returncode == 9, done.stderr
    assert "points 1, 2, 3 failed with exit code 3: data: rows.jsonl:3: no prompt" in done.stdout
    assert done.stdout.count("no prompt") == 1
    assert done.stderr.count("no prompt") == 1
    assert done.stderr.count("failed with exit code 3: as point 1") == 2


@pytest.mark.parametrize(
    ("how", "code", "why"), [("budget", 4, "over budget"), ("killed", 1, "its process was lost: signal 9 has ended it")]
)
def test_what_shared_stages_fail_with_is_the_error_of_all_their_points(
    how: str, code: int, why: str, tmp_path: Path
) -> None:
    file = sweep(
        tmp_path, "{vars.level: {values: [1.0, 2.0]}, vars.base: {values: [2, 3]}}", words="stages.first.words=r.yaml, "
    )
    text = RECIPE.replace("{name: counting, steps: 3,", f"{{name: failing, how: {how}}} #")
    (tmp_path / "r.yaml").write_text(text)
    file.write_text(file.read_text().replace("stages.first.words=r.yaml, ", ""))
    done = fgrl("sweep", file, cwd=tmp_path)
    own = record(tmp_path)
    assert done.returncode == 9
    assert {(point.state, point.exit) for point in own.points} == {("failed", code)}
    assert own.points[0].error.startswith(why)
    assert all(f"first, which it shares with point 1: {why}" in point.error for point in own.points[1:])
    assert len(list((tmp_path / "runs" / "r").iterdir())) == 1, "it was tried once"


def test_a_process_that_ends_without_a_word_is_a_failed_point(tmp_path: Path) -> None:
    file = sweep(tmp_path, "{vars.dies: {values: [true, false]}}")
    (tmp_path / "r.yaml").write_text(RECIPE.replace('dies: "${vars.dies}"', 'leaves: "${vars.dies}"'))
    done = fgrl("sweep", file, cwd=tmp_path)
    assert done.returncode == 9, done.stderr
    assert [(point.state, point.exit) for point in record(tmp_path).points] == [("failed", 1), ("finished", 0)]
    assert "it ended with 0" in record(tmp_path).points[0].error


PRINTS = {
    "the JSON of a command": "atexit.register(subprocess.run, [sys.executable, '-m', 'fgrl', 'list', 'segmenter', '--json'])",
    "no end of a line": "os.write(1, b'half a line')",
    "an end without a word": "print('at the end'); atexit.register(os._exit, 7)",
}


@pytest.mark.parametrize("code", PRINTS.values(), ids=PRINTS)
def test_what_a_users_code_prints_does_not_hide_how_a_point_ended(code: str, tmp_path: Path) -> None:
    file = sweep(tmp_path, "{vars.level: {values: [1.0]}}")
    (tmp_path / "r.yaml").write_text(RECIPE.replace("imports: [", "imports: [own.py, "))
    (tmp_path / "own.py").write_text(
        f"import atexit, os, subprocess, sys\nif 'FGRL_SWEPT' in os.environ:\n    {code}\n"
    )
    done = fgrl("sweep", file, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [(point.state, point.exit) for point in record(tmp_path).points] == [("finished", 0)]


def test_the_reply_of_an_earlier_start_is_not_that_of_a_process_that_is_lost(tmp_path: Path) -> None:
    file = sweep(tmp_path, "{vars.level: {values: [1.0]}}")
    assert fgrl("sweep", file, cwd=tmp_path).returncode == 0
    (tmp_path / "r.yaml").write_text(RECIPE.replace("dies: false", "dies: true"))
    assert fgrl("sweep", file, cwd=tmp_path).returncode == 9
    assert "signal 9" in record(tmp_path).points[0].error


def test_an_abort_of_a_sweep_whose_point_has_ended_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = sweep(tmp_path, "{vars.level: {values: [1.0]}}")
    monkeypatch.chdir(tmp_path)
    made = of_file(file)
    running = Sweeping(
        made, begin(made, [], 1, 1), Search(made.file, 0, None), jobs=1, devices=[], console=Console(quiet=True)
    )

    def loop(_interrupted: Any) -> None:
        process = subprocess.Popen(["true"], start_new_session=True)
        process.wait()
        running._running.append(_Running(running.record.points[0], None, process, tmp_path / "reply"))
        raise Aborted

    monkeypatch.setattr(running, "_loop", loop)
    assert running.run().exit == 130


def test_a_target_ends_the_sweep(tmp_path: Path) -> None:
    file = sweep(tmp_path, "{vars.level: {values: [9.0, 4.5, 1.0]}}")
    file.write_text(file.read_text().replace("goal: minimize}", "goal: minimize, target: 0.6}"))
    done = fgrl("sweep", file, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [point.state for point in record(tmp_path).points] == ["finished", "finished", "waiting"]


def test_a_point_with_a_mistake_in_its_recipe_fails_alone(tmp_path: Path) -> None:
    file = sweep(tmp_path, "{vars.steps: {values: [2, many]}}")
    done = fgrl("sweep", file, cwd=tmp_path)
    assert done.returncode == 9, done.stderr
    first, second = record(tmp_path).points
    assert (first.state, second.state, second.exit) == ("finished", "failed", 2)
    assert 'wants int, got str "many"' in second.error


# -- stopped early -----------------------------------------------------------------------------------------------------


def test_points_that_fall_behind_are_stopped_and_stay_so(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="needs optuna: pip install 'fgrl[sweep]'")
    file = sweep(
        tmp_path, "{vars.level: {values: [1.0, 5.0, 0.5, 7.0]}}", "early_terminate: {type: hyperband, min_iter: 2, eta: 2}",
        "vars.pause=0.4, ",
    )  # fmt: skip
    done = fgrl("sweep", file, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    own = record(tmp_path)
    assert [point.state for point in own.points] == ["finished", "stopped early", "finished", "stopped early"]
    assert [point.reported[-1][0] for point in own.points] == [9, 2, 9, 2]
    steps = {
        read_level(folder): len(set((folder / "done.txt").read_text().split()))
        for folder in (tmp_path / "runs" / "stages").glob("last-*")
    }
    assert steps[1.0] == steps[0.5] == 9
    assert steps[5.0] < 9
    assert steps[7.0] < 9
    again = fgrl("sweep", file, cwd=tmp_path)
    assert again.returncode == 0
    assert table(record(tmp_path)) == table(own)
    assert "4 points are finished already" in again.stderr


def read_level(folder: Path) -> float:
    import yaml

    return float(yaml.safe_load((folder / "recipe.yaml").read_text())["stages"]["last"]["level"])


def test_successive_halving_stops_all_but_the_best_share_at_each_rung() -> None:
    pytest.importorskip("optuna", reason="needs optuna: pip install 'fgrl[sweep]'")
    stopping = EarlyStopping(EarlyTermination(type="hyperband", min_iter=2, eta=2.0), "maximize")
    ended = {}
    for number, level in enumerate([3.0, 1.0, 4.0, 2.0, 5.0], start=1):
        point = PointRecord(number=number, parameters={})
        ended[level] = next((count for count in range(1, 9) if stopping.stops(point, count, level)), None)
    # by hand: at 2 values each is compared with those before it; the better half goes on, and so on at 4 and 8
    assert ended == {3.0: None, 1.0: 2, 4.0: None, 2.0: 2, 5.0: None}
    assert EarlyTermination(type="hyperband", max_iter=27, s=2, eta=3.0).first == 3


# -- searches ----------------------------------------------------------------------------------------------------------


PARAMETERS = {
    "x": Parameter(min=0.0, max=1.0),
    "k": Parameter(values=["a", "b", [1]]),
    "lr": Parameter(distribution="log_uniform_values", min=1e-6, max=1e-2),
    "fixed": Parameter(value=3),
}


def found(method: str, seed: int, most: int) -> list[PointRecord]:
    return searched(sweep_of(PARAMETERS, method, "maximize"), seed, most, peak)


def peak(parameters: dict[str, Any]) -> float:
    return -((parameters["x"] - 0.7) ** 2) + (parameters["k"] == "b") - (np.log10(parameters["lr"]) + 4) ** 2


def test_draws_are_seeded_and_do_not_depend_on_how_many_there_are() -> None:
    ten, three = (found("random", 5, most) for most in (10, 3))
    assert [point.parameters for point in three] == [point.parameters for point in ten][:3]
    assert [point.parameters for point in found("random", 6, 3)] != [point.parameters for point in three]
    shares = [float(np.random.default_rng([5, 2]).random(4)[place]) for place in range(4)]
    assert list(ten[1].shares.values()) == shares
    assert ten[1].parameters["x"] == pytest.approx(shares[0], abs=1e-6)
    assert {point.parameters["fixed"] for point in ten} == {3}


def test_bayesian_search_begins_as_random_does_and_then_finds_the_peak() -> None:
    pytest.importorskip("optuna", reason="needs optuna: pip install 'fgrl[sweep]'")
    random, bayes = (found(method, 1, 22) for method in ("random", "bayes"))
    assert [p.parameters for p in bayes[:FIRST_RANDOM]] == [p.parameters for p in random[:FIRST_RANDOM]]
    assert bayes[FIRST_RANDOM].parameters != random[FIRST_RANDOM].parameters
    best = max(bayes, key=lambda point: peak(point.parameters))
    assert best.parameters["k"] == "b"
    assert peak(best.parameters) > 0.9
    again = found("bayes", 1, 13)
    assert [point.parameters for point in again] == [point.parameters for point in bayes[:13]], "seeded"


def test_failed_and_running_points_are_told_to_the_search() -> None:
    pytest.importorskip("optuna", reason="needs optuna: pip install 'fgrl[sweep]'")
    points = found("bayes", 2, FIRST_RANDOM)
    points[0].state, points[0].value = "failed", None
    points[1].state, points[1].value = "unfinished", None
    points[2].state, points[2].reported, points[2].value = "stopped early", [(1, -3.0), (2, -2.0)], None
    search = Search(sweep_of(PARAMETERS, "bayes", "maximize"), 2, 20)
    assert search._imputed(points[0], points) == min(search._told(p) for p in points if search._told(p) is not None)
    assert search._told(points[1]) is None
    assert search._told(points[2]) == -2.0
    assert search.draw(points) is not None


def test_a_search_without_an_end_is_refused(tmp_path: Path) -> None:
    file = sweep(tmp_path, "{vars.level: {min: 0.5, max: 2.0}}", method="random")
    assert "--points N" in fgrl("sweep", file, cwd=tmp_path).stderr
    done = fgrl("sweep", file, "--points", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    more = fgrl("sweep", file, "--points", "4", cwd=tmp_path)
    assert "3 points are finished already" in more.stderr
    assert len(record(tmp_path).points) == 4


@pytest.mark.parametrize(
    ("devices", "jobs", "expected"),
    [
        ("", 3, [None, None, None]),
        ("0123", 1, [None]),
        ("0123", 2, ["0,1", "2,3"]),
        ("012", 2, ["0", "1"]),
        ("01", 4, ["0", "1", "0", "1"]),
    ],
)
def test_devices_are_shared_out(devices: str, jobs: int, expected: list[str | None]) -> None:
    assert shares(list(devices), jobs) == expected


# -- several machines --------------------------------------------------------------------------------------------------


def test_points_that_ran_alone_are_collected(tmp_path: Path) -> None:
    file = sweep(tmp_path, GRID)
    assert fgrl("sweep", file, "--point", "1", "--dry-run", cwd=tmp_path).stdout.count("\n") == 8
    assert not (tmp_path / "runs").exists()
    assert fgrl("sweep", file, "--point", "7", cwd=tmp_path).returncode == 2
    for number in range(6, 0, -1):  # in any order
        done = fgrl("sweep", file, "--point", number, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert set(stage_runs(tmp_path / "runs").values()) == {1}
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs" / "stages").glob("*/stage.json")}
    assert len(before) == 9
    collected = fgrl("sweep", file, cwd=tmp_path)
    assert collected.returncode == 0, collected.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert all(point.state == "finished" for point in record(tmp_path).points)


def test_the_index_and_the_list_of_runs(tmp_path: Path) -> None:
    sweep(tmp_path, GRID)
    done = fgrl("run", "r.yaml", "vars.base=1,2", "vars.level=1.0,2.0", "vars.steps=3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    listed = json.loads(fgrl("runs", "--json", cwd=tmp_path).stdout)
    (entry,) = listed["runs"]
    assert (entry["recipe"], entry["state"], entry["done"]) == ("r", "finished", 7)
    inside = json.loads(fgrl("runs", entry["folder"], "--json", cwd=tmp_path).stdout)["runs"]
    assert len(inside) == 4
    index = Path(tmp_path / entry["folder"] / "index.html")
    assert "<small>2 trainings</small>" in index.read_text(), "those of the two levels: equal ones are drawn once"
    index.unlink()
    assert fgrl("report", entry["folder"], cwd=tmp_path).stdout.strip() == str(Path(entry["folder"]) / "index.html")
    assert index.is_file()
    same = fgrl("sweep", Path(entry["folder"]) / "sweep.yaml", "--json", cwd=tmp_path)
    assert "4 points are finished already" in same.stderr
    assert len(json.loads(same.stdout)["points"]) == 4


def test_another_process_that_runs_the_sweep_is_named(tmp_path: Path) -> None:
    from filelock import FileLock

    file = sweep(tmp_path, "{vars.level: {values: [1.0]}}")
    fgrl("sweep", file, cwd=tmp_path)
    (folder,) = (tmp_path / "runs" / "sweeps").iterdir()
    with FileLock(folder / ".running"):
        refused = fgrl("sweep", file, cwd=tmp_path)
    assert refused.returncode == 2
    assert "another process runs this sweep" in refused.stderr

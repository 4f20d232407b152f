"""The command line as a person and a script meet it: in processes of its own where that matters, else in the process of the tests."""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import warm
from patience import HUNG
from pipeline_helpers import FAKES, environment, fgrl, fgrl_here, recipe_file, start

pytestmark = pytest.mark.usefixtures("warm")

HEAVY = (
    "torch", "transformers", "lightning", "peft", "datasets", "wandb", "openai", "sentence_transformers", "sklearn", "scipy",
    "matplotlib", "numpy",
)  # fmt: skip
RECIPES = Path(__file__).resolve().parents[2] / "recipes"
COUNT_AND_COUNT_ON = "{first: {name: counting, steps: 2}, second: {name: counting, source: '${out:first}'}}"


def median_seconds(*arguments: object, cwd: Path) -> float:
    times = []
    for _ in range(5):
        began = time.monotonic()
        assert fgrl(*arguments, cwd=cwd).returncode == 0
        times.append(time.monotonic() - began)
    return statistics.median(times)


FRESH = """
import io, json, os, sys
from contextlib import redirect_stderr, redirect_stdout
from fgrl.cli import main
heavy, *commands = json.load(sys.stdin)
for arguments in commands:
    if os.fork() == 0:
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            try:
                main(arguments)
            except SystemExit as end:
                code = end.code
        loaded = [name for name in heavy if name in sys.modules]
        print(json.dumps({"code": code, "out": out.getvalue(), "err": err.getvalue(), "heavy": loaded}))
        sys.exit()
    os.wait()
"""
"""Each command in a copy of a process that has imported the command line and nothing else."""
LIGHT = {
    "--help": "fgrl run",
    f"validate {RECIPES / 'small' / 'segment_ppo.yaml'}": "segment_ppo.yaml: ok, ",
    f"plan {RECIPES / 'small' / 'segment_ppo.yaml'}": "reward_model",
    f"list --import {FAKES}": "counting",
    "show ppo": "kl_coef",
    "schema": '"segmenter"',
}
"""Commands that import nothing heavy, and words of what each prints."""
OTHERS = {
    "table {run} --markdown": "| policy | difference",
    "report {run}": "Share of answers that satisfy share",
    "inspect fake.yaml -n 1": "sample 0",
    "new segmenter entropy": 'the name "entropy" is taken',
}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What every command does in a process in which nothing is registered: exit code, stdout, stderr, and the heavy modules it imported."""
    folder = tmp_path_factory.mktemp("fresh")
    recipe = recipe_file(folder, "{first: {name: counting}, evaluate: {name: measuring, value: 0.5}}")
    assert fgrl_here("run", recipe, "-q", cwd=folder).returncode == 0
    (run,) = (folder / "runs" / "fake").iterdir()
    commands = [command.format(run=run).split() for command in (*LIGHT, *OTHERS)]
    with warm.as_usual():
        done = subprocess.run(
            [sys.executable, "-c", FRESH], input=json.dumps([HEAVY, *commands]), cwd=folder, env=environment(), capture_output=True,
            text=True, check=True,
        )  # fmt: skip
    return dict(zip((*LIGHT, *OTHERS), map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("command", LIGHT, ids=lambda command: command.split()[0].strip("-"))
def test_light_commands_import_nothing_heavy(fresh: dict[str, dict[str, Any]], command: str) -> None:
    done = fresh[command]
    assert (done["code"], done["heavy"]) == (0, []), done["err"]
    assert LIGHT[command] in done["out"]


@pytest.mark.parametrize("command", OTHERS, ids=lambda command: "-".join(command.split()[:3]))
def test_a_command_registers_what_it_needs(fresh: dict[str, dict[str, Any]], command: str) -> None:
    done = fresh[command]
    assert done["code"] == (2 if "taken" in OTHERS[command] else 0), done["err"]
    assert OTHERS[command] in done["out"] + done["err"]


@pytest.mark.evidence
def test_times_are_reported(tmp_path: Path, record_property: pytest.FixtureRequest) -> None:
    seconds = {
        "--help": median_seconds("--help", cwd=tmp_path),
        "validate": median_seconds("validate", RECIPES / "small" / "segment_ppo.yaml", cwd=tmp_path),
    }
    for name, value in seconds.items():
        print(f"fgrl {name}: {value:.2f} s (median of 5)")
        record_property(name, round(value, 3))  # type: ignore[operator]


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "validate",
        "plan",
        "list",
        "show",
        "schema",
        "inspect",
        "table",
        "compare",
        "elo",
        "report",
        "doctor",
        "runs",
        "clean",
        "new",
        "init",
        "launch",
    ],
)
def test_every_command_has_help_with_examples(tmp_path: Path, command: str) -> None:
    done = fgrl_here(command, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "Examples:" in done.stdout
    assert f"fgrl {command}" in done.stdout


def test_run_then_nothing_to_do(tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, COUNT_AND_COUNT_ON)
    first = fgrl("run", recipe, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "[1/2] first: new" in first.stderr
    assert "Traceback" not in first.stderr
    report = next(line for line in first.stdout.splitlines() if line.startswith("report: "))
    assert (tmp_path / report.removeprefix("report: ")).is_file()
    again = fgrl("run", recipe, cwd=tmp_path)
    assert again.returncode == 0
    assert "nothing to do: 2 stages done" in again.stdout
    assert report in again.stdout
    said = [line for line in again.stderr.splitlines() if not line.startswith("loading ")]  # on a busy machine
    assert said == []


def test_json_is_all_there_is_on_stdout(tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, COUNT_AND_COUNT_ON)
    plan = json.loads(fgrl_here("plan", recipe, "--json", cwd=tmp_path).stdout)
    assert list(plan["stages"]) == ["first", "second"]
    assert not plan["stages"]["first"]["cached"]
    summary = json.loads(fgrl_here("run", recipe, "--json", cwd=tmp_path).stdout)
    assert summary["exit"] == 0
    assert summary["stages"]["first"]["key"] == plan["stages"]["first"]["key"]
    assert json.loads(fgrl_here("run", recipe, "--json", cwd=tmp_path).stdout)["nothing_to_do"]
    assert json.loads(fgrl_here("run", recipe, "--dry-run", "--json", cwd=tmp_path).stdout)["stages"]["second"][
        "cached"
    ]
    assert json.loads(fgrl_here("validate", recipe, "--json", cwd=tmp_path).stdout)["ok"]
    wrong = fgrl_here("validate", recipe, "stages.first.stepz=1", "--json", cwd=tmp_path)
    assert wrong.returncode == 2
    (problem,) = json.loads(wrong.stdout)["recipes"][0]["problems"]
    assert (problem["path"], problem["place"]) == ("stages.first.stepz", "command line")
    failed = fgrl_here("plan", recipe, "stages.first.stepz=1", "--json", cwd=tmp_path)
    assert failed.returncode == 2
    assert json.loads(failed.stdout)["problems"]
    samples = json.loads(fgrl_here("inspect", recipe, "--json", cwd=tmp_path).stdout)["samples"]
    assert [sample["title"] for sample in samples] == ["sample 0", "sample 1", "sample 2"]
    assert (
        "counting"
        in fgrl_here(
            "list",
            "stage",
            "--json",
            "--import",
            Path(__file__).parents[1] / "support" / "fake_stages.py",
            cwd=tmp_path,
        ).stdout
    )


def test_overrides_also_as_sweeps_write_them(tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, COUNT_AND_COUNT_ON)
    keys = [
        json.loads(fgrl_here("plan", recipe, *more, "--json", cwd=tmp_path).stdout)["stages"]["first"]["key"]
        for more in ([], ["stages.first.steps=5"], ["--stages.first.steps=5"])
    ]
    assert keys[0] != keys[1] == keys[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rnu", "{recipe}"], "Did you mean 'run'"),
        (["run", "fak.yaml"], 'did you mean "fake.yaml"'),
        (["run", "{recipe}", "--onyl=first"], 'did you mean "--only"'),
        (["run", "{recipe}", "--dry"], 'did you mean "--dry-run"'),
        (["run", "{recipe}", "steps"], "a.b=value"),
        (["run", "{recipe}", "--only", "fist"], 'did you mean "first"'),
        (["run", "{recipe}", "--only", "second"], "needs first, which is not done yet"),
        (["run", "{recipe}", "stages.first.stepz=1"], 'did you mean "steps"'),
        (["run", "{recipe}", "--limit", "0"], "--limit"),
        (["inspect", "{recipe}", "--stage", "second"], "needs first first"),
        (["report", "{recipe}"], "no runs in"),
        (["show", "no_such_thing"], "no component"),
        (["list", "segmentr"], 'did you mean "segmenter"'),
        (["new", "segmentor", "mine"], 'did you mean "segmenter"'),
        (["new", "segmenter", "a b"], "cannot be a file name"),
    ],
    ids=lambda value: "-".join(value)[:40] if isinstance(value, list) else None,
)
def test_mistakes_are_explained_and_exit_with_2(tmp_path: Path, arguments: list[str], words: str) -> None:
    recipe = recipe_file(tmp_path, COUNT_AND_COUNT_ON)
    done = fgrl_here(*(argument.format(recipe=recipe.name) for argument in arguments), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("how", "code"), [("data", 3), ("budget", 4), ("stopped", 5), ("bug", 7), ("interrupt", 130)])
def test_exit_codes_of_failing_stages(tmp_path: Path, how: str, code: int) -> None:
    done = fgrl("run", recipe_file(tmp_path, f"{{bad: {{name: failing, how: {how}}}}}"), cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert f"not finished (exit code {code})" in done.stdout
    assert done.stdout.count("\n") == 1, "the error is the last thing said"


def counted(folder: Path) -> int:
    """How far the stage `counting` has come."""
    states = list((folder / "runs" / "stages").glob("*/state.txt"))
    return len(states[0].read_text().split()) if states else 0


def test_a_run_that_is_killed_goes_on(tmp_path: Path) -> None:
    """SIGKILL at random moments; the product is the same as an undisturbed run's and finished work is not repeated."""
    recipe = recipe_file(tmp_path, "{first: {name: counting, steps: 12, pause: 0.1}}")
    moments = random.Random(0)
    for _ in range(4):
        before = counted(tmp_path)
        process = start("run", recipe, cwd=tmp_path)
        until = time.monotonic() + HUNG
        while counted(tmp_path) == before and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.2 * moments.random())
        process.kill()
        process.communicate()
    done = fgrl("run", recipe, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (stage,) = (tmp_path / "runs" / "stages").glob("first-*")
    assert (stage / "out" / "samples.jsonl").read_text() == " ".join(map(str, range(12))) + "\n"
    assert {file.name for file in (stage / "out").iterdir()} == {"samples.jsonl"}
    processes = {item.split(":")[1] for item in (stage / "state.txt").read_text().split()}
    assert len(processes) > 1, "no kill fell into the stage: the test is not testing"
    rows = [json.loads(line)["step"] for line in (stage / "log.jsonl").read_text().splitlines()]
    assert rows == list(range(12))


def test_ctrl_c_saves_and_the_same_command_goes_on(tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, "{first: {name: counting, steps: 100, pause: 0.1}}")
    process = start("run", recipe, cwd=tmp_path)
    assert process.stderr is not None
    assert "[1/1] first" in process.stderr.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=HUNG)
    assert process.returncode == 130
    assert "run the same command to continue" in said
    assert "Traceback" not in said
    assert fgrl("plan", recipe, cwd=tmp_path).stdout.count("started, not finished") == 1


def test_a_stage_of_several_processes_runs_in_its_own(tmp_path: Path) -> None:
    recipe = recipe_file(
        tmp_path, "{first: {name: counting}, second: {name: counting, devices: 2, source: '${out:first}'}}"
    )
    done = fgrl("run", recipe, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("[2/2] second: new") == 1
    (stage,) = (tmp_path / "runs" / "stages").glob("second-*")
    (first,) = (tmp_path / "runs" / "stages").glob("first-*")
    mine, theirs = (
        {item.split(":")[1] for item in (folder / "state.txt").read_text().split()} for folder in (stage, first)
    )
    assert mine.isdisjoint(theirs)
    assert len(list((tmp_path / "runs" / "fake").iterdir())) == 1, "one invocation"
    failing = recipe_file(tmp_path, "{bad: {name: failing, how: data, devices: 2}}", "failing.yaml")
    done = fgrl("run", failing, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("data: rows.jsonl:3") == 1


@pytest.mark.parametrize("whole_group", [False, True], ids=["kill", "terminal"])
def test_ctrl_c_reaches_a_stage_in_its_own_process_once(tmp_path: Path, whole_group: bool) -> None:
    """A terminal's Ctrl-C goes to every process of the group; twice would abort the stage before it has saved."""
    recipe = recipe_file(tmp_path, "{first: {name: counting, steps: 100, pause: 0.4, devices: 2}}")
    process = start("run", recipe, cwd=tmp_path)
    states = tmp_path / "runs" / "stages"
    until = time.monotonic() + HUNG
    while not counted(tmp_path) and time.monotonic() < until:
        time.sleep(0.05)
    if whole_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=HUNG)
    assert process.returncode == 130, said
    assert "what is finished is kept" in said
    assert "aborted" not in said
    assert {file.name for file in states.glob("*/stopped-*")} == {"stopped-0", "stopped-1"}, "neither was killed"
    (state,) = states.glob("*/state.txt")
    count = len(state.read_text().split())
    time.sleep(1)
    assert len(state.read_text().split()) == count < 100, "its process is gone too"


def test_table_puts_recipes_side_by_side(tmp_path: Path) -> None:
    one, other, not_run = (
        recipe_file(tmp_path, f"{{evaluate: {{name: measuring, value: {value}}}}}", f"{name}.yaml")
        for name, value in (("one", 0.5), ("other", 0.75), ("third", 0.9))
    )
    for recipe in (one, other):
        assert fgrl_here("run", recipe, "-q", cwd=tmp_path).returncode == 0
    table = fgrl_here("table", one, other, not_run, cwd=tmp_path).stdout
    assert "0.5" in table
    assert "0.75" in table
    assert "not run: third" in table
    markdown = fgrl_here("table", one, other, not_run, "--markdown", cwd=tmp_path).stdout.splitlines()
    assert {line.count("|") for line in markdown[:6]} == {6}
    assert any(line.startswith("|  | other | policy | 0.75") for line in markdown)
    assert markdown[-1] == "not run: third"
    data = json.loads(fgrl_here("table", one, not_run, "--json", cwd=tmp_path).stdout)["recipes"]
    assert data["third"] is None
    assert {row["model"]: row["mean"] for row in data["one"]} == {"sft": 0.25, "policy": 0.5}
    (number,) = {row["number"] for row in data["one"]}
    assert fgrl_here("table", one, other, "--number", number[:3], cwd=tmp_path).stdout in table
    none = fgrl_here("table", one, "--number", "nothing like it", cwd=tmp_path)
    assert none.returncode == 2
    assert number in none.stderr


def test_report_is_written_again(tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, "{first: {name: counting}}")
    assert fgrl_here("run", recipe, cwd=tmp_path).returncode == 0
    (page,) = (tmp_path / "runs" / "fake").glob("*/report.html")
    page.unlink()
    done = fgrl_here("report", recipe, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert page.is_file()


def test_inspect_prints_samples(tmp_path: Path) -> None:
    done = fgrl_here("inspect", recipe_file(tmp_path, COUNT_AND_COUNT_ON), "-n", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sample ") == 2
    assert not (tmp_path / "runs" / "fake").exists()


def test_doctor_tells_no_secrets(tmp_path: Path) -> None:
    done = fgrl(
        "doctor", "--json", cwd=tmp_path, HF_TOKEN="hunter2", OPENAI_API_KEY="hunter2", OMP_NUM_THREADS="hunter2"
    )
    assert done.returncode in (0, 1)
    assert {"versions", "cores", "memory_gib", "disk_free_gib", "gpus", "extras", "packaged_models"} <= set(
        json.loads(done.stdout)
    )
    assert "hunter2" not in done.stdout + done.stderr


def test_the_installed_command_is_this_one() -> None:
    import tomllib

    project = tomllib.loads((RECIPES.parent / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"fgrl": "fgrl.cli:main"}
    assert os.access(RECIPES.parent / "fgrl" / "__main__.py", os.R_OK)

"""The number by which a sweep compares its points: one name everywhere, checked before anything runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_runs import fake_run, ruined_run
from pipeline_helpers import fgrl_here

from fgrl.experiments.pipeline.sweep_points import check_metric
from fgrl.library.sweeps import of_file
from fgrl.measuring.comparison import means_by_name
from fgrl.pages.report.sweep_page import lead_lines
from fgrl.runs.results.evaluations import read_evaluation
from fgrl.runs.results.sweep_records import PointRecord, SweepRecord, main_number, numbers_of, read_sweep_record
from fgrl.runs.run import Run

RECIPE = """
about: "Answers that were given."
vars: {trained: short.jsonl}
stages:
  evaluate:
    name: evaluate
    prompts: {name: jsonl, path: start.jsonl}
    given: {start: {name: jsonl, path: start.jsonl, format: records}, trained: {name: jsonl, path: "${vars.trained}", format: records}}
    baseline: start
    metrics: [length, {name: function, path: "goal.py:commas", better: higher}]
"""
pytestmark = pytest.mark.usefixtures("warm")
Sweep = Callable[..., tuple[Path, list[str]]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "r.yaml").write_text(RECIPE)
    (tmp_path / "goal.py").write_text(
        "def commas(completions, **kwargs):\n    print('{', completions)\n    return [text.count(',') for text in completions]\n"
    )
    for name, text in (("start", "One, two."), ("short", "One,"), ("long", "One, two, three, and four.")):
        rows = [{"id": str(n), "prompt": f"Count {n}.", "responses": [{"text": text}]} for n in range(4)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def swept(folder: Path, metric: str = "", more: str = "") -> Path:
    named = f"metric: {{name: {metric}, goal: maximize}}\n" if metric else ""
    file = folder / "s.yaml"
    file.write_text(
        f'program: fgrl\ncommand: ["${{program}}", run, r.yaml, "${{args_no_hyphens}}"]\nmethod: grid\n{named}'
        f"parameters: {{vars.trained: {{values: [short.jsonl, long.jsonl]}}}}\n{more}"
    )
    return file


def record(folder: Path) -> SweepRecord:
    (place,) = (folder / "runs" / "sweeps").iterdir()
    found = read_sweep_record(place)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["evaluate/length.words", "evaluate/commas", "evaluate/start/length.words"])
def test_a_number_has_the_name_that_tables_have(folder: Path, name: str) -> None:
    done = fgrl_here("sweep", swept(folder, name), cwd=folder)
    assert done.returncode == 0, done.stderr
    values = [point.value and point.value.mean for point in record(folder).points]
    assert (
        values
        == {"length": [1, 5], "commas": [1, 3], "start": [2, 2]}[
            next(each for each in ("start", "commas", "length") if each in name)
        ]
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("evalute/length.words", "evaluate"),
        ("evaluate/length.wrods", "evaluate/length.words"),
        ("evaluate/lenght.words", "evaluate/length.words"),
        ("evaluate/comas", "evaluate/commas"),
        ("evaluate/measured/length.trained.words", "evaluate/trained/length.words"),
    ],
)
def test_a_misspelt_number_is_refused_before_a_point_runs(folder: Path, name: str, meant: str) -> None:
    for more in ([], ["--dry-run"]):
        done = fgrl_here("sweep", swept(folder, name), *more, cwd=folder)
        assert done.returncode == 2
        assert "did you mean" in done.stderr
        if "measured" not in name:
            assert f'did you mean "{meant}"?' in done.stderr
        assert not (folder / "runs").exists()


def test_points_are_not_stopped_early_by_what_is_measured_at_the_end(folder: Path) -> None:
    file = swept(folder, "evaluate/length.words", "early_terminate: {type: hyperband, min_iter: 1}\n")
    done = fgrl_here("sweep", file, cwd=folder)
    assert (done.returncode, "logged while training" in done.stderr) == (2, True)


def test_a_number_that_no_point_has_is_no_success(folder: Path) -> None:
    """Only what was logged tells it: the recipe does not."""
    (folder / "r.yaml").write_text(
        RECIPE + "  other: {name: average, averages: {all: [{of: '${out:evaluate}', numbers: [length.words]}]}}\n"
    )
    done = fgrl_here("sweep", swept(folder, "other/all.averge"), cwd=folder)
    assert done.returncode == 2
    assert 'did you mean "other/all.average"?' in done.stdout


def test_the_goal_ranks_where_no_number_is_named(folder: Path) -> None:
    done = fgrl_here("sweep", swept(folder), cwd=folder)
    own = record(folder)
    assert (done.returncode, own.metric, own.of_reward, own.lead and own.lead.best) == (
        0,
        "evaluate/commas",
        False,
        [2],
    )
    assert "trained on" not in done.stdout


def test_the_reward_ranks_where_nothing_else_was_measured(tmp_path: Path) -> None:
    run = Run(ruined_run(tmp_path))
    main = main_number(run)
    assert main == ("evaluate/token_reward.reward", "maximize", True)
    points = [
        PointRecord(number=number, parameters={"seed": number}, state="finished", value=numbers_of(run)[main.name])
        for number in (1, 2)
    ]
    own = SweepRecord(
        id="s", name="s", recipe="r", method="grid", metric=main.name, goal=main.goal, of_reward=main.of_reward,
        varied=["lr"], threads=1, started="2026-05-01T09:30:00Z", points=points,
    )  # fmt: skip
    assert "This is the reward itself, which was trained on; nothing else was measured." in "\n".join(lead_lines(own))
    assert main_number(Run(fake_run(tmp_path / "other"))).of_reward is False


def test_a_function_of_the_reward_is_the_reward(tmp_path: Path) -> None:
    folder = ruined_run(tmp_path)
    (out,) = (tmp_path / "runs" / "stages").glob("evaluate-*/out")
    report = json.loads((out / "metrics.json").read_text())
    report["metrics"] = {"spans": report["metrics"]["token_reward"]}
    report["meanings"] = {"spans": {"purpose": "goal", "numbers": {"*": {"words": "spans", "better": "higher"}}}}
    (out / "metrics.json").write_text(json.dumps(report))
    assert main_number(Run(folder)).of_reward is False
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        recipe.read_text().replace(
            "baseline: start,", "baseline: start, metrics: [{name: function, path: 'rewards.py:spans'}],"
        )
    )
    assert main_number(Run(folder)).of_reward is True


def test_trackers_get_the_same_names(tmp_path: Path) -> None:
    folder = fake_run(tmp_path)
    out = folder / Run(folder).record.stages["evaluate"].dir / "out"
    names = means_by_name(json.loads((out / "metrics.json").read_text())["metrics"], "sft")
    known = {name.removeprefix("evaluate/"): number.mean for name, number in numbers_of(Run(folder)).items()}
    assert names.items() <= known.items()
    assert {"rule.kept", "sft/rule.kept", "length.tokens"} <= names.keys()
    assert read_evaluation(out, []).models == ["sft", "policy"]


@pytest.mark.parametrize("file", sorted(Path(__file__).parents[2].glob("sweeps/*.yaml")), ids=lambda file: file.stem)
def test_the_shipped_sweeps_name_numbers_of_their_recipes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parents[1])
    check_metric(of_file(file))

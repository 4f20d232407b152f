"""Tokens, money and time of stages, from their folders to a table."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_runs import write_stage
from typer.testing import CliRunner

from fgrl.base.errors import DataError
from fgrl.cli import app
from fgrl.experiments.recipe import know_components
from fgrl.kinds import Stage
from fgrl.registry import build
from fgrl.runs.results.numbers import measures

NO_COMMA = {"text": "No commas.", "check": {"name": "punctuation:no_comma"}}


def stage_folder(
    root: Path,
    name: str,
    calls: list[tuple[int, int, float | None]],
    seconds: list[tuple[float, float]],
    **summary: Any,
) -> None:
    """The files of a finished stage: calls of (prompt tokens, completion tokens, usd), iterations of (collect, train)."""
    (root / name / "out").mkdir(parents=True)
    write_stage(root / name, seconds=12.5, summary=summary)
    lines = [
        {"client": "x", "prompt_tokens": p, "completion_tokens": c, "usd": usd, "at_most": None} for p, c, usd in calls
    ]
    if calls:
        (root / name / "calls.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    log = [{"step": i, "reward": 1.0, "seconds/collect": a, "seconds/train": b} for i, (a, b) in enumerate(seconds)]
    if seconds:
        (root / name / "log.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in [{"step": 0, "holdout/x": 1}, *log])
        )


def run(root: Path, **settings: Any) -> dict[str, dict[str, float | None]]:
    """The numbers by name and stage."""
    know_components()
    stage = build(Stage, {"name": "costs", **settings})
    (root / "made").mkdir(exist_ok=True)
    stage.run(SimpleNamespace(path=lambda ref: root / ref.stage / "out", out=root / "made"))
    report = json.loads((root / "made" / "metrics.json").read_text())
    return {str(own.name): {number.model: number.value.mean for number in own.models} for own in measures(report)}


def test_tokens_and_money_per_sample(tmp_path: Path) -> None:
    stage_folder(tmp_path, "spans", [(100, 20, 0.002), (300, 60, 0.006)], [], samples=4, questions=2, cached=0)
    stage_folder(tmp_path, "dense", [(100, 400, 0.01)], [], samples=2, questions=1, cached=0)
    found = run(tmp_path, of={"spans": "${out:spans}", "dense": "${out:dense}"})
    assert found["cost.prompt_tokens"] == {"dense": 50, "spans": 100}
    assert found["cost.completion_tokens"] == {"dense": 200, "spans": 20}
    assert found["cost.completion_tokens_change"]["spans"] == pytest.approx(-0.9)
    assert found["cost.usd"]["spans"] == pytest.approx(0.002)
    assert found["cost.total_usd"]["spans"] == pytest.approx(0.008)
    assert found["time.stage"] == {"dense": 12.5, "spans": 12.5}


def test_a_price_that_is_not_known_and_answers_of_the_cache(tmp_path: Path) -> None:
    stage_folder(tmp_path, "spans", [(10, 5, None), (10, 5, 0.1)], [], samples=10, questions=10, cached=8)
    found = run(tmp_path, of={"spans": "${out:spans}"})
    assert found["cost.usd"]["spans"] is None, "unknown is not free"
    assert found["cost.completion_tokens"]["spans"] == 1
    report = json.loads((tmp_path / "made" / "metrics.json").read_text())
    note = report["metrics"]["cost"]["spans"]["completion_tokens"]["note"]
    assert note == "without 8 of 10 questions, which the cache answered"


def test_seconds_per_step(tmp_path: Path) -> None:
    stage_folder(tmp_path, "spans", [], [(9.0, 9.0), (1.0, 2.0), (1.5, 2.1)])
    stage_folder(tmp_path, "scalar", [], [(9.0, 9.0), (1.0, 1.0), (1.0, 1.0)])
    found = run(tmp_path, of={"spans": "${out:spans}", "scalar": "${out:scalar}"}, skip=1)
    assert found["time.step"] == pytest.approx({"scalar": 2.0, "spans": 3.3})
    assert found["time.step_change"]["spans"] == pytest.approx(0.65)
    assert found["time.collect"]["spans"] == pytest.approx(1.25)
    assert not any(name.startswith("cost") for name in found), "nobody was asked"
    report = json.loads((tmp_path / "made" / "metrics.json").read_text())
    step = report["metrics"]["time"]["spans"]["step"]
    assert step["n"] == 2
    assert step["low"] < 3.3 < step["high"]


def test_what_a_part_of_a_step_spends_on_a_critic_counts_once(tmp_path: Path) -> None:
    stage_folder(tmp_path, "spans", [], [(1.0, 2.0), (1.0, 2.0)])
    log = tmp_path / "spans" / "log.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    timed = [line | {"seconds/score": 0.75, "seconds/critic": 0.5} for line in lines if "seconds/train" in line]
    log.write_text("".join(json.dumps(line) + "\n" for line in timed))
    found = run(tmp_path, of={"spans": "${out:spans}"})
    assert found["time.step"]["spans"] == pytest.approx(3.75)
    assert found["time.critic"]["spans"] == pytest.approx(0.5)


def test_a_damaged_ledger_is_an_error(tmp_path: Path) -> None:
    stage_folder(tmp_path, "spans", [(10, 5, 0.1)], [], samples=1)
    with (tmp_path / "spans" / "calls.jsonl").open("a") as file:
        file.write('{"client": \n')
    with pytest.raises(DataError, match=r"1 line of calls\.jsonl could not be read"):
        run(tmp_path, of={"spans": "${out:spans}"})


def test_from_a_recipe_to_a_table(tmp_path: Path) -> None:
    samples = [{"id": str(n), "prompt": "q", "responses": [{"text": "a, b"}], "rubric": [NO_COMMA]} for n in range(2)]
    (tmp_path / "samples.jsonl").write_text("\n".join(map(json.dumps, samples)))
    stages = {
        "marks": {"name": "annotate", "data": {"name": "jsonl", "path": "samples.jsonl"}, "annotator": "mark_by_rules"},
        "costs": {"name": "costs", "of": {"rules": "${out:marks}"}},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps({"about": "Costs.", "stages": stages}))
    done = CliRunner().invoke(app, ["run", str(tmp_path / "recipe.yaml"), "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output + str(done.exception)
    table = CliRunner().invoke(app, ["table", str(tmp_path / "recipe.yaml"), "--runs", str(tmp_path / "runs")])
    assert "time.stage" in table.stdout, table.output

"""Token weights against marked spans: hand-made counts, and the whole stage on rules' own marks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fgrl.cli import app
from fgrl.measuring.relevance_grading import Graded, numbers
from fgrl.measuring.statistics import estimate

RECIPE = """
about: "Grades."
stages:
  marks:
    name: annotate
    data: {{name: jsonl, path: answers.jsonl}}
    annotator: mark_by_rules
  grade:
    name: grade
    left: {{name: samples, of: "${{out:marks}}"}}
    policy: {model}
    relevance: {{oracle: oracle, uniform: uniform, random: random}}
    batch_size: 3
"""
RUBRIC = [
    {"text": "No commas.", "check": {"name": "punctuation:no_comma"}},
    {"text": "Say lamp.", "check": {"name": "keywords:existence", "keywords": ["lamp"]}},
    {
        "text": "Four words.",
        "check": {"name": "length_constraints:number_words", "relation": "at least", "num_words": 4},
    },
]
TEXTS = ["The lamp, lit at night, stands.", "No word of it.", "A lamp.", "", "Zwölf 🎉, lamp"]


def value(rows: list[Graded], number: str) -> float | None:
    return estimate(numbers(rows, 0.5)[number], resamples=100).mean


def test_hand_made_numbers() -> None:
    rows = [
        Graded("a", "x", [True, False, True, False], [0.9, 0.8, 0.4, 0.1]),
        Graded("b", "x", [False, False], [0.5, 0.2]),
        Graded("b", "y", [True, True], [0.7, 0.6]),
        Graded("b", "y", [True, True], None),
    ]
    # x: said 2, marked 2, both 1; y: said 2, marked 2, both 2
    assert value(rows, "precision") == pytest.approx(3 / 4)
    assert value(rows, "recall") == pytest.approx(3 / 4)
    assert value(rows, "f1") == pytest.approx(6 / 8)
    assert value(rows, "precision x") == pytest.approx(1 / 2)
    assert value(rows, "recall x") == pytest.approx(1 / 2)
    assert value([*rows, Graded("c", "z", [False], [0.9])], "recall z") is None, "nothing is marked"
    assert value(rows, "f1 x") == pytest.approx(2 / 4)
    assert value(rows, "f1 y") == 1.0
    assert value(rows, "unweighed") == 1 / 4
    marked, others = [0.9, 0.4], [0.8, 0.1, 0.5, 0.2]
    wins = sum(a > b for a in marked for b in others)
    assert value(rows, "auc x") == pytest.approx(wins / 8)
    assert value(rows, "auc y") is None, "all tokens are marked"


def test_the_stage(tiny_model_dir: Path, tmp_path: Path) -> None:
    lines = [
        {"id": str(n), "prompt": f"q{n}", "responses": [{"text": text}], "rubric": RUBRIC}
        for n, text in enumerate(TEXTS)
    ]
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, lines)))
    recipe = tmp_path / "grades.yaml"
    recipe.write_text(RECIPE.format(model=json.dumps(str(tiny_model_dir))))
    planned = CliRunner().invoke(app, ["plan", str(recipe), "--json", "--runs", str(tmp_path / "runs")])
    assert "parameters" not in json.loads(planned.stdout)["stages"]["grade"].get("estimate", {}), (
        "a tokenizer is no model"
    )
    done = CliRunner().invoke(app, ["run", str(recipe), "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output + str(done.exception)
    (made,) = (tmp_path / "runs" / "stages").glob("grade-*/out/metrics.json")
    found: dict[str, Any] = json.loads(made.read_text())
    grades = found["metrics"]["relevance"]
    assert found["baseline"] == "random"
    for number in ("precision", "recall", "f1", "auc", "f1 punctuation:no_comma", "auc keywords:existence"):
        assert grades["oracle"][number]["mean"] == 1.0, number
    assert grades["uniform"]["recall"]["mean"] == 1.0
    assert grades["uniform"]["auc"]["mean"] == 0.5
    assert grades["uniform"]["auc length_constraints:number_words"]["mean"] is None
    assert "without a response" not in json.loads((made.parent.parent / "stage.json").read_text())["summary"]
    assert 0 < grades["random"]["f1"]["mean"] < 1
    assert grades["differences"]["oracle"]["f1"]["mean"] == pytest.approx(1 - grades["random"]["f1"]["mean"])
    assert json.loads((made.parent.parent / "stage.json").read_text())
    table = CliRunner().invoke(app, ["table", str(recipe), "--runs", str(tmp_path / "runs"), "--number", "f1"])
    assert "oracle" in table.stdout, table.output


def test_samples_without_a_response_are_counted(tiny_model_dir: Path, tmp_path: Path) -> None:
    marks = [
        {"id": str(n), "prompt": "q", "responses": [{"text": text}], "rubric": RUBRIC[:1]}
        for n, text in enumerate(TEXTS)
    ]
    (tmp_path / "marks.jsonl").write_text("\n".join(map(json.dumps, marks)))
    grade = {"name": "grade", "left": {"name": "jsonl", "path": "marks.jsonl"}, "policy": str(tiny_model_dir)}
    recipe = tmp_path / "grades.yaml"
    recipe.write_text(json.dumps({"about": "Grades.", "stages": {"grade": grade | {"relevance": {"even": "uniform"}}}}))
    done = CliRunner().invoke(app, ["run", str(recipe), "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    (made,) = (tmp_path / "runs" / "stages").glob("grade-*/stage.json")
    summary = json.loads(made.read_text())["summary"]
    assert (summary["responses"], summary["without a response"]) == (4, 1)
    recipe.write_text(
        json.dumps({"about": "Grades.", "stages": {"grade": grade | {"relevance": {"about": "uniform"}}}})
    )
    refused = CliRunner().invoke(app, ["validate", str(recipe)])
    assert refused.exit_code == 2
    assert "cannot be a set's name" in refused.output

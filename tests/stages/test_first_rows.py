"""`fgrl validate` and `fgrl plan` look at the first rows of local data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fgrl import cli
from fgrl.experiments.recipe import load
from fgrl.experiments.stages import first_rows

RECIPE = """
about: "A look at rows."
stages:
  policy:
    name: rl
    prompts: {{name: {reader}, format: prompts{more}}}
    model: {{base: {model}, lora: {{r: 2}}}}
    reward: {{name: function, path: own.py:score}}
    algorithm: grpo
    rollout: {{batch_size: 4, per_prompt: 2, sampling: {{max_new_tokens: 4, max_prompt_tokens: {limit}}}}}
    train: {{lr: 1e-3, iterations: 1, batch_size: 4, micro_batch_size: 4}}
  evaluate:
    name: evaluate
    prompts: {{name: {reader}, format: prompts{more}}}
    models: {{policy: "${{out:policy}}"}}
    baseline: policy
    metrics: [exact_match, length]
    sampling: {{max_new_tokens: 4}}
"""
ROWS = [{"prompt": f"What is {i}?", "answer": str(i)} for i in range(6)]
JSONL = "jsonl, path: rows.jsonl"
GOOD = ", columns: {reference: answer, meta: [answer]}"


def written(folder: Path, model: Path, rows: str, **values: Any) -> Path:
    (folder / "rows.jsonl").write_text(rows)
    (folder / "own.py").write_text("def score(completions, answer):\n    return [0.0 for _ in answer]\n")
    given = {"reader": JSONL, "more": GOOD, "limit": 64, "model": model} | values
    (folder / "recipe.yaml").write_text(RECIPE.format(**given))
    return folder / "recipe.yaml"


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_rows_that_fit_are_no_problem(tmp_path: Path, tiny_model_dir: Path) -> None:
    recipe = written(tmp_path, tiny_model_dir, lines(ROWS))
    assert first_rows.look(load(recipe).stages) == ([], [])
    assert CliRunner().invoke(cli.app, ["validate", str(recipe)]).exit_code == 0


@pytest.mark.parametrize(
    ("rows", "values", "problem"),
    [
        (lines(ROWS), {"more": ", columns: {prompt: question}"}, 'stages.policy.prompts: {rows}: no column "question"'),
        (lines(ROWS), {"more": ", columns: {reference: answer}"}, "stages.policy.reward: "),
        (lines(ROWS), {"more": ", columns: {meta: [answer]}"}, "stages.evaluate.metrics[0]: {rows}:1: exact_match: prompt '0' has no reference"),
        ("\n" + lines([*ROWS * 9, {"prompt": None}]), {}, "stages.policy.prompts: {rows}:56: "),
        (lines([*ROWS, {"prompt": float("nan")}]), {}, "stages.policy.prompts: {rows}:7: "),
        (lines(ROWS[:1]) + "{broken", {}, "stages.policy.prompts: {rows}:2:2: not valid JSON"),
        (lines([*ROWS, {**ROWS[0], "prompt": 7}]), {}, "stages.policy.prompts: {rows}:7: "),
        (lines(ROWS), {"more": GOOD + ", skip: 6"}, "stages.policy.prompts: {rows}: `skip: 6` leaves none of 6 rows"),
    ],
)  # fmt: skip
def test_problems_of_data_have_their_place(
    tmp_path: Path, tiny_model_dir: Path, rows: str, values: dict[str, Any], problem: str
) -> None:
    recipe = written(tmp_path, tiny_model_dir, rows, **values)
    found = first_rows.look(load(recipe).stages).problems
    wanted = problem.format(rows=tmp_path / "rows.jsonl")
    assert any(f"{place}: {error}".startswith(wanted) for place, error in found), found
    refused = CliRunner().invoke(cli.app, ["validate", str(recipe), "--json"])
    assert refused.exit_code == 3
    told = [entry["text"] for entry in json.loads(refused.stdout)["recipes"][0]["problems"]]
    assert [text.partition(": ")[2] for text in told] == list(dict.fromkeys(str(error) for _place, error in found))
    planned = CliRunner().invoke(cli.app, ["plan", str(recipe), "--runs", str(tmp_path / "runs")])
    assert all(f"problem: {text}" in planned.output for text in told)


def test_csv_and_large_files_are_looked_at_too(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.csv").write_text("question,answer\nWhy?,so\n")
    csv = written(tmp_path, tiny_model_dir, lines(ROWS), reader="hf, path: csv, files: [rows.csv]")
    assert any('no column "prompt"' in str(error) for _place, error in first_rows.look(load(csv).stages).problems)
    monkeypatch.setattr(first_rows, "SMALL", 10)
    large = written(tmp_path, tiny_model_dir, lines(ROWS), more=", columns: {prompt: question}")
    assert any('no column "question"' in str(error) for _place, error in first_rows.look(load(large).stages).problems)


def test_a_row_of_a_csv_file_is_named(tmp_path: Path, tiny_model_dir: Path) -> None:
    (tmp_path / "rows.csv").write_text('prompt,answer\nWhy?,so\n"",so\n')
    csv = written(tmp_path, tiny_model_dir, lines(ROWS), reader="hf, path: csv, files: [rows.csv]")
    problems = [str(error) for _place, error in first_rows.look(load(csv).stages).problems]
    assert any(text.startswith(f'{tmp_path / "rows.csv"}: row 2: "prompt" is empty') for text in problems), problems


def test_prompts_beyond_their_limit_are_a_warning(tmp_path: Path, tiny_model_dir: Path) -> None:
    rows = [*ROWS, {"prompt": "What is this? " * 40, "answer": "it"}]
    (warning,) = first_rows.look(load(written(tmp_path, tiny_model_dir, lines(rows), limit=64)).stages).warnings
    assert warning.startswith(
        "stages.policy.prompts: 1 of the first 7 prompts have more than max_prompt_tokens 64 tokens, up to "
    )

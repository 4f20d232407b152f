"""`fgrl runs` shows in what runs of one recipe differ."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from fake_runs import fake_run, write_json
from typer.testing import CliRunner

from fgrl import cli


def test_overrides_that_not_all_runs_of_a_recipe_have_are_shown(tmp_path: Path) -> None:
    first = fake_run(tmp_path)
    command = ["fgrl", "run", "recipe.yaml", "seed=3", "stages.policy.algorithm.kl_coef={}", "--limit=8"]
    for number, coefficient in enumerate(("0.1", "0.5")):
        run = first.with_name(f"20260502T09300{number}Z-3fa9c1d{number}")
        shutil.copytree(first, run, symlinks=True)
        record = json.loads((run / "summary.json").read_text())
        write_json(run / "summary.json", record | {"command": [word.format(coefficient) for word in command]})
    shutil.rmtree(first)
    shown = CliRunner().invoke(cli.app, ["runs", str(tmp_path / "runs")]).output.splitlines()
    rows = [line for line in shown if "small-segment_ppo" in line]
    assert len(rows) == 2
    assert "policy.algorithm.kl_coef=0.5" in rows[0], "the newest first"
    assert "policy.algorithm.kl_coef=0.1" in rows[1]
    assert not any("seed=3" in row or "--limit" in row for row in rows)

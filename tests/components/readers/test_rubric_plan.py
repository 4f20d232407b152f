"""How many criteria of which kind there are is shown before and after: `fgrl plan`, the terminal, `summary.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from scratch_registry import scratch
from typer.testing import CliRunner

from fgrl.cli import app

STAGE = '''
from fgrl.kinds import Reader, Stage
from fgrl.registry import register
from fgrl.types import Samples, write_jsonl


@register("copy_prompts")
class CopyPrompts(Stage):
    """Copies prompts."""

    makes = Samples
    uses_torch = False

    prompts: Reader
    """What to copy."""

    def run(self, run):
        self.prompts.setup(run)
        return {"samples": write_jsonl(run.out / "samples.jsonl", self.prompts.read())}
'''
RECIPE = """
about: "Prompts of IFBench."
imports: [stage.py]
stages:
  copy: {name: copy_prompts, prompts: {name: ifbench, path: json, files: [prompts.jsonl]}}
  again: {name: copy_prompts, prompts: {name: samples, of: "${out:copy}"}}
"""
ROW = {
    "key": "0",
    "prompt": "p",
    "instruction_id_list": ["count:numbers", "words:start_verb"],
    "kwargs": [{"N": 15.0}, {}],
}
COUNTS = {"prompts": 1, "criteria": 2, "by rules": 1, "by their own code": 0, "soft": 0, "hard without a checker": 1,
          "namely": {"words:start_verb": 1}}  # fmt: skip


@pytest.fixture
def recipe(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "stage.py").write_text(STAGE, encoding="utf-8")
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    (tmp_path / "prompts.jsonl").write_text(json.dumps(ROW) + "\n", encoding="utf-8")
    with scratch():
        yield tmp_path / "recipe.yaml"


def fgrl(*args: str) -> tuple[str, str]:
    done = CliRunner().invoke(app, list(args))
    assert done.exception is None, done.output
    return done.stdout, done.stderr


def test_the_plan_shows_them(recipe: Path) -> None:
    runs = str(recipe.parent / "runs")
    stages = json.loads(fgrl("plan", str(recipe), "--runs", runs, "--json")[0])["stages"]
    assert stages["copy"]["estimate"] == {"criteria": {"prompts": COUNTS}}
    assert "estimate" not in stages["again"]
    told, _ = fgrl("plan", str(recipe), "--runs", runs)
    assert "copy: criteria: prompts prompts 1, criteria 2, by rules 1" in told
    assert "hard without a checker 1, namely words:start_verb 1" in told


def test_the_plan_shows_what_is_wrong_with_the_data(recipe: Path) -> None:
    (recipe.parent / "prompts.jsonl").write_text("{}\n", encoding="utf-8")
    told, _ = fgrl("plan", str(recipe), "--runs", str(recipe.parent / "runs"))
    assert 'no column "prompt", which reader `ifbench` needs' in told


def test_the_run_tells_and_notes_them(recipe: Path) -> None:
    runs = recipe.parent / "runs"
    _, said = fgrl("run", str(recipe), "--runs", str(runs))
    assert "1 prompts, 2 criteria: 1 hard by rules" in " ".join(said.split())
    (summary,) = runs.glob("recipe/*/summary.json")
    stages = json.loads(summary.read_text(encoding="utf-8"))["stages"]
    assert stages["copy"]["summary"] == {"samples": 1, "criteria": {"prompts": COUNTS}}
    assert stages["again"]["summary"] == {"samples": 1}

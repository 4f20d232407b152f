"""The best of several models becomes a product that later stages use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
import yaml
from tiny_recipe import weights

from fgrl.base.errors import DataError
from fgrl.commands.checking import estimate_lines
from fgrl.experiments import recipe as recipes
from fgrl.experiments.pipeline import estimates, execute, plan
from fgrl.experiments.recipe import Recipe
from fgrl.measuring.answer import read_answers
from fgrl.measuring.observations import Observations
from fgrl.pages import report
from fgrl.registry import Problems

EVALUATE = {
    "every": 2, "keep": "all",
    "sets": {"held_out": {"prompts": {"name": "lines", "path": "topics.txt", "limit": 3}, "metrics": ["length"],
                          "sampling": {"max_new_tokens": 4}}},
}  # fmt: skip
CHOSEN = {
    "name": "select", "prompts": {"name": "lines", "path": "topics.txt", "skip": 20, "limit": 4}, "baseline": "base",
    "models": {"base": "${vars.base}", "early": {"base": "${out:policy}", "step": 2}, "late": "${out:policy}"},
    "metrics": ["kl", "length"], "sampling": {"max_new_tokens": 6}, "best": {"number": "kl.sum"},
}  # fmt: skip
AFTER = {
    "name": "evaluate", "prompts": {"name": "lines", "path": "topics.txt", "limit": 3}, "baseline": "chosen",
    "models": {"chosen": "${out:chosen}"}, "metrics": ["length"], "sampling": {"max_new_tokens": 4},
}  # fmt: skip


def write(folder: Path, base: Path, chosen: dict[str, Any] | None = None, **policy: Any) -> Path:
    """A policy that keeps what it was, a selection and a stage that uses its product."""
    path = tiny_recipe.write(folder, base)
    data = yaml.safe_load(path.read_text())
    stages = data["stages"]
    stages["policy"]["reward"] = {"name": "segment_rm", "model": "${vars.base}", "segmenter": {"name": "ngram", "n": 3}}
    stages["policy"]["train"]["iterations"] = 3
    stages["policy"] |= {"evaluate": EVALUATE, **policy}
    data["stages"] = {"policy": stages["policy"], "chosen": CHOSEN | (chosen or {}), "after": AFTER}
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


def ran(path: Path, *overrides: str) -> tuple[Recipe, dict[str, Path], Path]:
    """The recipe, its stages' folders and the invocation's folder, after a run."""
    loaded = recipes.load(path, list(overrides))
    summary = execute(loaded, path.parent / "runs")
    assert summary.exit == 0, summary.error
    folders = {stage.name: stage.dir for stage in plan(loaded, path.parent / "runs").stages}
    invocation = max((path.parent / "runs" / "tiny").iterdir())
    return loaded, folders, invocation


def test_the_product_is_the_best_candidate_and_later_stages_use_it(tmp_path: Path, tiny_model_dir: Path) -> None:
    path = write(tmp_path, tiny_model_dir)
    loaded, folders, invocation = ran(path)
    summary = json.loads((folders["chosen"] / "stage.json").read_text())["summary"]
    values = {name: summary["measured"][f"{name}/kl.sum"] for name in ("base", "early", "late")}
    assert values["base"] == 0 < min(values["early"], values["late"])
    chosen = max(values, key=lambda name: values[name])
    assert (summary["chosen"], summary["number"], summary["value"]) == (chosen, "kl.sum", values[chosen])
    product = {"early": folders["policy"] / "out" / "policies" / "2", "late": folders["policy"] / "out"}[chosen]
    assert weights(folders["chosen"] / "out") == weights(product)
    assert read_answers(folders["after"] / "out" / "answers.jsonl")["chosen"]
    # a report shows the selection with the candidates' numbers
    page = report.write(invocation).read_text()
    assert "chosen" in page
    assert ">early<" in page
    # another goal chooses another candidate without training again, and the chosen one counts in the keys behind it
    again = recipes.load(path, ["stages.chosen.best.goal=min"])
    planned = {stage.name: stage for stage in plan(again, tmp_path / "runs").stages}
    assert {name: stage.cached for name, stage in planned.items()} == {"policy": True, "chosen": False, "after": False}
    _, folders, _ = ran(path, "stages.chosen.best.goal=min")
    assert json.loads((folders["chosen"] / "stage.json").read_text())["summary"]["chosen"] == "base"
    assert (folders["chosen"] / "out" / "model.safetensors").read_bytes() == (
        tiny_model_dir / "model.safetensors"
    ).read_bytes()
    assert loaded.graph()["after"] == ["chosen"]


def test_a_plan_knows_its_sizes(tmp_path: Path, tiny_model_dir: Path) -> None:
    path = write(tmp_path, tiny_model_dir, {"models": {"base": "${vars.base}"}})
    estimated = estimates(plan(recipes.load(path), tmp_path / "runs"))
    assert any(line.startswith("parameters: base") for line in estimate_lines(estimated["chosen"]))
    assert any(line.startswith("parameters: chosen") for line in estimate_lines(estimated["after"]))


@pytest.mark.parametrize(
    ("chosen", "policy", "said"),
    [
        ({"models": {"base": {"base": "${out:policy}", "step": 1}}}, {}, "no model of step 1, but those of every 2 steps, from 0 to 3"),
        ({"models": {"base": {"base": "${out:policy}", "step": 4}}}, {}, "no model of step 4"),
        ({}, {"evaluate": EVALUATE | {"keep": "none"}}, r'stage "policy": it keeps no models of earlier steps; set'),
        ({}, {"evaluate": None}, r'stages\.chosen\.models\.early\.step: stage "policy": it keeps no models'),
        ({"models": {"base": {"base": "${vars.base}", "step": 2}}}, {}, "step 2 needs a base that is"),
        ({"models": {}, "given": {"base": {"name": "lines", "path": "topics.txt"}}, "metrics": ["length"]}, {}, "nothing to select from"),
        ({"best": {"number": "kl.sum", "goal": "most"}}, {}, "one of max, min"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(
    chosen: dict[str, Any], policy: dict[str, Any], said: str, tmp_path: Path, tiny_model_dir: Path
) -> None:
    with pytest.raises(Problems, match=said):
        recipes.load(write(tmp_path, tiny_model_dir, chosen, **policy))


def test_a_number_that_nobody_measures_is_named(tmp_path: Path, tiny_model_dir: Path) -> None:
    path = write(tmp_path, tiny_model_dir, {"models": {"base": "${vars.base}"}, "best": {"number": "kl.sun"}})
    loaded = recipes.load(path, ["stages.after=null", "stages.policy=null"])
    summary = execute(loaded, tmp_path / "runs")
    assert summary.exit == 3
    assert 'no evaluation has a number "kl.sun"' in summary.error


def test_a_number_that_is_missing_everywhere_chooses_nothing(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, tiny_model_dir, {"models": {"base": "${vars.base}"}, "metrics": ["kl"]})
    stage: Any = recipes.load(path, ["stages.after=null", "stages.policy=null"]).stages["chosen"]
    missing = {"kl": {"base": {"sum": {"mean": None}}}}
    monkeypatch.setattr("fgrl.experiments.stages.evaluate.measure", lambda *_: (missing, Observations({})))
    with pytest.raises(DataError, match=r"kl\.sum is missing for every model: base"):
        stage.run(tiny_recipe.a_run(tmp_path / "run"))

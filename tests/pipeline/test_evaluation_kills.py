"""A training with evaluations, killed by SIGKILL: the same bytes, the best policy, and its curve in the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_recipe
import yaml
from test_kills import kill_when, undisturbed
from tiny_recipe import log, weights

pytestmark = pytest.mark.usefixtures("warm")

NUMBER = "held_out/reference_likelihood.per_token"


def write(folder: Path, base: Path) -> Path:
    """The policy alone, evaluated after every second of six iterations."""
    path = tiny_recipe.write(folder, base)
    data = yaml.safe_load(path.read_text())
    policy = data["stages"]["policy"]
    policy["reward"] = {"name": "segment_rm", "model": "${vars.base}", "segmenter": {"name": "ngram", "n": 3}}
    policy["train"]["iterations"] = 6
    held_out = {
        "prompts": {"name": "lines", "path": "topics.txt", "limit": 6}, "metrics": ["reference_likelihood", "kl"],
        "sampling": {"max_new_tokens": 8, "batch_size": 2},
    }  # fmt: skip
    policy["evaluate"] = {
        "every": 2,
        "sets": {"held_out": held_out},
        "keep": "all",
        "best": {"number": "reference_likelihood.per_token"},
    }
    data["stages"] = {"policy": policy}
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


def stage(runs: Path) -> Path:
    return next((runs / "stages").glob("policy-*"))


def records(runs: Path) -> dict[str, bytes]:
    """Everything that evaluations left, by its place."""
    return {
        str(path.relative_to(stage(runs))): path.read_bytes()
        for part in ("evaluations", "policies", "out")
        for path in sorted((stage(runs) / part).rglob("*"))
        if path.is_file() and path.name != "stage.json"
    }


def test_killed_while_evaluating_and_between(tmp_path: Path, tiny_model_dir: Path) -> None:
    recipe, runs, whole = write(tmp_path / "recipe", tiny_model_dir), tmp_path / "killed", tmp_path / "undisturbed"
    moments: dict[str, Callable[[], bool]] = {
        "in the first evaluation": lambda: any(runs.glob("stages/policy-*/evaluations/running")),
        "in the second": lambda: (
            any(runs.glob("stages/policy-*/evaluations/0/*")) and any(runs.glob("stages/policy-*/evaluations/running"))
        ),
        "after the third": lambda: any(runs.glob("stages/policy-*/evaluations/4")),
    }
    for name, moment in moments.items():
        assert kill_when(recipe, runs, moment, 0), name
        assert not (stage(runs) / "stage.json").exists()
    assert (stage(runs) / "last.ckpt").exists()
    undisturbed(recipe, runs)
    undisturbed(recipe, whole)
    assert records(runs) == records(whole)
    assert log(stage(runs)) == log(stage(whole))
    # the policy that is handed on is the best one by its number
    curve = {row["step"]: row[NUMBER] for row in log(stage(runs)) if NUMBER in row}
    assert list(curve) == [0, 2, 4, 6]
    best = max(curve, key=lambda step: curve[step])
    assert weights(stage(runs) / "out") == weights(stage(runs) / "out" / "policies" / str(best))
    summary = json.loads((stage(runs) / "stage.json").read_text())["summary"]
    assert summary["best"] == {"step": best, "number": NUMBER, "value": curve[best]}
    # the report draws the curve with its intervals
    page = max((runs / "tiny").glob("*/report.html")).read_text(encoding="utf-8")
    figure = next(part for part in page.split("<figure>") if f'<figcaption><span title="{NUMBER}">' in part)
    assert 'class="band"' in figure
    assert figure.partition('<g class="dots">')[2].partition("</g>")[0].count("<path ") == 4

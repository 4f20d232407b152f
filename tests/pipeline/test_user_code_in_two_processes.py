"""Mistakes of the user's code in a stage of two processes: `fgrl run` reports each once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny_recipe
from pipeline_helpers import fgrl

TWO = (
    "vars.devices=2", "vars.strategy=ddp", "stages.reward_model=null", "stages.calibrate=null", "stages.evaluate=null",
    "stages.policy.reward={name: function, path: rewards.py:score}", "stages.policy.algorithm={name: grpo, kl_coef: 0.0}",
    "stages.policy.rollout.per_prompt=3", "stages.policy.train.iterations=2",
)  # fmt: skip
ON_RANK = "import os\n\ndef score(completions, **kwargs):\n    second = os.environ.get('LOCAL_RANK') == '1'\n"
MISTAKES = {
    "in both": ("def score(completions, **kwargs):\n    return [text.missing for text in completions]\n", 2, "score raised AttributeError"),
    "in the second alone": (ON_RANK + "    return [1 / (not second) for text in completions]\n", 5, "score raised ZeroDivisionError"),
    "a wrong value in the second alone": (ON_RANK + "    return [0.0] * (len(completions) - second)\n", 5, "returned 5 values for 6"),
}  # fmt: skip


@pytest.mark.parametrize(
    "mistake", [pytest.param(name, marks=[pytest.mark.evidence] if name == "in both" else []) for name in MISTAKES][:2] + [
        pytest.param("a wrong value in the second alone", marks=pytest.mark.evidence)]
)  # fmt: skip
def test_a_mistake_is_reported_once(mistake: str, tmp_path: Path, tiny_model_dir: Path) -> None:
    source, line, problem = MISTAKES[mistake]
    recipe = tiny_recipe.write(tmp_path, tiny_model_dir)
    (tmp_path / "rewards.py").write_text(source, encoding="utf-8")
    ran = fgrl("run", recipe, "--runs", tmp_path / "runs", *TWO, cwd=tmp_path)
    assert ran.returncode == 7, ran.stderr
    assert ran.stderr.count("rewards.py:") == 1, ran.stderr
    report = ran.stderr[ran.stderr.index("rewards.py:") :].splitlines()[:5]
    assert report[0].startswith(f"rewards.py:{line}: ")
    assert problem in report[0]
    assert report[1] == f"{line:>4} | {source.splitlines()[line - 1]}"
    assert "Traceback" not in ran.stderr
    summary = json.loads(next((tmp_path / "runs" / "tiny").glob("*/summary.json")).read_text())
    assert summary["exit"] == 7
    log = next((tmp_path / "runs" / "tiny").glob("*/run.log")).read_text()
    assert ("Traceback" in log) == ("raised" in problem)

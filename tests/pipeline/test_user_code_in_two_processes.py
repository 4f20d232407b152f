"""Mistakes of the user's code in a stage of two processes: `fgrl run` reports each once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny_recipe
from pipeline_helpers import fgrl

from fgrl.errors import UserCodeError
from fgrl.pipeline import workers

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


RUNS_ALWAYS = "in the second alone"
"""The others are evidence: each starts three processes."""


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(name, marks=[] if name == RUNS_ALWAYS else [pytest.mark.evidence]) for name in MISTAKES],
)
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


def test_what_only_a_worker_raises_replaces_the_error_that_follows_from_it(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="closed"), workers.reported(tmp_path):  # nothing was left
        raise RuntimeError("connection closed")
    with workers.silent(tmp_path, rank=1):
        raise UserCodeError("rewards.py:2: score raised KeyError", "Traceback of rank 1")
    with pytest.raises(UserCodeError, match="score raised KeyError") as caught, workers.reported_left(tmp_path):
        raise RuntimeError("connection closed")
    assert caught.value.details == "Traceback of rank 1"
    with pytest.raises(UserCodeError, match="own error"), workers.reported_left(tmp_path):
        raise UserCodeError("own error")
    with workers.reported(tmp_path):  # the next attempt begins without it
        assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="a bug"), workers.silent(tmp_path, rank=1):
        raise ValueError("a bug")

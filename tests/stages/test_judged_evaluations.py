"""Evaluations with a judge while a policy trains: what a plan says of them, and what they ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fault_server import FaultServer
from test_judged_training import PROMPT, endpoint, says, write

from fgrl.experiments import recipe
from fgrl.experiments.pipeline import estimates, execute, plan
from fgrl.experiments.pipeline.log import read_log

NOBODY = {"name": "openai", "model": "judge", "base_url": "http://127.0.0.1:9/v1", "api_key_env": None,
          "prices": {"prompt": 1.0, "completion": 2.0}}  # fmt: skip
WIN_RATE = PROMPT.parent / "judge_pairwise.txt"


def judged(
    folder: Path, base: Path, client: dict[str, Any], *, reward: bool, metrics: list[Any] | None = None, every: int = 2
) -> Path:
    """The recipe of judged training with evaluations of the same four prompts, two answers each."""
    path = write(folder, base, client)
    data = yaml.safe_load(path.read_text())
    policy = data["stages"]["policy"]
    if not reward:
        policy["reward"] = {"name": "rubric", "relevance": "uniform", "judge": None}
        policy["prompts"] = {"name": "jsonl", "path": "hard.jsonl"}
        rule = {
            "text": "No b.",
            "check": {
                "name": "keywords:letter_frequency",
                "letter": "b",
                "let_frequency": 1,
                "let_relation": "less than",
            },
        }
        lines = [{"id": f"h{i}", "prompt": f"Say {i}", "rubric": [rule]} for i in range(4)]
        (folder / "hard.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    judge = {"name": "llm", "prompt": str(PROMPT), "client": client}
    policy["evaluate"] = {
        "every": every,
        "sets": {"held_out": {"prompts": {"name": "jsonl", "path": "prompts.jsonl"}, "per_prompt": 2,
                              "metrics": metrics or [{"name": "rubric", "judge": judge}],
                              "sampling": {"max_new_tokens": 8, "max_prompt_tokens": 48}}},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


@pytest.mark.parametrize(
    ("reward", "every", "limit", "most"),
    [
        (False, 2, None, 3 * 2 * 4),  # after 0, 2 and 3 iterations, two answers, four criteria for the judge
        (False, 1, None, 4 * 2 * 4),
        (False, 9, None, 2 * 2 * 4),
        (False, 2, 1, 2 * 2 * 0),  # the first prompt has none
        (True, 2, None, 3 * 2 * 4 + 4 * (4 + 3)),
    ],
)
def test_a_plan_counts_the_questions_of_evaluations(
    reward: bool, every: int, limit: int | None, most: int, tiny_model_dir: Path, tmp_path: Path
) -> None:
    loaded = recipe.load(judged(tmp_path, tiny_model_dir, NOBODY, reward=reward, every=every))
    calls = estimates(plan(loaded, tmp_path / "runs", limit=limit), limit)["policy"]["calls"]
    assert calls["calls"] == most
    assert calls["completion tokens"] == most * 16
    assert calls["usd"] == pytest.approx((calls["prompt tokens"] + 2 * most * 16) / 1e6)


def test_a_plan_counts_comparisons_with_the_start(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Both orders; the evaluation before training compares with nobody."""
    versus = [{"name": "win_rate", "client": NOBODY, "prompt": str(WIN_RATE)}]
    loaded = recipe.load(judged(tmp_path, tiny_model_dir, NOBODY, reward=False, metrics=versus))
    assert estimates(plan(loaded, tmp_path / "runs"))["policy"]["calls"]["calls"] == 2 * (2 * 2 * 4)


def test_answers_of_the_start_are_judged_once(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Every evaluation compares with the start, whose verdicts come from the cache: no more calls than planned."""
    with FaultServer(answer=says) as server:
        loaded = recipe.load(judged(tmp_path, tiny_model_dir, endpoint(server), reward=False))
        most = estimates(plan(loaded, tmp_path / "runs"))["policy"]["calls"]["calls"]
        summary = execute(loaded, tmp_path / "runs")
        assert summary.exit == 0, summary.error
        asked = len(server.seen)
    (stage,) = plan(loaded, tmp_path / "runs").stages
    assert 0 < asked <= most
    rows = [row for row in read_log(stage.dir / "log.jsonl") if "held_out/rubric.csr" in row]
    assert [row["step"] for row in rows] == [0, 2, 3]
    verdicts = (stage.dir / "evaluations" / "2" / "held_out" / "verdicts-rubric.jsonl").read_text().splitlines()
    assert {json.loads(line)["model"] for line in verdicts} == {"start", "policy"}
    assert not list((stage.dir / "out").glob("verdicts*")), "the product is the policy alone"

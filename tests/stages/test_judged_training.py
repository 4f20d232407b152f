"""A policy trained on rubrics with a judge: its verdicts, its budget, what a plan says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fault_server import FaultServer

from fgrl.commands.checking import estimate_lines
from fgrl.experiments import recipe
from fgrl.experiments.pipeline import estimates, execute, plan
from fgrl.experiments.pipeline.log import read_log

pytestmark = pytest.mark.usefixtures("warm")

PROMPT = Path(__file__).resolve().parents[2] / "prompts" / "judge_criterion.txt"
RECIPE = """
about: "Two iterations on prompts with hard and soft criteria."
seed: 1
stages:
  policy:
    name: rl
    prompts: {{name: jsonl, path: prompts.jsonl}}
    model: {{base: {base}, lora: {{r: 4, alpha: 8}}}}
    reward:
      name: rubric
      relevance: uniform
      judge: {{name: llm, prompt: {prompt}, client: {client}}}
    algorithm: {{name: rtt_grpo}}
    rollout: {{batch_size: 8, per_prompt: 4, sampling: {{max_new_tokens: 8, max_prompt_tokens: 48}}}}
    train: {{lr: 1e-2, iterations: 3, batch_size: 8, micro_batch_size: 8, accelerator: cpu, warmup: 0.0}}
"""
LETTER = {
    "text": "No b.", "check": {"name": "keywords:letter_frequency", "letter": "b", "let_frequency": 1, "let_relation": "less than"}
}  # fmt: skip


def write(folder: Path, base: Path, client: dict[str, Any]) -> Path:
    """Four prompts, with 0, 1, 1 and 2 criteria for the judge."""
    soft = [{"text": f"Be kind {n}."} for n in range(2)]
    rubrics = [[LETTER], [LETTER, soft[0]], [soft[0]], [LETTER, *soft]]
    prompts = [{"id": f"p{i}", "prompt": f"Say something of {i}", "rubric": one} for i, one in enumerate(rubrics)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in prompts), encoding="utf-8")
    path = folder / "judged.yaml"
    values = {"base": json.dumps(str(base)), "prompt": json.dumps(str(PROMPT)), "client": json.dumps(client)}
    path.write_text(RECIPE.format(**values), encoding="utf-8")
    return path


def endpoint(server: FaultServer, **fields: Any) -> dict[str, Any]:
    return {"name": "openai", "model": "judge", "base_url": server.url, "api_key_env": None, "max_retries": 0, **fields}


def says(prompt: str, body: dict[str, Any]) -> str:
    """YES to half of all responses, whatever the criterion; by their text alone."""
    response = prompt.partition("<text>\n")[2].partition("\n</text>")[0]
    return "YES" if sum(response.encode()) % 2 else "NO."


def weights(folder: Path) -> bytes:
    return next((folder / "out").glob("*.safetensors")).read_bytes()


def test_verdicts_of_a_judge_train_a_policy(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Behind `replay`: verdicts differ inside groups, garbage is missing and counted, and the policy is saved."""
    lines = [{"contains": ["Be kind 1", "Say something of 3"], "answer": "NO, not a YES"}]
    lines += [{"contains": f"<text>\n{start}", "answer": "no"} for start in "abcdefghijklm"]
    (tmp_path / "judge.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in [*lines, {"any": True, "answer": "YES"}])
    )
    loaded = recipe.load(write(tmp_path, tiny_model_dir, {"name": "replay", "answers": str(tmp_path / "judge.jsonl")}))
    summary = execute(loaded, tmp_path / "runs")
    assert summary.exit == 0, summary.error
    (stage,) = plan(loaded, tmp_path / "runs").stages
    rows = read_log(stage.dir / "log.jsonl")
    assert len(rows) == 3
    asked = [row["reward/judge_questions"] for row in rows]
    assert 0 < sum(asked) <= 40
    assert sum(row["reward/judge_unparsed"] for row in rows) == 4 * sum(
        row["reward/judge_unparsed"] > 0 for row in rows
    )
    for row in rows:
        missing = row["reward/missing_verdicts"] * row["reward/criteria"] * 8
        assert missing == pytest.approx(row["reward/judge_unparsed"])
        assert row["missing"] == 0  # other criteria of the response are known
    assert sum(row["token_advantage"] + row["reward_std"] for row in rows) > 0


def test_a_spent_budget_stops_training_and_loses_nothing(tiny_model_dir: Path, tmp_path: Path) -> None:
    with FaultServer(answer=says) as server:
        path = write(tmp_path, tiny_model_dir, endpoint(server))
        undisturbed = recipe.load(path)
        assert execute(undisturbed, tmp_path / "whole").exit == 0
        needed = len(server.seen)
        (whole,) = plan(undisturbed, tmp_path / "whole").stages
        first, second = (row["reward/judge_questions"] for row in read_log(whole.dir / "log.jsonl")[:2])
        limit = int(first + second) - 1  # the second iteration wants one call more
        assert first <= limit < needed

        short = recipe.load(path, [f"stages.policy.reward.judge.client.max_calls={limit}"])
        summary = execute(short, tmp_path / "runs")
        assert summary.exit == 4
        assert f"over budget: {limit} of {limit} calls are made" in summary.error
        assert "raise max_calls" in summary.error
        (stage,) = plan(short, tmp_path / "runs").stages
        assert not stage.cached
        assert (stage.dir / "last.ckpt").exists()
        assert [row["step"] for row in read_log(stage.dir / "log.jsonl")] == [0]
        assert len(server.seen) == needed + limit

        longer = recipe.load(path, [f"stages.policy.reward.judge.client.max_calls={needed}"])
        assert plan(longer, tmp_path / "runs").stages[0].key == stage.key
        assert execute(longer, tmp_path / "runs").exit == 0
        assert len(server.seen) == 2 * needed  # nothing is asked twice
    assert weights(stage.dir) == weights(whole.dir)
    assert [row["reward"] for row in read_log(stage.dir / "log.jsonl")] == [
        row["reward"] for row in read_log(whole.dir / "log.jsonl")
    ]


@pytest.mark.parametrize(
    ("overrides", "limit", "most"),
    [
        ((), None, 4 * (4 + 3)),  # a pass over all four prompts, and then at most the two with the most criteria
        (("stages.policy.train.iterations=null", "stages.policy.train.epochs=2"), None, 4 * 4 * 2),
        (("stages.policy.rollout.per_prompt=2", "stages.policy.train.iterations=2"), None, 2 * 4 * 2),
        (("stages.policy.reward.max_criteria=1",), None, 4 * (1 + 1)),
        ((), 3, 4 * (1 + 1)),  # one iteration, of two of the first three prompts
    ],
)
def test_a_plan_bounds_the_judge_s_questions(
    overrides: tuple[str, ...], limit: int | None, most: int, tiny_model_dir: Path, tmp_path: Path
) -> None:
    client = {"name": "openai", "model": "judge", "base_url": "http://127.0.0.1:9/v1", "api_key_env": None,
              "prices": {"prompt": 1.0, "completion": 2.0}}  # fmt: skip
    loaded = recipe.load(write(tmp_path, tiny_model_dir, client), list(overrides))
    found = estimates(plan(loaded, tmp_path / "runs", limit=limit), limit)["policy"]
    calls = found["calls"]
    assert (calls["calls"], calls["completion tokens"]) == (most, most * 16)
    assert calls["prompt tokens"] > most * 8
    assert calls["usd"] == pytest.approx((calls["prompt tokens"] + 2 * most * 16) / 1e6)
    assert "actor" in found["parameters"]
    (line,) = [line for line in estimate_lines(found) if line.startswith("calls")]
    assert line.startswith(f"calls: at most {most} to make, at most ")


def test_a_reward_without_a_judge_makes_no_calls(tiny_model_dir: Path, tmp_path: Path) -> None:
    loaded = recipe.load(write(tmp_path, tiny_model_dir, {"name": "replay", "answers": str(PROMPT)}),
                         ["stages.policy.reward.judge=null"])  # fmt: skip
    assert "calls" not in estimates(plan(loaded, tmp_path / "runs"))["policy"]


def test_two_processes_share_a_local_judge(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Both ranks score their own responses; every question is booked once."""
    path = write(tmp_path, tiny_model_dir, {"name": "local", "model": str(tiny_model_dir), "batch_size": 4})
    short = tmp_path / "short.txt"  # the tiny model reads 512 tokens
    short.write_text("{criterion}\n{response}\nYES or NO?")
    text = path.read_text().replace("iterations: 3", "iterations: 1, devices: 2, strategy: ddp")
    path.write_text(text.replace(json.dumps(str(PROMPT)), json.dumps(str(short))))
    loaded = recipe.load(path)
    summary = execute(loaded, tmp_path / "runs")
    assert summary.exit == 0, summary.error
    (stage,) = plan(loaded, tmp_path / "runs").stages
    (row,) = read_log(stage.dir / "log.jsonl")
    keys = [json.loads(line)["key"] for line in (stage.dir / "calls.jsonl").read_text().splitlines()]
    assert len(keys) == len(set(keys)) >= row["reward/judge_questions"] > 0

"""What an evaluation refuses before anything is sampled, and how rewards are recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fgrl import registry
from fgrl.base.errors import DataError
from fgrl.experiments.pipeline.run import Run
from fgrl.experiments.recipe import know_components
from fgrl.kinds import Stage
from fgrl.measuring.answer import read_answers
from fgrl.measuring.answering import response_reward, token_rewards
from fgrl.registry import Problems
from fgrl.types import Rewards

AUC = {"name": "token_auc", "rule": "punctuation:no_comma"}
SEGMENT = {"segment": {"name": "segment_rm", "model": "nobody/nothing", "segmenter": "token"}}


def build(folder: Path, **fields: Any) -> Stage:
    know_components()
    topics = folder / "topics.txt"
    topics.write_text("sea\n")
    node = {
        "name": "evaluate", "prompts": {"name": "lines", "path": str(topics)}, "models": {"sft": "nobody/nothing"},
        "baseline": "sft", "metrics": ["length"], "sampling": {"max_new_tokens": 4}, **fields,
    }  # fmt: skip
    return registry.build(Stage, node)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"metrics": [{**AUC, "rewards": ["segmnt"]}], "rewards": SEGMENT}, "reads the reward 'segmnt'; .*: segment"),
        ({"metrics": [AUC]}, "has no `rewards`: name one there"),
        ({"metrics": ["length", "length"]}, "two metrics are called 'length'"),
        ({"metrics": ["length", {"name": "kl", "title": "length"}]}, "two metrics are called 'length'"),
        ({"models": {"sft": "nobody/nothing", "differences": "nobody/nothing"}}, "cannot be a model's name"),
        ({"models": {"sft": "nobody/nothing", "about": "nobody/nothing"}}, "cannot be a model's name"),
        ({"models": {"sft": "nobody/nothing", "a/b": "nobody/nothing"}}, "cannot be a model's name"),
        ({"baseline": "policy"}, 'baseline: no model "policy"'),
    ],
)
def test_what_could_only_fail_later_is_refused(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(Problems, match=said):
        build(tmp_path, **fields)


def test_what_fits_is_built(tmp_path: Path) -> None:
    metrics = ["length", {"name": "length", "title": "again"}, {**AUC, "rewards": ["segment"]}, {**AUC, "title": "all"}]
    assert len(build(tmp_path, metrics=metrics, rewards=SEGMENT).metrics) == 4  # type: ignore[attr-defined]


def test_prompts_of_a_category_have_a_temperature_of_their_own(tmp_path: Path, tiny_model_dir: Path) -> None:
    """Neighbours at one temperature are drawn together, and each answer from the random stream of its place."""
    rows = [("a", "math"), ("b", "writing"), ("c", "writing"), ("d", "math")]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        "".join(json.dumps({"id": i, "prompt": f"Say {i}.", "meta": {"category": c}}) + "\n" for i, c in rows)
    )

    def texts(folder: str, **fields: Any) -> dict[str, str]:
        stage = build(
            tmp_path, prompts={"name": "jsonl", "path": str(prompts)}, models={"sft": str(tiny_model_dir)}, show=0,
            sampling={"max_new_tokens": 8, "temperature": 0.0}, **fields,
        )  # fmt: skip
        (tmp_path / folder / "out").mkdir(parents=True)
        stage.run(Run("evaluate", tmp_path / folder, cache=tmp_path / "cache"))
        return {answer.id: answer.text for answer in read_answers(tmp_path / folder / "out" / "answers.jsonl")["sft"]}

    greedy, hot = texts("greedy"), texts("hot", temperatures={"writing": 1.0, "math": 1.0})
    mixed = texts("mixed", temperatures={"writing": 1.0})
    assert {id: mixed[id] == greedy[id] for id in "ad"} == {"a": True, "d": True}
    assert {id: mixed[id] == hot[id] != greedy[id] for id in "bc"} == {"b": True, "c": True}
    with pytest.raises(DataError, match="no prompt has the category 'coding'; there are: math, writing"):
        texts("wrong", temperatures={"coding": 0.5})


def test_a_token_that_nothing_was_said_about_has_no_reward() -> None:
    token = torch.tensor([[0.5, 0.0, 0.0, 9.0]])
    rewards = Rewards(torch.zeros(1), token, credit_mask=torch.tensor([[True, True, False, False]]))
    assert token_rewards(rewards, 0, 3) == [0.5, 0.0, None]


def test_a_reward_that_is_missing_is_not_0() -> None:
    token = torch.zeros(3, 1)
    rewards = Rewards(torch.tensor([0.5, 0.0, torch.nan]), token, credit_mask=token > 0)
    assert [response_reward(rewards, i) for i in range(3)] == [0.5, 0.0, None]


def test_rewards_are_measured_without_being_asked_for(tmp_path: Path, tiny_model_dir: Path) -> None:
    """With intervals, functions too; a `token_reward` that the recipe has is the only one."""
    (tmp_path / "prompts.txt").write_text("a\nb\nc\n")
    (tmp_path / "rewards.py").write_text("def size(completions):\n    return [len(text) for text in completions]\n")
    stage = build(
        tmp_path, prompts={"name": "lines", "path": str(tmp_path / "prompts.txt")}, models={"sft": str(tiny_model_dir)}, show=0,
        sampling={"max_new_tokens": 8}, rewards={"length": {"name": "function", "path": f"{tmp_path}/rewards.py:size"}},
        metrics=[{"name": "function", "path": f"{tmp_path}/rewards.py:size"}],
    )  # fmt: skip
    (tmp_path / "run" / "out").mkdir(parents=True)
    stage.run(Run("evaluate", tmp_path / "run", cache=tmp_path / "cache"))
    measured = json.loads((tmp_path / "run" / "out" / "metrics.json").read_text())["metrics"]
    reward, metric = measured["token_reward"]["sft"]["length"], measured["size"]["sft"]["size"]
    assert reward["mean"] == metric["mean"] > 0
    assert reward["low"] < reward["mean"] < reward["high"]
    named = build(tmp_path, rewards=SEGMENT, metrics=[{"name": "token_reward", "title": "mine"}])
    assert named.every_metric() == named.metrics  # type: ignore[attr-defined]
    assert len(build(tmp_path, rewards=SEGMENT).every_metric()) == 2  # type: ignore[attr-defined]
    assert len(build(tmp_path).every_metric()) == 1  # type: ignore[attr-defined]

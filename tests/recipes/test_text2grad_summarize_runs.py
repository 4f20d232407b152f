"""The small recipe of Text2Grad on summaries, from SFT to the report, on the tiny random model: every critique comes over HTTP."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from fgrl.experiments.pipeline import execute, plan
from fgrl.experiments.pipeline.log import read_log
from fgrl.experiments.recipe import Recipe, load
from fgrl.measuring.answer import read_answers
from fgrl.types import Report, Samples

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = ROOT / "recipes" / "small" / "text2grad_summarize.yaml"
LIMITS = [
    "vars.lora={r: 2, dropout: 0.0, last_blocks: 1}",
    "vars.posts.limit=8",
    "vars.held_out.limit=4",
    "vars.critic={max_tokens: 8, max_prompt_tokens: 1500}",
    "stages.sft.train={batch_size: 4, micro_batch_size: 4}",
    "stages.drafts.prompts.limit=8",
    "stages.drafts.sampling.max_new_tokens=16",
    "stages.held_drafts.sampling.max_new_tokens=16",
    "stages.reward_model={max_prompt_tokens: 512, max_tokens: 700, holdout: 0.0, model: {lora: {last_blocks: 1}}}",
    "stages.reward_model.train={batch_size: 4, micro_batch_size: 4}",
    'stages.held_critiques.annotator={client: "${vars.annotator.client}", prompt: "${vars.annotator.prompt}"}',
    "stages.policy.prompts.limit=8",
    "stages.policy.critic.lora.last_blocks=1",
    "stages.policy.rollout={batch_size: 4, sampling: {max_new_tokens: 16}}",
    "stages.policy.train={iterations: 2, batch_size: 4, micro_batch_size: 4}",
    "stages.evaluate.sampling.max_new_tokens=16",
]


def reduced(row: str, model: Path) -> Recipe:
    """The recipe with the tiny model and little to do; nothing else of it is changed."""
    return load(f"{ADDRESS}::{row}", [f"vars.llm={model}", f"vars.critic_base={model}", *LIMITS])


@pytest.fixture(scope="module")
def finished(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the finished stages. A random model writes no critiques: the endpoint's critic takes its place in training and
    among the critiques that are graded."""
    runs = tmp_path_factory.mktemp("text2grad") / "runs"
    recipe = reduced("endpoint", tiny_model_dir)
    summary = execute(recipe, runs)
    assert summary.exit == 0, summary.error
    assert all(stage.cached for stage in plan(recipe, runs).stages)
    return {stage.name: stage.dir for stage in plan(recipe, runs).stages}


def test_every_draft_has_a_critique_whose_quotes_are_in_it(finished: dict[str, Path]) -> None:
    for stage, count in (("checked", 8), ("held_annotations", 4)):
        responses = [sample.responses[0] for sample in Samples(finished[stage] / "out").read()]
        assert len(responses) == count
        full = [response for response in responses if response.text.strip()]
        assert full
        for response in full:
            (annotation,) = response.annotations
            assert annotation.critique
            assert all(0 <= span.start < span.end <= len(response.text) for span in annotation.spans)
        assert any(response.annotations[0].spans for response in full)
    told = json.loads((finished["annotations"] / "stage.json").read_text(encoding="utf-8"))["summary"]
    assert (told["unmatched rate"], told["failed"], told["usd"]) == (0, 0, 0)
    assert told["answered"] + told["cached"] == told["questions"]


def test_the_ledger_has_every_call(finished: dict[str, Path]) -> None:
    told = json.loads((finished["annotations"] / "stage.json").read_text(encoding="utf-8"))["summary"]
    calls = [json.loads(line) for line in (finished["annotations"] / "calls.jsonl").read_text("utf-8").splitlines()]
    assert [call["status"] for call in calls] == ["answered"] * told["calls"]
    assert all(call["client"].startswith("loopback_critic ") and "127.0.0.1" not in call["client"] for call in calls)


def test_the_reward_model_is_trained_on_the_critiques_and_graded(finished: dict[str, Path]) -> None:
    rows = read_log(finished["reward_model"] / "log.jsonl")
    assert rows
    assert all(math.isfinite(row["loss"]) for row in rows)
    tokens = Report(finished["grade"] / "out").read()["metrics"]["tokens"]
    recall = {name: tokens[name]["negative_recall"]["mean"] for name in ("reward_model", "all_neutral")}
    assert recall == {"reward_model": 1.0, "all_neutral": 0.0}, "the same critic, asked twice"
    assert "reward_model_shuffled" in tokens


def test_the_policy_is_trained_on_token_rewards(finished: dict[str, Path]) -> None:
    rows = read_log(finished["policy"] / "log.jsonl")
    assert len(rows) == 2
    for row in rows:
        assert all(math.isfinite(row[name]) for name in ("reward", "kl", "policy_loss", "value_loss", "grad_norm"))
        assert row["reward/negative"] > 0
        assert row["missing"] == 0
        assert row["reward/unmatched"] == 0


def test_summaries_are_measured_before_and_after(finished: dict[str, Path]) -> None:
    measured = Report(finished["evaluate"] / "out").read()["metrics"]
    for model in ("sft", "policy"):
        assert {"endpoint", "endpoint good", "endpoint poor"} <= set(measured["token_reward"][model])
        assert measured["token_reward"][model]["endpoint"]["low"] <= measured["token_reward"][model]["endpoint"]["high"]
        assert measured["rouge"][model]["rougeL"]["n"] == 4
    answers = read_answers(finished["evaluate"] / "out" / "answers.jsonl")["policy"]
    assert all(answer.rewards["endpoint"] is not None for answer in answers)
    assert all(answer.rewards["critic"] is None for answer in answers if answer.text.strip())


def test_the_scalar_baseline_differs_in_where_the_reward_is(tiny_model_dir: Path) -> None:
    """Appendix A, setting B: the same critic, everything before it is shared."""
    one, other = (load(f"{ADDRESS}{row}", [f"vars.llm={tiny_model_dir}", *LIMITS]) for row in ("", "::ppo_critic"))
    assert (one.stages["policy"].reward.placement, other.stages["policy"].reward.placement) == ("tokens", "last")
    keys = [{stage.name: stage.key for stage in plan(recipe, Path("nowhere")).stages} for recipe in (one, other)]
    assert {name for name in keys[0] if keys[0][name] != keys[1][name]} == {"policy", "evaluate"}


def test_nothing_is_trained_on_that_is_measured_on() -> None:
    recipe = load(ADDRESS)
    read = {
        name: {sample.id for sample in getattr(recipe.stages[name], field).read()}
        for name, field in (("sft", "data"), ("drafts", "prompts"), ("policy", "prompts"), ("evaluate", "prompts"))
    }
    assert all(read["evaluate"].isdisjoint(read[name]) for name in ("sft", "drafts", "policy"))
    assert read["sft"].isdisjoint(read["drafts"] | read["policy"])
    assert read["drafts"].isdisjoint(read["policy"])
    assert {sample.id for sample in recipe.stages["held_drafts"].prompts.read()} == read["evaluate"]

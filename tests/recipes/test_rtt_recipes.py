"""The recipes of "Rubrics to Tokens": the paper's numbers, rows that differ in what the tables vary, siblings in small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_recipes import FOUND, ROOT, RTT, changes, loaded, settings, small

from fgrl import models
from fgrl.experiments.pipeline import execute, plan
from fgrl.experiments.pipeline.log import read_log
from fgrl.experiments.recipe import Recipe, load
from fgrl.kinds import Verifier
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import build, name_of
from fgrl.types import Report, Sample, Samples

BENCHMARKS = {"ifeval", "ifbench", "muldimif", "advanced_if", "general"}
NO_DISCRIMINATOR = {"strong", "omitted", "modified", "marks", "discriminator", "held_out", "held_out_marks", "grade"}


def test_the_paper_s_numbers() -> None:
    """Table 8, sections 5.3 and B.1."""
    recipe = loaded("rtt_qwen3")
    train, policy = recipe.stages["discriminator"].train, recipe.stages["policy"]
    assert (train.lr, train.batch_size, train.epochs, train.strategy) == (9e-6, 256, 4, "deepspeed_stage_2")
    assert recipe.stages["discriminator"].max_tokens == 4096
    assert (policy.algorithm.response_weight, policy.algorithm.token_weight, policy.algorithm.partition) == (
        1.0,
        0.5,
        "intra_sample",
    )
    assert (policy.algorithm.clip, policy.algorithm.clip_high, policy.algorithm.aggregate) == (0.2, 0.27, "seq_mean")
    assert (policy.algorithm.kl_coef, policy.algorithm.entropy_coef) == (0.0, 0.0)
    assert (policy.rollout.batch_size, policy.rollout.per_prompt) == (64 * 8, 8)
    drawn = policy.rollout.sampling
    assert (drawn.max_prompt_tokens, drawn.max_new_tokens) == (2048, 4096)
    assert (drawn.temperature, drawn.top_p, drawn.top_k) == (0.99, 0.99, 100)
    assert (policy.train.lr, policy.train.iterations) == (1e-6, 500)
    steps = policy.train.iterations * policy.rollout.batch_size // policy.train.batch_size
    assert (policy.train.batch_size, policy.rollout.batch_size // policy.train.batch_size) == (4 * 2 * 32, 2)
    assert (policy.train.schedule, policy.train.warmup * steps, policy.train.betas) == ("constant", 20, [0.9, 0.999])
    for name in BENCHMARKS - {"general"}:
        asked = recipe.stages[name]
        assert asked.per_prompt == 5
        assert (asked.sampling.temperature, asked.sampling.top_p, asked.sampling.top_k) == (0.7, 0.8, 20)
    for end in ("", "_aon", "_rl_csr", "_rl_aon"):
        assert loaded(f"rtt_llama32{end}").stages["policy"].algorithm.clip_high is None
    for end, micro, strategy in (("sft", 4, "deepspeed_stage_2"), ("dpo", 2, "deepspeed_stage_3")):
        tuned = loaded(f"rtt_qwen3_{end}").stages["policy"].train
        assert (tuned.lr, tuned.batch_size, tuned.epochs, tuned.schedule) == (1e-5, 256, 4, "constant")
        assert (tuned.micro_batch_size, tuned.strategy, tuned.betas) == (micro, strategy, [0.9, 0.999])


ROWS: dict[str, dict[str, Any]] = {
    "aon": {"policy.reward.response": "aon"},
    "inter": {"policy.reward.response": "aon", "policy.algorithm.partition": "inter_sample"},
    "token_weight_025": {"policy.reward.response": "aon", "policy.algorithm.token_weight": 0.25},
    "token_weight_075": {"policy.reward.response": "aon", "policy.algorithm.token_weight": 0.75},
    "token_weight_100": {"policy.reward.response": "aon", "policy.algorithm.token_weight": 1.0},
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_changes_what_its_table_varies(row: str) -> None:
    assert changes(loaded(f"rtt_qwen3_{row}"), loaded("rtt_qwen3")) == ROWS[row]
    assert changes(loaded(small(f"rtt_qwen3_{row}")), loaded("small/rtt")) == ROWS[row]


@pytest.mark.parametrize("name", [name for name in RTT if "_rl_" in name or "random" in name or "uniform" in name])
def test_what_needs_no_discriminator_trains_none(name: str) -> None:
    for one in (name, small(name)):
        assert NO_DISCRIMINATOR.isdisjoint(loaded(one).stages), one


@pytest.mark.parametrize("backbone", ["qwen3", "qwen25", "llama32"])
def test_rl_differs_from_rtt_in_reward_and_algorithm_alone(backbone: str) -> None:
    for reward in ("csr", "aon"):
        rtt = f"rtt_{backbone}" + ("_aon" if reward == "aon" else "")
        for one, other in ((f"rtt_{backbone}_rl_{reward}", rtt), (small(f"rtt_{backbone}_rl_{reward}"), small(rtt))):
            paths = {path for path, value in changes(loaded(one), loaded(other)).items() if value != "gone"}
            assert all(path.startswith(("policy.reward.relevance", "policy.algorithm.", "ifeval.rewards", "evaluate.rewards")) for path in paths), paths  # fmt: skip
            mine, theirs = settings(loaded(one)), settings(loaded(other))
            assert all(
                mine[path] == theirs[path]
                for path in mine.keys() & theirs
                if path.startswith("policy.algorithm.") and not path.endswith((".name", ".version"))
            )


def test_one_discriminator_serves_all_recipes_of_a_backbone(tmp_path: Path) -> None:
    def key(name: str) -> str:
        return plan(loaded(name), tmp_path / "runs")["discriminator"].key

    assert key("rtt_qwen3") == key("rtt_qwen3_aon") == key("rtt_qwen3_inter") == key("rtt_qwen25_aon")
    assert key("rtt_llama32") == key("rtt_llama32_aon") != key("rtt_qwen3") != key("rtt_qwen3_greedy")
    assert key("small/rtt") == key("small/rtt_aon") == key("small/rtt_token_weight_100") != key("small/rtt_greedy")


@pytest.mark.parametrize("name", RTT)
def test_a_small_sibling_asks_nobody_and_measures_held_out_demands(name: str) -> None:
    big, little = loaded(name), loaded(small(name))
    assert set(big.stages) >= BENCHMARKS
    assert BENCHMARKS.isdisjoint(little.stages)
    text = json.dumps(settings(little), default=str)
    assert '"openai"' not in text
    shared = set(big.stages) & set(little.stages) - {"strong", "weak"}
    assert {one: name_of(big.stages[one]) for one in shared} == {one: name_of(little.stages[one]) for one in shared}
    trained = settings(little)
    ends = [
        trained[f"{stage}.prompts.skip"] + (trained[f"{stage}.prompts.limit"] or 0)
        for stage in ("strong", "weak", "policy")
        if f"{stage}.prompts.skip" in trained
    ]
    assert max(ends, default=0) <= little.stages["evaluate"].prompts.skip


def test_the_demands_are_what_the_tool_makes_and_silence_keeps_none(tmp_path: Path) -> None:
    import runpy
    import sys

    out = tmp_path / "demands.jsonl"
    before = sys.argv
    sys.argv = ["rubrics.py", str(ROOT / "recipes/small/topics.txt"), str(out)]
    try:
        runpy.run_path(str(ROOT / "tools" / "rubrics.py"), run_name="__main__")
    finally:
        sys.argv = before
    shipped = ROOT / "recipes" / "small" / "demands.jsonl"
    assert out.read_bytes() == shipped.read_bytes()
    samples = [Sample.model_validate_json(line) for line in shipped.read_text(encoding="utf-8").splitlines()]
    assert len(samples) > 600
    for sample in samples:
        assert 2 <= len(sample.rubric) <= 3
        rules = [build(Verifier, criterion.check) for criterion in sample.rubric]
        assert not any(rule.check("") for rule in rules)
        assert not rules[0].check("Yes."), "a few words do not do"
        assert not rules[0].check("word " * 40), "nor a flood of them"
        assert all(criterion.text in str(sample.prompt) for criterion in sample.rubric)


def test_the_sweep_is_figure_3() -> None:
    sweep = yaml.safe_load((ROOT / "sweeps" / "rtt_token_weight.yaml").read_text(encoding="utf-8"))
    assert sweep["command"][2] == "recipes/rtt_qwen3.yaml::aon"
    assert sweep["parameters"] == {"stages.policy.algorithm.token_weight": {"values": [0.0, 0.25, 0.5, 0.75, 1.0]}}
    assert sweep["metric"]["name"] == "averages/instruction_level.average"
    for value in sweep["parameters"]["stages.policy.algorithm.token_weight"]["values"]:
        point = load(FOUND["rtt_qwen3_aon"], [f"stages.policy.algorithm.token_weight={value}"])
        assert point.stages["policy"].algorithm.token_weight == value


# -- the small ones, two steps of every training stage, on the tiny random model -------------------------------------------

SMALL = [small(name) for name in RTT]
LIMITS = {
    "sample": ["prompts.limit=6", "per_prompt=2", "sampling.max_new_tokens=12"],
    "finetune": ["train.max_steps=2", "train.batch_size=4", "train.micro_batch_size=4", "holdout=0.0"],
    "rl": ["prompts.limit=8", "rollout.batch_size=4", "rollout.per_prompt=2", "rollout.sampling.max_new_tokens=12",
           "train.iterations=2", "train.batch_size=4", "train.micro_batch_size=4"],
    "evaluate": ["prompts.limit=3", "per_prompt=2", "sampling.max_new_tokens=12"],
    "grade": ["resamples=100"],
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rtt") / "runs"


def reduced(name: str, model_dir: Path) -> Recipe:
    start = [f"vars.llm={model_dir}", f"vars.backbone={model_dir}", "vars.lora.r=2"]
    stages = load(FOUND[name], start).data["stages"]
    limits = [f"stages.{one}.{limit}" for one, stage in stages.items() for limit in LIMITS.get(stage["name"], [])]
    limits += [
        f"stages.{one}.evaluate.sets.{held_out}.{limit}"
        for one, stage in stages.items()
        for held_out in (stage.get("evaluate") or {}).get("sets", {})
        for limit in ("prompts.limit=3", "sampling.max_new_tokens=12")
    ]
    return load(FOUND[name], [*start, *limits])


@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name: str, tiny_model_dir: Path, runs: Path) -> None:
    recipe = reduced(name, tiny_model_dir)
    summary = execute(recipe, runs)
    assert summary.exit == 0, summary.error
    made = {stage.name: stage.dir for stage in plan(recipe, runs).stages}
    measured = Report(made["evaluate"] / "out").read()["metrics"]["rubric"]
    assert set(measured) >= {"base", "policy"}
    assert 0 <= measured["policy"]["csr"]["mean"] <= 1
    logged = read_log(made["policy"] / "log.jsonl")
    rows = [row for row in logged if "loss" in row]
    assert len(rows) == 2
    assert [row["step"] for row in logged if "held_out/rubric.csr" in row] == [0, 2] * ("figure4" in name)
    assert ("kl_loss" in rows[0]) == ("sft" not in name and "dpo" not in name)
    if "discriminator" in made:
        assert {"loss", "f1"} <= set(read_log(made["discriminator"] / "log.jsonl")[0])
        grades = Report(made["grade"] / "out").read()["metrics"]["relevance"]
        assert set(grades) >= {"discriminator", "random"}
        assert "f1 count:word_count_range" in grades["discriminator"]
        first = json.loads((made["evaluate"] / "out" / "answers.jsonl").read_text(encoding="utf-8").split("\n")[0])
        assert first["criteria"]["rubric"][0]["relevance"] is not None
        assert "Which tokens" in summary.report.read_text(encoding="utf-8")
    if name_of(recipe.stages["policy"])[1] == "rl":
        assert rows[0]["reward/csr"] is not None
        assert ("token_advantage" in rows[0]) == (name_of(recipe.stages["policy"].algorithm)[1] == "rtt_grpo")
    if "best" in made:
        assert all(one.chosen_response.text for one in Samples(made["best"] / "out").read())
    assert models.load(ModelSpec(base=str(made["policy"] / "out"))).adapted

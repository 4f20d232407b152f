"""Text2Grad's recipes: the paper's numbers, what each row changes, splits, prompts as part of keys, and mistakes that are refused."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from test_recipes import ADDRESSES, T2G, changes, loaded

from fgrl import registry
from fgrl.experiments.pipeline import plan
from fgrl.experiments.pipeline.estimating import Peek
from fgrl.experiments.recipe import load
from fgrl.registry import Problems

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "recipes"
MAIN = ["text2grad_summarize", "text2grad_code", "text2grad_qa"]


@pytest.mark.parametrize(
    ("name", "kl", "target", "batch", "lr", "schedule"),
    [
        ("text2grad_summarize", 0.2, 6.0, 12, 1e-6, "linear"),
        ("text2grad_qa", 0.05, 3.0, 8, 1e-6, "cosine"),
        ("text2grad_code", 0.07, 1.0, 8, 5e-7, "cosine"),
    ],
)
def test_table_10(name: str, kl: float, target: float, batch: int, lr: float, schedule: str) -> None:
    policy = loaded(name).stages["policy"]
    algorithm, train = policy.algorithm, policy.train
    assert (algorithm.kl, algorithm.kl_coef, algorithm.adaptive_kl.target) == ("full", kl, target)
    assert (policy.rollout.batch_size, train.batch_size, train.micro_batch_size) == (batch, batch, 1)
    assert (train.lr, train.schedule, train.epochs, algorithm.epochs) == (lr, schedule, 4, 4)
    assert (algorithm.gamma, algorithm.lam, algorithm.clip, algorithm.value_clip) == (1.0, 0.95, 0.2, 0.2)
    assert (algorithm.value_coef, algorithm.entropy_coef) == (0.1, 0.0)


@pytest.mark.parametrize("name", MAIN)
def test_table_9(name: str) -> None:
    recipe = loaded(name)
    made = recipe.stages["reward_model"]
    lora, train = made.model.lora, made.train
    assert (lora.r, lora.alpha, lora.dropout, lora.targets) == (16, 32, 0.1, ["q_proj", "v_proj"])
    assert (train.lr, train.epochs, train.batch_size, train.weight_decay) == (1e-5, 2, 8, 3e-7)
    assert (train.clip_norm, train.strategy, train.devices) == (1.0, "deepspeed_stage_3", 8)
    assert made.model.base == "meta-llama/Llama-3.1-8B-Instruct"
    assert registry.name_of(made.algorithm)[1] == "sft"


def test_annotation_has_the_temperatures_and_limits_of_the_release() -> None:
    clients = [loaded(name).stages["annotations"].annotator.client for name in MAIN]
    assert [(client.model, client.temperature) for client in clients] == [
        ("gpt-4o", 0.3), ("gpt-4o", 0.1), ("gpt-4o", 0.6),
    ]  # fmt: skip
    assert [client.max_tokens for client in clients] == [1200, 968, 1200]


def test_policies_start_where_appendix_d_has_them() -> None:
    assert loaded("text2grad_summarize").stages["sft"].model.base == "meta-llama/Llama-3.1-8B-Instruct"
    assert loaded("text2grad_qa").stages["sft"].model.base == "meta-llama/Meta-Llama-3-8B-Instruct"
    assert loaded("text2grad_code").stages["policy"].model.base == "meta-llama/Llama-3.1-8B-Instruct"
    for name in MAIN:
        mistral = loaded(f"{name}_mistral")
        bases = {stage.model.base for stage in mistral.stages.values() if getattr(stage, "model", None) is not None}
        assert "mistralai/Mistral-7B-Instruct-v0.2" in bases


@pytest.mark.parametrize("name", MAIN)
def test_the_trained_critic_is_asked_as_it_was_trained(name: str) -> None:
    stages = loaded(name).stages
    data, reward, held = stages["reward_model"].data, stages["policy"].reward, stages["held_critiques"].annotator
    assert data.prompt == reward.prompt == held.prompt
    assert data.format == reward.format == held.format == stages["annotations"].annotator.format
    assert all(repr(asker.client.model.base) == "${out:reward_model}" for asker in (reward, held))


@pytest.mark.parametrize("name", MAIN)
def test_the_graded_critiques_are_those_that_the_reward_gets(name: str) -> None:
    """No second try with the reason."""
    stages = loaded(name).stages
    assert stages["held_critiques"].annotator.tries == stages["policy"].reward.tries == 1


@pytest.mark.parametrize("name", MAIN)
def test_the_policy_is_asked_without_a_system_turn(name: str) -> None:
    """Older chat templates of Mistral refuse one."""
    asked = [stage.prompts for stage in loaded(f"{name}_mistral").stages.values() if hasattr(stage, "prompts")]
    files = {reader.prompt for reader in asked if getattr(reader, "prompt", None)}
    assert files or name == "text2grad_qa"
    assert all("[system]" not in Path(file).read_text(encoding="utf-8") for file in files)


def test_unmarked_code_is_good_and_unmarked_text_is_neutral() -> None:
    """Section 4.6, with the equation of section 3.3 as a row."""
    rewards = {name: loaded(name).stages["policy"].reward for name in MAIN}
    assert [rewards[name].unmarked for name in MAIN] == [0.0, 1.0, 0.0]
    assert rewards["text2grad_code"].format.labels == {"wrong_code": -1.0, "improvement_code": 0.0}
    assert loaded("text2grad_code_unmarked_zero").stages["policy"].reward.unmarked == 0.0


# -- splits ------------------------------------------------------------------------------------------------------------


def test_ultrafeedback_is_divided_into_30_50_and_20_percent() -> None:
    """Every pair is in exactly one part, by the readers' own order of rows."""
    stages = loaded("text2grad_qa").stages
    parts = [stages["sft"].data, stages["annotations"].data, stages["policy"].prompts]
    assert {(part.path, part.split, part.expect_rows, part.shuffle_seed) for part in parts} == {
        ("HuggingFaceH4/ultrafeedback_binarized", "train_prefs", 61135, 42)
    }
    rows = [set(part.chosen(61135, "here")) for part in parts]
    assert [len(part) for part in rows] == [18340, 30568, 12227]
    assert set().union(*rows) == set(range(61135))
    assert [round(100 * len(part) / 61135) for part in rows] == [30, 50, 20]
    shuffled = list(range(61135))
    random.Random(42).shuffle(shuffled)
    assert rows[0] == set(shuffled[:18340])


def test_slf5k_is_trained_on_and_evaluated_on_files_of_their_own() -> None:
    stages = loaded("text2grad_summarize").stages
    trained = [stages["sft"].data, stages["annotations"].data, stages["policy"].prompts]
    held_out = [stages["evaluate"].prompts, stages["held_annotations"].data, stages["held_critiques"].data]
    assert {(reader.expect_rows, *reader.data_files) for reader in trained} == {(5000, "train.jsonl")}
    assert {(reader.expect_rows, *reader.data_files) for reader in held_out} == {(500, "validation.jsonl")}
    assert {reader.revision for reader in trained + held_out} == {"dcf9bf7a1f88feb8a0a962f532b2969eb239fb4e"}


@pytest.mark.parametrize("name", MAIN)
def test_what_an_annotator_may_ask_suffices_for_all_responses_twice(name: str) -> None:
    """One semantic retry for each response of both annotation stages."""
    responses = {
        "text2grad_summarize": 5_000 + 500,
        "text2grad_code": 2 * (4_500 + 250),
        "text2grad_qa": 2 * (30_568 + 250),
    }
    annotator = loaded(name).stages["annotations"].annotator
    assert annotator.tries == 2
    assert annotator.client.max_calls >= 2 * responses[name]


@pytest.mark.parametrize(("stage", "calls"), [("alpaca_eval", 2 * 805 * 2), ("mt_bench", 2 * 80 * 2)])
def test_the_budget_of_a_judge_covers_the_worst_case_of_the_plan(stage: str, calls: int, tmp_path: Path) -> None:
    made = loaded("text2grad_qa").stages[stage]
    planned, client = made.estimate(Peek(tmp_path, None, {}))["calls"], made.metrics[0].client
    assert planned["calls"] == calls <= client.max_calls
    assert 0 < planned["usd"] <= client.budget_usd


# -- rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", T2G)
def test_a_row_says_which_one_it_is(name: str) -> None:
    assert T2G[name] in loaded(name).about


@pytest.mark.parametrize(
    ("row", "path", "value"),
    [
        ("summarize_token_importance", "policy.reward.within", "token_importance"),
        ("summarize_linear_decay", "policy.reward.within", "linear_decay"),
        ("summarize_ppo_critic", "policy.reward.placement", "last"),
        ("code_ppo_critic", "policy.reward.placement", "last"),
        ("qa_ppo_critic", "policy.reward.placement", "last"),
        ("code_unmarked_zero", "policy.reward.unmarked", 0.0),
    ],
)
def test_an_ablation_of_the_reward_changes_one_value(row: str, path: str, value: Any) -> None:
    main = f"text2grad_{row.split('_')[0]}"
    found = changes(loaded(f"text2grad_{row}"), loaded(main))
    assert {name: new for name, new in found.items() if ".rewards.critic." not in name} == {path: value}


@pytest.mark.parametrize("name", MAIN)
def test_without_reasoning_there_is_no_critique_anywhere(name: str) -> None:
    """Section 4.5: annotation, target and reward are the spans alone."""
    stages = loaded(f"{name}_no_cot").stages
    annotator, data = stages["annotations"].annotator, stages["reward_model"].data
    formats = [annotator.format, data.format, stages["policy"].reward.format, stages["held_critiques"].annotator.format]
    assert [form.text for form in formats] == [None] * 4
    assert {tuple(form.labels.items()) for form in formats} == {
        tuple(loaded(name).stages["policy"].reward.format.labels.items())
    }
    assert annotator.prompt.endswith("_spans.txt")


@pytest.mark.parametrize("name", MAIN)
def test_scalar_ppo_has_a_reward_model_on_pairs_and_nothing_of_the_critic(name: str) -> None:
    recipe = loaded(f"{name}_ppo")
    assert registry.name_of(recipe.stages["reward_model"].algorithm)[1] == "bradley_terry"
    assert registry.name_of(recipe.stages["policy"].reward)[1] == "segment_rm"
    assert {"annotations", "checked", "grade", "held_critiques"}.isdisjoint(recipe.stages)
    ours, theirs = loaded(name).stages["policy"], recipe.stages["policy"]
    assert ours.algorithm == theirs.algorithm
    assert ours.rollout == theirs.rollout
    assert registry.dump(ours.train) == registry.dump(theirs.train)


def test_external_models_are_labelled_and_nothing_is_trained() -> None:
    for name in ("text2grad_summarize_external", "text2grad_code_external", "text2grad_qa_external"):
        recipe = loaded(name)
        assert "external models" in recipe.about
        assert {registry.name_of(stage)[1] for stage in recipe.stages.values()}.isdisjoint({"finetune", "rl"})


# -- prompts -----------------------------------------------------------------------------------------------------------

PROMPTS = {
    "text2grad_summarize": ["summarize.txt", "critique_summary.txt", "critic_summary.txt"],
    "text2grad_summarize_no_cot": ["critique_summary_spans.txt"],
    "text2grad_summarize_prm_ppo": ["steps_summary.txt"],
    "text2grad_summarize_dense": ["dense_labels.txt"],
    "text2grad_summarize_ilf": ["refine.txt"],
    "text2grad_summarize_table1": ["judge_annotations_summary.txt"],
    "text2grad_qa": ["critique_answer.txt", "critic_answer.txt"],
    "text2grad_qa_no_cot": ["critique_answer_spans.txt"],
    "text2grad_qa_table1": ["judge_annotations_spans.txt"],
    "text2grad_code": ["critique_code.txt", "critic_code.txt"],
    "text2grad_code_no_cot": ["critique_code_spans.txt"],
    "text2grad_code_prm_ppo": ["steps_code.txt"],
}


@pytest.mark.parametrize(("name", "prompt"), [(name, prompt) for name, own in PROMPTS.items() for prompt in own])
def test_a_changed_prompt_changes_the_keys_of_the_stages_that_use_it(name: str, prompt: str, tmp_path: Path) -> None:
    for folder in ("recipes", "prompts"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("small"))
    address = str(ADDRESSES[name]).replace(str(ROOT), str(tmp_path))

    def keys() -> dict[str, str]:
        return {stage.name: stage.key for stage in plan(load(address), tmp_path / "runs").stages}

    before = keys()
    with (tmp_path / "prompts" / prompt).open("a", encoding="utf-8") as file:
        file.write("\nBe brief.\n")
    after = keys()
    recipe = load(address)
    uses = {
        stage
        for stage, made in recipe.stages.items()
        if any(str(value).endswith(f"/{prompt}") for value in _texts(registry.dump(made)))
    }
    assert uses
    changed = {stage for stage in before if before[stage] != after[stage]}
    graph = recipe.graph()
    assert changed == {stage for stage in before if _reaches(stage, uses, graph)}
    assert changed != set(before) or prompt == "summarize.txt" or "reward_model" not in before


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def _reaches(stage: str, uses: set[str], graph: Any) -> bool:
    return stage in uses or any(_reaches(other, uses, graph) for other in graph[stage])


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stages.policy.reward.within=linear", "linear_decay"),
        ("stages.policy.reward.placement=end", "last"),
        ("stages.policy.reward.token_policy=word", "words"),
        ("stages.policy.reward.format={text: good_spans}", "needs a different name"),
        ("stages.policy.reward.format={labels: {good: 1.0, better: 1.0}}", "same label"),
        ("stages.policy.reward.client.stop_at_jsn=true", "stop_at_json"),
        ("stages.checked.annotator.action=drop", "drop_response"),
        ("stages.reward_model.data.data.of=${out:check}", "checked"),
        ("stages.grade.lines=[neutral]", "all_neutral"),
        ("stages.policy.algorithm.adaptive_kl={target: 0.0}", "target"),
    ],
)
def test_a_mistake_is_refused_with_the_next_step(override: str, message: str) -> None:
    with pytest.raises(Problems) as problems:
        load(FOLDER / "text2grad_summarize.yaml", [override])
    assert message in str(problems.value)

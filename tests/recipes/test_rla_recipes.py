"""RLA's recipes: the paper's numbers, what its baselines change, and two steps of each small one on the tiny model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from scratch_registry import scratch
from test_recipes import ADDRESSES

from fgrl import registry
from fgrl.experiments.pipeline import execute, plan
from fgrl.experiments.pipeline.log import read_log
from fgrl.experiments.recipe import Recipe, load
from fgrl.experiments.recipe.tables import read_table_file
from fgrl.kinds import Drawer, DrawRequest, Engine
from fgrl.types import Checkpoint, DrawnResponse, Pairs, Report, Samples

FOLDER = Path(__file__).resolve().parents[2] / "recipes"
BASELINES = ["base", "ce", "rlaif", "sft"]
SMALL = ["rla", *(f"rla_{name}" for name in BASELINES)]
EVALUATIONS = ["in_domain", "in_domain_search", "out_of_domain", "out_of_domain_search"]
LIMITS = {
    "sample": ["prompts.limit=8", "sampling.max_new_tokens=12"],
    "finetune": ["train.max_steps=2", "train.batch_size=4", "train.micro_batch_size=4", "holdout=0.25"],
    "rl": ["algorithm.epochs=1", "prompts.limit=8", "rollout.batch_size=4", "rollout.sampling.max_new_tokens=12", "train.iterations=2",
           "train.batch_size=4", "train.micro_batch_size=4"],
    "evaluate": ["prompts.limit=4", "sampling.max_new_tokens=12"],
}  # fmt: skip


def test_the_paper_s_numbers() -> None:
    """Section 4.1 and appendix B.2."""
    stages = load(FOLDER / "rla_llama3.yaml").stages
    samples, reward_model, policy = stages["samples"], stages["reward_model"], stages["policy"]
    drawn = samples.sampling
    assert (samples.per_prompt, drawn.temperature, drawn.top_p, drawn.max_new_tokens) == (3, 1.0, 0.9, 32)
    lora = reward_model.model.lora
    assert (lora.r, lora.alpha, reward_model.model.quantize) == (64, 16, "nf4")
    assert (reward_model.train.lr, reward_model.train.epochs, reward_model.train.batch_size) == (1e-4, 2, 4 * 8 * 8)
    assert reward_model.evaluate.best.number == "holdout/bradley_terry.accuracy", "appendix B.1"
    lora, algorithm = policy.model.lora, policy.algorithm
    assert (lora.r, lora.alpha, policy.model.quantize) == (32, 16, "nf4")
    assert (policy.train.lr, policy.rollout.batch_size, policy.prompts.limit) == (3e-6, 4 * 8, 80_000)
    assert (algorithm.kl_coef, algorithm.clip, algorithm.lam, algorithm.missing_eos_penalty) == (0.05, 0.2, 0.95, 1.0)
    assert (algorithm.kl, algorithm.kl_in, algorithm.epochs, algorithm.gamma) == ("k1", "reward", 1, 1.0)
    assert algorithm.kl_at == "end", "Eq. 5 subtracts the KL from the reward of the whole answer"
    assert not algorithm.halve_value_loss, "Eq. 10 to 12 have no factor 1/2"
    assert repr(policy.critic.base) == "${out:reward_model}", "the value model starts as the reward model"
    assert policy.reward.credit == "response"
    assert all(made.sampling.temperature == 0.2 for made in stages.values() if registry.name_of(made)[1] == "evaluate")


def test_the_sets_of_table_3_have_the_sizes_that_its_numbers_fit() -> None:
    """All six accuracies and F1s of HSD are those of 478 balanced sentences; of SBIC no post is dropped."""
    stages = load(FOLDER / "rla_llama3.yaml").stages
    assert stages["hate_speech"].prompts.balanced == 478
    assert stages["social_bias"].prompts.undecided == "no"
    for accuracy in (75.10, 78.66, 76.57, 71.76, 55.86, 72.80):
        assert abs(accuracy - 100 * round(accuracy * 478 / 100) / 478) < 0.0051


def test_averages_are_the_last_columns_of_tables_2_and_3() -> None:
    averages = load(FOLDER / "rla_llama3.yaml").stages["averages"].averages
    for name in ("trivia_qa", "trivia_qa_search"):
        numbers = [(number, part.scale) for part in averages[name] for number in part.numbers]
        assert len(numbers) == 6
        assert {scale for number, scale in numbers if number != "bleu"} == {1.0}
        assert ("bleu", 0.01) in numbers, "BLEU counts to 100, the others to 1"
    assert {part.of.stage for part in averages["all_f1"]} == {"climate", "pubhealth", "hate_speech", "social_bias"}


def test_questions_with_and_without_a_search_come_from_the_same_rows() -> None:
    stages = load(FOLDER / "rla_llama3.yaml").stages
    searched = [name for name in stages if name.endswith("_search")]
    assert len(searched) == 4
    for name in searched:
        one, other = (registry.dump(stages[stage].prompts) for stage in (name.removesuffix("_search"), name))
        changed = {key for key in {*one, *other} if one.get(key) != other.get(key)}
        assert changed <= {"prompt", "no_context", "passage_words"}


def test_sets_that_the_hub_has_as_programs_are_read_from_its_converted_copies() -> None:
    stages = load(FOLDER / "rla_llama3.yaml").stages
    for name in ("pubhealth", "pubhealth_search", "hate_speech", "social_bias"):
        assert stages[name].prompts.revision == "refs/convert/parquet"


@pytest.mark.parametrize("folder", ["", "small/"])
def test_a_baseline_changes_only_what_it_is_named_for(folder: str) -> None:
    start = "rla" if folder else "rla_llama3"
    main = load(FOLDER / f"{folder}{start}.yaml").stages
    for name in BASELINES:
        other = load(ADDRESSES[f"{folder}{start}_{name}"]).stages
        wanted = {"ce": {"preferences"}, "rlaif": {"preferences", "pairs"}, "sft": {"policy"}, "base": set()}[name]
        measured = {stage for stage in other if name == "base" and "models" in registry.dump(main[stage])}
        assert {
            stage for stage in other if registry.dump(other[stage]) != registry.dump(main[stage])
        } == wanted | measured
        gone = set(main) - set(other)
        assert gone == {
            "sft": {"samples", "preferences", "pairs", "reward_model"},
            "base": {"samples", "preferences", "pairs", "reward_model", "policy"},
        }.get(name, set())


def test_trained_on_and_held_out_questions_differ() -> None:
    stages = load(FOLDER / "small" / "rla.yaml").stages
    trained = {sample.id for stage in ("samples", "policy") for sample in stages[stage].prompts.read()}
    held = {sample.id for stage in ("in_domain", "in_domain_search") for sample in stages[stage].prompts.read()}
    assert len(trained) == 320
    assert len(held) == 96
    assert not trained & held


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rla") / "runs"


def reduced(name: str, model_dir: Path, *more: str) -> Recipe:
    """The recipe with the tiny model and little to do; nothing else of it is changed."""
    path = ADDRESSES[f"small/{name}"]
    start = [f"vars.llm={model_dir}"] + (["vars.lora={r: 2, last_blocks: 1}"] if name != "rla_base" else [])
    if name == "rla_rlaif":  # a random judge's 1 and 2 are not among its twenty most probable tokens
        start += [f"vars.judge.model.base={model_dir}", "stages.preferences.annotator.top_logprobs=300"]
    stages = load(path, start).data["stages"]
    limits = [f"stages.{stage}.{limit}" for stage, made in stages.items() for limit in LIMITS.get(made["name"], [])]
    drawn = [change for change in more if "samples" in stages]
    return load(path, [*start, *limits, *drawn])


class Given(Engine):
    """Three answers to each prompt, which do not depend on the model."""

    def open(self, model: Any) -> Drawer:
        return GivenAnswers(model)


class GivenAnswers(Drawer):
    def __init__(self, model: Any) -> None:
        self.model = model

    def draw(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        texts = ["a fish", "to run very fast", "zzz"]
        encoded = [self.model.tokenizer(text, add_special_tokens=False).input_ids for text in texts]
        return [
            DrawnResponse([*encoded[one.row % 3][: one.sampling.max_new_tokens - 1], self.model.end_id], "end")
            for one in requests
        ]


@pytest.fixture
def given() -> Iterator[None]:
    with scratch():
        registry.register("given")(Given)
        yield


@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name: str, tiny_model_dir: Path, runs: Path, given: None) -> None:
    recipe = reduced(name, tiny_model_dir, "stages.samples.engine=given")
    summary = execute(recipe, runs)
    assert summary.exit == 0, summary.error
    made = {stage.name: stage for stage in plan(recipe, runs).stages}
    assert all(stage.cached for stage in made.values())
    for stage in EVALUATIONS:
        metrics = Report(made[stage].dir / "out").read()["metrics"]
        assert {"similarity", "exact_match", "rouge", "bleu", "length"} <= set(metrics)
        assert set(metrics["similarity"]) - {"differences"} == ({"base"} if name == "rla_base" else {"base", "policy"})
    if "preferences" in made:
        scored = list(Samples(made["preferences"].dir / "out").read())
        assert [len(sample.responses) for sample in scored] == [3] * 8
        if name == "rla_rlaif":
            assert all(len(sample.verdicts) <= 3 for sample in scored)
        else:
            pairs = list(Pairs(made["pairs"].dir / "out").read())
            margins = [
                abs(one.score - other.score) >= 0.05
                for sample in scored
                for one, other in combinations(sample.responses, 2)
            ]
            assert len(pairs) == sum(min(2, sum(margins[start : start + 3])) for start in range(0, 24, 3)) >= 8
            assert all(pair.meta["chosen_score"] > pair.meta["rejected_score"] for pair in pairs)
    if "policy" in made:
        rows = read_log(made["policy"].dir / "log.jsonl")
        assert len(rows) == 2
        if name != "rla_sft":
            assert Checkpoint(made["reward_model"].dir / "out").about()["segmenter"]["name"] == "bandit"
            assert rows[0]["max_log_ratio"] < 0.05
            drawn = read_table_file(FOLDER.parent / "sweeps" / "rla" / "figure3.yaml").figure.metrics
            assert drawn == ["penalized_reward", "kl", "value_loss"], "the score less beta times the KL, not the score"
            assert all(set(drawn) <= row.keys() for row in rows)


def test_the_critic_begins_as_the_reward_model(tiny_model_dir: Path, runs: Path) -> None:
    """Before the first step, the value of a finished answer's last state is the reward model's number for it."""
    import torch

    from fgrl import models, rollouts

    recipe = reduced("rla", tiny_model_dir)
    execute(recipe, runs)
    made = plan(recipe, runs)
    folders = {stage.name: stage.dir / "out" for stage in made.stages}
    spec = recipe.stages["policy"].critic
    resolve = lambda ref: folders[ref.stage]  # noqa: E731
    critic = models.load(spec, head="scalar", trainable=True, resolve=resolve)
    reward = models.load(recipe.stages["policy"].reward.model, head="scalar", resolve=resolve)
    tokens = rollouts.pad([[1, 50, 60]], [[70, 80, 90]], pad_id=critic.pad_id, eos_ids=critic.eos_ids)
    with torch.no_grad():
        assert torch.equal(critic.rewards(tokens), reward.rewards(tokens))
        assert torch.allclose(critic.values(tokens)[:, 1:], reward.rewards(tokens)[:, :-1], atol=1e-5)
    assert any(parameter.requires_grad for parameter in critic.parameters())
    assert json.loads((folders["reward_model"] / "fgrl.json").read_text())["model"]["head"] == "scalar"

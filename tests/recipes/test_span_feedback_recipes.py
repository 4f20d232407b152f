"""The recipes of span feedback: the paper's numbers, the rows of Table 2, the grid, and what every part is read from."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_recipes import SPAN, changes, loaded

from fgrl import registry
from fgrl.experiments.recipe import load
from fgrl.registry import Problems

ROOT = Path(__file__).resolve().parents[2]
LOSSES = {"dpo": ("dpo", 0.0), "dpop": ("dpo", 50.0), "apo_zero": ("apo_zero", 0.0), "apo_down": ("apo_down", 0.0)}
RATES = {"5e6": 5e-6, "2e6": 2e-6, "1e6": 1e-6, "5e7": 5e-7, "2e7": 2e-7}
TABLE_2 = {
    "base": None, "sft": None, "ab": "dpo", "first_edit": "apo_down", "full_rewrite": "apo_down", "stepwise_ds": "apo_down",
    "stepwise": "apo_down",
}  # fmt: skip
"""The models, and the loss that the paper chose."""


@pytest.mark.parametrize("name", SPAN)
def test_a_row_says_which_one_it_is(name: str) -> None:
    assert SPAN[name] in loaded(name).about


def test_appendix_d() -> None:
    stages = loaded("span_chains").stages
    for name, rate in {"sft": 5e-6, **dict.fromkeys(LOSSES, 5e-7)}.items():
        made = stages[name]
        train = made.train
        assert (train.lr, train.batch_size, train.schedule, train.warmup) == (rate, 4, "cosine", 0.0), name
        assert (made.max_tokens, made.model.gradient_checkpointing) == (8192, True)
        assert train.precision == "bf16-mixed", "fp16 is not offered"
    for name, (objective, penalty) in LOSSES.items():
        algorithm = stages[name].algorithm
        assert (algorithm.beta, algorithm.objective, algorithm.dpop_lambda) == (0.1, objective, penalty)
        assert not algorithm.length_normalized


def test_what_people_annotate() -> None:
    stages = loaded("span_chains_responses").stages
    queries, responses = stages["queries"].annotator, stages["responses"]
    assert (queries.client.model, queries.count) == ("gpt-4.1-2025-04-14", 5)
    assert list(stages["queries"].data.of) == ["yelp", "news", "wikipedia", "arxiv"]
    assert (responses.per_prompt, responses.sampling.temperature, responses.sampling.top_p) == (2, 0.8, 0.95)
    assert responses.model.base == "meta-llama/Llama-3.1-8B-Instruct"


def test_the_queries_of_annotation_validation_and_test_are_of_different_documents() -> None:
    before, after = loaded("span_chains_responses").stages, loaded("span_chains").stages
    readers = [before["responses"].prompts.data, after["evaluate"].prompts.data, after["policy"].prompts.data]
    parts = [set(range(400)[reader.skip : reader.skip + reader.limit]) for reader in readers]
    assert [len(part) for part in parts] == [140, 138, 100]
    documents = [{query // 5 for query in part} for part in parts]
    assert not (documents[0] & documents[1])
    assert not (documents[0] & documents[2])
    assert not (documents[1] & documents[2])
    assert len(set(after["queries"].data.of)) * 20 * 5 == 400


def test_the_base_model_rewrites_with_the_reasons_of_the_taxonomy() -> None:
    annotator = loaded("span_chains").stages["chains"].annotator
    assert registry.name_of(annotator.rewriter)[1] == "model"
    assert annotator.rewriter.client.model.base == "meta-llama/Llama-3.1-8B-Instruct"
    assert annotator.rewriter.steps_per_call == "all"
    assert annotator.taxonomy.endswith("retrieval.yaml")
    assert annotator.attempts > 1


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("first_edit", {"pairs.builder.kind": "first_edit"}),
        ("full_rewrite", {"pairs.builder.kind": "full_rewrite"}),
        ("stepwise_ds", {"pairs.max_pairs": 277}),
        ("stepwise", {}),
    ],
)
def test_a_row_changes_how_pairs_are_made_and_nothing_else(row: str, expected: dict[str, object]) -> None:
    assert changes(loaded(f"span_chains_{row}"), loaded("span_chains")) == expected


def test_preference_pairs_start_from_the_untuned_model() -> None:
    """a* is not available there."""
    recipe = loaded("span_chains_ab")
    assert {"chains", "sft"}.isdisjoint(recipe.stages)
    assert all(recipe.stages[loss].model.base == "meta-llama/Llama-3.1-8B-Instruct" for loss in LOSSES)
    assert all(repr(loaded("span_chains").stages[loss].model.base) == "${out:sft}" for loss in LOSSES)
    assert registry.name_of(recipe.stages["pairs"].builder)[1] == "judged"


def test_table_2_has_the_seven_models_and_the_losses_that_were_chosen() -> None:
    stages = loaded("span_chains_table2").stages
    evaluate = stages["evaluate"]
    assert sorted(evaluate.models) == sorted(TABLE_2)
    for name, objective in TABLE_2.items():
        if objective is not None:
            assert stages[name].algorithm.objective == objective
            assert repr(evaluate.models[name].base) == f"${{out:{name}}}"
    elo = evaluate.metrics[0]
    models, prompts = len(evaluate.models), evaluate.prompts.data.limit
    assert models * (models - 1) // 2 * prompts == 2898 <= elo.client.max_calls
    assert (elo.orders, elo.client.model) == ("one", "gpt-5.2-2025-12-11")


def test_people_compare_answers_to_forty_prompts() -> None:
    stages = loaded("span_chains_table2_human").stages
    assert stages["evaluate"].prompts.data.limit == 40
    assert registry.name_of(stages["people"])[1] == "elo"


@pytest.mark.parametrize("row", ["", "ab", "first_edit", "full_rewrite", "stepwise_ds"])
def test_the_grid_has_five_learning_rates_for_each_loss(row: str) -> None:
    stages = loaded(f"span_chains_grid{row and '_'}{row}").stages
    assert registry.name_of(stages["policy"])[1] == "select"
    assert sorted(stages["policy"].models) == sorted(f"{loss}_{rate}" for loss in LOSSES for rate in RATES)
    for loss, (objective, penalty) in LOSSES.items():
        for rate, value in RATES.items():
            made = stages[f"{loss}_{rate}"]
            assert (made.train.lr, made.algorithm.objective, made.algorithm.dpop_lambda) == (value, objective, penalty)
    if row != "ab":
        assert sorted(stages["sft"].models) == sorted(f"sft_{rate}" for rate in RATES)
        assert [stages[f"sft_{rate}"].train.lr for rate in RATES] == list(RATES.values())
        assert all(repr(stages[f"{loss}_5e7"].model.base) == "${out:sft}" for loss in LOSSES)


def test_the_small_recipe_asks_nobody_and_has_the_stages_of_the_large_one() -> None:
    big, little = loaded("span_chains").stages, loaded("small/span_chains").stages
    assert set(big) - set(little) == {"queries", "start_answers"}
    assert [registry.name_of(little[name])[1] for name in little] == [registry.name_of(big[name])[1] for name in little]
    assert "openai" not in str({name: registry.dump(stage) for name, stage in little.items()})


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stages.pairs.builder.kind=step", "stepwise"),
        ("stages.apo_zero.algorithm.objective=apo", "apo_zero"),
        ("stages.apo_zero.algorithm.dpop_lambda=5.0", "objective dpo only"),
        ("vars.rewriter.steps_per_call=two", "one"),
        ("stages.sft.train.precision=fp16", "bf16-mixed"),
        ("stages.evaluate.metrics.0.orders=two", "both"),
    ],
)
def test_a_mistake_is_refused_with_the_next_step(override: str, message: str) -> None:
    annotations = ROOT / "recipes" / "small" / "span_annotations.jsonl"
    with pytest.raises(Problems) as problems:
        load(ROOT / "recipes" / "span_chains.yaml", [f"vars.annotations={annotations}", override])
    assert message in str(problems.value)

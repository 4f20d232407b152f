"""What `fgrl inspect` draws of the methods of examples/credit, and what a training keeps for the report: the credit that is trained on."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from credit_training import FOLDER, METHODS, OF_PAIRS, overrides_of
from rich.console import Console
from scratch_registry import scratch_imports
from tiny_recipe import a_run

from fgrl import rollouts
from fgrl.experiments.recipe import load
from fgrl.kinds.specs import ModelSpec
from fgrl.pages.report.terminal import print_tokens
from fgrl.registry import name_of
from fgrl.training.stored_rollouts import CreditedResponse, StoredRollout
from fgrl.types import read_jsonl

ONLINE = [method for method in METHODS if method not in OF_PAIRS]


@pytest.fixture
def stage(request: Any, tmp_path: Path, steady_model_dir: Path) -> Any:
    row = {"dpo": "weighted_dpo.yaml::dpo"}.get(request.param, f"{request.param}.yaml")
    overrides = overrides_of(request.param if request.param in METHODS else OF_PAIRS[0], tmp_path, steady_model_dir)
    if request.param in ONLINE:
        overrides += ["stages.policy.train.iterations=1", "stages.policy.stored_rollouts=8"]
    with scratch_imports():
        yield load(FOLDER / row, overrides).stages["policy"]


def responses(items: list[Any], layer: str) -> list[list[float | None]]:
    """The numbers of a layer on the tokens of each response; there are none on the prompts."""
    for item in items:
        assert item.layers[layer][: item.kinds.index("response")] == [None] * item.kinds.index("response")
    return [item.layers[layer][item.kinds.index("response") :] for item in items]


def printed(items: list[Any]) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    print_tokens(items, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def rewards_of(items: list[Any]) -> torch.Tensor:
    return torch.tensor([float(item.title.rpartition("reward ")[2]) for item in items])


@pytest.mark.parametrize("stage", ["counterfactual", "oar_g"], indirect=True)
def test_inspect_draws_the_advantage_of_the_group_times_the_weight(stage: Any, tmp_path: Path) -> None:
    items = list(stage.inspect(a_run(tmp_path), 4))
    rewards = rewards_of(items)
    assert len(items) == 4
    assert len(set(rewards.tolist())) > 1
    expected = (rewards - rewards.mean()) / rewards.std()
    varied = False
    for row, (weights, advantages) in enumerate(
        zip(responses(items, "weight"), responses(items, "advantage"), strict=True)
    ):
        assert sum(weights) / len(weights) == pytest.approx(1.0, abs=1e-4)
        assert advantages == pytest.approx([float(expected[row]) * weight for weight in weights], abs=5e-3)
        varied |= len(set(weights)) > 1
    assert varied
    assert "advantage  " in printed(items)
    assert "weight  " in printed(items)


@pytest.mark.parametrize("stage", ["vine"], indirect=True)
def test_inspect_draws_the_differences_of_values(stage: Any, tmp_path: Path) -> None:
    """The token reward, whitened over all tokens."""
    items = list(stage.inspect(a_run(tmp_path), 4))
    given = torch.tensor([value for item in items for value in item.values[item.kinds.index("response") :]])
    drawn = torch.tensor([value for row in responses(items, "advantage") for value in row])
    assert given.std() > 0
    # the slope is the same everywhere, and the mean is 0
    assert float(drawn.mean()) == pytest.approx(0.0, abs=1e-5)
    assert drawn.tolist() == pytest.approx(((given - given.mean()) * drawn.std() / given.std()).tolist(), abs=1e-4)
    assert float(drawn.std()) == pytest.approx(1.0, abs=0.05)
    assert {"value", "advantage"} <= items[0].layers.keys()


@pytest.mark.parametrize("stage", ["top_entropy"], indirect=True)
def test_inspect_leaves_out_the_tokens_that_are_not_trained_on(stage: Any, tmp_path: Path) -> None:
    items = list(stage.inspect(a_run(tmp_path), 4))
    rewards = rewards_of(items)
    expected = (rewards - rewards.mean()) / rewards.std()
    rows = responses(items, "advantage")
    total = sum(map(len, rows))
    trained = [(row, value) for row, values in enumerate(rows) for value in values if value is not None]
    # the first tokens of a prompt's responses are equally uncertain, so that they are all trained on, or none of them
    assert round(0.2 * total) <= len(trained) <= round(0.2 * total) + len(rows) - 1
    for row, value in trained:
        assert value == pytest.approx(float(expected[row]), abs=5e-3)
    assert f"of {len(rows[0])} tokens" in printed(items)


@pytest.mark.parametrize("stage", ["weighted_dpo"], indirect=True)
def test_inspect_draws_the_weights_of_the_data(stage: Any, tmp_path: Path) -> None:
    """With the weight of the end of the response, which the data may leave out."""
    items = list(stage.inspect(a_run(tmp_path), 2))
    assert len(items) == 4
    for weights in responses(items, "weight"):
        assert weights == [0.5] * (len(weights) - 2) + [2.0, 1.0]
    assert "weight  " in printed(items)


@pytest.mark.parametrize("stage", ["prime"], indirect=True)
def test_inspect_draws_the_auxiliary_model_and_its_reference(stage: Any, tmp_path: Path) -> None:
    """Before training both are the same model, whose log-probabilities are below 0."""
    items = list(stage.inspect(a_run(tmp_path), 4))
    for own, reference in zip(responses(items, "prm_logp"), responses(items, "prm_ref_logp"), strict=True):
        assert own == pytest.approx(reference)
        assert all(value is not None and value < 0 for value in own)


@pytest.mark.parametrize("stage", ["prime"], indirect=True)
def test_a_training_keeps_what_the_auxiliary_model_says(stage: Any, tmp_path: Path) -> None:
    """It moves away from its reference in the only iteration, and is read before that."""
    run = a_run(tmp_path)
    stage.run(run)
    kept = list(read_jsonl(run.out / "rollouts.jsonl", StoredRollout))
    assert len(kept) == 8
    for line in kept:
        assert line.columns.keys() == {"prm_logp", "prm_ref_logp"}
        assert line.columns["prm_logp"] == pytest.approx(line.columns["prm_ref_logp"], abs=1e-4)
        assert len(line.columns["prm_logp"]) == len(line.tokens)


@pytest.mark.parametrize("stage", OF_PAIRS, indirect=True)
def test_inspect_draws_implicit_rewards_of_0_before_training(stage: Any, tmp_path: Path) -> None:
    items = list(stage.inspect(a_run(tmp_path), 2))
    assert len(items) == 4
    assert {value for row in responses(items, "implicit_reward") for value in row} == {0.0}


@pytest.mark.parametrize("lora", [True, False])
@pytest.mark.parametrize("stage", [*OF_PAIRS, "dpo"], indirect=True)
def test_a_training_on_pairs_keeps_the_credit_of_its_tokens(
    stage: Any, lora: bool, tmp_path: Path, steady_model_dir: Path
) -> None:
    """beta (log p - log p_reference) of the trained model, times the weight; the KL of whole distributions: against passes of transformers
    alone, pair by pair."""
    if not lora:
        stage = stage.model_copy(update={"model": stage.model.model_copy(update={"lora": None})})
    run = a_run(tmp_path)
    stage.stored_credit = 3
    stage.run(run)
    kept = list(read_jsonl(run.out / "credit.jsonl", CreditedResponse))
    assert [(line.sample.id, line.model) for line in kept] == [
        (id, side) for id in ("1", "3", "6") for side in ("chosen", "rejected")
    ]
    trained, start = (run.model(ModelSpec(base=str(place))) for place in (run.out, steady_model_dir))
    tokenizer = start.tokenizer
    moved = 0.0
    for line in kept:
        number = int(line.sample.id) - 1
        prompt = rollouts.encode_prompt(tokenizer, f"Opposite of {'hot' * (number + 1)}?").token_ids
        answer = rollouts.encode_response(tokenizer, {"chosen": "cold", "rejected": "hot"}[line.model], start.end_id)
        assert line.tokens == rollouts.token_texts(tokenizer, answer)
        policy, reference = (distributions(model, list(prompt), answer) for model in (trained, start))
        places = torch.arange(len(answer))
        ratio = (policy - reference)[places, torch.tensor(answer)]
        weight = torch.tensor(line.columns["weight"]) if "weight" in line.columns else torch.ones(len(answer))
        assert line.columns["implicit_reward"] == pytest.approx((0.1 * weight * ratio).tolist(), abs=2e-5)
        if "kl" in line.columns:
            kl = (reference.exp() * (reference - policy)).sum(dim=1)
            assert line.columns["kl"] == pytest.approx(kl.tolist(), abs=2e-5)
        moved += float(ratio.abs().max())
    assert moved > 1e-2
    expected = {"weighted_dpo": {"weight", "implicit_reward"}, "tdpo": {"implicit_reward", "kl"}}
    assert kept[0].columns.keys() == expected.get(name_of(stage.algorithm)[1], {"implicit_reward"})


def distributions(model: Any, prompt: list[int], answer: list[int]) -> torch.Tensor:
    """Log-probabilities of the tokens of an answer, [T,V]."""
    with torch.no_grad():
        logits = model.transformer(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
    return logits.float().log_softmax(dim=-1)


@pytest.mark.parametrize("stage", ["dpo"], indirect=True)
def test_credit_of_held_out_pairs_and_none_where_nobody_wants_it(stage: Any, tmp_path: Path) -> None:
    run = a_run(tmp_path / "held_out")
    stage.model_copy(update={"holdout": 0.25}).run(run)
    assert [line.sample.id for line in read_jsonl(run.out / "credit.jsonl", CreditedResponse)] == ["1", "1", "2", "2"]
    run = a_run(tmp_path / "none")
    stage.model_copy(update={"stored_credit": 0}).run(run)
    assert not (run.out / "credit.jsonl").exists()


@pytest.mark.parametrize("stage", ONLINE, indirect=True)
def test_kept_rollouts_have_what_the_loss_weighs_tokens_with(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: dict[tuple[int, ...], list[float | None]] = {}
    whole = type(stage.algorithm).loss

    def loss(self: Any, model: Any, batch: Any) -> Any:
        credit = batch.columns["advantage"]
        counted = batch.drawn & batch.columns.get("trained", batch.mask)
        for row, length in enumerate(batch.mask.sum(dim=1).tolist()):
            numbers = zip(credit[row, :length].tolist(), counted[row, :length].tolist(), strict=True)
            trained[tuple(batch.response_ids[row, :length].tolist())] = [n if there else None for n, there in numbers]
        return whole(self, model, batch)

    monkeypatch.setattr(type(stage.algorithm), "loss", loss)
    run = a_run(tmp_path / "run")
    stage.run(run)
    kept = list(read_jsonl(run.out / "rollouts.jsonl", StoredRollout))
    tokenizer = run.model(stage.model.model_copy(update={"lora": None})).tokenizer
    by_text = {tuple(rollouts.token_texts(tokenizer, list(ids))): numbers for ids, numbers in trained.items()}
    assert len(kept) == 8
    assert any(number for line in kept for number in line.advantages or [])
    for line in kept:
        numbers = by_text.get(tuple(line.tokens))
        assert (line.advantages is None) == (numbers is None)  # no token of the response is trained on
        if numbers is not None:
            stored, weighed = (
                [math.nan if value is None else value for value in own] for own in (line.advantages, numbers)
            )
            assert stored == pytest.approx(weighed, rel=1e-5, nan_ok=True)

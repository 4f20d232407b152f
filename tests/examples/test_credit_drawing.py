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
from fgrl.modules.stored_rollouts import StoredRollout
from fgrl.recipe import load
from fgrl.report.terminal import print_annotated
from fgrl.types import read_jsonl

ONLINE = [method for method in METHODS if method not in OF_PAIRS]


@pytest.fixture
def stage(request: Any, tmp_path: Path, tiny_model_dir: Path) -> Any:
    overrides = overrides_of(request.param, tmp_path, tiny_model_dir)
    if request.param in ONLINE:
        overrides += ["stages.policy.train.iterations=1", "stages.policy.stored_rollouts=8"]
    with scratch_imports():
        yield load(FOLDER / f"{request.param}.yaml", overrides).stages["policy"]


def responses(items: list[Any], layer: str) -> list[list[float | None]]:
    """The numbers of a layer on the tokens of each response; there are none on the prompts."""
    for item in items:
        assert item.layers[layer][: item.kinds.index("response")] == [None] * item.kinds.index("response")
    return [item.layers[layer][item.kinds.index("response") :] for item in items]


def printed(items: list[Any]) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    print_annotated(items, console)
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


@pytest.mark.parametrize("stage", ONLINE, indirect=True)
def test_kept_rollouts_have_what_the_loss_weighs_tokens_with(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: dict[tuple[int, ...], list[float | None]] = {}
    whole = type(stage.algorithm).loss

    def loss(self: Any, model: Any, batch: Any) -> Any:
        credit = batch.columns["advantage"]
        counted = batch.columns.get("trained", batch.mask)
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

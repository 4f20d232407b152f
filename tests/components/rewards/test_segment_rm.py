"""Rewards of a segment reward model against a slow account that pads nothing and loops over tokens."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training_helpers import EOS, a_run, tiny

from fgrl import models, rollouts
from fgrl.base.errors import DataError
from fgrl.base.mergeable import as_numbers
from fgrl.components.rewards.segment_rm import SegmentRM
from fgrl.experiments.recipe import load
from fgrl.registry import Problems, build
from fgrl.types import Ref, Rewards, Rollout, Sample

PROMPTS = [[1, 20, 30, 40], [1, 50], [1, 60, 61, 62, 63, 64, 65], [1, 9], [1, 77, 78], [1, 33, 34, 35]]
RESPONSES = [
    [70, 71, 90, 12, 13, 14, EOS],
    [80, EOS],
    [90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101],  # cut off
    [EOS],
    [111],  # cut off
    [120, 121, 122, 123, 124, 125, 126, EOS],
]
LINE = {"w_mean": 0.7, "b_mean": -0.2, "w_std": 0.5, "b_std": 0.9, "min_std": 0.25}
"""A location fit whose standard deviation falls under its floor at small locations."""


@pytest.fixture(scope="module")
def world(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Reward models of two segmentations on disk, and what the bare transformers model says of every response."""
    folder = tmp_path_factory.mktemp("segment_rm")
    reward_model = tiny(tiny_model_dir, head="scalar", trainable=True, lora={"r": 4, "alpha": 8}, seed=5)
    generator = torch.Generator().manual_seed(5)
    for name, parameter in reward_model.net.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0, 0.3, generator=generator)
    for name in ("stats", "other_stats"):
        (folder / name).mkdir()
    (folder / "stats/stats.json").write_text(json.dumps({"normalizer": "location", **LINE}))
    (folder / "other_stats/stats.json").write_text(json.dumps({"normalizer": "global", "mean": 0.5, "std": 2.0}))
    sft = tiny(tiny_model_dir)
    entropy, token_reward = [], []
    with torch.no_grad():
        for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
            ids = torch.tensor([prompt + response])
            before = slice(len(prompt) - 1, -1)
            logp = sft.transformer(input_ids=ids).logits[0, before].double().log_softmax(-1)
            entropy.append((-(logp.exp() * logp).sum(-1)).numpy())
            states = reward_model.net(input_ids=ids).last_hidden_state[0, len(prompt) :]
            token_reward.append((states.double() @ reward_model.number.weight.double()).numpy())
    ordered = np.sort(np.concatenate(entropy))
    middle = int(0.6 * len(ordered))
    cutoff = float(ordered[middle : middle + 2].mean())  # between two entropies: no rounding decides
    for name, about in {
        "segment": {"segmenter": {"name": "entropy", "version": 1, "cutoff": cutoff}, "aggregate": "mean"},
        "bandit": {"segmenter": {"name": "bandit", "version": 1}, "aggregate": "last"},
        "nameless": {},
    }.items():
        models.save(reward_model, folder / name, about)
    return {"folder": folder, "sft": sft, "cutoff": cutoff, "entropy": entropy, "reward": token_reward}


def rollout_of(world: dict[str, Any]) -> Rollout:
    sft = world["sft"]
    tokens = rollouts.pad(PROMPTS, RESPONSES, pad_id=0, eos_ids=sft.eos_ids)
    return Rollout(
        **vars(tokens), group=torch.arange(len(PROMPTS)), samples=[Sample(id="x", prompt="")] * len(PROMPTS),
        texts=[rollouts.decode(sft.tokenizer, ids) for ids in RESPONSES],
        **rollouts.score(sft, sft, tokens, frozenset({"ref_entropy"}), micro_batch_size=4),
    )  # fmt: skip


def reward_of(world: dict[str, Any], model: str = "segment", **fields: Any) -> SegmentRM:
    products = {name: world["folder"] / name for name in ("segment", "bandit", "nameless", "stats", "other_stats")}
    node = {"name": "segment_rm", "model": f"${{out:{model}}}", "micro_batch_size": 4, **fields}
    found = build("reward", node)
    found.setup(a_run(world["folder"] / "run", products=products))
    return found


def segments(world: dict[str, Any], cut: str) -> list[list[list[int]]]:
    """Tokens of every segment of every response. The end-of-sequence token is in none, unless it is all there is."""
    found = []
    for i, response in enumerate(RESPONSES):
        places = list(range(len(response)))
        if cut == "entropy" and response[-1] == EOS and len(response) > 1:
            places.pop()
        groups: list[list[int]] = []
        for t in places:
            if t == 0 or (cut == "entropy" and world["entropy"][i][t] > world["cutoff"]):
                groups.append([])
            groups[-1].append(t)
        found.append(groups)
    return found


def slow(
    world: dict[str, Any], cut: str, spread: str, clamp: float | None, normalized: bool = True
) -> tuple[np.ndarray, np.ndarray, list[list[float]]]:
    """Token rewards [B,T], segment ids [B,T] and raw segment rewards."""
    width = max(map(len, RESPONSES))
    tokens, ids = np.zeros((len(RESPONSES), width)), np.full((len(RESPONSES), width), -1)
    raw = []
    for i, groups in enumerate(segments(world, cut)):
        raw.append([world["reward"][i][group[-1]] for group in groups])
        for number, group in enumerate(groups):
            r = raw[i][number]
            if normalized:
                x = math.log((number + 1) / len(groups))
                std = max(LINE["w_std"] * x + LINE["b_std"], LINE["min_std"])
                r = (r - (LINE["w_mean"] * x + LINE["b_mean"])) / std
            for t in group:
                ids[i, t] = number
                share = {"even": r / len(group), "repeat": r, "last": r if t == group[-1] else 0.0}[spread]
                tokens[i, t] = share if clamp is None else min(clamp, max(-clamp, share))
    return tokens, ids, raw


def test_the_example_has_what_it_needs(world: dict[str, Any]) -> None:
    groups = segments(world, "entropy")
    assert max(map(len, groups)) >= 4
    assert any(len(group) > 1 for one in groups for group in one)
    x = math.log(1 / max(map(len, groups)))
    assert LINE["w_std"] * x + LINE["b_std"] < LINE["min_std"]  # the floor acts
    raw = np.concatenate([np.array(r) for r in slow(world, "entropy", "even", None)[2]])
    assert raw.std() > 0.3


@pytest.mark.parametrize("clamp", [None, 0.4])
@pytest.mark.parametrize("spread", ["even", "repeat", "last"])
def test_segment_rewards_are_exact(world: dict[str, Any], spread: str, clamp: float | None) -> None:
    rollout = rollout_of(world)
    fitted = {"name": "location", "fitted": "${out:stats}"}
    reward = reward_of(world, normalizer=fitted, spread=spread, clamp=clamp)
    assert reward.needs() == {"ref_entropy"}
    found = reward.score(rollout)
    tokens, ids, raw = slow(world, "entropy", spread, clamp)
    assert found.segment_ids.tolist() == ids.tolist()
    np.testing.assert_allclose(found.token.numpy(), tokens, atol=2e-5)
    np.testing.assert_allclose(found.response.numpy(), [np.mean(r) for r in raw], atol=1e-5)
    told = tokens != 0 if spread == "last" else ids >= 0
    assert found.credit_mask.tolist() == told.tolist()
    if clamp is not None:
        assert np.abs(tokens).max() == clamp
        assert float(found.token.abs().max()) <= clamp + 1e-6
    for i, response in enumerate(RESPONSES):
        if response[-1] == EOS and len(response) > 1:
            assert found.token[i, len(response) - 1] == 0
            assert not found.credit_mask[i, len(response) - 1]
    assert found.token[3, 0] != 0  # a response that is nothing but an end-of-sequence token
    assert found.credit_mask[3, 0]
    assert as_numbers(found.metrics)["segments"] == pytest.approx(np.mean([len(r) for r in raw]))
    assert as_numbers(found.metrics)["segment_tokens"] == pytest.approx((ids >= 0).sum() / sum(len(r) for r in raw))


@pytest.mark.parametrize("how", ["mean", "sum", "last"])
def test_a_response_is_worth_the_aggregate_of_its_segments(world: dict[str, Any], how: str) -> None:
    _tokens, _ids, raw = slow(world, "entropy", "even", None)
    wanted = [{"mean": np.mean(r), "sum": np.sum(r), "last": r[-1]}[how] for r in raw]
    np.testing.assert_allclose(reward_of(world, aggregate=how).score(rollout_of(world)).response, wanted, atol=1e-5)


def test_without_a_normalizer_rewards_are_raw(world: dict[str, Any]) -> None:
    found = reward_of(world, spread="repeat").score(rollout_of(world))
    np.testing.assert_allclose(found.token, slow(world, "entropy", "repeat", 10.0, normalized=False)[0], atol=1e-5)


def test_even_and_last_keep_the_sum_of_a_segment(world: dict[str, Any]) -> None:
    rollout = rollout_of(world)
    even, last = (reward_of(world, spread=spread, clamp=None).score(rollout) for spread in ("even", "last"))
    torch.testing.assert_close(even.token.sum(1), last.token.sum(1))


def test_credit_to_the_response_is_the_normalized_mean_on_its_last_token(world: dict[str, Any]) -> None:
    """ "Segment as bandit": that token is the end-of-sequence token when there is one."""
    reward = reward_of(world, credit="response", normalizer={"name": "global", "fitted": "${out:other_stats}"})
    found = reward.score(rollout_of(world))
    raw = slow(world, "entropy", "even", None)[2]
    wanted = np.zeros(found.token.shape)
    for i, response in enumerate(RESPONSES):
        wanted[i, len(response) - 1] = (np.mean(raw[i]) - 0.5) / 2.0
    np.testing.assert_allclose(found.token.numpy(), wanted, atol=1e-5)
    assert found.credit_mask.tolist() == (wanted != 0).tolist()


def test_a_bandit_model_is_read_at_the_end_of_the_sequence(world: dict[str, Any]) -> None:
    reward = reward_of(world, "bandit", spread="last")
    assert reward.needs() == frozenset()
    found = reward.score(rollout_of(world))
    tokens, ids, raw = slow(world, "bandit", "last", 10.0, normalized=False)
    assert found.segment_ids.tolist() == ids.tolist()
    np.testing.assert_allclose(found.token.numpy(), tokens, atol=1e-5)
    np.testing.assert_allclose(found.response.numpy(), [r[0] for r in raw], atol=1e-5)
    assert all(found.token[i, len(response) - 1] != 0 for i, response in enumerate(RESPONSES))


def test_a_bandit_model_can_be_read_at_every_segment(world: dict[str, Any]) -> None:
    """ "Bandit as segment": the recipe's segmenter wins over the checkpoint's."""
    fields = {"segmenter": {"name": "entropy", "cutoff": world["cutoff"]}, "aggregate": "mean", "spread": "even"}
    found = reward_of(world, "bandit", **fields).score(rollout_of(world))
    wanted = reward_of(world, "segment", spread="even").score(rollout_of(world))
    assert torch.equal(found.segment_ids, wanted.segment_ids)
    torch.testing.assert_close(found.token, wanted.token)


def test_the_end_of_sequence_token_is_in_no_segment_and_gets_no_reward(world: dict[str, Any]) -> None:
    """Unless the segmenter says so, or there is nothing else."""
    for fields, inside in (({}, False), ({"include_eos": True}, True)):
        found = reward_of(world, segmenter={"name": "ngram", "n": 3, **fields}).score(rollout_of(world))
        for i, response in enumerate(RESPONSES):
            if response[-1] == EOS:
                told = inside or len(response) == 1
                assert bool(found.credit_mask[i, len(response) - 1]) == told
                assert bool(found.token[i, len(response) - 1] != 0) == told
                assert int(found.segment_ids[i].max()) + 1 == -(-max(1, len(response) - (not told)) // 3)


def test_actions_are_what_the_normalizer_sees(world: dict[str, Any]) -> None:
    raw = slow(world, "entropy", "even", None)[2]
    rewards, locations, valid = reward_of(world).actions(rollout_of(world))
    for i, r in enumerate(raw):
        assert valid[i].tolist() == [j < len(r) for j in range(valid.shape[1])]
        np.testing.assert_allclose(rewards[i, : len(r)], r, atol=1e-5)
        np.testing.assert_allclose(locations[i, : len(r)], (np.arange(len(r)) + 1) / len(r), atol=1e-6)
    rewards, locations, valid = reward_of(world, credit="response").actions(rollout_of(world))
    assert rewards.shape == locations.shape == valid.shape == (len(raw), 1)
    np.testing.assert_allclose(rewards[:, 0], [np.mean(r) for r in raw], atol=1e-5)
    assert valid.all()
    assert (locations == 1).all()


def test_what_stands_in_masked_slots_changes_nothing(world: dict[str, Any]) -> None:
    reward = reward_of(world, normalizer={"name": "location", "fitted": "${out:stats}"})
    clean, dirty = rollout_of(world), rollout_of(world)
    dirty.ref_entropy = torch.where(dirty.mask, dirty.ref_entropy, float("nan"))
    dirty.response_ids = torch.where(dirty.mask, dirty.response_ids, 300)
    dirty.prompt_ids = torch.where(dirty.prompt_mask, dirty.prompt_ids, 299)
    one, other = reward.score(clean), reward.score(dirty)
    assert same(one, other)


def same(one: Rewards, other: Rewards) -> bool:
    return all(
        torch.equal(getattr(one, name), getattr(other, name))
        for name in ("response", "token", "credit_mask", "segment_ids")
    )


def test_micro_batches_change_nothing(world: dict[str, Any]) -> None:
    one, other = (reward_of(world, micro_batch_size=n).score(rollout_of(world)) for n in (1, 32))
    torch.testing.assert_close(one.token, other.token, atol=1e-5, rtol=1e-4)


def test_a_checkpoint_that_does_not_say_how_it_was_cut_is_refused(world: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="set `segmenter`"):
        reward_of(world, "nameless")
    assert reward_of(world, "nameless", segmenter={"name": "ngram", "n": 3}).needs() == frozenset()


def test_another_normalizer_s_fit_is_refused(world: dict[str, Any]) -> None:
    reward = reward_of(world, normalizer={"name": "location", "fitted": "${out:other_stats}"})
    with pytest.raises(DataError, match="'global'"):
        reward.score(rollout_of(world))


@pytest.mark.parametrize("normalizer", ["location", "global", "last"])
def test_a_normalizer_without_a_fit_is_a_mistake_in_the_recipe(normalizer: str, tmp_path: Path) -> None:
    with pytest.raises(Problems, match="the normalizer has no fit"):
        build("reward", {"name": "segment_rm", "model": "${out:x}", "normalizer": normalizer})
    small = Path(__file__).parents[3] / "recipes" / "small" / "segment_ppo.yaml"
    recipe = tmp_path / "child.yaml"
    recipe.write_text(
        f'extends: {small}\nabout: "x"\nstages: {{policy: {{reward: {{normalizer: {{name: {normalizer}, fitted: null}}}}}}}}\n'
    )
    with pytest.raises(Problems, match=r"no fit: add a stage with `name: calibrate`") as caught:
        load(recipe)
    assert "child.yaml:3" in str(caught.value)


@pytest.mark.parametrize("normalizer", ["none", {"name": "global", "mean": 0.0, "std": 1.0}, None])
def test_a_normalizer_that_knows_its_numbers_needs_no_fit(normalizer: Any) -> None:
    found = build("reward", {"name": "segment_rm", "model": "${out:x}", "normalizer": normalizer})
    assert found.model.base == Ref("x")

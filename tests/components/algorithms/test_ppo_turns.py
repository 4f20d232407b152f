"""PPO on conversations, against a derivation in numpy: credit passes what an environment wrote, truncated ends have a value, and turns can
be the actions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import talks
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_helpers import fake_actor_critic, tiny

from fgrl import rollouts
from fgrl.base import ops
from fgrl.components.algorithms.ppo import PPO
from fgrl.components.engines.hf import HF
from fgrl.kinds.specs import Sampling
from fgrl.rollouts.collecting import end_values
from fgrl.rollouts.conversing import Conversing
from fgrl.training.steps import Step, StepLoader
from fgrl.training.units import RolloutUnits
from fgrl.types import Rewards, Rollout, Sample

TURNS = [[0, 0, -1, -1, 1, 1, -1, 2], [0, -1, -1, 1], [0, 0, 0]]


def gae(rewards: list[float], values: list[float], end: float, gamma: float, lam: float) -> np.ndarray:
    """The definition, with a double sum."""
    after = [*values[1:], end]
    delta = [r + gamma * v_next - v for r, v, v_next in zip(rewards, values, after, strict=True)]
    count = len(delta)
    return np.array(
        [sum((gamma * lam) ** (later - now) * delta[later] for later in range(now, count)) for now in range(count)]
    )


def a_rollout(seed: int = 0, ends: tuple[float, ...] = (0.7, 0.0, -1.3)) -> tuple[Rollout, Rewards]:
    width, rows = 9, len(TURNS)
    turn = torch.tensor([turns + [-1] * (width - len(turns)) for turns in TURNS])
    mask = torch.arange(width) < torch.tensor([len(turns) for turns in TURNS])[:, None]
    draw = torch.Generator().manual_seed(seed)
    token, logp, ref, values = torch.randn(4, rows, width, generator=draw, dtype=torch.float64)
    ids = torch.zeros(mask.shape, dtype=torch.long)
    rollout = Rollout(
        ids[:, :1], torch.ones(rows, 1).bool(), ids, mask, torch.zeros_like(mask), turn=turn, texts=[""] * rows,
        group=torch.arange(rows), samples=[Sample(id=str(row), prompt="") for row in range(rows)], old_logp=logp, ref_logp=ref,
        values=values, end_value=torch.tensor(ends, dtype=torch.float64), offsets=[[(i, i + 1) for i in range(width)]] * rows,
    )  # fmt: skip
    return rollout, Rewards(torch.where(rollout.drawn, token, 0.0).sum(dim=1), token, rollout.drawn)


@pytest.mark.parametrize("fields", [{}, {"kl_coef": 0.0, "lam": 1.0}, {"gamma": 0.9, "lam": 0.8}])
def test_credit_passes_what_an_environment_wrote_and_a_truncated_end_has_a_value(fields: dict[str, Any]) -> None:
    rollout, rewards = a_rollout()
    algorithm = PPO(whiten=False, **fields)
    found = algorithm.advantages(rollout, rewards)
    for row in range(len(TURNS)):
        own = rollout.drawn[row].numpy()
        kl = (rollout.old_logp - rollout.ref_logp)[row].numpy()  # type: ignore[operator]
        earned = (rewards.token[row].numpy() - algorithm.kl_coef * kl)[own].tolist()
        values = rollout.values[row].numpy()[own]  # type: ignore[index]
        wanted = gae(earned, values.tolist(), float(rollout.end_value[row]), algorithm.gamma, algorithm.lam)  # type: ignore[index]
        np.testing.assert_allclose(found.advantage[row].numpy()[own], wanted, atol=1e-12)
        assert found.returns is not None
        np.testing.assert_allclose(found.returns[row].numpy()[own], wanted + values, atol=1e-12)
        assert not found.advantage[row][~rollout.drawn[row]].any()


def test_left_out_tokens_stop_credit_and_an_environments_do_not() -> None:
    rollout, rewards = a_rollout()
    rollout = replace(
        rollout, texts=["aa....,b.", "a..,.....", "abc......"]
    )  # a comma: in the second turn of both conversations
    found = PPO(whiten=False, kl_coef=0.0, lam=1.0, skip_text=[","], at_skipped="stop", values="none").advantages(
        rollout, rewards
    )
    rollout_two = rewards.token[0]
    # no token of the first response is skipped (the environment wrote its comma), so that all to come counts
    assert found.advantage[0, 0] == pytest.approx(float(rollout_two[rollout.drawn[0]].sum()) + 0.7)
    # the last token of the second is: nothing comes behind its first one
    assert found.advantage[1, 0] == pytest.approx(float(rewards.token[1, 0]))


@pytest.mark.parametrize("whiten", [False, True])
def test_turns_are_actions_where_that_is_wanted(whiten: bool) -> None:
    rollout, rewards = a_rollout(3)
    algorithm = PPO(whiten=whiten, gae_over="turn", gamma=0.9, lam=0.8, kl_coef=0.1, value_clip=None)
    found = algorithm.advantages(rollout, rewards)
    kl = (rollout.old_logp - rollout.ref_logp).numpy()  # type: ignore[operator]
    wanted, returns = np.zeros(rollout.mask.shape), np.zeros(rollout.mask.shape)
    for row, turns in enumerate(TURNS):
        places = {k: [i for i, turn in enumerate(turns) if turn == k] for k in range(max(turns) + 1)}
        earned = [float((rewards.token[row].numpy() - 0.1 * kl[row])[own].sum()) for own in places.values()]
        values = [float(rollout.values[row, own[0]]) for own in places.values()]  # type: ignore[index]
        of_turns = gae(earned, values, float(rollout.end_value[row]), 0.9, 0.8)  # type: ignore[index]
        for k, own in places.items():
            wanted[row, own] = of_turns[k]
            returns[row, own[0]] = of_turns[k] + values[k]
    if whiten:
        own = rollout.drawn.numpy()
        wanted = np.where(own, (wanted - wanted[own].mean()) / np.sqrt(wanted[own].var() + 1e-8), 0.0)
    np.testing.assert_allclose(found.advantage.numpy(), wanted, atol=1e-9)
    assert found.returns is not None
    np.testing.assert_allclose(found.returns.numpy(), returns, atol=1e-12)
    # values are learned where a turn begins, and nowhere else
    units = RolloutUnits(rollout, rewards, found, pad_id=0)
    (batch,) = StepLoader(units, [Step([0, 1, 2])], micro_batches=1)
    values = torch.zeros(batch.mask.shape, dtype=torch.float64, requires_grad=True)
    loss, metrics = algorithm.loss(fake_actor_critic(batch.columns["old_logp"].clone(), values), batch)
    (gradient,) = torch.autograd.grad(loss, values)
    assert torch.equal(gradient != 0, ops.turn_starts(batch.turn_ids))
    assert float(metrics["value_loss"].count) == 6  # type: ignore[union-attr]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=8, max_size=8), min_size=1, max_size=3), st.integers(0, 99))
def test_ends_have_values_and_stops_are_of_drawn_tokens_alone(kinds: list[list[int]], seed: int) -> None:
    """kinds: 0 a token that counts, 1 one that is left out, 2 one of the environment."""
    kind = torch.tensor(kinds)
    draw = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(2, *kind.shape, generator=draw, dtype=torch.float64)
    end = torch.randn(len(kinds), generator=draw, dtype=torch.float64)
    advantage, _returns = ops.gae(rewards, values, kind == 0, 0.9, 0.7, "stop", drawn=kind < 2, end_value=end)
    for row, own in enumerate(kinds):
        runs: list[list[int]] = [[]]
        for place, each in enumerate(own):
            if each == 1:
                runs.append([])
            elif each == 0:
                runs[-1].append(place)
        for number, run in enumerate(runs):
            if not run:
                continue
            after = float(end[row]) if number == len(runs) - 1 else 0.0
            wanted = gae(rewards[row, run].tolist(), values[row, run].tolist(), after, 0.9, 0.7)
            np.testing.assert_allclose(advantage[row, run].numpy(), wanted, atol=1e-12)


def test_the_value_behind_a_truncated_end_is_what_the_critic_says_before_a_next_token(tiny_model_dir: Path) -> None:
    model, critic = tiny(tiny_model_dir), tiny(tiny_model_dir, head="scalar")
    prompts = [Sample(id=str(i), prompt=f"Question {i} about the sea") for i in range(2)]
    environment = talks.Talk(max_turn_tokens=4, max_turns=2, turns=2, faults={2: lambda: ("on", 1.0, False, True, {})})
    prompts.append(Sample(id="good", prompt="A conversation that ends"))
    rollout = rollouts.collect(
        model, None, prompts, Sampling(max_new_tokens=120, batch_size=4), Conversing(HF().open(model), environment, model),
        frozenset({"values"}), per_prompt=2, seed=7, critic=critic, micro_batch_size=3,
    )  # fmt: skip
    assert rollout.terminated is not None
    assert rollout.terminated.tolist() == [False] * 4 + [True] * 2
    assert rollout.end_value is not None
    for row in range(6):
        ids = rollout.response_ids[row][rollout.mask[row]].tolist()
        prompt = rollout.prompt_ids[row][rollout.prompt_mask[row]].tolist()
        longer = rollouts.pad([prompt], [[*ids, 5]], model.pad_id, ())
        with torch.no_grad():
            wanted = float(critic.values(longer)[0, -1]) if row < 4 else 0.0
        assert float(rollout.end_value[row]) == pytest.approx(wanted, abs=1e-5)
    assert bool(rollout.end_value[:4].all())
    assert end_values(critic, rollout, torch.zeros(6, dtype=torch.bool)).tolist() == [0.0] * 6

"""GRPO and RTT-GRPO: losses and combined advantages against closed forms; what one of them must leave as the other has it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_helpers import FakeModel, distance, fake_batch, joined, row, step_gradient, tiny, whole

from fgrl.base import ops
from fgrl.base.mergeable import as_numbers
from fgrl.components.algorithms.grpo import GRPO
from fgrl.components.algorithms.ppo import PPO
from fgrl.components.algorithms.rtt_grpo import RTTGRPO, ReleasedOrder
from fgrl.models import ActorCritic
from fgrl.registry import Problems, build
from fgrl.types import Rewards, Rollout, Sample
from fgrl.types.tensors import concatenate

NAN = float("nan")


def made(name: str = "grpo", **fields: Any) -> Any:
    return build("online_algorithm", {"name": name, **fields})


def rollout_of(
    lengths: list[int], group: list[int], *, ended: bool = True, seed: int = 0, logp: bool = False
) -> Rollout:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    eos = torch.zeros_like(mask)
    if ended:
        eos[torch.arange(len(lengths)), torch.tensor(lengths) - 1] = True
    zeros = torch.zeros(mask.shape, dtype=torch.long)
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.where(mask, torch.randn(2, *mask.shape, generator=generator), NAN)
    return Rollout(
        zeros[:, :1], torch.ones(len(lengths), 1).bool(), zeros, mask, eos,
        group=torch.tensor(group), samples=[Sample(id=str(i), prompt="") for i in range(len(lengths))],
        texts=[""] * len(lengths), old_logp=numbers[0] if logp else None, ref_logp=numbers[1] if logp else None,
    )  # fmt: skip


def rewards_of(rollout: Rollout, response: list[float], seed: int = 0, criteria: int = 3) -> Rewards:
    """Random relevance with random verdicts, one of them missing; NaN behind the ends of responses."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(response), criteria, rollout.mask.shape[1])
    verdict = torch.where(torch.rand(shape[:2], generator=generator) < 0.5, 1.0, -1.0)
    if criteria:
        verdict[0, 0] = NAN
    criterion = torch.where(rollout.mask[:, None], torch.rand(shape, generator=generator), NAN) * verdict[:, :, None]
    token = torch.zeros(rollout.mask.shape)
    return Rewards(torch.tensor(response), token, rollout.mask, criterion=criterion, verdict=verdict)


LENGTHS, GROUP, WORTH = [5, 2, 4, 1, 6, 3], [7, 7, 7, 9, 9, 9], [0.0, 0.5, 1.0, 0.1, 0.1, 0.1]


# -- advantages --------------------------------------------------------------------------------------------------------


def test_grpo_s_advantage_is_the_group_s_on_every_token() -> None:
    rollout = rollout_of(LENGTHS, GROUP)
    found = GRPO().advantages(rollout, rewards_of(rollout, WORTH))
    z = 0.5 / (0.5 + 1e-6)  # sample std of 0, 0.5, 1
    for i, wanted in enumerate((-z, 0.0, z, 0.0, 0.0, 0.0)):
        assert found.advantage[i].tolist() == pytest.approx([wanted] * LENGTHS[i] + [0.0] * (6 - LENGTHS[i]))
    assert not found.advantage[3:].any()
    assert found.returns is None
    assert found.keep is None
    assert as_numbers(found.metrics)["idle"] == 0.5


@pytest.mark.parametrize("mixing", ["add", "mix"])
@pytest.mark.parametrize(
    "fields", [{}, {"kl_coef": 0.3, "kl_in": "reward"}, {"skip_zero_variance": True}, {"epochs": 3}]
)
def test_token_weight_0_is_grpo_to_the_bit(mixing: str, fields: dict[str, Any]) -> None:
    rollout = rollout_of([5, 2, 4, 1, 6, 3, 2, 2], [*GROUP, 1, 1], logp=True)
    rewards = rewards_of(rollout, [*WORTH, -0.0, 3.7])
    plain = made(**fields).advantages(rollout, rewards)
    rtt = made("rtt_grpo", token_weight=0.0, mixing=mixing, **fields)
    found = rtt.advantages(rollout, rewards)
    assert found.advantage.numpy().tobytes() == plain.advantage.numpy().tobytes()
    assert found.metrics == plain.metrics
    assert (found.keep is None) == (plain.keep is None)
    if plain.keep is not None:
        assert torch.equal(found.keep, plain.keep)
    assert rtt.reads() == frozenset()
    assert rtt.needs() == made(**fields).needs()
    without = Rewards(rewards.response, rewards.token, rewards.credit_mask)
    assert torch.equal(rtt.advantages(rollout, without).advantage, plain.advantage)


def test_token_weight_0_is_grpo_to_the_bit_in_the_loss_too(tiny_model_dir: Any) -> None:
    model = ActorCritic(tiny(tiny_model_dir, trainable=True))
    units = grpo_units(model.actor)
    (batch,) = whole(units)
    fields = {"clip_high": 0.27, "kl_coef": 0.1, "entropy_coef": 0.01}
    losses = [step_gradient(model, lambda b, a=a: a.loss(model, b)[0], [batch])
              for a in (made(**fields), made("rtt_grpo", token_weight=0.0, **fields))]  # fmt: skip
    assert losses[0][0] == losses[1][0]
    assert all(torch.equal(losses[0][1][name], losses[1][1][name]) for name in losses[0][1])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    response_weight=st.sampled_from([0.0, 1.0, 0.3]),
    token_weight=st.sampled_from([0.25, 0.5, 1.0]),
    partition=st.sampled_from(["intra_sample", "inter_sample", "none"]),
    ended=st.booleans(),
    include_eos=st.booleans(),
)
def test_rtt_s_advantage_is_equation_7(
    seed: int, response_weight: float, token_weight: float, partition: Any, ended: bool, include_eos: bool
) -> None:
    """In numpy, response by response. Where it does not count, the token that ends a response has the group's part alone."""
    rollout = rollout_of(LENGTHS, GROUP, ended=ended)
    rewards = rewards_of(rollout, WORTH, seed=seed)
    algorithm = RTTGRPO(
        response_weight=response_weight, token_weight=token_weight, partition=partition, include_eos=include_eos
    )
    found = algorithm.advantages(rollout, rewards).advantage.numpy()
    group = GRPO().advantages(rollout, rewards).advantage.numpy()
    r = rewards.criterion.double().numpy()
    counted = [n if include_eos or not ended else n - 1 for n in LENGTHS]
    for i, length in enumerate(LENGTHS):
        token = np.zeros(length)
        told = [k for k in range(3) if not np.isnan(r[i, k, 0])]
        for k in told:
            rows = [i] if partition == "intra_sample" else [j for j in range(6) if GROUP[j] == GROUP[i]]
            pool = np.concatenate([r[j, k, : counted[j]] for j in rows if not np.isnan(r[j, k, 0])])
            mine = r[i, k, : counted[i]]
            if partition != "none" and len(pool):
                mine = (mine - pool.mean()) / (pool.std() + 1e-6) if pool.min() < pool.max() else 0 * mine
            token[: counted[i]] += mine / len(told)
        np.testing.assert_allclose(
            found[i, :length], response_weight * group[i, :length] + token_weight * token, rtol=1e-4, atol=1e-5
        )
        assert not found[i, length:].any()


def test_mix_weighs_the_group_with_what_the_token_weight_leaves() -> None:
    rollout = rollout_of(LENGTHS, GROUP)
    rewards = rewards_of(rollout, WORTH)
    mixed = RTTGRPO(mixing="mix", token_weight=0.3).advantages(rollout, rewards).advantage
    added = RTTGRPO(response_weight=0.7, token_weight=0.3).advantages(rollout, rewards).advantage
    torch.testing.assert_close(mixed, added)
    assert not torch.allclose(mixed, RTTGRPO(token_weight=0.3).advantages(rollout, rewards).advantage)


def test_a_demand_on_the_whole_response_moves_no_token_and_the_release_s_makes_its_end_an_outlier() -> None:
    rollout = rollout_of([400, 400], [0, 0])
    whole_response = torch.ones(2, 1, 400)
    rewards = Rewards(torch.zeros(2), torch.zeros(2, 400), rollout.mask, criterion=whole_response)
    assert not RTTGRPO().advantages(rollout, rewards).advantage.any()
    whole_response[:, :, -1] = 0.0  # `include_eos: false` of the relevance
    released = RTTGRPO(token_weight=1.0).advantages(rollout, rewards).advantage
    assert float(released[0, -1]) == pytest.approx(-math.sqrt(399), rel=1e-3)
    assert not RTTGRPO(include_eos=False).advantages(rollout, rewards).advantage.any()


def test_a_min_std_wants_a_partition() -> None:
    with pytest.raises(ValueError, match="partition: none"):
        RTTGRPO(partition="none", min_std=0.1)


def test_nearly_equal_relevances_can_be_taken_for_equal() -> None:
    rollout = rollout_of([40], [0], ended=False)
    noise = torch.linspace(0.99, 1.0, 40)[None, None]
    rewards = Rewards(torch.zeros(1), torch.zeros(1, 40), rollout.mask, criterion=noise)
    paper = RTTGRPO(token_weight=1.0).advantages(rollout, rewards).advantage
    assert float(paper.std(correction=0)) == pytest.approx(1.0, rel=1e-2), "the noise is blown up"
    spread = float(noise.std(correction=0))
    assert not RTTGRPO(min_std=spread * 1.01).advantages(rollout, rewards).advantage.any()
    torch.testing.assert_close(
        RTTGRPO(token_weight=1.0, min_std=spread * 0.99).advantages(rollout, rewards).advantage, paper
    )


def test_permuting_criteria_changes_nothing_and_permuting_responses_permutes() -> None:
    rollout = rollout_of(LENGTHS, GROUP, logp=True)
    rewards = rewards_of(rollout, [0.0, 0.5, 1.0, 0.3, 0.1, 0.1])
    for partition in ("intra_sample", "inter_sample", "none"):
        algorithm = RTTGRPO(partition=partition, kl_coef=0.1, kl_in="reward", kl="k1")
        found = algorithm.advantages(rollout, rewards).advantage
        other = Rewards(rewards.response, rewards.token, rewards.credit_mask, criterion=rewards.criterion[:, [2, 0, 1]])
        torch.testing.assert_close(algorithm.advantages(rollout, other).advantage, found)
        order = torch.tensor([4, 1, 5, 0, 3, 2])
        moved = algorithm.advantages(rollout.take(order), rewards.take(order)).advantage
        torch.testing.assert_close(moved, found[order])
    mixed_up = ReleasedOrder()
    other = Rewards(rewards.response, rewards.token, rewards.credit_mask, criterion=rewards.criterion[:, [2, 0, 1]])
    changed = mixed_up.advantages(rollout, rewards).advantage - mixed_up.advantages(rollout, other).advantage
    assert changed.abs().max() > 0.01  # the release's trap is one


def test_the_release_s_order_mixes_responses_and_criteria() -> None:
    """G=2, K=3: flat places 0..5 of [G,K] are read as [K,G]."""
    criterion = torch.tensor([[[10.0 * g + k] for k in range(3)] for g in range(2)])
    released = ReleasedOrder()
    found = released.criterion_rewards(criterion, rollout_of([1, 1], [0, 0]))[:, :, 0]
    assert found.tolist() == [[0.0, 2.0, 11.0], [1.0, 10.0, 12.0]]
    for i in range(2):
        for k in range(3):
            flat = k * 2 + i
            assert found[i, k] == criterion[flat // 3, flat % 3, 0]
    apart = torch.cat([criterion, torch.tensor([[[7.0], [NAN], [NAN]]])])
    again = released.criterion_rewards(apart, rollout_of([1, 1, 1], [0, 0, 1]))[:, :, 0]
    assert again[:2].tolist() == found.tolist()
    assert again[2, 0] == 7
    assert torch.isnan(again[2, 1:]).all()


def test_a_missing_verdict_is_as_if_the_criterion_had_not_been_asked() -> None:
    rollout = rollout_of(LENGTHS, GROUP)
    rewards = rewards_of(rollout, WORTH)
    alone = rollout.take(torch.tensor([0])), rewards.take(torch.tensor([0]))
    fewer = Rewards(alone[1].response, alone[1].token, alone[1].credit_mask, criterion=alone[1].criterion[:, 1:])
    torch.testing.assert_close(
        RTTGRPO().advantages(*alone).advantage, RTTGRPO().advantages(alone[0], fewer).advantage, rtol=0, atol=0
    )
    assert torch.isfinite(RTTGRPO().advantages(rollout, rewards).advantage).all()


def test_union_standardises_the_mean_of_the_criteria() -> None:
    rollout = rollout_of([4], [0], ended=False)
    criterion = torch.tensor([[[1.0, 0, 0, 0], [0.0, -1, 0, 0]]])
    rewards = Rewards(torch.zeros(1), torch.zeros(1, 4), rollout.mask, criterion=criterion)
    found = RTTGRPO(criteria="union", token_weight=1.0).advantages(rollout, rewards).advantage[0]
    mean = np.array([0.5, -0.5, 0, 0])
    assert found.tolist() == pytest.approx(list(mean / (mean.std() + 1e-6)), rel=1e-5)
    each = RTTGRPO(token_weight=1.0).advantages(rollout, rewards).advantage[0]
    assert not torch.allclose(found, each)


def test_groups_that_teach_nothing_are_left_out_and_all_of_them_are_kept() -> None:
    rollout = rollout_of(LENGTHS, GROUP)
    rewards = rewards_of(rollout, WORTH)
    algorithm = GRPO(skip_zero_variance=True)
    assert algorithm.advantages(rollout, rewards).keep.tolist() == [True] * 3 + [False] * 3
    rtt = RTTGRPO(skip_zero_variance=True)  # the same reward, but tokens that differ
    assert rtt.advantages(rollout, rewards).keep.tolist() == [True] * 6
    same = Rewards(torch.ones(6), rewards.token, rewards.credit_mask)
    assert algorithm.advantages(rollout, same).keep is None
    assert as_numbers(algorithm.advantages(rollout, same).metrics)["idle"] == 1


def test_kl_in_the_reward_is_what_is_still_to_come() -> None:
    rollout = rollout_of([3, 1], [0, 0], logp=True)
    rewards = Rewards(torch.tensor([1.0, 0.0]), torch.zeros(2, 3), rollout.mask)
    found = GRPO(kl="k1", kl_in="reward", kl_coef=0.5).advantages(rollout, rewards)
    d = (rollout.old_logp - rollout.ref_logp).double().numpy()
    z = 0.5 / (0.5**0.5 + 1e-6)
    wanted = [z - 0.5 * d[0, t:].sum() for t in range(3)]
    assert found.advantage[0].tolist() == pytest.approx(wanted, rel=1e-5)
    assert found.advantage[1].tolist() == pytest.approx([-z - 0.5 * d[1, 0], 0.0, 0.0], rel=1e-5)
    assert as_numbers(found.metrics)["kl"] == pytest.approx((d[0].sum() + d[1, 0]) / 2)


# -- the loss ----------------------------------------------------------------------------------------------------------

HAND = [3, 1, 4]


@pytest.mark.parametrize("how", ["seq_mean", "token_mean"])
@pytest.mark.parametrize(("low", "high"), [(0.2, None), (0.2, 0.27), (0.1, 0.5)])
@pytest.mark.parametrize("kl_coef", [0.0, 0.4])
def test_the_loss_and_its_gradient_are_the_closed_form(
    how: Any, low: float, high: float | None, kl_coef: float
) -> None:
    """Eq. 6 of "Rubrics to Tokens", with k3 to the reference; NaN stands in every masked slot."""
    log_ratio = torch.tensor([[-1.0, -0.1, 0.05, NAN], [0.9, NAN, NAN, NAN], [-0.5, 0.3, 0.0, 0.22]])
    advantage = torch.tensor([[1.5, -1.0, 2.0, NAN], [0.7, NAN, NAN, NAN], [-2.0, -0.4, 3.0, 1.2]])
    old = torch.tensor([[-1.0, -2.0, -0.3, NAN], [-4.0, NAN, NAN, NAN], [-0.1, -6.0, -2.5, -1.0]])
    logp = (old + log_ratio).requires_grad_()
    algorithm = made(clip=low, clip_high=high, aggregate=how, kl_coef=kl_coef)
    batch = fake_batch(HAND, {"old_logp": old, "ref_logp": old - 0.2, "advantage": advantage})
    loss, metrics = algorithm.loss(SimpleNamespace(actor=FakeModel(logp=logp)), batch)
    loss.backward()
    wanted, slopes = 0.0, np.zeros((3, 4))
    for i, length in enumerate(HAND):
        for t in range(length):
            weight = 1 / sum(HAND) if how == "token_mean" else 1 / (length * len(HAND))
            x, a = float(log_ratio[i, t]), float(advantage[i, t])
            ratio, bound = math.exp(x), min(max(math.exp(x), 1 - low), 1 + (high or low))
            wanted -= weight * min(ratio * a, bound * a)
            slopes[i, t] -= weight * ratio * a * (ratio * a <= bound * a)
            back = -(x + 0.2)  # log of reference over policy
            wanted += weight * kl_coef * (math.exp(back) - 1 - back)
            slopes[i, t] += weight * kl_coef * (1 - math.exp(back))
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-5)
    np.testing.assert_allclose(logp.grad.numpy(), slopes, rtol=1e-4, atol=1e-7)
    assert all(math.isfinite(value) for value in metrics.values())
    assert as_numbers(metrics)["max_log_ratio"] == pytest.approx(1.0)


def grpo_units(actor: Any) -> list[list[dict[str, Any]]]:
    units = [[row(length, seed=1)] for length in (1, 9, 4, 2, 7, 12, 3, 5)]
    (batch,) = whole(units)
    with torch.no_grad():
        logp = actor.score(batch).logp
    generator = torch.Generator().manual_seed(2)
    noise = 0.4 * torch.randn(3, *logp.shape, generator=generator)
    columns = {"old_logp": logp + noise[0], "ref_logp": logp + noise[1], "advantage": noise[2]}
    for i, (unit,) in enumerate(units):
        unit["columns"] = {name: column[i, : len(unit["response"])] for name, column in columns.items()}
    return units


@pytest.mark.parametrize("fields", [{}, {"aggregate": "token_mean", "kl_coef": 0.7, "entropy_coef": 0.3}])
def test_the_cut_into_micro_batches_changes_nothing(fields: dict[str, Any], tiny_model_dir: Any) -> None:
    algorithm = made("rtt_grpo", **fields)
    model = ActorCritic(tiny(tiny_model_dir, trainable=True))
    units = grpo_units(model.actor)
    loss, gradient = step_gradient(model, lambda b: algorithm.loss(model, b)[0], whole(units))
    with torch.no_grad():
        metrics = joined([(algorithm.loss(model, b)[1], len(b.mask)) for b in whole(units)])
    assert 0.05 < as_numbers(metrics)["clip_fraction"] < 0.95
    for pieces, world in [(8, 1), (3, 1), (2, 2)]:
        batches = whole(units, pieces, world)
        cut, other = step_gradient(model, lambda b: algorithm.loss(model, b)[0], batches)
        assert cut == pytest.approx(loss, rel=1e-5, abs=2e-6)
        assert distance(gradient, other) < 2e-5
        with torch.no_grad():
            parts = [(algorithm.loss(model, b)[1], len(b.mask) * bool(b.scale)) for b in batches]
        assert joined(parts) == pytest.approx(metrics, rel=1e-5, abs=1e-6)


def test_at_the_sampling_policy_it_is_ppo_s_policy_loss(tiny_model_dir: Any) -> None:
    """The same surrogate: PPO with a critic that counts nothing."""
    model = ActorCritic(tiny(tiny_model_dir, trainable=True), tiny(tiny_model_dir, head="scalar", trainable=True))
    units = grpo_units(model.actor)
    for (unit,) in units:
        unit["columns"] |= {name: torch.zeros(len(unit["response"])) for name in ("values", "returns")}
    batch = whole(units)
    ours = step_gradient(model, lambda b: made(aggregate="token_mean").loss(model, b)[0], batch)
    theirs = step_gradient(model, lambda b: PPO(value_coef=0.0).loss(model, b)[0], batch)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-6)
    actor = {name: value for name, value in theirs[1].items() if name.startswith("actor")}
    assert distance(actor, ours[1]) < 1e-6


@pytest.mark.parametrize("fields", [{}, {"kl_coef": 0.4}, {"kl_coef": 0.4, "kl": "k2", "entropy_coef": 0.2}])
def test_without_the_old_log_probabilities_the_step_is_the_sampling_policy_s(
    fields: dict[str, Any], tiny_model_dir: Any
) -> None:
    """The same bits of loss, gradient and metrics as with a column that holds what the policy says; two metrics more."""
    model = ActorCritic(tiny(tiny_model_dir, trainable=True))
    units = grpo_units(model.actor)
    for (unit,) in units:
        del unit["columns"]["old_logp"]
    algorithm = made("rtt_grpo", **fields)
    for batch in whole(units, pieces=3):
        with torch.no_grad():
            logp = model.actor.score(batch).logp
        without = step_gradient(model, lambda b: algorithm.loss(model, b)[0], [batch])
        metrics = as_numbers(algorithm.loss(model, batch)[1])
        batch.columns["old_logp"] = logp
        given = step_gradient(model, lambda b: algorithm.loss(model, b)[0], [batch])
        others = as_numbers(algorithm.loss(model, batch)[1])
        assert without[0] == given[0]
        assert all(torch.equal(without[1][name], value) for name, value in given[1].items())
        assert max(float(value.abs().max()) for value in given[1].values()) > 1e-4
        real = logp[batch.mask]
        assert metrics.pop("entropy") == pytest.approx(-float(real.mean()), rel=1e-6)
        kl = metrics.pop("kl")
        wanted = [float((logp - batch.columns["ref_logp"])[i][batch.mask[i]].sum()) for i in range(len(logp))]
        assert kl == pytest.approx(sum(wanted) / len(wanted), rel=1e-5)
        assert metrics == others


# -- settings ----------------------------------------------------------------------------------------------------------


def test_what_is_asked_of_a_rollout_is_little() -> None:
    assert made().needs() == {"old_logp"}
    assert made(kl_coef=0.1).needs() == {"old_logp", "ref_logp"}
    assert not GRPO.critic
    for name in ("grpo", "rtt_grpo"):
        assert made(name, kl_coef=0.1).can_skip_old_logp()
        assert made(name, kl_in="reward").can_skip_old_logp(), "without a coefficient there is no KL"
        assert not made(name, kl_coef=0.1, kl_in="reward").can_skip_old_logp()
        assert not made(name, skip_zero_variance=True).can_skip_old_logp()
    assert not PPO().can_skip_old_logp()
    assert made("rtt_grpo").reads() == {"criterion"}


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"name": "grpo", "kl": "k1", "kl_coef": 0.1}, "gradient of k1 is zero"),
        ({"name": "rtt_grpo", "mixing": "mix", "response_weight": 0.5}, "leave out response_weight"),
        ({"name": "rtt_grpo", "mixing": "mix", "token_weight": 1.5}, "token_weight of at most 1"),
    ],
)
def test_settings_that_make_no_sense(node: dict[str, Any], message: str) -> None:
    with pytest.raises(Problems, match=message):
        build("online_algorithm", node)


def test_rtt_without_rewards_for_criteria_says_what_to_do() -> None:
    rollout = rollout_of([2, 2], [0, 0])
    with pytest.raises(ValueError, match="as rubric with relevance"):
        RTTGRPO().advantages(rollout, Rewards(torch.zeros(2), torch.zeros(2, 2), rollout.mask))


# -- several processes -------------------------------------------------------------------------------------------------


def test_rewards_of_several_processes_are_put_together_whatever_their_rubrics() -> None:
    """Rubrics and responses of different lengths: the advantages are those of one process."""
    both = rollout_of(LENGTHS, GROUP)
    rewards = rewards_of(both, WORTH)
    rewards.criterion[3:, 2] = NAN  # the second prompt has two criteria
    rewards.verdict[3:, 2] = NAN
    wanted = RTTGRPO(partition="inter_sample").advantages(both, rewards).advantage
    one, two = (rewards.take(torch.arange(i, i + 3)) for i in (0, 3))
    two.criterion, two.verdict = two.criterion[:, :2], two.verdict[:, :2]
    one = Rewards(**{**vars(one), "criterion": one.criterion[:, :, :5], "token": one.token[:, :5],
                     "credit_mask": one.credit_mask[:, :5]})  # fmt: skip
    joint = concatenate([one, two])
    assert joint.criterion.shape == (6, 3, 6)
    assert torch.isnan(joint.verdict[3:, 2]).all()
    torch.testing.assert_close(RTTGRPO(partition="inter_sample").advantages(both, joint).advantage, wanted)
    assert ops.known_criteria(joint.criterion, both.mask)[3:].tolist() == [[True, True, False]] * 3

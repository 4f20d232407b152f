"""Losses and advantages against closed forms, and against being cut into micro-batches."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from training_helpers import (
    FakeModel,
    a_run,
    distance,
    fake_actor_critic,
    fake_batch,
    joined,
    row,
    step_gradient,
    tiny,
    whole,
)

from fgrl.base.mergeable import as_numbers
from fgrl.components.algorithms.bradley_terry import BradleyTerry
from fgrl.components.algorithms.dpo import DPO
from fgrl.components.algorithms.ppo import PPO, AdaptiveKL
from fgrl.components.algorithms.sft import SFT
from fgrl.components.segmenters.ngram import NGram
from fgrl.models import ActorCritic
from fgrl.registry import Problems, build
from fgrl.rollouts import encoding
from fgrl.types import Pair, Rewards, Rollout, Sample

NAN = float("nan")
PPO_COLUMNS = ("old_logp", "ref_logp", "values", "advantage", "returns")


def ppo(**fields: Any) -> PPO:
    return build("online_algorithm", {"name": "ppo", **fields})


def scattered(rows: int, length: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(rows, length, generator=torch.Generator().manual_seed(seed))


# -- the cut into micro-batches ----------------------------------------------------------------------------------------

LENGTHS = (1, 9, 4, 2, 7, 12, 3, 5)
CUTS = [(1, 1), (8, 1), (3, 1), (5, 1), (2, 2), (1, 4)]  # pieces a rank, ranks


def ppo_units(actor: Any) -> list[list[dict[str, Any]]]:
    """Rows whose old log-probs are near the actor's, so that some tokens are clipped and some are not."""
    units = [[row(length, seed=1)] for length in LENGTHS]
    (batch,) = whole(units)
    with torch.no_grad():
        logp = actor.score(batch).logp
    noise = scattered(*logp.shape, seed=2, scale=0.4)
    columns = {name: scattered(*logp.shape, seed=3 + i) for i, name in enumerate(PPO_COLUMNS)}
    columns["old_logp"] = logp + noise
    for i, (unit,) in enumerate(units):
        unit["columns"] = {name: column[i, : len(unit["response"])] for name, column in columns.items()}
    return units


PPO_KINDS = {
    "token_mean": {},
    "seq_mean": {"aggregate": "seq_mean"},
    "kl_in_loss": {"kl": "k3", "kl_in": "loss", "kl_coef": 0.7},
    "entropy": {"entropy_coef": 0.3},
    "no_value_clip": {"value_clip": None, "value_coef": 0.25},
}


@pytest.mark.parametrize("fields", PPO_KINDS.values(), ids=PPO_KINDS)
def test_ppo_does_not_depend_on_the_cut(fields: dict[str, Any], tiny_model_dir: Any) -> None:
    algorithm = ppo(**fields)
    model = ActorCritic(tiny(tiny_model_dir, trainable=True), tiny(tiny_model_dir, head="scalar", trainable=True))
    units = ppo_units(model.actor)
    (batch,) = whole(units)
    metrics = algorithm.loss(model, batch)[1]
    assert 0.05 < as_numbers(metrics)["clip_fraction"] < 0.95  # both branches are taken
    assert_cut_does_not_matter(model, lambda b: algorithm.loss(model, b)[0], units, both={"actor", "critic"})
    assert_metrics_do_not_depend_on_the_cut(lambda b: algorithm.loss(model, b)[1], units)


OFFLINE: dict[str, tuple[Any, str]] = {
    "sft": (SFT(), "lm"),
    "sft seq_mean": (SFT(aggregate="seq_mean"), "lm"),
    "dpo": (DPO(beta=0.3), "lm"),
    "dpo smooth": (DPO(beta=0.3, label_smoothing=0.2), "lm"),
    "bt mean": (BradleyTerry(segmenter=NGram(n=3), aggregate="mean"), "scalar"),
    "bt sum": (BradleyTerry(segmenter=NGram(n=2), aggregate="sum"), "scalar"),
    "bt last": (BradleyTerry(segmenter=NGram(n=2), aggregate="last", margin=0.5), "scalar"),
}


@pytest.mark.parametrize("name", OFFLINE)
def test_offline_losses_do_not_depend_on_the_cut(name: str, tiny_model_dir: Any, tmp_path: Any) -> None:
    algorithm, head = OFFLINE[name]
    model = tiny(tiny_model_dir, head=head, trainable=True)
    if algorithm.data == "pairs":
        units = [[row(length, seed=1), row(14 - length, seed=2)] for length in LENGTHS]
    else:
        units = [[row(length, seed=1)] for length in LENGTHS]
    for one in (one for unit in units for one in unit):
        if isinstance(algorithm, BradleyTerry):
            one["columns"]["segment"] = torch.arange(len(one["response"])) // algorithm.segmenter.n
    if isinstance(algorithm, DPO):
        algorithm.prepare([], a_run(tmp_path), model)
        with torch.no_grad():  # away from the reference, which is the model as it was loaded
            algorithm.reference_logp(model, whole(units)[0])
            for i, parameter in enumerate(model.parameters()):
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
    assert_cut_does_not_matter(model, lambda b: algorithm.loss(model, b)[0], units)
    assert_metrics_do_not_depend_on_the_cut(lambda b: algorithm.loss(model, b)[1], units)


def assert_metrics_do_not_depend_on_the_cut(metrics_of: Any, units: list[Any]) -> None:
    """Every metric, not only the loss: in one micro-batch of 8, in 8 of one, and in ragged ones of several ranks."""
    with torch.no_grad():
        whole_metrics = joined([(metrics_of(batch), len(batch.mask)) for batch in whole(units)])
        assert len(whole_metrics) > 0
        for pieces, world in CUTS:
            parts = [(metrics_of(batch), len(batch.mask) * bool(batch.scale)) for batch in whole(units, pieces, world)]
            assert joined(parts) == pytest.approx(whole_metrics, rel=1e-5, abs=1e-6), (pieces, world)


def assert_cut_does_not_matter(model: Any, loss_of: Any, units: list[Any], both: set[str] = frozenset()) -> None:
    loss, gradient = step_gradient(model, loss_of, whole(units))
    assert math.isfinite(loss)
    for part in both:
        assert any(value.abs().max() > 1e-4 for name, value in gradient.items() if name.startswith(part))
    for pieces, world in CUTS[1:]:
        batches = whole(units, pieces, world)
        assert len({len(batch.mask) for batch in batches}) <= 2
        cut_loss, cut_gradient = step_gradient(model, loss_of, batches)
        assert cut_loss == pytest.approx(loss, rel=1e-5, abs=2e-6), (pieces, world)
        assert distance(gradient, cut_gradient) < 2e-5, (pieces, world)


# -- PPO's loss, by hand -----------------------------------------------------------------------------------------------

HAND = [3, 1, 4]


def hand_made() -> dict[str, torch.Tensor]:
    """Ratios far below, below, inside, above and far above the clip range, with advantages of both signs."""
    log_ratio = torch.tensor([[-1.0, -0.1, 0.05, NAN], [0.9, NAN, NAN, NAN], [-0.5, 0.3, 0.0, 0.6]])
    advantage = torch.tensor([[1.5, -1.0, 2.0, NAN], [0.7, NAN, NAN, NAN], [-2.0, -0.4, 3.0, -1.2]])
    old_logp = torch.tensor([[-1.0, -2.0, -0.3, NAN], [-4.0, NAN, NAN, NAN], [-0.1, -6.0, -2.5, -1.0]])
    old_values = torch.tensor([[0.0, 1.0, -1.0, NAN], [2.0, NAN, NAN, NAN], [0.5, 0.5, 0.5, 0.5]])
    values = torch.tensor([[0.1, 1.9, -1.5, NAN], [1.0, NAN, NAN, NAN], [0.4, 0.9, 0.5, -0.5]])
    returns = torch.tensor([[1.0, 1.2, -3.0, NAN], [3.0, NAN, NAN, NAN], [0.0, 0.1, 2.0, 0.3]])
    return {
        "logp": old_logp + log_ratio, "values_now": values, "old_logp": old_logp, "ref_logp": old_logp - 0.2,
        "advantage": advantage, "values": old_values, "returns": returns,
    }  # fmt: skip


def by_hand(
    data: dict[str, torch.Tensor], *, low: float, high: float, value_clip: float | None, value_coef: float, how: str
) -> tuple[float, np.ndarray, np.ndarray]:
    """Loss and its derivatives by log-probs and by values, token after token."""
    get = {name: value.double().numpy() for name, value in data.items()}
    loss = 0.0
    d_logp, d_values = np.zeros(get["logp"].shape), np.zeros(get["logp"].shape)
    for i, length in enumerate(HAND):
        for t in range(length):
            weight = 1 / sum(HAND) if how == "token_mean" else 1 / (length * len(HAND))
            ratio = math.exp(get["logp"][i, t] - get["old_logp"][i, t])
            a = get["advantage"][i, t]
            bounded = min(max(ratio, 1 - low), 1 + high)
            if ratio * a <= bounded * a:
                loss += weight * -ratio * a
                d_logp[i, t] = weight * -ratio * a
            else:
                loss += weight * -bounded * a
            v, old, target = get["values_now"][i, t], get["values"][i, t], get["returns"][i, t]
            near = v if value_clip is None else old + min(max(v - old, -value_clip), value_clip)
            if (v - target) ** 2 >= (near - target) ** 2:
                loss += value_coef * weight * (v - target) ** 2 / 2
                d_values[i, t] = value_coef * weight * (v - target)
            else:
                loss += value_coef * weight * (near - target) ** 2 / 2
    return loss, d_logp, d_values


@pytest.mark.parametrize(
    ("fields", "low", "high"),
    [
        ({}, 0.2, 0.2),
        ({"clip": 0.1, "clip_high": 0.5}, 0.1, 0.5),
        ({"aggregate": "seq_mean", "value_coef": 0.3}, 0.2, 0.2),
        ({"value_clip": None}, 0.2, 0.2),
        ({"value_clip": 0.05}, 0.2, 0.2),
    ],
)
def test_ppo_loss_and_gradient_are_the_closed_form_and_blind_to_masked_slots(
    fields: dict[str, Any], low: float, high: float
) -> None:
    """NaN stands in every masked slot of every column and of what the models say."""
    algorithm = ppo(**fields)
    data = hand_made()
    logp, values = data["logp"].clone().requires_grad_(), data["values_now"].clone().requires_grad_()
    batch = fake_batch(HAND, {name: data[name] for name in PPO_COLUMNS})
    loss, metrics = algorithm.loss(fake_actor_critic(logp, values), batch)
    loss.backward()
    wanted, d_logp, d_values = by_hand(
        data, low=low, high=high, value_clip=algorithm.value_clip, value_coef=algorithm.value_coef,
        how=algorithm.aggregate,
    )  # fmt: skip
    assert loss.item() == pytest.approx(wanted, rel=1e-5)
    np.testing.assert_allclose(logp.grad.numpy(), d_logp, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(values.grad.numpy(), d_values, rtol=1e-4, atol=1e-7)
    assert all(math.isfinite(value) for value in metrics.values())
    real = batch.mask.numpy()
    assert as_numbers(metrics)["clip_fraction"] == pytest.approx(float((d_logp[real] == 0).mean()))
    assert as_numbers(metrics)["max_log_ratio"] == pytest.approx(1.0)


def test_a_step_weighs_its_micro_batch_by_the_totals_and_the_scale() -> None:
    data = hand_made()
    batch = fake_batch(HAND, {name: data[name] for name in PPO_COLUMNS})
    model = fake_actor_critic(data["logp"], data["values_now"])
    alone = float(ppo().loss(model, batch)[0])
    batch.total_tokens, batch.scale = 4.0 * sum(HAND), 2.0
    assert float(ppo().loss(model, batch)[0]) == pytest.approx(alone / 2)


def test_kl_in_the_loss_is_added_and_an_entropy_bonus_subtracted() -> None:
    data = hand_made()
    batch = fake_batch(HAND, {name: data[name] for name in PPO_COLUMNS})
    entropy = torch.where(batch.mask, 1.5, NAN)
    model = fake_actor_critic(data["logp"], data["values_now"], entropy)
    plain = float(ppo().loss(model, batch)[0])
    assert float(ppo(entropy_coef=0.1).loss(model, batch)[0]) == pytest.approx(plain - 0.1 * 1.5, rel=1e-5)
    d = (data["logp"] - data["ref_logp"])[batch.mask].double().numpy()
    k3 = np.mean(np.exp(-d) - 1 + d)
    added = ppo(kl="k3", kl_in="loss", kl_coef=0.4).loss(model, batch)[0]
    assert float(added) == pytest.approx(plain + 0.4 * k3, rel=1e-5)
    assert float(ppo(kl="k3", kl_in="reward", kl_coef=0.4).loss(model, batch)[0]) == pytest.approx(plain)


@pytest.mark.parametrize(("kl", "why"), [("k1", "zero on average"), ("full", "no gradient")])
def test_a_kl_without_gradient_is_refused_in_the_loss(kl: str, why: str) -> None:
    with pytest.raises(Problems, match=why):
        ppo(kl=kl, kl_in="loss")


# -- advantages --------------------------------------------------------------------------------------------------------


def rollout_of(
    lengths: list[int], finished: list[bool], *, fill: float = 0.0, **tensors: torch.Tensor
) -> tuple[Rollout, Rewards]:
    """A rollout whose score fields are `tensors` (and zeros), with `fill` in the masked slots of each."""
    batch = fake_batch(lengths, {}, finished)
    known = {"old_logp", "ref_logp", "ref_kl", "values"}

    def field(name: str) -> torch.Tensor:
        return torch.where(batch.mask, tensors.get(name, torch.zeros(batch.mask.shape)), fill)

    rollout = Rollout(
        batch.prompt_ids, batch.prompt_mask, batch.response_ids, batch.mask, batch.eos, group=torch.arange(len(lengths)),
        samples=[Sample(id="x", prompt="")] * len(lengths), texts=[""] * len(lengths), **{n: field(n) for n in known},
    )  # fmt: skip
    token = field("token")
    rewards = Rewards(response=torch.where(batch.mask, token, 0.0).sum(1), token=token, credit_mask=batch.mask)
    return rollout, rewards


def quadratic_gae(
    rewards: np.ndarray, values: np.ndarray, lengths: list[int], gamma: float, lam: float
) -> tuple[np.ndarray, np.ndarray]:
    advantages = np.zeros(rewards.shape)
    for i, length in enumerate(lengths):
        for t in range(length):
            for later in range(t, length):
                following = values[i, later + 1] if later + 1 < length else 0.0
                delta = rewards[i, later] + gamma * following - values[i, later]
                advantages[i, t] += (gamma * lam) ** (later - t) * delta
    return advantages, advantages + np.where(advantages == 0, 0, values)


@pytest.mark.parametrize("fill", [0.0, NAN])
@pytest.mark.parametrize("kl", ["k1", "k2", "k3", "full"])
def test_advantages_are_gae_of_token_rewards_minus_kl(kl: str, fill: float) -> None:
    lengths = [5, 2, 6]
    drawn = {n: scattered(3, 6, seed=i) for i, n in enumerate(("token", "values", "old_logp", "ref_logp", "ref_kl"))}
    rollout, rewards = rollout_of(lengths, [True, False, False], fill=fill, **drawn)
    algorithm = ppo(kl=kl, kl_coef=0.3, missing_eos_penalty=0.9, gamma=0.97, lam=0.8, whiten=False)
    found = algorithm.advantages(rollout, rewards)
    get = {name: value.double().numpy() for name, value in drawn.items()}
    d = get["old_logp"] - get["ref_logp"]
    penalty = {"k1": d, "k2": d**2 / 2, "k3": np.exp(-d) - 1 + d, "full": get["ref_kl"]}[kl]
    token = get["token"] - 0.3 * penalty
    token[1, 1] -= 0.9
    token[2, 5] -= 0.9
    wanted, returns = quadratic_gae(token, get["values"], lengths, 0.97, 0.8)
    np.testing.assert_allclose(found.advantage.numpy(), wanted, atol=1e-5)
    np.testing.assert_allclose(found.returns.numpy(), returns, atol=1e-5)
    mask = rollout.mask.numpy()
    response_kl = np.where(mask, penalty if kl == "full" else d, 0).sum(1).mean()
    assert as_numbers(found.metrics)["kl"] == pytest.approx(response_kl, rel=1e-4)
    assert as_numbers(found.metrics)["kl_coef"] == 0.3
    left = get["values"][mask] - returns[mask]
    assert as_numbers(found.metrics)["explained_variance"] == pytest.approx(
        1 - left.var() / returns[mask].var(), rel=1e-4
    )


@pytest.mark.parametrize("kl", ["k1", "full"])
def test_the_kl_of_a_response_may_be_subtracted_at_its_end(kl: str) -> None:
    """RLA, Eq. 5: the last token's reward is the score less beta times the KL of the whole response."""
    lengths = [5, 2, 6]
    drawn = {n: scattered(3, 6, seed=i) for i, n in enumerate(("token", "values", "old_logp", "ref_logp", "ref_kl"))}
    rollout, rewards = rollout_of(lengths, [True, False, True], fill=NAN, **drawn)
    settings: dict[str, Any] = {
        "kl": kl, "kl_coef": 0.3, "missing_eos_penalty": 0.9, "gamma": 1.0, "lam": 0.95, "whiten": False,
    }  # fmt: skip
    found = ppo(kl_at="end", **settings).advantages(rollout, rewards)
    get = {name: value.double().numpy() for name, value in drawn.items()}
    penalty = {"k1": get["old_logp"] - get["ref_logp"], "full": get["ref_kl"]}[kl]
    token = get["token"].copy()
    for i, length in enumerate(lengths):
        token[i, length - 1] -= 0.3 * penalty[i, :length].sum()
    token[1, 1] -= 0.9
    wanted, returns = quadratic_gae(token, get["values"], lengths, 1.0, 0.95)
    np.testing.assert_allclose(found.advantage.numpy(), wanted, atol=1e-5)
    np.testing.assert_allclose(found.returns.numpy(), returns, atol=1e-5)
    earned = np.mean([token[i, :length].sum() for i, length in enumerate(lengths)])
    everywhere = ppo(**settings).advantages(rollout, rewards)
    for each in (found, everywhere):
        assert as_numbers(each.metrics)["penalized_reward"] == pytest.approx(earned, rel=1e-4)
    assert (found.advantage - everywhere.advantage).abs().max() > 0.05, "with lambda below 1 the place counts"


def test_the_place_of_a_kl_in_the_loss_is_refused() -> None:
    with pytest.raises(Problems, match="a place in the rewards"):
        ppo(kl_in="loss", kl="k3", kl_at="end")


def test_the_value_loss_may_be_the_squared_error_itself() -> None:
    """RLA, Eq. 10 to 12: max((R - V)^2, (R - clip(V))^2), not halved."""
    values, old, returns = (scattered(2, 4, seed=i) for i in range(3))
    columns = {"old_logp": torch.zeros(2, 4), "advantage": torch.zeros(2, 4), "values": old, "returns": returns}
    batch = fake_batch([4, 3], columns)
    real = batch.mask.numpy()
    v, o, r = (each.double().numpy() for each in (values, old, returns))
    error = np.maximum((r - v) ** 2, (r - np.clip(v, o - 0.2, o + 0.2)) ** 2)[real].mean()
    for halved in (True, False):
        algorithm = ppo(value_coef=0.1, halve_value_loss=halved)
        loss, metrics = algorithm.loss(fake_actor_critic(torch.zeros(2, 4), values), batch)
        wanted = error / 2 if halved else error
        assert float(loss) == pytest.approx(0.1 * wanted, rel=1e-5)
        assert as_numbers(metrics)["value_loss"] == pytest.approx(wanted, rel=1e-5)


def test_whitened_advantages_are_the_plain_ones_standardised_over_real_tokens() -> None:
    drawn = {name: scattered(3, 6, seed=i) for i, name in enumerate(("token", "values"))}
    rollout, rewards = rollout_of([5, 2, 6], [True] * 3, fill=NAN, **drawn)
    plain = ppo(whiten=False).advantages(rollout, rewards)
    white = ppo(whiten=True).advantages(rollout, rewards)
    real = plain.advantage[rollout.mask].double().numpy()
    np.testing.assert_allclose(
        white.advantage[rollout.mask].numpy(), (real - real.mean()) / real.std(), rtol=1e-4, atol=1e-6
    )
    assert torch.equal(white.returns, plain.returns)


def test_kl_in_the_loss_leaves_the_rewards_alone_and_is_still_reported() -> None:
    drawn = {name: scattered(2, 4, seed=i) for i, name in enumerate(("token", "old_logp", "ref_logp"))}
    rollout, rewards = rollout_of([4, 3], [True, True], **drawn)
    found = ppo(kl="k2", kl_in="loss", kl_coef=5.0, whiten=False, gamma=0.0).advantages(rollout, rewards)
    assert torch.allclose(found.advantage, torch.where(rollout.mask, drawn["token"], 0.0))
    d = torch.where(rollout.mask, drawn["old_logp"] - drawn["ref_logp"], 0.0)
    assert as_numbers(found.metrics)["kl"] == pytest.approx(float(d.sum(1).mean()), rel=1e-4)


def test_the_penalty_for_not_ending_hits_the_last_token_of_unfinished_responses_alone() -> None:
    rollout, rewards = rollout_of([2, 3, 1, 3], [True, False, False, True])
    without = ppo(whiten=False, gamma=0.0).advantages(rollout, rewards).advantage
    penalised = ppo(whiten=False, gamma=0.0, missing_eos_penalty=2.5).advantages(rollout, rewards).advantage
    wanted = torch.zeros(4, 3)
    wanted[1, 2] = wanted[2, 0] = 2.5
    assert torch.equal(without - penalised, wanted)


def test_the_adaptive_coefficient_follows_its_formula() -> None:
    """b <- b (1 + clip(KL / target - 1, -0.2, 0.2) n / horizon); a rollout uses the coefficient from before it."""
    algorithm = ppo(kl_coef=0.1, adaptive_kl={"target": 2.0, "horizon": 40})
    assert algorithm.adaptive_kl == AdaptiveKL(target=2.0, horizon=40)
    wanted = 0.1
    for kl in (2.2, 10.0, 0.0, 1.9, -3.0):
        rollout, rewards = rollout_of([2, 2, 2, 2], [True] * 4, old_logp=torch.full((4, 2), kl / 2))
        metrics = algorithm.advantages(rollout, rewards).metrics
        assert as_numbers(metrics)["kl"] == pytest.approx(kl)
        assert as_numbers(metrics)["kl_coef"] == pytest.approx(wanted)
        wanted *= 1 + min(0.2, max(-0.2, kl / 2 - 1)) * 4 / 40
        assert algorithm.state_dict()["coefficient"] == pytest.approx(wanted)
    other = ppo(kl_coef=0.1, adaptive_kl={"target": 2.0, "horizon": 40})
    other.load_state_dict(algorithm.state_dict())
    assert other.state_dict() == algorithm.state_dict() != {"coefficient": 0.1}


def test_the_adaptive_coefficient_weighs_the_next_rollout() -> None:
    algorithm = ppo(kl_coef=0.5, adaptive_kl={"target": 1.0, "horizon": 2}, whiten=False, gamma=0.0)
    rollout, rewards = rollout_of([1, 1], [True, True], old_logp=torch.full((2, 1), 5.0))
    first = algorithm.advantages(rollout, rewards).advantage
    second = algorithm.advantages(rollout, rewards).advantage
    assert first.flatten().tolist() == pytest.approx([-2.5, -2.5])
    assert second.flatten().tolist() == pytest.approx([-3.0, -3.0])


def test_a_fixed_coefficient_stays() -> None:
    algorithm = ppo(kl_coef=0.5)
    rollout, rewards = rollout_of([1], [True], old_logp=torch.full((1, 1), 50.0))
    algorithm.advantages(rollout, rewards)
    assert algorithm.state_dict() == {"coefficient": 0.5}


# -- where credit lands ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_reward_on_one_token_moves_the_probability_of_that_token_alone(place: int, tiny_model_dir: Any) -> None:
    """With gamma 0 and no whitening the gradient is that of -log p(token | what stands before it), nothing else.

    The log-probability is taken from the bare transformers model, with indices written out.
    """
    model = tiny(tiny_model_dir, trainable=True)
    unit = row(5, seed=3, prompt=4)
    (batch,) = whole([[unit]])
    reward = torch.zeros(1, 5)
    reward[0, place] = 1.0
    with torch.no_grad():
        logp = model.score(batch).logp
    rollout, rewards = rollout_of([5], [False], token=reward, old_logp=logp, ref_logp=logp)
    algorithm = ppo(gamma=0.0, whiten=False, value_coef=0.0)
    found = algorithm.advantages(rollout, rewards)
    assert torch.equal(found.advantage, reward)
    batch.columns = {
        "old_logp": logp, "ref_logp": logp, "values": torch.zeros(1, 5), "advantage": found.advantage,
        "returns": found.returns,
    }  # fmt: skip
    policy = SimpleNamespace(actor=model, critic=FakeModel(numbers=torch.zeros(1, 5)))
    _loss, gradient = step_gradient(model, lambda b: algorithm.loss(policy, b)[0], [batch])

    ids = torch.tensor([unit["prompt"] + unit["response"]])
    position = len(unit["prompt"]) + place
    model.zero_grad()
    logits = model.transformer(input_ids=ids[:, :position]).logits[0, -1]
    (-logits.log_softmax(0)[ids[0, position]] / 5).backward()
    wanted = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert distance(wanted, gradient) < 1e-5


# -- supervised fine-tuning --------------------------------------------------------------------------------------------


def test_sft_is_the_mean_of_negative_log_probs_and_blind_to_masked_slots() -> None:
    logp = torch.tensor([[-1.0, -2.0, NAN], [-4.0, NAN, NAN], [-1.0, -1.0, -7.0]])
    for how, wanted in (("token_mean", 16 / 6), ("seq_mean", (1.5 + 4 + 3) / 3)):
        leaf = logp.clone().requires_grad_()
        loss, metrics = SFT(aggregate=how).loss(FakeModel(logp=leaf), fake_batch([2, 1, 3], {}))
        loss.backward()
        assert loss.item() == pytest.approx(wanted)
        assert as_numbers(metrics)["loss"] == pytest.approx(16 / 6)
        weight = [1 / 6] * 3 if how == "token_mean" else [1 / 6, 1 / 3, 1 / 9]
        assert leaf.grad.sum(1).tolist() == pytest.approx([-w * n for w, n in zip(weight, (2, 1, 3), strict=True)])
        assert leaf.grad[1, 1:].tolist() == [0, 0]


# -- Bradley-Terry -----------------------------------------------------------------------------------------------------

REWARDS = [[0.1, 2.0, NAN, NAN], [0.5, 0.3, -1.0, 0.7], [1.0, -2.0, 0.4, NAN], [3.0, NAN, NAN, NAN]]
SEGMENTS = [[0, 0, -1, -1], [0, 1, 1, 2], [0, 1, -1, -1], [0, -1, -1, -1]]
ENDS = [[1], [0, 2, 3], [0, 1], [0]]


def test_bradley_terry_may_be_trained_on_the_judge_s_probability(tiny_model_dir: Path) -> None:
    """The cross-entropy to p of the pair; loss and gradient, with p read from the pairs as `judged` writes it."""
    p = [0.9, 0.55]
    preferences = [Pair(id=str(i), prompt="hi", chosen="a b", rejected="c", meta={"p": p[i]}) for i in (0, 1)]
    algorithm = BradleyTerry(segmenter=NGram(n=9), soft_labels=True)
    table = encoding.pairs(
        preferences, tiny(tiny_model_dir, head="scalar"), 20, 40, algorithm.columns, algorithm.reads()
    )
    read = torch.stack([one["columns"]["p"] for one in table])
    scores = [0.3, -0.4, 2.0, 2.5]
    numbers = torch.tensor([[score] for score in scores], requires_grad=True)
    batch = fake_batch([1] * 4, {"segment": torch.zeros(4, 1, dtype=torch.long), "p": read})
    loss, _metrics = algorithm.loss(FakeModel(numbers=numbers), batch)
    loss.backward()
    wins = [1 / (1 + math.exp(scores[2 * i + 1] - scores[2 * i])) for i in (0, 1)]
    wanted = np.mean([-q * math.log(win) - (1 - q) * math.log(1 - win) for q, win in zip(p, wins, strict=True)])
    assert loss.item() == pytest.approx(wanted, rel=1e-5)
    slopes = [(win - q) / 2 for q, win in zip(p, wins, strict=True)]
    np.testing.assert_allclose(numbers.grad[:, 0], [slopes[0], -slopes[0], slopes[1], -slopes[1]], rtol=1e-4)
    assert not BradleyTerry(segmenter=NGram(n=9)).reads(), "a verdict is a label of 1 otherwise"


@pytest.mark.parametrize("margin", [0.0, 0.8])
@pytest.mark.parametrize("how", ["mean", "sum", "last"])
def test_bradley_terry_is_the_closed_form(how: str, margin: float) -> None:
    """Loss and gradient; the reward is read at each segment's last token, and nowhere else."""
    numbers = torch.tensor(REWARDS, requires_grad=True)
    batch = fake_batch([2, 4, 3, 1], {"segment": torch.tensor(SEGMENTS)})
    algorithm = BradleyTerry(segmenter=NGram(n=2), aggregate=how, margin=margin)
    loss, metrics = algorithm.loss(FakeModel(numbers=numbers), batch)
    loss.backward()

    read = [[REWARDS[i][t] for t in ENDS[i]] for i in range(4)]
    e = [{"mean": sum(r) / len(r), "sum": sum(r), "last": r[-1]}[how] for r in read]
    wanted, gradient = 0.0, np.zeros((4, 4))
    for pair in (0, 1):
        d = e[2 * pair] - e[2 * pair + 1]
        wanted += math.log1p(math.exp(margin - d)) / 2
        slope = 1 / (1 + math.exp(d - margin)) / 2  # -dL/dd
        for i, sign in ((2 * pair, -1), (2 * pair + 1, 1)):
            for t in ENDS[i]:
                share = {"mean": 1 / len(ENDS[i]), "sum": 1.0, "last": float(t == ENDS[i][-1])}[how]
                gradient[i, t] = sign * slope * share
    assert loss.item() == pytest.approx(wanted, rel=1e-5)
    np.testing.assert_allclose(numbers.grad.numpy(), gradient, rtol=1e-4, atol=1e-8)
    assert as_numbers(metrics)["accuracy"] == sum(e[2 * p] > e[2 * p + 1] for p in (0, 1)) / 2
    assert as_numbers(metrics)["margin"] == pytest.approx((e[0] - e[1] + e[2] - e[3]) / 2, rel=1e-4)
    assert as_numbers(metrics)["reward_chosen"] == pytest.approx((e[0] + e[2]) / 2)
    assert as_numbers(metrics)["segments"] == pytest.approx(7 / 4)
    assert as_numbers(metrics)["segment_tokens"] == pytest.approx(9 / 7)


def test_a_segment_reward_model_of_one_segment_is_the_bandit() -> None:
    numbers = torch.tensor(REWARDS)
    one = torch.tensor([[0, 0, -1, -1], [0, 0, 0, 0], [0, 0, 0, -1], [0, -1, -1, -1]])
    batch = fake_batch([2, 4, 3, 1], {"segment": one})
    losses = {
        how: float(BradleyTerry(segmenter=NGram(n=9), aggregate=how).loss(FakeModel(numbers=numbers), batch)[0])
        for how in ("mean", "sum", "last")
    }
    wanted = (math.log1p(math.exp(-(2.0 - 0.7))) + math.log1p(math.exp(-(0.4 - 3.0)))) / 2
    assert list(losses.values()) == pytest.approx([wanted] * 3, rel=1e-6)


# -- DPO ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_dpo_is_the_closed_form_and_blind_to_masked_slots(smoothing: float) -> None:
    logp = torch.tensor(
        [[-1.0, -2.0, NAN], [-4.0, NAN, NAN], [-1.0, -1.0, -7.0], [-3.0, -2.0, NAN]], requires_grad=True
    )
    batch = fake_batch([2, 1, 3, 2], {})
    of_tokens = torch.tensor([[-1.5, -2.0, NAN], [-3.0, NAN, NAN], [-1.0, -1.0, -6.0], [-3.0, -4.0, NAN]])
    policy = FakeModel(logp=logp, reference=of_tokens)
    loss, metrics = DPO(beta=0.4, label_smoothing=smoothing, reference_pass="each_step").loss(policy, batch)
    loss.backward()
    ratio = [-3 + 3.5, -4 + 3.0, -9 + 8.0, -5 + 7.0]
    logits = [0.4 * (ratio[0] - ratio[1]), 0.4 * (ratio[2] - ratio[3])]
    sigmoid = [1 / (1 + math.exp(-x)) for x in logits]
    wanted = sum(-(1 - smoothing) * math.log(s) - smoothing * math.log(1 - s) for s in sigmoid) / 2
    assert loss.item() == pytest.approx(wanted, rel=1e-5)
    slopes = [0.4 / 2 * (s - (1 - smoothing)) for s in sigmoid]  # dL/d log-ratio of the chosen
    lengths = (2, 1, 3, 2)
    gradient = np.zeros((4, 3))
    for i, slope in enumerate((slopes[0], -slopes[0], slopes[1], -slopes[1])):
        gradient[i, : lengths[i]] = slope
    np.testing.assert_allclose(logp.grad.numpy(), gradient, rtol=1e-4, atol=1e-8)
    assert as_numbers(metrics)["accuracy"] == 0.5
    assert as_numbers(metrics)["margin"] == pytest.approx(sum(logits) / 2, rel=1e-4)
    assert as_numbers(metrics)["log_ratio_chosen"] == pytest.approx(-0.25)


def test_dpo_at_the_reference_is_log_two(tiny_model_dir: Any, tmp_path: Any) -> None:
    model = tiny(tiny_model_dir, trainable=True, lora={"r": 4, "alpha": 8, "dropout": 0.5})
    units = [[row(length, seed=1), row(14 - length, seed=2)] for length in (3, 6, 9)]
    algorithm = DPO()
    algorithm.prepare([one for unit in units for one in unit], a_run(tmp_path), model)
    (batch,) = whole(units)
    loss, metrics = algorithm.loss(model.train(), batch)
    assert loss.item() == torch.tensor(2.0).log().item()
    assert as_numbers(metrics)["log_ratio_chosen"] == 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.add_(0.3)
    assert abs(float(algorithm.loss(model, batch)[0]) - math.log(2)) > 1e-3


def test_dpo_is_trl_s_dpo(tiny_model_dir: Any, tmp_path: Any) -> None:
    """The loss and the gradient of `trl.DPOTrainer` on the same ids, reference and policy."""
    import datasets
    import transformers
    import trl

    from fgrl.kinds.specs import ModelSpec

    def load() -> Any:
        return transformers.AutoModelForCausalLM.from_pretrained(tiny_model_dir)

    policy, reference = load(), load()
    with torch.no_grad():
        for i, parameter in enumerate(reference.parameters()):
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
    folder = tmp_path / "reference"
    reference.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model_dir)
    tokenizer.save_pretrained(folder)
    units = [[row(length, seed=1), row(14 - length, seed=2)] for length in (3, 6, 9)]
    for chosen, rejected in units:
        rejected["prompt"] = chosen["prompt"]

    # ours
    model = tiny(tiny_model_dir, trainable=True)
    algorithm = DPO(beta=0.25, reference=ModelSpec(base=str(folder)))
    algorithm.prepare([one for unit in units for one in unit], a_run(tmp_path), model)
    loss, gradient = step_gradient(model, lambda b: algorithm.loss(model, b)[0], whole(units, pieces=2))

    # theirs
    texts = [{"prompt": "a", "chosen": "b", "rejected": "c"}]
    trainer = trl.DPOTrainer(
        model=policy, ref_model=reference, processing_class=tokenizer, train_dataset=datasets.Dataset.from_list(texts),
        args=trl.DPOConfig(
            output_dir=str(tmp_path / "trl"), beta=0.25, report_to="none", use_cpu=True, bf16=False,
            gradient_checkpointing=False, disable_dropout=True,
        ),
    )  # fmt: skip
    rows = [unit[0] for unit in units] + [unit[1] for unit in units]
    width = max(len(one["prompt"]) + len(one["response"]) for one in rows)
    inputs = {
        name: torch.zeros(len(rows), width, dtype=torch.long)
        for name in ("input_ids", "attention_mask", "completion_mask")
    }
    for i, one in enumerate(rows):
        length, prompt = len(one["prompt"]) + len(one["response"]), len(one["prompt"])
        inputs["input_ids"][i, :length] = torch.tensor(one["prompt"] + one["response"])
        inputs["attention_mask"][i, :length] = 1
        inputs["completion_mask"][i, prompt:length] = 1
    theirs = trainer.compute_loss(trainer.model, inputs)
    theirs.backward()
    assert loss == pytest.approx(float(theirs), rel=1e-5)
    assert abs(loss - math.log(2)) > 1e-3
    wanted = {f"net.{name}": p.grad for name, p in policy.named_parameters() if p.grad is not None}
    assert distance(wanted, gradient) < 1e-4

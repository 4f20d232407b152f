"""PPO on token rewards is the natural-language gradient: Text2Grad, Definition 1 and appendix A, against closed forms.

Reference gradients come from the bare transformers model, one token after another, with indices written out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from training_helpers import EOS, PAD, distance, fake_actor_critic, step_gradient, tiny

from fgrl import rollouts
from fgrl.base import ops
from fgrl.base.mergeable import as_numbers
from fgrl.components.algorithms.ppo import PPO
from fgrl.components.engines.hf import HF
from fgrl.kinds.specs import Sampling
from fgrl.models import ActorCritic
from fgrl.registry import Problems, build
from fgrl.training.steps import Step, StepLoader
from fgrl.training.units import RolloutUnits
from fgrl.types import Advantages, Batch, Rewards, Rollout, Sample

PROMPTS = [[1, 20, 30], [1, 40, 50, 60, 70], [1, 80]]
RESPONSES = [[100, 101, 102, 103, EOS], [110, 111], [120, 121, 122, 123, 124, 125, EOS]]
DELTA = [[1, 0, -1, -1, 0], [-1, 1], [0, 1, 1, 0, 0, -1, 1]]
PLAIN = {"values": "none", "kl_coef": 0.0, "entropy_coef": 0.0, "whiten": False, "gamma": 1.0}


def ppo(**fields: Any) -> PPO:
    return build("online_algorithm", {"name": "ppo", **fields})


def padded(rows: list[list[float]]) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[float("nan")] * (width - len(row))] for row in rows])


def drawn(model: Any, rewards: list[list[float]], texts: list[list[str]] | None = None) -> tuple[Rollout, Rewards]:
    """A rollout of `RESPONSES`, of which the model is the policy that drew them, and token rewards. texts: of each token."""
    tokens = rollouts.pad(PROMPTS, RESPONSES, PAD, {EOS})
    with torch.no_grad():
        logp = model.score(tokens).logp if model is not None else torch.zeros(tokens.mask.shape)
    texts = texts or [[""] * len(row) for row in RESPONSES]
    ends = [[sum(map(len, row[: t + 1])) for t in range(len(row))] for row in texts]
    rollout = Rollout(
        **vars(tokens), group=torch.arange(3), samples=[Sample(id="x", prompt="")] * 3, texts=["".join(row) for row in texts],
        offsets=[list(zip([0, *row], row, strict=False)) for row in ends], old_logp=logp, ref_logp=logp - 0.3,
    )  # fmt: skip
    token = padded(rewards)
    response = torch.where(tokens.mask, token, 0.0).sum(1)
    return rollout, Rewards(response=response, token=token, credit_mask=tokens.mask)


def batches(rollout: Rollout, rewards: Rewards, advantages: Advantages, pieces: int = 1) -> list[Batch]:
    """The micro-batches of one optimizer step that takes the whole rollout."""
    units = RolloutUnits(rollout, rewards, advantages, pad_id=PAD)
    return list(StepLoader(units, [Step([0, 1, 2])], micro_batches=pieces))


def gradient_of(algorithm: PPO, actor: Any, rollout: Rollout, rewards: Rewards, pieces: int) -> dict[str, torch.Tensor]:
    parts = batches(rollout, rewards, algorithm.advantages(rollout, rewards), pieces)
    model = ActorCritic(actor)
    return step_gradient(actor, lambda batch: algorithm.loss(model, batch)[0], parts)[1]


def weighted_log_probabilities(model: Any, weights: list[list[float]]) -> dict[str, torch.Tensor]:
    """sum_t w_t grad log pi(y_t | x, y_<t), over all responses."""
    model.zero_grad()
    for prompt, response, weight in zip(PROMPTS, RESPONSES, weights, strict=True):
        for t, (token, w) in enumerate(zip(response, weight, strict=True)):
            logits = model.transformer(input_ids=torch.tensor([prompt + response[:t]])).logits[0, -1]
            (w * logits.log_softmax(0)[token]).backward()
    gradient = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return gradient


# -- Definition 1 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("lam", [0.0, 0.95])
def test_the_gradient_times_the_tokens_is_the_natural_language_gradient(
    lam: float, pieces: int, tiny_model_dir: Path
) -> None:
    """Without values, KL, entropy bonus and whitening, at the policy that drew the responses: minus the gradient of the loss,
    times the number of tokens, is sum_t delta_t grad log pi(y_t); with lambda above 0, of the discounted sums of delta."""
    model = tiny(tiny_model_dir, trainable=True)
    rollout, rewards = drawn(model, DELTA)
    found = gradient_of(ppo(lam=lam, **PLAIN), model, rollout, rewards, pieces)
    weights = [[sum(lam ** (k - t) * row[k] for k in range(t, len(row))) for t in range(len(row))] for row in DELTA]
    wanted = weighted_log_probabilities(model, weights)
    tokens = sum(map(len, RESPONSES))
    ascent = {name: -tokens * value for name, value in found.items()}
    assert distance(wanted, ascent) < 1e-5
    assert max(float(value.abs().max()) for value in wanted.values()) > 0.1


@pytest.mark.parametrize("place", range(7))
def test_one_rewarded_token_moves_its_own_log_probability_alone(place: int) -> None:
    delta = [[0.0] * len(row) for row in RESPONSES]
    delta[2][place] = -1.0
    rollout, rewards = drawn(None, delta)
    algorithm = ppo(lam=0.0, **PLAIN)
    found = algorithm.advantages(rollout, rewards)
    (batch,) = batches(rollout, rewards, found)
    order = [batch.mask.sum(1).tolist().index(length) for length in map(len, RESPONSES)]
    logp = torch.zeros(batch.mask.shape, requires_grad=True)
    loss, metrics = algorithm.loss(fake_actor_critic(logp, torch.zeros(0)), batch)
    loss.backward()
    wanted = torch.zeros(3, 7)
    wanted[2, place] = 1 / 14  # it loses probability
    assert torch.equal(logp.grad[order], wanted)
    assert "value_loss" not in metrics


def test_without_values_nothing_asks_for_a_critic(tiny_model_dir: Path) -> None:
    algorithm = ppo(**PLAIN)
    assert not algorithm.uses_critic()
    assert algorithm.needs() == {"old_logp", "ref_logp"}
    assert ppo().uses_critic()
    assert ppo().needs() == {"old_logp", "ref_logp", "values"}
    rollout, rewards = drawn(None, DELTA)
    advantages = algorithm.advantages(rollout, rewards)
    assert "explained_variance" not in advantages.metrics
    assert rollout.values is None
    with pytest.raises(ValueError, match="no values"):
        ppo().advantages(rollout, rewards)


# -- the KL in the reward ----------------------------------------------------------------------------------------------


def test_full_kl_is_the_exact_one_over_the_vocabulary(tiny_model_dir: Path) -> None:
    """Of responses that the policy draws, against its model without the adapter; the reward is delta - coef * KL."""
    model = tiny(tiny_model_dir, trainable=True, lora={"r": 4, "alpha": 8})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.3, generator=torch.Generator().manual_seed(len(name)))
    algorithm = ppo(**PLAIN | {"kl": "full", "kl_coef": 0.2, "lam": 0.0})
    prompts = [Sample(id=str(i), prompt=f"the {word}") for i, word in enumerate(("sea", "old mill"))]
    rollout = rollouts.collect(
        model, None, prompts, Sampling(max_new_tokens=6), HF().open(model), algorithm.needs(), seed=1
    )
    exact = torch.zeros(rollout.mask.shape)
    for i, real in enumerate(rollout.mask):
        prompt, response = rollout.prompt_ids[i][rollout.prompt_mask[i]], rollout.response_ids[i][real]
        with torch.no_grad():
            ids = torch.cat([prompt, response])[None]
            policy = model.net(input_ids=ids).logits[0].double().log_softmax(1)
            with model.adapter_off():
                reference = model.net(input_ids=ids).logits[0].double().log_softmax(1)
        kl = (policy.exp() * (policy - reference)).sum(1)
        exact[i, : len(response)] = kl[len(prompt) - 1 : -1].float()
    torch.testing.assert_close(rollout.ref_kl, exact, atol=1e-5, rtol=1e-5)
    assert exact.max() > 0.1
    token = torch.ones(exact.shape)
    rewards = Rewards(response=token.sum(1), token=token, credit_mask=rollout.mask)
    found = algorithm.advantages(rollout, rewards)
    wanted = torch.where(rollout.mask, 1 - 0.2 * exact, 0.0)
    torch.testing.assert_close(found.advantage, wanted, atol=1e-5, rtol=1e-5)
    assert as_numbers(found.metrics)["kl"] == pytest.approx(float(exact.sum(1).mean()), rel=1e-4)


# -- amplification (appendix A) ----------------------------------------------------------------------------------------


def last_tokens(delta: list[list[float]]) -> list[list[float]]:
    """The same total reward, on the last token of each response (setting B)."""
    return [[0.0] * (len(row) - 1) + [float(sum(row))] for row in delta]


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.9, 0.8), (1.0, 1.0)])
def test_a_reward_on_token_k_counts_more_than_on_the_last_by_the_amplification_factor(gamma: float, lam: float) -> None:
    """A_t of setting A over A_t of setting B is (gamma lam)^-(T-k), for every t up to k."""
    algorithm = ppo(**PLAIN | {"gamma": gamma, "lam": lam})
    for k in range(7):
        delta = [[0.0] * len(row) for row in RESPONSES]
        delta[2][k] = 1.5
        in_place = algorithm.advantages(*drawn(None, delta))
        at_the_end = algorithm.advantages(*drawn(None, last_tokens(delta)))
        ratio = in_place.advantage[2, : k + 1] / at_the_end.advantage[2, : k + 1]
        assert ratio.tolist() == pytest.approx([(gamma * lam) ** -(6 - k)] * (k + 1), rel=1e-5)
        assert as_numbers(in_place.metrics)["early_credit"] == pytest.approx((gamma * lam) ** -(6 - k))
        assert as_numbers(at_the_end.metrics)["early_credit"] == pytest.approx(1.0)


def test_a_typical_gap_of_20_tokens_counts_2_8_times() -> None:
    rewards = torch.zeros(1, 30)
    rewards[0, 9] = -1.0
    assert ops.amplification(rewards, torch.ones(1, 30, dtype=torch.bool), 0.95).item() == pytest.approx(
        2.789, abs=1e-3
    )


def test_the_advantages_of_both_settings_are_those_of_section_3_6() -> None:
    """A_t^A = sum_k decay^(k-t) delta_k and A_t^B = decay^(T-t) sum_k delta_k, the sum over all k."""
    algorithm = ppo(lam=0.95, **PLAIN)
    a = algorithm.advantages(*drawn(None, DELTA)).advantage
    b = algorithm.advantages(*drawn(None, last_tokens(DELTA))).advantage
    for i, row in enumerate(DELTA):
        last = len(row) - 1
        for t in range(len(row)):
            assert float(a[i, t]) == pytest.approx(sum(0.95 ** (k - t) * row[k] for k in range(t, last + 1)), abs=1e-6)
            assert float(b[i, t]) == pytest.approx(0.95 ** (last - t) * sum(row), abs=1e-6)


def test_early_credit_is_a_mean_weighted_by_absolute_rewards_over_responses_with_rewards() -> None:
    delta = [[1.0, 0, 0, 0, -3.0], [0.0, 0.0], [0, 0, 0, 0, 0, 0, 2.0]]
    metrics = as_numbers(ppo(lam=0.5, **PLAIN).advantages(*drawn(None, delta)).metrics)
    assert metrics["early_credit"] == pytest.approx(((1 * 2**4 + 3) / 4 + 1) / 2)
    nothing = [[0.0] * len(row) for row in RESPONSES]
    assert "early_credit" not in ppo(lam=0.5, **PLAIN).advantages(*drawn(None, nothing)).metrics
    assert "early_credit" not in ppo(lam=0.0, **PLAIN).advantages(*drawn(None, delta)).metrics
    assert "early_credit" not in ppo(lam=1e-200, **PLAIN).advantages(*drawn(None, delta)).metrics
    with pytest.raises(ValueError, match="has to be positive"):
        ops.amplification(torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool), 0.0)


# -- tokens that are left out ------------------------------------------------------------------------------------------

TEXTS = [["a", " b", ",", " c", ""], ["?", " d"], [" e", " .", "f.", "!", "\n!\n", " g", ""]]
SKIPPED = [[0, 0, 1, 0, 0], [1, 0], [0, 1, 0, 1, 1, 0, 0]]
MARKS = [",", ".", "?", "!"]


def discounted(row: list[float], decay: float) -> list[float]:
    return [sum(decay ** (k - t) * row[k] for k in range(t, len(row))) for t in range(len(row))]


@pytest.mark.parametrize("gap", ["pass", "stop"])
def test_tokens_that_are_left_out_have_no_credit_and_pass_or_stop_it(gap: str) -> None:
    rollout, rewards = drawn(None, DELTA, TEXTS)
    found = ppo(lam=0.9, skip_text=MARKS, at_skipped=gap, **PLAIN).advantages(rollout, rewards)
    assert found.trained is not None
    for i, (row, skipped) in enumerate(zip(DELTA, SKIPPED, strict=True)):
        assert found.trained[i, : len(row)].tolist() == [not skip for skip in skipped]
        assert not found.trained[i, len(row) :].any()
        runs: list[list[int]] = [[]]  # places that credit crosses
        for t, skip in enumerate(skipped):
            if skip and gap == "stop":
                runs.append([])
            elif not skip:
                runs[-1].append(t)
        wanted = [0.0] * len(row)
        for run in runs:
            for t, value in zip(run, discounted([row[t] for t in run], 0.9), strict=True):
                wanted[t] = value
        assert found.advantage[i, : len(row)].tolist() == pytest.approx(wanted, abs=1e-6)
    assert as_numbers(found.metrics)["skipped"] == pytest.approx(5 / 14)


def test_tokens_that_are_left_out_count_in_no_term() -> None:
    """The KL in the reward and its metric, whitening, the clipped loss, the value loss and the entropy bonus: whatever stands
    there changes nothing, and the average is over the others."""
    skip = padded([[float(flag) for flag in row] for row in SKIPPED]) == 1

    def trained_on(noise: float, pieces: int) -> tuple[float, dict[str, float], list[float]]:
        rollout, rewards = drawn(None, DELTA, TEXTS)
        torch.manual_seed(0)
        shape = rollout.mask.shape
        dirty = torch.where(skip, noise, 0.0)
        rollout.values = torch.randn(shape) + dirty
        rollout.old_logp, rollout.ref_logp = torch.randn(shape) - dirty, torch.randn(shape) + dirty
        rewards.token = torch.where(skip, rewards.token + noise, rewards.token)
        algorithm = ppo(skip_text=MARKS, kl_coef=0.1, entropy_coef=0.5, adaptive_kl={"target": 1.0, "horizon": 10})
        advantages = algorithm.advantages(rollout, rewards)
        white = advantages.advantage[rollout.mask & ~skip]
        assert float(white.mean()) == pytest.approx(0, abs=1e-6)
        assert float(white.std(correction=0)) == pytest.approx(1, rel=1e-4)
        leaf = (torch.randn(shape) + dirty).requires_grad_()
        entropy, values = torch.rand(shape) + dirty, torch.randn(shape) + dirty
        total = torch.zeros(())
        for batch in batches(rollout, rewards, advantages, pieces):
            rows = [lengths.index(int(n)) for lengths in [list(map(len, RESPONSES))] for n in batch.mask.sum(1)]
            width = batch.mask.shape[1]
            said = [part[rows][:, :width] for part in (leaf, values, entropy)]
            total = total + algorithm.loss(fake_actor_critic(*said), batch)[0] / pieces
        total.backward()
        assert leaf.grad is not None
        assert not leaf.grad[skip].any()
        assert int((leaf.grad != 0).sum()) >= 6  # the others are clipped
        numbers = as_numbers(advantages.metrics) | {"next": algorithm.state_dict()["coefficient"]}
        return float(total.detach()), numbers, leaf.grad.flatten().tolist()

    loss, metrics, gradient = trained_on(0.0, 1)
    assert loss != 0
    for noise, pieces in ((0.0, 3), (7.0, 1), (float("nan"), 2)):
        other_loss, other_metrics, other_gradient = trained_on(noise, pieces)
        assert other_loss == pytest.approx(loss, rel=1e-5)
        assert other_metrics == pytest.approx(metrics)
        assert other_gradient == pytest.approx(gradient, rel=1e-5, abs=1e-8)


def test_the_average_is_over_the_tokens_that_count() -> None:
    rollout, rewards = drawn(None, DELTA, TEXTS)
    algorithm = ppo(skip_text=MARKS, lam=0.0, **PLAIN)
    (batch,) = batches(rollout, rewards, algorithm.advantages(rollout, rewards))
    assert (batch.total_tokens, batch.total_rows) == (9.0, 3.0)
    logp = torch.zeros(batch.mask.shape, requires_grad=True)
    algorithm.loss(fake_actor_critic(logp, torch.zeros(0)), batch)[0].backward()
    assert logp.grad is not None
    assert float(logp.grad.sum()) == pytest.approx(-sum(
        value for row, skipped in zip(DELTA, SKIPPED, strict=True) for value, skip in zip(row, skipped, strict=True) if not skip
    ) / 9)  # fmt: skip


def test_a_response_of_nothing_else_is_left_out_of_the_step() -> None:
    texts = [TEXTS[0], [" ,", "."], TEXTS[2]]
    rollout, rewards = drawn(None, DELTA, texts)
    found = ppo(skip_text=MARKS, **PLAIN).advantages(rollout, rewards)
    assert found.keep is not None
    assert found.keep.tolist() == [True, False, True]


def test_a_text_that_no_token_can_have_is_refused() -> None:
    for text in ("", " ,"):
        with pytest.raises(Problems, match="fits none"):
            ppo(skip_text=[text])
    assert "offsets" in ppo(skip_text=MARKS).needs()
    assert "offsets" not in ppo().needs()


def test_a_model_without_a_critic_is_trained_with_tokens_left_out(steady_model_dir: Path) -> None:
    """From sampling to gradients, with the texts of tokens that the model drew."""
    model = tiny(steady_model_dir, trainable=True)
    algorithm = ppo(skip_text=[",", ".", "e", "th"], **PLAIN)
    prompts = [Sample(id=str(i), prompt=f"the {word}") for i, word in enumerate(("sea", "mill", "lamp", "birds"))]
    rollout = rollouts.collect(
        model, model, prompts, Sampling(max_new_tokens=24), HF().open(model), algorithm.needs(), per_prompt=2, seed=3
    )
    skipped = algorithm.skipped(rollout)
    texts = [rollouts.token_texts(model.tokenizer, ids.tolist()) for ids in rollout.response_ids]
    wanted = [[text.strip() in algorithm.skip_text for text in row] for row in texts]
    assert torch.equal(skipped, torch.tensor(wanted) & rollout.mask)
    assert 0 < int(skipped.sum()) < int(rollout.mask.sum())
    token = torch.ones(rollout.mask.shape)
    rewards = Rewards(response=token.sum(1), token=token, credit_mask=rollout.mask)
    units = RolloutUnits(rollout, rewards, algorithm.advantages(rollout, rewards), pad_id=PAD)
    parts = list(StepLoader(units, [Step(list(range(8)))], micro_batches=4))
    assert {batch.total_tokens for batch in parts} == {float((rollout.mask & ~skipped).sum())}
    _loss, gradient = step_gradient(model, lambda batch: algorithm.loss(ActorCritic(model), batch)[0], parts)
    assert all(bool(value.isfinite().all()) for value in gradient.values())

"""Tokens that an environment wrote: metrics, alarms, advantages and losses count those that the policy drew alone.

Each test compares a rollout in which some real tokens are not drawn, and carry numbers that would spoil everything, with the same
rollout where these tokens are no tokens at all.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from training_helpers import FakeModel, fake_actor_critic, tiny

from fgrl import registry, rollouts
from fgrl.base.errors import Stopped
from fgrl.base.mergeable import as_numbers
from fgrl.experiments.stages.previews import of_rollout
from fgrl.kinds import Correction
from fgrl.measuring.answering import recorded
from fgrl.rollouts import reference_sums
from fgrl.training import finite, mismatch
from fgrl.training.alarms import Alarms, Watch
from fgrl.training.rollout_metrics import of_responses
from fgrl.training.stored_rollouts import RolloutStore
from fgrl.training.token_rewards import TokenRewards
from fgrl.training.units import RolloutUnits
from fgrl.types import Advantages, Batch, DrawnResponse, Prompt, Rewards, Rollout, Sample, Tokens
from fgrl.types.tensors import concatenate

SPOILS = 1e6
TURNS = [[0, 0, -1, -1, 1, 1], [0, -1, 1, -1, 2], [0, 0, 0, 0, 0, 0, 0], [0, -1, -1, -1, 1, 1]]
"""Of the tokens of four responses, two to each of two prompts. The last token of each is drawn, and of the longest all."""
LENGTHS = [len(turns) for turns in TURNS]
WRITTEN = ["the sea", " ", "a", "on"]
PER_TOKEN = ("old_logp", "drawn_logp", "entropy", "ref_logp", "ref_entropy", "ref_kl", "values")


def both() -> tuple[tuple[Rollout, Rewards], tuple[Rollout, Rewards]]:
    """The rollout with its rewards, and the one without the tokens that are not drawn."""
    generator = torch.Generator().manual_seed(0)
    tokens = rollouts.pad(
        [[1]] * 4,
        [DrawnResponse(list(range(5, 5 + n)), "end", turn=own) for n, own in zip(LENGTHS, TURNS, strict=True)],
        0,
        {6},
    )
    undrawn = tokens.mask & ~tokens.drawn
    numbers = {name: -torch.rand(tokens.mask.shape, generator=generator) for name in PER_TOKEN}
    spoilt = {name: torch.where(undrawn, SPOILS, value) for name, value in numbers.items()}
    eos = torch.zeros_like(tokens.mask)
    eos[torch.arange(4), torch.tensor(LENGTHS) - 1] = torch.tensor([True, False, True, True])
    shared: dict[str, Any] = {
        "group": torch.tensor([0, 0, 1, 1]), "samples": [Sample(id=str(i // 2), prompt="Why?") for i in range(4)],
        "drawn_version": torch.zeros(4, dtype=torch.long), "offsets": [[(0, 0)] * n for n in LENGTHS], "eos": eos,
    }  # fmt: skip
    ids = {"prompt_ids": tokens.prompt_ids, "prompt_mask": tokens.prompt_mask, "response_ids": tokens.response_ids}
    whole = Rollout(
        **ids, mask=tokens.mask, turn=tokens.turn, texts=["tool: 1"] * 4, written=WRITTEN, **shared, **spoilt
    )
    without = Rollout(**ids, mask=tokens.drawn, texts=WRITTEN, **shared, **numbers)
    token, response = torch.randn(tokens.mask.shape, generator=generator), torch.tensor([1.0, -1.0, 2.0, 0.5])
    criterion = torch.randn(4, 2, tokens.mask.shape[1], generator=generator)
    verdict = torch.tensor([[1.0, -1.0]] * 4)
    given = [
        Rewards(response, torch.where(undrawn, spoil, torch.where(tokens.drawn, token, 0.0)), mask, verdict=verdict,
                criterion=torch.where(undrawn[:, None], spoil, criterion))
        for spoil, mask in ((SPOILS, tokens.mask), (0.0, tokens.drawn))
    ]  # fmt: skip
    return (whole, given[0]), (without, given[1])


def same(one: dict[str, float], two: dict[str, float]) -> None:
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert value == pytest.approx(two[name], rel=1e-6), name


def at(value: Tensor, rollout: Rollout) -> Tensor:
    return value[rollout.drawn]


def test_which_tokens_are_drawn() -> None:
    (whole, _), (without, _) = both()
    assert whole.drawn.tolist() == without.mask.tolist()
    assert whole.drawn.sum() < whole.mask.sum()
    assert torch.equal(without.drawn, without.mask), "all of them, where nothing else is said"
    assert whole.turn is not None
    assert [row[: len(turns)] for row, turns in zip(whole.turn.tolist(), TURNS, strict=True)] == TURNS
    smaller = replace(whole, mask=whole.mask & (torch.arange(7) < 2))
    assert bool((smaller.drawn <= smaller.mask).all())


def test_metrics_and_the_alarms_on_them() -> None:
    (whole, given), (without, wanted) = both()
    found = of_responses(whole, given)
    same(found, of_responses(without, wanted))
    assert found["tokens"] == sum(turn >= 0 for turns in TURNS for turn in turns) / 4
    assert found["empty"] == 1 / 4
    assert found["credited"] == 1
    bounds = Alarms(**{name: {"above": 0.0, "patience": 1} for name in ("empty", "distinct", "entropy")})
    watches = [Watch(bounds, lambda _text: None) for _ in range(2)]
    rings = [
        watch.look(of_responses(*each), "")
        for watch, each in zip(watches, ((whole, given), (without, wanted)), strict=True)
    ]
    assert rings[0] == rings[1]
    assert watches[0].records == watches[1].records


@pytest.mark.parametrize("kind", ["none", "truncate", "mask"])
def test_the_mismatch_with_the_engine_and_its_correction(kind: Any) -> None:
    (whole, _), (without, _) = both()
    advantages = Advantages(torch.arange(28.0).view(4, 7))
    (found, numbers), (wanted, others) = (
        mismatch.corrected(advantages, each, Correction(kind, 1.2)) for each in (whole, without)
    )
    same(numbers, others)
    assert torch.equal(at(found.advantage, whole), at(wanted.advantage, without))


@pytest.mark.parametrize("center", ["none", "batch", "prompt"])
def test_changed_token_rewards(center: Any) -> None:
    (whole, given), (without, wanted) = both()
    changes = TokenRewards(center=center, end_reward=0.5)
    (one, numbers), (two, others) = changes.applied(whole, given), changes.applied(without, wanted)
    same(numbers, others)
    torch.testing.assert_close(at(one.token, whole), at(two.token, without))
    assert one.criterion is not None
    assert two.criterion is not None
    for criterion in range(2):
        torch.testing.assert_close(at(one.criterion[:, criterion], whole), at(two.criterion[:, criterion], without))


ALGORITHMS: dict[str, dict[str, Any]] = {
    "grpo": {"name": "grpo", "kl_coef": 0.1, "kl_in": "reward", "kl": "k1"},
    "grpo, KL and entropy in the loss": {"name": "grpo", "kl_coef": 0.1, "entropy_coef": 0.1, "measure_kl": True},
    "grpo over tokens": {"name": "grpo", "aggregate": "token_mean", "measure_kl": True},
    "rtt_grpo": {"name": "rtt_grpo"},
    "rtt_grpo, all together": {"name": "rtt_grpo", "partition": "inter_sample", "criteria": "union"},
    "ppo": {"name": "ppo"},
    "ppo, full KL at the end": {
        "name": "ppo",
        "kl": "full",
        "kl_at": "end",
        "missing_eos_penalty": 1.0,
        "entropy_coef": 0.1,
    },
    "ppo without a critic": {"name": "ppo", "values": "none", "whiten": False, "aggregate": "seq_mean"},
}


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("skipped", [False, True])
def test_advantages_and_losses(name: str, skipped: bool) -> None:
    """The loss has no gradient at a token that is not drawn, whether the algorithm leaves others out or not."""
    results = []
    for rollout, rewards in both():
        algorithm = registry.build("online_algorithm", ALGORITHMS[name])
        advantages = algorithm.advantages(rollout, rewards)
        if skipped:
            advantages.trained = (torch.arange(7) != 4).repeat(4, 1)
        units = RolloutUnits(rollout, rewards, advantages, pad_id=0)
        batch = units.batch(range(4))
        logp = torch.full(batch.mask.shape, -0.4).requires_grad_()
        values, entropy = torch.full(batch.mask.shape, 0.3), torch.full(batch.mask.shape, 0.7)
        loss, metrics = algorithm.loss(fake_actor_critic(logp, values, entropy), batch)
        (gradient,) = torch.autograd.grad(loss, logp)
        results.append((advantages, batch, loss, metrics, gradient, [units.shape(i).tokens for i in range(4)]))
    (whole, _), (without, _) = both()
    (one, batch, loss, metrics, gradient, counts), (two, other, other_loss, other_metrics, other_gradient, others) = (
        results
    )
    same(as_numbers(one.metrics), as_numbers(two.metrics))
    torch.testing.assert_close(at(one.advantage, whole), at(two.advantage, without))
    if one.returns is not None:
        torch.testing.assert_close(at(one.returns, whole), at(two.returns, without))
    assert (batch.total_tokens, counts) == (other.total_tokens, others)
    torch.testing.assert_close(loss, other_loss)
    torch.testing.assert_close(gradient, other_gradient)
    assert not gradient[~whole.drawn].any()
    same(as_numbers(metrics), as_numbers(other_metrics))


@pytest.mark.parametrize("name", ["dpo", "sft"])
def test_losses_on_given_data(name: str) -> None:
    algorithm = registry.build(
        "offline_algorithm",
        {"name": name, **({"length_normalized": True, "reference_pass": "each_step"} if name == "dpo" else {})},
    )
    found = []
    for rollout, _rewards in both():
        batch = Batch(
            rollout.prompt_ids, rollout.prompt_mask, rollout.response_ids, rollout.mask, rollout.eos, turn=rollout.turn,
            total_tokens=float(rollout.drawn.sum()), total_rows=4.0,
        )  # fmt: skip
        model = FakeModel(
            torch.where(rollout.drawn, rollout.ref_logp, SPOILS),
            reference=torch.where(rollout.drawn, 0.5 * rollout.ref_logp, -SPOILS),
        )  # type: ignore[arg-type]
        loss, metrics = algorithm.loss(model, batch)
        found.append((loss, as_numbers(metrics)))
    torch.testing.assert_close(found[0][0], found[1][0])
    same(found[0][1], found[1][1])


def test_sums_of_a_reference_are_of_what_is_drawn() -> None:
    """So a unit is another one where other tokens are summed."""
    (whole, _), _ = both()
    one_turn = replace(whole, turn=None)
    assert reference_sums.digest(whole) != reference_sums.digest(one_turn)
    assert reference_sums.digest(one_turn) == reference_sums.digest(replace(whole, turn=torch.where(whole.mask, 0, -1)))


def test_an_advantage_that_is_not_finite_stops_where_it_is_drawn() -> None:
    (whole, given), _ = both()
    finite.check_advantages(Advantages(torch.where(whole.drawn, 1.0, math.inf)), whole, given, "iteration 0")
    with pytest.raises(Stopped, match="not finite"):
        finite.check_advantages(Advantages(torch.where(whole.drawn, math.inf, 1.0)), whole, given, "iteration 0")


def test_rewards_that_no_loss_sees_are_said() -> None:
    (whole, given), (without, _) = both()
    undrawn = int((whole.mask & ~whole.drawn).sum())
    warned = finite.lost_rewards(Advantages(whole.drawn.float()), whole, given)
    assert f"{undrawn} of {int(whole.mask.sum())} rewards" in warned
    assert "token 2 of a response to prompt 0, which an environment wrote" in warned
    assert not finite.lost_rewards(
        Advantages(without.drawn.float()), without, replace(given, token=without.drawn.float())
    )
    chosen = Advantages(whole.drawn.float(), trained=whole.turn_ids > 0)
    only = replace(given, token=torch.where(whole.drawn, 1.0, 0.0))
    assert "token 0 of a response to prompt 0, which the policy drew, and the algorithm" in finite.lost_rewards(
        chosen, whole, only
    )


def test_what_is_shown_and_stored_of_advantages(tiny_model_dir: Path, tmp_path: Path) -> None:
    (whole, given), _ = both()
    tokenizer = tiny(tiny_model_dir).tokenizer
    for trained in (None, torch.arange(7).repeat(4, 1) > 0):
        advantages = Advantages(torch.ones(4, 7), trained=trained)
        wanted = [[turn >= 0 and (trained is None or place > 0) for place, turn in enumerate(turns)] for turns in TURNS]
        store = RolloutStore(4, 1, tmp_path, "r", tokenizer)
        for i in range(4):
            line = store._line(0, whole, given, advantages, i, i)
            assert [value is not None for value in line.advantages or []] == wanted[i]
        for i, shown in enumerate(of_rollout(whole, given, tokenizer, [(0, 0)] * 4, advantages)):
            assert [value is not None for value in shown.layers["advantage"][1:]] == wanted[i]


def test_log_probabilities_of_an_answer(tiny_model_dir: Path) -> None:
    tokenizer = tiny(tiny_model_dir).tokenizer
    (whole, _), (without, _) = both()
    for i, turns in enumerate(TURNS):
        response = DrawnResponse(list(range(5, 5 + len(turns))), "end", turn=turns, prompt=Prompt((1,)))
        one, two = (recorded("m", each.samples[i], response, each, i, {}, tokenizer) for each in (whole, without))
        assert (one.logp, one.ref_logp, one.kl) == pytest.approx((two.logp, two.ref_logp, two.kl))


# -- the column ----------------------------------------------------------------------------------------------------------

responses = st.lists(st.lists(st.integers(-1, 3), min_size=1, max_size=6), min_size=1, max_size=6)
"""The turns of the tokens of some responses."""


def padded(turns: list[list[int]]) -> Tokens:
    drawn = [DrawnResponse([7] * len(own), "length", turn=own if any(own) else None) for own in turns]
    return rollouts.pad([[1] * (1 + i) for i in range(len(turns))], drawn, pad_id=0, eos_ids={2})


def cut(tokens: Tokens) -> list[list[int]]:
    assert tokens.turn is not None
    assert set(tokens.turn[~tokens.mask].tolist()) <= {-1}, "of padding"
    assert torch.equal(tokens.drawn, tokens.turn >= 0)
    return [turn[mask].tolist() for turn, mask in zip(tokens.turn, tokens.mask, strict=True)]


@given(responses, st.data())
def test_turns_are_padded_cut_and_put_together_like_ids(turns: list[list[int]], data: Any) -> None:
    tokens = padded(turns)
    assert cut(tokens) == turns
    rows = data.draw(st.lists(st.integers(0, len(turns) - 1), min_size=1, max_size=8))
    chosen = rollouts.trim(rollouts.select(tokens, torch.tensor(rows)))
    assert cut(chosen) == [turns[row] for row in rows]
    assert cut(tokens.take(torch.tensor(rows))) == [turns[row] for row in rows]
    place = data.draw(st.integers(1, len(turns)))
    parts = [padded(part) for part in (turns[:place], turns[place:]) if part]
    assert cut(concatenate(parts)) == turns


@given(responses, st.data())
def test_a_batch_has_the_turns_of_its_rows_and_counts_their_drawn_tokens(turns: list[list[int]], data: Any) -> None:
    tokens = padded(turns)
    count = len(turns)
    rollout = Rollout(
        **vars(tokens), group=torch.arange(count), samples=[Sample(id="", prompt="")] * count, texts=[""] * count
    )
    units = RolloutUnits(rollout, pad_id=0)
    rows = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=8))
    batch = units.batch(rows)
    assert cut(batch) == [turns[row] for row in rows]
    assert batch.total_tokens == sum(turn >= 0 for row in rows for turn in turns[row])


def test_what_the_policy_wrote_is_decoded_without_the_rest(tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir)
    said = [model.tokenizer(text, add_special_tokens=False).input_ids for text in ("the", " sea", " runs")]
    turn = [turn for ids, turn in zip(said, (0, -1, 1), strict=True) for _ in ids]
    whole = rollouts.given(model, [1], [token for ids in said for token in ids])
    drawn = [replace(whole, turn=turn), whole]
    tokens = rollouts.pad_responses(model, drawn)
    rollout = rollouts.as_rollout(
        model, drawn, tokens, frozenset(), group=torch.arange(2), samples=[Sample(id="", prompt="")] * 2
    )
    assert rollout.texts == ["the sea runs"] * 2
    assert rollout.written == ["the runs", "the sea runs"]

"""Rewards and algorithms that ask for the policy, in training: what they see, and that asking changes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_online import FakeReward, by_ids, fitted, module_of
from torch import Tensor
from training_helpers import fake_actor_critic, fake_batch

from fgrl.base.errors import DataError, PolicyNotLent
from fgrl.components.algorithms.grpo import GRPO
from fgrl.components.engines.hf import InBatches
from fgrl.rollouts import policies
from fgrl.training import gather
from fgrl.training.units import RolloutUnits
from fgrl.types import Advantages, Rewards, Rollout, Sample
from fgrl.types.columns import NamedTensors

KEPT: list[Any] = []
LONGER: list[int] = []
"""Responses of more than one token, by rollout: only these can be continued from their second token."""


class Asking(FakeReward):
    """Continues each response from its first token, measures uncertainty, and fills columns with both."""

    def needs(self) -> frozenset[str]:
        return frozenset({"policy", "entropy"})

    def fills(self) -> frozenset[str]:
        return frozenset({"value", "uncertainty"})

    def score(self, rollout: Rollout) -> Rewards:
        rewards = super().score(rollout)
        KEPT.append(rollout.policy)
        LONGER.append(int((rollout.mask.sum(1) > 1).sum()))
        endings = rollout.policy.continuations_at([(row, 1) for row in range(len(rollout.mask))], 2)
        value = torch.tensor([sum(map(len, own)) / 2 for own in endings])
        return replace(rewards, columns={"value": value, "uncertainty": rollout.filled("entropy")})


class Plain(Asking):
    """The same rewards without asking."""

    def needs(self) -> frozenset[str]:
        return frozenset()

    def score(self, rollout: Rollout) -> Rewards:
        return FakeReward.score(self, rollout)


class Continuing(GRPO):
    """GRPO that asks for the same continuations as the reward, and reads its columns."""

    def needs(self) -> frozenset[str]:
        return super().needs() | {"policy"}

    def reads(self) -> frozenset[str]:
        return frozenset({"value", "uncertainty"})

    def advantages(self, rollout: Rollout, rewards: Rewards) -> Advantages:
        endings = rollout.policy.continuations_at([(row, 1) for row in range(len(rollout.mask))], 2)
        assert [sum(map(len, own)) / 2 for own in endings] == rewards.column("value").tolist()
        return super().advantages(rollout, rewards)


class HalfTrained(GRPO):
    """GRPO on every other token."""

    def credited(self, rollout: Rollout, rewards: Rewards) -> Tensor:
        return (torch.arange(rollout.mask.shape[1]) % 2 == 0).expand_as(rollout.mask)


def reward(cls: type[FakeReward]) -> Any:
    made = cls()
    made._worth = by_ids
    return made


def test_asking_changes_no_weight_and_leaves_no_policy_behind(tiny_model_dir: Path, tmp_path: Path) -> None:
    KEPT.clear()
    LONGER.clear()
    found = {}
    for cls, algorithm in ((Plain, GRPO()), (Asking, Continuing())):
        module = module_of(
            tiny_model_dir, tmp_path / cls.__name__, reward(cls), algorithm=algorithm, per_prompt=2, iterations=2, lr=1e-2,
            warmup=0.0,
        )  # fmt: skip
        rows = fitted(module)
        weights = [p.detach().clone() for p in module.model.actor.parameters() if p.requires_grad]
        found[cls] = (rows, weights)
        assert len(weights) > 2
    (plain, before), (asking, after) = found[Plain], found[Asking]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    asked = {name for row in asking for name in row} - {name for row in plain for name in row}
    assert asked == {
        "policy/forward_tokens", "policy/backward_tokens", "policy/continuations", "policy/generated_tokens", "seconds/policy",
    }  # fmt: skip
    assert asking[0]["policy/continuations"] == 2 * 2 * LONGER[0] > 0
    for kept in KEPT:
        with pytest.raises(PolicyNotLent):
            kept.continuations(0, 0, 1)


@pytest.mark.parametrize("cls", [Plain, Asking])
def test_a_reward_that_asks_for_nothing_costs_no_pass(
    cls: type[FakeReward], tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No policy is lent for it, and the model reads what it reads in drawing and in training, nothing else."""
    lends: list[Any] = []
    lent = policies.LentPolicy

    def lend(*positional: Any, **named: Any) -> Any:
        lends.append(lent(*positional, **named))
        return lends[-1]

    monkeypatch.setattr(policies, "LentPolicy", lend)
    module = module_of(
        tiny_model_dir,
        tmp_path,
        reward(cls),
        algorithm=GRPO(),
        per_prompt=2,
        iterations=2,
        batch_size=6,
        micro_batch_size=2,
    )
    drawing, passes = [False], {"drawing": 0, "elsewhere": 0}
    rest, calls = InBatches.rest, [0]

    def counted(self: Any) -> Any:
        calls[0] += 1
        drawing[0] = True
        try:
            return rest(self)
        finally:
            drawing[0] = False

    monkeypatch.setattr(InBatches, "rest", counted)
    module.model.actor.transformer.get_input_embeddings().register_forward_pre_hook(
        lambda *_: passes.update({(k := "drawing" if drawing[0] else "elsewhere"): passes[k] + 1})
    )
    fitted(module)
    # one optimizer step per iteration, before which the policy is not scored; each micro-batch of 2 reads the shared prompts, then the responses
    trained = 2 * (2 * 6 // 2)
    if cls is Plain:
        assert not lends
        assert (calls[0], passes["elsewhere"]) == (2, trained)
        assert passes["drawing"] <= 2 * 8  # at most one for each token of the limit
    else:  # an interface that is used is seen by these counts
        assert len(lends) == 2
        assert calls[0] > 2
        assert passes["elsewhere"] == 2 * trained  # the entropies that it needs are scored before training


def test_columns_of_a_reward_reach_the_loss(tiny_model_dir: Path, tmp_path: Path) -> None:
    batches: list[Any] = []

    class Seeing(Continuing):
        def loss(self, model: Any, batch: Any) -> Any:
            batches.append(batch)
            return super().loss(model, batch)

    module = module_of(
        tiny_model_dir, tmp_path, reward(Asking), algorithm=Seeing(), per_prompt=2, iterations=1, batch_size=6
    )
    fitted(module)
    for batch in batches:
        assert batch.columns["value"].shape == batch.mask.shape[:1]
        uncertainty = batch.columns["uncertainty"]
        assert uncertainty.tolist() == batch.columns["entropy"].tolist()
        assert bool((uncertainty[batch.mask] > 0).all())
        assert not uncertainty[~batch.mask].any()
        with pytest.raises(KeyError, match='no column "valeu"; there are: advantage, credit_mask, entropy, group'):
            batch.columns["valeu"]


def test_columns_that_are_not_declared_or_not_filled_are_refused(tiny_model_dir: Path, tmp_path: Path) -> None:
    class Silent(Asking):
        def fills(self) -> frozenset[str]:
            return frozenset({"value"})

    class Wanting(GRPO):
        def reads(self) -> frozenset[str]:
            return frozenset({"importance"})

    for cls, algorithm, said in (
        (Silent, GRPO(), 'fills the column "uncertainty": name it in its `fills'),
        (Asking, Wanting(), 'the reward fills no "importance"; its columns: uncertainty, value'),
    ):
        module = module_of(tiny_model_dir, tmp_path / cls.__name__, reward(cls), per_prompt=2, iterations=1)
        module.rounds.algorithm = algorithm
        registered = pytest.MonkeyPatch()
        with registered.context() as patch:
            patch.setattr("fgrl.training.online.name_of", lambda part: ("kind", type(part).__name__.lower()))
            with pytest.raises(DataError, match=said):
                fitted(module)


def a_rollout(policy: Any = None) -> Rollout:
    batch = fake_batch([4, 3], {}, [True, False])
    fields = ("prompt_ids", "prompt_mask", "response_ids", "mask", "eos")
    return Rollout(
        **{name: getattr(batch, name) for name in fields}, group=torch.tensor([0, 0]), samples=[Sample(id="a", prompt="x")] * 2,
        texts=["abcd", "abc"], row=torch.tensor([0, 1]), lent_policy=policy,
    )  # fmt: skip


def test_gathered_responses_keep_their_numbers_and_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model itself is not sent: each process has it."""

    class Unsent:
        def __reduce__(self) -> Any:
            raise AssertionError("the policy was pickled")

    policy = Unsent()
    own = a_rollout(policy)

    def all_gather_object(gathered: list[Any], sent: Any) -> None:
        import pickle

        first, rewards = pickle.loads(pickle.dumps(sent))
        gathered[:] = [(first, rewards), (first | {"row": first["row"] + 2}, rewards)]

    monkeypatch.setattr(torch.distributed, "all_gather_object", all_gather_object)
    weight = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 0]])
    rewards = Rewards(torch.ones(2), weight, own.mask, columns={"weight": weight, "value": torch.tensor([0.5, 1.5])})
    whole, both = gather.everywhere(own, rewards, 2)
    assert whole.lent_policy is policy
    assert whole.row.tolist() == [0, 1, 2, 3]
    assert both.columns["value"].tolist() == [0.5, 1.5, 0.5, 1.5]
    assert both.take(torch.tensor([3, 0])).columns["weight"].tolist() == [weight[1].tolist(), weight[0].tolist()]
    assert own.lent_policy is policy


@pytest.mark.parametrize("kl_in", ["loss", "reward"])
def test_a_credit_mask_applies_to_every_term(kl_in: str) -> None:
    """Surrogate, KL and entropy bonus: what is not credited changes neither the loss nor any gradient."""
    algorithm = HalfTrained(kl_coef=0.3, kl="k2", kl_in=kl_in, entropy_coef=0.2)
    rollout = a_rollout()
    draw = torch.Generator().manual_seed(0)
    rollout.old_logp, rollout.ref_logp = (-torch.rand(2, 4, generator=draw) for _ in range(2))
    rewards = Rewards(torch.tensor([1.0, 0.0]), torch.zeros(2, 4), rollout.mask)
    odd = torch.tensor([False, True, False, True]).expand(2, 4)
    found = []
    for changed in (False, True):
        if changed:
            rollout = replace(rollout, ref_logp=torch.where(odd, -9.0, rollout.ref_logp))
        advantages = algorithm.advantages(rollout, rewards)
        assert advantages.trained.tolist() == (rollout.mask & ~odd).tolist()
        batch = RolloutUnits(rollout, rewards, advantages, pad_id=0).batch([0, 1])
        logp = (rollout.old_logp + 0.1 - 5.0 * changed * odd).requires_grad_()
        entropy = (torch.ones(2, 4) + 3.0 * changed * odd).requires_grad_()
        loss, _metrics = algorithm.loss(fake_actor_critic(logp, logp, entropy), batch)
        loss.backward()
        assert batch.total_tokens == 4
        assert not logp.grad[odd].any()
        assert not entropy.grad[odd].any()
        assert bool((entropy.grad[rollout.mask & ~odd] != 0).all())
        found.append((float(loss), logp.grad.tolist()))
    assert found[0] == found[1]


def test_a_response_without_a_credited_token_is_left_out() -> None:
    class Picky(GRPO):
        def credited(self, rollout: Rollout, rewards: Rewards) -> Tensor:
            return torch.tensor([[True] * 4, [False] * 4])

    advantages = Picky().advantages(a_rollout(), Rewards(torch.tensor([1.0, 0.0]), torch.zeros(2, 4), a_rollout().mask))
    assert advantages.keep.tolist() == [True, False]
    assert float(advantages.metrics["trained"]) == 4 / 7


def test_named_columns_are_checked() -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    for columns, said in (
        (
            {"weight": [1, 2]},
            r"Rewards.columns\['weight'\]: wants a tensor \[response\] or \[response, token\], got list",
        ),
        ({"weight": torch.ones(2, 1, 1)}, r"got the shape \[2, 1, 1\]"),
        (torch.ones(2), "a mapping of tensors by name is declared, got Tensor"),
    ):
        with pytest.raises(TypeError, match=said):
            Rewards(torch.ones(2), torch.ones(2, 3), mask, columns=columns)
    twice = Rewards(torch.ones(2), torch.ones(2, 3), mask, columns={"token": torch.ones(2)})
    with pytest.raises(ValueError, match="two columns of Rewards are called token"):
        twice.tensors()
    assert isinstance(Rewards(torch.ones(2), torch.ones(2, 3), mask).to("cpu").columns, dict)
    assert NamedTensors({"a": 1})["a"] == 1

"""The policy that answered, as components use it: passes, gradients to inputs, continuations, and the time that it is lent for."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training_helpers import tiny

from fgrl import rollouts
from fgrl.base.errors import PolicyNotLent
from fgrl.components.engines.hf import HF
from fgrl.kinds.specs import Sampling
from fgrl.rollouts.policies import LentPolicy, PolicyUse, metrics_of
from fgrl.types import Rollout, Sample

PROMPTS = [Sample(id=str(i), prompt=f"Question {i} about the {word}") for i, word in enumerate(["sea", "mill", "lamp"])]
SAMPLING = Sampling(max_new_tokens=8, temperature=0.7)
NEEDS = frozenset({"policy", "entropy", "old_logp"})


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> Any:
    model = tiny(tiny_model_dir, trainable=True, lora={"r": 4, "alpha": 8, "dropout": 0.5})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.3, generator=torch.Generator().manual_seed(len(name)))
    return model


def lent(model: Any, sampling: Sampling = SAMPLING, **options: Any) -> LentPolicy:
    return LentPolicy(model, HF().open(model), sampling, seed=3, name="policy", **options)


def drawn(model: Any, policy: LentPolicy, prompts: Any = PROMPTS, first: int = 0) -> Rollout:
    return rollouts.collect(
        model,
        None,
        prompts,
        policy.sampling,
        HF().open(model),
        NEEDS,
        per_prompt=2,
        seed=3,
        first=first,
        lent_policy=policy,
    )


def distributions(model: Any, rollout: Rollout, row: int) -> torch.Tensor:
    """[T,V] log-probabilities from which the tokens of a response were drawn, from the transformers model alone."""
    prompt = rollout.prompt_ids[row][rollout.prompt_mask[row]].tolist()
    response = rollout.response_ids[row][rollout.mask[row]].tolist()
    model.eval()
    with torch.no_grad():
        logits = model.net(torch.tensor([prompt + response])).logits[0]
    return torch.log_softmax(logits[len(prompt) - 1 : -1].float() / SAMPLING.temperature, dim=1)


@pytest.mark.parametrize("micro_batch_size", [1, 4])
def test_log_probabilities_and_entropies_are_those_of_the_model(model: Any, micro_batch_size: int) -> None:
    policy = lent(model, micro_batch_size=micro_batch_size)
    rollout = drawn(model, policy)
    model.train()
    with policy.lend():
        scores = rollout.policy.score(rollouts.select(rollout, slice(None)), entropy=True)
    for row, length in enumerate(rollout.mask.sum(1).tolist()):
        logprobs = distributions(model, rollout, row)
        ids = rollout.response_ids[row, :length]
        torch.testing.assert_close(scores.logp[row, :length], logprobs[range(length), ids], atol=1e-5, rtol=1e-4)
        entropy = -(logprobs.exp() * logprobs).sum(1)
        torch.testing.assert_close(scores.entropy[row, :length], entropy, atol=1e-5, rtol=1e-4)
    assert not scores.entropy[~rollout.mask].any()
    # the fields of the rollout are the same numbers
    torch.testing.assert_close(scores.logp, rollout.old_logp)
    torch.testing.assert_close(scores.entropy, rollout.entropy)
    assert policy.use.forward_tokens == int(rollout.prompt_mask.sum() + rollout.mask.sum())


@pytest.mark.parametrize("micro_batch_size", [1, 2, 4])
def test_tokens_that_nobody_wants_are_not_scored(
    model: Any, micro_batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = lent(model, micro_batch_size=micro_batch_size)
    rollout = drawn(model, policy)
    wanted = torch.rand(rollout.mask.shape, generator=torch.Generator().manual_seed(0)) < 0.4
    wanted[1] = False
    scored: list[int] = []
    scores = type(model)._scores
    monkeypatch.setattr(
        type(model),
        "_scores",
        lambda self, states, *a, **k: scored.append(len(states)) or scores(self, states, *a, **k),
    )
    tokens = rollouts.select(rollout, slice(None))
    with policy.lend():
        whole = rollout.policy.score(tokens, entropy=True)
        scored.clear()
        part = rollout.policy.score(tokens, entropy=True, only=wanted)
        assert sum(scored) == int((wanted & rollout.mask).sum())
        for rows, own, chosen in rollout.policy.micro_batches(tokens, wanted & rollout.mask):
            assert torch.equal(chosen, (wanted & rollout.mask)[rows, : own.mask.shape[1]])
            gradients = [
                rollout.policy.input_gradient(
                    own, lambda scores, chosen=chosen: (scores.logp * chosen).sum(), only=only
                )[1]
                for only in (None, chosen)
            ]
            torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)
        for wrong in (wanted.long(), wanted[0]):
            with pytest.raises(ValueError, match=r"only: .* wants bool"):
                rollout.policy.input_gradient(tokens, lambda scores: scores.logp.sum(), only=wrong)
    for name in ("logp", "entropy"):
        expected = torch.where(wanted & rollout.mask, getattr(whole, name), 0.0)
        torch.testing.assert_close(getattr(part, name), expected, atol=1e-6, rtol=1e-5)


def test_seconds_contain_the_backward_pass_and_are_those_of_the_slowest_process(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    gradients, states = torch.autograd.grad, type(model).states
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def slow(work: Any, seconds: float) -> Any:
        def wrapped(*positional: Any, **named: Any) -> Any:
            clock[0] += seconds
            return work(*positional, **named)

        return wrapped

    monkeypatch.setattr(torch.autograd, "grad", slow(gradients, 5.0))
    monkeypatch.setattr(type(model), "states", slow(states, 2.0))
    policy = lent(model)
    rollout = drawn(model, policy)
    with policy.lend():
        rollout.policy.input_gradient(rollouts.select(rollout, slice(None)), lambda scores: scores.logp.sum())
    assert policy.use.seconds == 7.0
    logged = metrics_of([policy.use, PolicyUse(forward_tokens=3, seconds=1.0)])
    assert logged["seconds/policy"] == 7.0
    assert logged["policy/forward_tokens"] == policy.use.forward_tokens + 3


def test_the_entropy_costs_no_pass_and_is_a_column_of_the_batch(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fgrl.training.units import RolloutUnits

    passes: list[bool] = []
    states, scores = type(model).states, type(model).score_states
    monkeypatch.setattr(type(model), "states", lambda self, *a, **k: passes.append(True) or states(self, *a, **k))
    asked: list[bool] = []
    monkeypatch.setattr(
        type(model), "score_states", lambda self, *a, **k: asked.append(k["entropy"]) or scores(self, *a, **k)
    )
    columns = []
    for needs in ({"old_logp"}, {"old_logp", "entropy"}, {"entropy"}):
        passes.clear()
        asked.clear()
        rollout = rollouts.collect(
            model, None, PROMPTS, SAMPLING, HF().open(model), frozenset(needs), per_prompt=2, seed=3
        )
        assert (len(passes), asked) == (1, ["entropy" in needs])
        columns.append(RolloutUnits(rollout, pad_id=model.pad_id).batch([0, 1]).columns)
    plain, both, alone = columns
    assert plain["old_logp"].tolist() == both["old_logp"].tolist()
    assert both["entropy"].tolist() == alone["entropy"].tolist()
    assert plain.keys() == {"group", "old_logp"}
    assert alone.keys() == {"group", "entropy"}


def test_gradients_go_to_the_inputs_and_leave_nothing_on_the_parameters(model: Any) -> None:
    policy = lent(model, micro_batch_size=2)
    rollout = drawn(model, policy)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    kept = torch.ones_like(trained[0])
    trained[0].grad = kept
    model.train()
    seen = {}
    with torch.no_grad(), policy.lend():  # as in training, where the rollout is scored without gradients
        for rows, part in rollout.policy.micro_batches(rollouts.select(rollout, slice(None))):
            embeddings, gradient = rollout.policy.input_gradient(part, lambda scores: scores.logp.sum())
            assert torch.equal(embeddings, rollout.policy.embed(part))
            seen |= {
                int(row): gradient[i][torch.cat([part.prompt_mask, part.mask], 1)[i]] for i, row in enumerate(rows)
            }
            assert not rollout.policy.model.training
    assert sorted(seen) == list(range(6))
    assert trained[0].grad is kept
    assert all(parameter.grad is None for parameter in trained[1:])
    assert all(parameter.requires_grad for parameter in trained)
    assert model.training
    trained[0].grad = None
    # against the transformers model with its own embeddings, for one response at a time
    model.eval()
    for row, gradient in seen.items():
        prompt = rollout.prompt_ids[row][rollout.prompt_mask[row]]
        response = rollout.response_ids[row][rollout.mask[row]]
        inputs = model.transformer.get_input_embeddings()(torch.cat([prompt, response])[None]).detach().requires_grad_()
        logits = model.net(inputs_embeds=inputs).logits[0, len(prompt) - 1 : -1] / SAMPLING.temperature
        torch.log_softmax(logits, 1).gather(1, response[:, None]).sum().backward()
        torch.testing.assert_close(gradient, inputs.grad[0], atol=1e-4, rtol=1e-3)
        assert float(gradient[: len(prompt)].abs().max()) > 0
    model.zero_grad()


def test_a_component_that_breaks_the_rules_leaves_no_gradient_either(model: Any) -> None:
    policy = lent(model)
    rollout = drawn(model, policy)
    with policy.lend():
        borrowed = rollout.policy.model
        borrowed.requires_grad_(True)
        with torch.enable_grad():
            borrowed.score(rollouts.select(rollout, slice(None))).logp.sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert {name.split(".")[-3] for name, p in model.named_parameters() if p.requires_grad} == {"lora_A", "lora_B"}


def test_continuations_depend_on_their_names_alone(model: Any) -> None:
    """Neither on what is asked beside them, nor on batches, nor on which process holds the response."""
    policy = lent(model)
    rollout = drawn(model, policy)
    places = [(0, 2), (3, 0), (4, 2), (5, 3)]
    with policy.lend():
        together = rollout.policy.continuations_at(places, 3)
        assert [rollout.policy.continuations(*place, 2) for place in places] == [own[:2] for own in together]
        assert rollout.policy.continuations_at(places, 3, "another component") != together
        taken = rollout.take(torch.tensor([4, 1]))
        assert taken.policy.continuations(0, 2, 3) == together[2]
    small = lent(model, SAMPLING.model_copy(update={"batch_size": 2}))
    with small.lend():
        assert replace(rollout, lent_policy=small).policy.continuations_at(places, 3) == together
    second = lent(model)
    share = drawn(model, second, PROMPTS[1:], first=1)  # what the second of two processes draws
    assert share.response_ids.tolist() == rollout.response_ids[2:, : share.mask.shape[1]].tolist()
    with second.lend():
        assert share.policy.continuations_at([(row - 2, t) for row, t in places if row >= 2], 3) == together[1:]
    assert small.use.continuations == len([1 for row, t in places if not rollout.eos[row, :t].any()]) * 3


def test_more_continuations_extend_the_first_and_another_seed_draws_others(model: Any) -> None:
    policy = lent(model)
    rollout = drawn(model, policy)
    places = [(0, 1), (3, 0)]
    with policy.lend():
        few, many = (rollout.policy.continuations_at(places, k) for k in (3, 6))
    assert [own[:3] for own in many] == few
    assert all(own[3:] != own[:3] for own in many)
    other = LentPolicy(model, HF().open(model), SAMPLING, seed=4, name="policy")
    with other.lend():
        drawn_anew = replace(rollout, lent_policy=other).policy.continuations_at(places, 3)
    assert all(one != another for one, another in zip(drawn_anew, few, strict=True))


def test_continuations_stay_within_the_budget_of_their_response(model: Any) -> None:
    policy = lent(model)
    rollout = drawn(model, policy)
    rollout.response_ids[0, :3] = torch.tensor([20, 30, model.end_id])
    rollout.mask[0], rollout.eos[0] = torch.arange(rollout.mask.shape[1]) < 3, torch.arange(rollout.mask.shape[1]) == 2
    with policy.lend():
        for row, position in ((1, 1), (1, 5), (2, 4)):
            for ids in rollout.policy.continuations(row, position, 4):
                assert len(ids) == SAMPLING.max_new_tokens - position or ids[-1] in model.eos_ids
                assert 1 <= len(ids) <= SAMPLING.max_new_tokens - position
        assert rollout.policy.continuations(0, 3, 2) == [[], []]  # it has ended
        assert all(rollout.policy.continuations(0, 2, 2))
        with pytest.raises(ValueError, match="0 continuations"):
            rollout.policy.continuations(1, 2, 0)
        with pytest.raises(ValueError, match="response 0 has 3 tokens, so no position 4"):
            rollout.policy.continuations(0, 4, 2)


def test_completed_responses_are_a_rollout_that_a_reward_can_score(model: Any) -> None:
    policy = lent(model)
    rollout = drawn(model, policy)
    with policy.lend():
        whole = rollout.policy.completed([(1, 2), (4, 0)], 2)
        endings = rollout.policy.continuations_at([(1, 2), (4, 0)], 2)
    assert whole.group.tolist() == [0, 0, 1, 1]
    assert [sample.id for sample in whole.samples] == ["0", "0", "2", "2"]
    ids = [whole.response_ids[i][whole.mask[i]].tolist() for i in range(4)]
    begins = rollout.response_ids[1, :2].tolist()
    assert ids == [begins + endings[0][0], begins + endings[0][1], *endings[1]]
    assert [rollouts.decode(model.tokenizer, own) for own in ids] == whole.texts
    with pytest.raises(ValueError, match="the rollout has no policy; ask for it in `needs`"):
        _ = whole.policy


def test_a_policy_is_lent_for_the_responses_at_hand_only(model: Any) -> None:
    policy = lent(model)
    rollout = drawn(model, policy)
    kept = rollout.policy  # as a component does that puts it into a global variable
    for use in (lambda: kept.model, lambda: kept.score(rollout), lambda: kept.continuations(0, 0, 1)):
        with pytest.raises(PolicyNotLent, match="lent for responses that are scored already"):
            use()
    with policy.lend():
        assert kept.model.pad_id == model.pad_id
    with pytest.raises(PolicyNotLent):
        _ = kept.model


def test_a_kept_model_is_refused_too(model: Any) -> None:
    policy = lent(model)
    rollout = drawn(model, policy)
    tokens = rollouts.select(rollout, slice(None))
    with policy.lend():
        kept = rollout.policy.model
        assert torch.equal(kept.score(tokens).logp, model.score(tokens).logp)
        assert kept.tokenizer is model.tokenizer
    for use in (lambda: kept.pad_id, lambda: kept.score(tokens), lambda: kept.net):
        with pytest.raises(PolicyNotLent, match="the policy policy was lent for responses that are scored already"):
            use()


def test_a_rollout_without_a_policy_says_how_to_get_one(model: Any) -> None:
    rollout = rollouts.collect(model, None, PROMPTS, SAMPLING, HF().open(model), frozenset({"old_logp"}))
    with pytest.raises(ValueError, match="the rollout has no policy; ask for it in `needs`"):
        _ = rollout.policy
    assert rollout.row is None
    with pytest.raises(ValueError, match="the policy is needed"):
        rollouts.collect(model, None, PROMPTS, SAMPLING, HF().open(model), frozenset({"policy"}))

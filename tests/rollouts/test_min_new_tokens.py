"""Everything that scores a response drawn with `min_new_tokens` gives its early end tokens probability 0, as the drawing did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import test_policies
import torch
from pydantic import ValidationError
from test_policies import NEEDS, PROMPTS, drawn, lent
from torch import Tensor
from training_helpers import tiny

from fgrl import models, rollouts
from fgrl.components.engines.hf import HF
from fgrl.kinds.specs import Sampling
from fgrl.measuring.attributing import as_rollout
from fgrl.types import Tokens

LEAST = 5
SAMPLING = Sampling(max_new_tokens=8, min_new_tokens=LEAST, temperature=0.7)
model = test_policies.model
EVERYTHING = NEEDS | {"ref_logp", "ref_kl", "ref_entropy"}


def distributions(
    net: Any, tokens: Tokens, row: int, temperature: float = 0.7, least: int = LEAST, **options: Any
) -> Tensor:
    """[T,V] log-probabilities of a response read alone, over the tokens that could be drawn."""
    prompt = tokens.prompt_ids[row][tokens.prompt_mask[row]].tolist()
    response = tokens.response_ids[row][tokens.mask[row]].tolist()
    alone = rollouts.pad([prompt], [response], net.pad_id, net.eos_ids)
    with torch.no_grad(), models.evaluating(net):
        logits = net.logits(net.states(alone, **options)).float() / temperature
    logits[:least, sorted(net.eos_ids)] = -torch.inf
    return logits.log_softmax(1)


def expected(logs: Tensor, values: Tensor) -> Tensor:
    """[T] means of values [T,V] under log-probabilities [T,V]."""
    return (logs.exp() * values.masked_fill(logs == -torch.inf, 0.0)).sum(1)


def test_log_probabilities_entropies_and_kl_are_those_of_the_drawing(model: Any) -> None:
    policy = lent(model, SAMPLING)
    rollout = rollouts.collect(
        model,
        None,
        PROMPTS,
        SAMPLING,
        HF().open(model),
        EVERYTHING,
        per_prompt=2,
        seed=3,
        lent_policy=policy,
        micro_batch_size=4,
    )
    with policy.lend():
        scores = rollout.policy.score(rollout, entropy=True)
    for row, length in enumerate(rollout.mask.sum(1).tolist()):
        own = distributions(model, rollout, row)
        base = distributions(model, rollout, row, adapter=False)
        ids = rollout.response_ids[row, :length]
        for value in (rollout.old_logp, scores.logp):
            torch.testing.assert_close(value[row, :length], own[range(length), ids], atol=1e-5, rtol=1e-4)
        for value in (rollout.entropy, scores.entropy):
            torch.testing.assert_close(value[row, :length], -expected(own, own), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(rollout.ref_logp[row, :length], base[range(length), ids], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(rollout.ref_kl[row, :length], expected(own, own - base), atol=1e-5, rtol=1e-3)
        # segments are cut by the reference's own distribution, at temperature 1 and with every token
        whole = distributions(model, rollout, row, temperature=1.0, least=0, adapter=False)
        torch.testing.assert_close(rollout.ref_entropy[row, :length], -expected(whole, whole), atol=1e-5, rtol=1e-4)


def test_the_places_are_those_of_each_response(model: Any) -> None:
    rollout = drawn(model, lent(model, SAMPLING))
    lengths = rollout.mask.sum(1).tolist()
    assert rollout.no_end.sum(1).tolist() == [min(LEAST, length) for length in lengths]
    assert drawn(model, lent(model)).no_end is None


def test_continuations_keep_the_bound_of_their_response_and_given_responses_have_none(tiny_model_dir: Path) -> None:
    """A model that ends as soon as it may."""
    model = tiny(tiny_model_dir)
    ends = sorted(model.eos_ids)
    layer = model.output_layer
    with torch.no_grad():  # every state points to the ends
        layer.weight[ends] = 0.0
        bias = torch.full((layer.weight.shape[0],), -3.0)
        bias[ends] = 6.0
        layer.bias = torch.nn.Parameter(bias)
    policy = lent(model, SAMPLING)
    with policy.lend():
        rollout = drawn(model, policy)
        assert set(rollout.mask.sum(1).tolist()) == {LEAST + 1}
        completed = rollout.policy.completed([(0, 0), (1, 2), (2, 4)], 2)
        assert set(completed.mask.sum(1).tolist()) == {LEAST + 1}
        assert completed.no_end.sum(1).tolist() == [LEAST] * 6
        given = rollout.policy.responses_to([0], [[40, ends[0]]])
        assert given.no_end is None
        assert torch.isfinite(rollout.policy.score(given).logp).all()


def test_an_evaluation_scores_with_the_bound_at_temperature_1(model: Any) -> None:
    rows = [rollouts.given(model, [1, 20, 30], [40, 41, 42, 43, 44, 45, 2]), rollouts.given(model, [1, 50], [60, 61])]
    needs = frozenset({"old_logp", "ref_kl"})
    rollout = as_rollout(rows, model, needs=needs, reference=None, min_new_tokens=LEAST)
    for row, length in enumerate([7, 2]):
        own = distributions(model, rollout, row, temperature=1.0)
        base = distributions(model, rollout, row, temperature=1.0, adapter=False)
        ids = rollout.response_ids[row, :length]
        torch.testing.assert_close(rollout.old_logp[row, :length], own[range(length), ids], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(rollout.ref_kl[row, :length], expected(own, own - base), atol=1e-5, rtol=1e-3)


def test_a_bound_above_the_limit_is_refused() -> None:
    with pytest.raises(ValidationError, match="min_new_tokens 9 is above max_new_tokens 8"):
        Sampling(max_new_tokens=8, min_new_tokens=9)

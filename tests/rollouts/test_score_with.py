"""Responses scored with another frozen model, at the temperature of the log-probabilities beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from model_helpers import LORA, stir, tiny

from fgrl import rollouts
from fgrl.kinds import default_engine
from fgrl.kinds.specs import Sampling
from fgrl.types import Sample
from fgrl.types.tensors import concatenate

PROMPTS = [Sample(id=name, prompt=name) for name in ("The river", "A lamp stands on the table", "Bread")]


@pytest.fixture(scope="module")
def other(tiny_model_dir: Path) -> Any:
    """A model that differs from the policy."""
    model = tiny(tiny_model_dir, lora=LORA, trainable=True)
    stir(model)
    return model


def drawn(policy: Any, reference: Any, **sampling: Any) -> Any:
    asked = Sampling(**{"max_new_tokens": 8, "max_prompt_tokens": 16} | sampling)
    needs = frozenset({"old_logp", "ref_logp", "ref_entropy"})
    return rollouts.collect(
        policy, reference, PROMPTS, asked, default_engine().open(policy), needs, per_prompt=3, seed=4
    )


@pytest.mark.parametrize("micro_batch_size", [1, 4, 16])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.5}, {"temperature": 2.0, "min_new_tokens": 5}])
def test_a_frozen_model_scores_as_the_reference_does(
    sampling: dict[str, Any], micro_batch_size: int, tiny_model_dir: Path, other: Any
) -> None:
    rollout = drawn(tiny(tiny_model_dir), other, **sampling)
    assert rollout.temperature == sampling.get("temperature", 1.0)
    scores = rollouts.score_with(rollout, other, micro_batch_size=micro_batch_size)
    torch.testing.assert_close(scores.logp, rollout.ref_logp, atol=2e-5, rtol=0)
    assert not scores.logp[~rollout.mask].any()
    assert not scores.logp.requires_grad
    assert scores.entropy is None


def test_the_temperature_can_be_another(tiny_model_dir: Path, other: Any) -> None:
    rollout = drawn(tiny(tiny_model_dir), other, temperature=0.5)
    at_1 = rollouts.score_with(rollout, other, temperature=1.0, entropy=True)
    torch.testing.assert_close(at_1.entropy, rollout.ref_entropy, atol=2e-5, rtol=0)
    assert float((at_1.logp - rollout.ref_logp).abs().max()) > 0.1


def test_models_with_other_ends_bar_those_of_the_policy(
    tiny_model_dir: Path, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = drawn(tiny(tiny_model_dir), other, min_new_tokens=8)
    assert rollout.ends == frozenset(tiny(tiny_model_dir).eos_ids)
    monkeypatch.setattr(other, "eos_ids", {0})
    torch.testing.assert_close(rollouts.score_with(rollout, other).logp, rollout.ref_logp, atol=2e-5, rtol=0)


def test_parts_that_were_drawn_in_different_ways_are_not_put_together(tiny_model_dir: Path, other: Any) -> None:
    cold, warm = (drawn(tiny(tiny_model_dir), other, temperature=temperature) for temperature in (0.5, 1.0))
    assert concatenate([cold, cold]).temperature == 0.5
    with pytest.raises(ValueError, match=r"Rollout\.temperature: the parts were drawn in different ways"):
        concatenate([cold, warm])

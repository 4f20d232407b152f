"""Log-probabilities, entropies and values of given token ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fgrl import lazy
from fgrl.rollouts.micro_batches import in_micro_batches
from fgrl.types import Tokens

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fgrl import models
    from fgrl.models import LanguageModel
else:
    models = lazy.load("fgrl.models")
    torch = lazy.load("torch")


def score(
    model: LanguageModel,
    reference: LanguageModel | None,
    tokens: Tokens,
    needs: frozenset[str],
    *,
    temperature: float = 1.0,
    critic: LanguageModel | None = None,
    micro_batch_size: int = 8,
) -> dict[str, Tensor]:
    """The score fields of `Rollout` that are in `needs`, each [B,T] float32 on the device of `tokens`, without dropout.

    Log-probabilities and `ref_kl` are taken at the sampling `temperature`, `ref_entropy` at temperature 1: segments are cut
    by the reference's own distribution. `reference` None means the model with its adapter switched off.
    """
    other = model if reference is None else reference

    def compute(part: Tokens) -> dict[str, Tensor]:
        scored: dict[str, Tensor] = {}
        if needs & {"old_logp", "ref_kl"}:
            states = model.states(part)
        if "old_logp" in needs:
            scored["old_logp"] = model.score_states(states, part, temperature=temperature).logp
        if needs & {"ref_logp", "ref_entropy", "ref_kl"}:
            others = other.states(part, adapter=reference is not None)
        if needs & {"ref_logp", "ref_entropy"}:
            scores = other.score_states(
                others,
                part,
                temperature=temperature or 1.0,  # greedy answers: only the entropy is asked for
                entropy="ref_entropy" in needs,
                entropy_temperature=1.0,
            )
            scored |= {"ref_logp": scores.logp} if "ref_logp" in needs else {}
            scored |= {"ref_entropy": scores.entropy} if scores.entropy is not None else {}
        if "ref_kl" in needs:
            kl = models.chunked_kl(states, model.logits, others, other.logits, temperature=temperature)
            scored["ref_kl"] = models.unflatten(kl, part.mask)
        if critic is not None and "values" in needs:
            scored["values"] = critic.values(part)
        return {name: value.float() for name, value in scored.items()}

    with torch.no_grad(), models.evaluating(model, reference, critic):
        shared = all(net.shares_prompts(gradient=False) for net in (model, other, critic) if net is not None)
        return in_micro_batches(tokens, compute, micro_batch_size, model.device, shared=shared)

"""Tokens that an engine drew from another distribution than the policy's: how far apart the two are, and the correction of
the advantages.

The advantages are multiplied, each token's by its weight w. As w is not negative, that equals weighing the terms of the
clipped surrogate, w min(r A, clip(r) A) = min(r (w A), clip(r) (w A)), whatever the algorithm, its epochs and its
micro-batches are. Left out: weights of the other terms of a loss (a KL or an entropy bonus in the loss, the value loss),
and weights of whole responses.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from fgrl.base import ops
from fgrl.base.errors import Stopped
from fgrl.kinds import Correction
from fgrl.types import Advantages, Rollout


def corrected(advantages: Advantages, rollout: Rollout, correction: Correction) -> tuple[Advantages, dict[str, float]]:
    """Return the advantages to train with, and the metrics of `measured` with `correction_weight`, the mean of what they
    were multiplied by.
    """
    metrics = measured(rollout, correction.bound)
    if correction.kind == "none":
        return advantages, metrics
    weight = ops.importance_weight(
        rollout.filled("old_logp"), rollout.filled("drawn_logp"), rollout.drawn, correction.kind, correction.bound
    )
    metrics["correction_weight"] = float(ops.masked_mean(weight, rollout.drawn))
    return replace(advantages, advantage=advantages.advantage * weight), metrics


def measured(rollout: Rollout, bound: float) -> dict[str, float]:
    """Return how far the policy's log-probabilities of the drawn tokens are from the engine's.

    With d = old_logp - drawn_logp and w = exp(d), over all tokens: `mismatch` the mean of |d|, `mismatch_max` the largest
    |d|, `mismatch_outside` the share with w outside 1 / bound to bound, `importance_weight` the mean of w, which is 1 but
    for chance where the engine's log-probabilities are those that it drew with, and `engine_kl` the mean of w - 1 - d, an
    unbiased estimate of KL(engine || policy) in nats per token.
    """
    mask = rollout.drawn
    difference = (rollout.filled("old_logp") - rollout.filled("drawn_logp"))[mask].double()
    weight = difference.exp()
    outside = (weight > bound) | (weight < 1.0 / bound)
    return {
        "mismatch": float(difference.abs().mean()),
        "mismatch_max": float(difference.abs().max()),
        "mismatch_outside": float(outside.double().mean()),
        "importance_weight": float(weight.mean()),
        "engine_kl": float((torch.expm1(difference) - difference).mean()),
    }


def staleness(rollout: Rollout, number: int, ahead: int) -> dict[str, float]:
    """Return the metric `staleness`: how many iterations before `number` the weights that a response was drawn from were
    those of the policy. Raises `Stopped` for responses of other weights than those of the iteration, or the one before it
    with `ahead`.
    """
    age = number - rollout.filled("drawn_version")
    if bool(((age < 0) | (age > ahead)).any()):
        versions = ", ".join(map(str, sorted(set(rollout.filled("drawn_version").tolist()))))
        raise Stopped(
            f"responses of iteration {number} were drawn from weights of version {versions}, where {number - ahead} to {number} are "
            "allowed: the engine did not take the weights that it was given. Run the same command again; if it stays, try "
            "another `transfer`"
        )
    return {"staleness": float(age.double().mean())}

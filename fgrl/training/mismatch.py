"""Correction of advantages for tokens that an engine drew from a distribution other than the policy's, and metrics of
the difference.

Each token's advantage is multiplied by its weight w. As w is not negative, that equals weighting the terms of the
clipped surrogate, w min(r A, clip(r) A) = min(r (w A), clip(r) (w A)), for every algorithm, number of epochs and
division into micro-batches. Not included: weights of the other terms of a loss (a KL or an entropy bonus in the loss,
the value loss), and weights of whole responses.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from fgrl.base import ops
from fgrl.base.errors import Stopped
from fgrl.kinds import Correction
from fgrl.types import Advantages, Rollout


def corrected(advantages: Advantages, rollout: Rollout, correction: Correction) -> tuple[Advantages, dict[str, float]]:
    """Return the advantages for training, and the metrics of `measured` with `correction_weight`, the mean of the
    factors.
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
    """Return metrics of the difference between the policy's and the engine's log-probabilities of the drawn tokens.

    With d = old_logp - drawn_logp and w = exp(d), over all tokens: `mismatch` is the mean of |d|, `mismatch_max` the
    largest |d|, `mismatch_outside` the share with w outside 1 / bound to bound, `importance_weight` the mean of w,
    which is 1 except for chance if the engine drew with the log-probabilities that it reports, and `engine_kl` the mean
    of w - 1 - d, an unbiased estimate of KL(engine || policy) in nats per token.
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
    """Return the metric `staleness`: the number of iterations between the weights that a response was drawn from and
    the policy of iteration `number`. Raises `Stopped` if the weights are newer than the iteration's, or more than
    `ahead` iterations older.
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

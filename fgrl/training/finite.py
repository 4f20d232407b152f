"""Numbers of a training that are not finite stop it before they reach a checkpoint or a product.

There is a warning about a reward that no loss uses. Rewards are checked where they are scored
(`fgrl.kinds.functions.checked_rewards`), and products where they are saved (`fgrl.models.save`). Every process comes to
the same decision: the checked values are the same in all of them, or they agree on the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from fgrl.base.errors import Stopped
from fgrl.models.finite import is_finite
from fgrl.types import Advantages, Rewards, Rollout

Agree = Callable[[bool], bool]
"""Function of the decision of this process; it returns True if the decision is True in all processes."""
KEPT = "The last checkpoint, which is older, is kept, and no model is saved."


def check_advantages(advantages: Advantages, rollout: Rollout, rewards: Rewards, when: str) -> None:
    """Raise `Stopped` if an advantage or a return of a drawn token is not finite. All processes have the same rows."""
    for name, tensor in (("advantage", advantages.advantage), ("return", advantages.returns)):
        if tensor is not None and not bool(torch.isfinite(torch.where(rollout.drawn, tensor, 0.0)).all()):
            response = rewards.response
            raise Stopped(
                f"the {name} of a token is not finite in {when}. The rewards of the responses are between "
                f"{float(response.min()):.3g} and {float(response.max()):.3g}: larger numbers than float32 holds come of them; scale the "
                f"reward down, or look at it with `fgrl inspect`. {KEPT}"
            )


def lost_rewards(advantages: Advantages, rollout: Rollout, rewards: Rewards) -> str:
    """Return a warning about rewards on tokens that are in no loss; "" if there are none."""
    counted = rollout.drawn if advantages.trained is None else rollout.drawn & advantages.trained
    given = rollout.mask & (rewards.token.nan_to_num() != 0)
    lost = given & ~counted
    if not bool(lost.any()):
        return ""
    row, place = lost.nonzero()[0].tolist()
    author = (
        "the policy drew, and the algorithm leaves out" if bool(rollout.drawn[row, place]) else "an environment wrote"
    )
    return (
        f"warning: {int(lost.sum())} of {int(given.sum())} rewards are on tokens that no loss counts, and are lost: the first is on token "
        f"{place} of a response to prompt {rollout.samples[row].id}, which {author}. Put a reward on a token that the policy drew, such as the last "
        "one of its turn"
    )


def check_loss(
    loss: torch.Tensor, when: str, lr: float, agree: Agree, written_at: Callable[[], str] = lambda: ""
) -> None:
    """Raise `Stopped` in all processes if the loss of a micro-batch is not finite in one of them.

    written_at: returns the place of the user's code of the loss; "" for a loss of fgrl itself.
    """
    if agree(bool(torch.isfinite(loss))):
        return
    place = written_at()
    whose = f"that {place} returned " if place else ""
    first = "Look for a division by 0 or a logarithm of 0 there. " if place else ""
    raise Stopped(
        f"the loss {whose}is not finite at {when}. {first}Lower train.lr (now {lr:g}), or look at the curves with `fgrl report`. {KEPT}"
    )


def check_gradient(norm: float, network: str, when: str, clip_norm: float | None) -> None:
    """Raise `Stopped` if the norm of an optimizer step's gradient, which all processes know, is not finite."""
    if not math.isfinite(norm):
        clipping = "set train.clip_norm, " if clip_norm is None else ""
        raise Stopped(
            f"the gradient of the {network or 'model'} is not finite at {when}. Likely causes: model.lora.alpha / r or a coefficient of the "
            f"loss is far too large, or train.lr is: {clipping}lower them. {KEPT}"
        )


def check_weights(named: Iterable[tuple[str, Any]], when: str, agree: Agree) -> None:
    """Raise `Stopped` in all processes if a trained weight is not finite in one of them. If weights are sharded, each
    process checks its own part.
    """
    parts = [(name, _own_part(weight)) for name, weight in named]
    broken = [name for name, part in parts if part.numel() and not is_finite(part)]
    if not agree(not broken):
        where = f", the first of them in {broken[0]}," if broken else ""
        raise Stopped(
            f"{len(broken) or 'some'} trained weights{where} are not finite at {when}. Lower train.lr, train.weight_decay or "
            f"model.lora.alpha. {KEPT}"
        )


def _own_part(weight: Any) -> torch.Tensor:
    """Return this process's part of a weight under FSDP (a DTensor) or ZeRO-3 (a partition)."""
    data = weight.detach()
    if hasattr(data, "to_local"):
        return data.to_local()  # type: ignore[no-any-return]
    return getattr(weight, "ds_tensor", data)  # type: ignore[no-any-return]

"""Losses of direct alignment, from the log-ratios of a pair's winner and loser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fgrl.base import lazy
from fgrl.base.ops.statistics import check_choice

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")

Objective = Literal["dpo", "ipo", "apo_zero", "apo_down"]


def preference_loss(
    winner: Tensor,
    loser: Tensor,
    objective: Objective,
    beta: float,
    *,
    label_smoothing: float = 0.0,
    dpop_lambda: float = 0.0,
) -> Tensor:
    """Return the loss of each pair, [N], from w = winner and l = loser, [N] each: log p(response) - log
    p_reference(response), in nats.

    With s the sigmoid and b = beta:

        dpo       -log s(x), x = b (w - l)                    Rafailov et al. 2023, Eq. 7
          dpop_lambda:      x = b (w - l - lambda max(0, -w))   DPO-Positive: Pal et al. 2024, Eq. 3 (its penalty is inside)
          label_smoothing:  -(1 - e) log s(x) - e log s(-x)     conservative DPO: the preference is flipped with probability e
        ipo       ((w - l) - 1 / (2 b))^2                      Azar et al. 2024, Eq. 17, b is their tau
        apo_zero  (1 - s(b w)) + s(b l)                        D'Oosterlinck et al. 2025, Eq. 7
        apo_down  s(b w) + (1 - s(b (w - l)))                  the same, Eq. 8

    Where w = l = 0 the values are log 2, 1 / (4 b^2), 1 and 1; the penalty has no gradient there. Raises ValueError for
    an unknown objective, and for a penalty or smoothing of another objective than dpo.
    """
    check_choice("objective", objective, ("dpo", "ipo", "apo_zero", "apo_down"))
    if objective != "dpo" and (label_smoothing or dpop_lambda):
        raise ValueError(f"label_smoothing and dpop_lambda belong to the objective dpo, not to {objective}")
    sigmoid, log_sigmoid = torch.sigmoid, torch.nn.functional.logsigmoid
    if objective == "ipo":
        return (winner - loser - 1 / (2 * beta)).square()
    if objective == "apo_zero":
        return (1 - sigmoid(beta * winner)) + sigmoid(beta * loser)
    if objective == "apo_down":
        return sigmoid(beta * winner) + (1 - sigmoid(beta * (winner - loser)))
    difference = winner - loser
    if dpop_lambda:
        difference = difference - dpop_lambda * torch.relu(-winner)
    x = beta * difference
    losses = -log_sigmoid(x)
    return losses * (1 - label_smoothing) - log_sigmoid(-x) * label_smoothing if label_smoothing else losses

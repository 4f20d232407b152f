"""Leave-one-out policy gradient by turn (REINFORCE leave-one-out: Kool et al. 2019; Ahmadian et al. 2024).

For turn k of conversation i, A = G - b. G is the sum of all rewards of i from turn k on, including the reward of turn k
and the outcome. b is the mean of G at turn k over the other conversations of the prompt that reached turn k. If no
other conversation reached it, b is the mean of the others' whole returns minus the rewards of i before turn k. b does
not depend on any choice of i from turn k on. The gradient is therefore unbiased, although the policy decides on the
number of turns. This holds for the first step on fresh, untruncated draws, before clipping, with `aggregate: sum`.
`docs/credit-over-turns.md` measures it.

Not supported: division by a standard deviation, which would depend on the very choice that it weighs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fgrl.base import lazy, ops
from fgrl.kinds import Numbers
from fgrl.registry import register
from fgrl.training.turn_relative import TurnRelative
from fgrl.types import Rewards, Rollout

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


@register("turn_rloo")
class TurnRLOO(TurnRelative):
    """Clipped policy gradient whose advantage is the sum of a conversation's rewards from a turn on, minus the mean of
    the other conversations of its prompt. It is unbiased although the policy decides on the number of turns.
    """

    baseline: Literal["turn", "response"] = "turn"
    """Baseline of a turn: the returns of the other conversations from the same turn on (`turn`), or their whole
    returns, for an advantage of the whole response (`response`). Both are unbiased. The second is noisier if the
    rewards before the turn differ, and less noisy if few other conversations reached the turn.
    """

    def of_turns(self, earned: Tensor, reached: Tensor, rollout: Rollout, rewards: Rewards) -> tuple[Tensor, Numbers]:
        to_come = earned.flip(1).cumsum(dim=1).flip(1)
        # a turn that no other conversation reached: G - (mean of the others' returns - earned before) is the return less that mean
        whole, _others = ops.leave_one_out(to_come[:, :1], reached[:, :1], rollout.group)
        of_turn, others = ops.leave_one_out(to_come, reached, rollout.group)
        alone = reached & ~others
        compared = others if self.baseline == "turn" else torch.zeros_like(others)
        advantage = torch.where(compared, of_turn, whole)
        return torch.where(reached, advantage, 0.0), {"alone": float(alone.sum() / reached.sum().clamp(min=1))}

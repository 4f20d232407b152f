"""Leave-one-out policy gradient by turn (REINFORCE leave-one-out: Kool et al. 2019; Ahmadian et al. 2024).

For turn k of conversation i, A = G - b. G is all that i earns from turn k on, the reward of turn k and the outcome
included. b is the mean of G at turn k over the other conversations of the prompt that reached turn k; where none did, the
mean of the others' whole returns less what i had earned before turn k. b depends on no choice that i makes from turn k
on, so that the gradient is the true one on average, although the policy decides how many turns there are. That holds for
the first step on fresh, untruncated draws, before clipping, with `aggregate: sum`. `docs/credit-over-turns.md` measures it.

Left out: division by a standard deviation, which would depend on the very choice that it weighs.
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
    """Clipped policy gradient whose advantage is what a conversation earns from a turn on, less the mean of the other
    conversations of its prompt: unbiased although the policy decides how many turns there are.
    """

    baseline: Literal["turn", "response"] = "turn"
    """Compare with the others from the same turn on, or the whole response with the other whole responses. Both are
    unbiased; the second is noisier where what was earned before differs, and less noisy where few others reached a turn.
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

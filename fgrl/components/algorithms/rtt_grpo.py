"""RTT-GRPO: group advantages of whole responses and token advantages of their criteria ("Rubrics to Tokens", section 4.2).

The steps are those of Eq. 6 and 7 and section 4.2.2. Options whose help names the release are what the authors' code does
otherwise. Left out: the two normalizations of the release that the paper does not have (one mixes responses to different
prompts; the other weighs group advantages of single criteria with a softmax of their relevances).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from fgrl import lazy, ops
from fgrl.kinds import Numbers
from fgrl.modules.group_relative import GroupRelative
from fgrl.registry import register
from fgrl.types import Mean, Rewards, Rollout

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


@register("rtt_grpo")
class RTTGRPO(GroupRelative):
    """GRPO with a token advantage: each criterion's verdict on the tokens that it hangs on."""

    alpha: float = Field(1.0, ge=0)
    """Weight of the group advantage (Eq. 7)."""
    beta: float = Field(0.5, ge=0)
    """Weight of the token advantage (Eq. 7); with 0 it is GRPO."""
    mixing: Literal["add", "mix"] = "add"
    """`add`: alpha x group + beta x token (Eq. 7). `mix`: (1 - beta) x group + beta x token, an option of the release."""
    partition: Literal["intra_sample", "inter_sample", "none"] = "intra_sample"
    """Standardise a criterion's token rewards inside each response, over all responses to the prompt (the longer ones weigh
    more), or not at all."""
    criteria: Literal["each", "union"] = "each"
    """Standardise each criterion by itself and then take the mean, or take the mean of all criteria first."""
    include_eos: bool = True
    """Count the token that ends the response among the T tokens of section 4.2.2. Left out, it has no token advantage, and
    where single tokens are blamed all others gain on it: responses grow."""
    least_spread: float = Field(0.0, ge=0)
    """A criterion whose token rewards spread less than this (population std) inside their partition has no token advantage.
    With 0, as in the paper, the noise of relevances that are nearly equal becomes as large as any difference."""
    released_order: bool = False
    """Give rewards to responses and criteria in the mixed-up order of the release, to compare with its numbers."""

    @model_validator(mode="after")
    def _check_mixing(self) -> RTTGRPO:
        if self.mixing == "mix" and "alpha" in self.model_fields_set:
            raise ValueError("mixing: mix weighs the group advantage with 1 - beta; leave out alpha")
        if self.mixing == "mix" and self.beta > 1:
            raise ValueError(f"mixing: mix wants beta of at most 1, got {self.beta:g}")
        if self.least_spread and self.partition == "none":
            raise ValueError("least_spread is about standardising, and partition: none does not: leave one of them out")
        return self

    def reads(self) -> frozenset[str]:
        return frozenset({"criterion"} if self.beta else ())

    def combine(self, advantage: Tensor, rollout: Rollout, rewards: Rewards) -> tuple[Tensor, Numbers]:
        """Eq. 7, [B,T]."""
        alpha = 1.0 - self.beta if self.mixing == "mix" else self.alpha
        if not self.beta:
            return alpha * advantage, {}
        if rewards.criterion is None:
            raise ValueError(
                "rtt_grpo reads rewards for single criteria: take a reward that has them, as rubric with relevance"
            )
        criterion = rewards.criterion
        mask = rollout.mask if self.include_eos else rollout.mask & ~rollout.eos
        if self.released_order:
            criterion = ops.reshaped_criteria(criterion, rollout.mask, rollout.group)
        # 1. token rewards of each criterion: verdict (+1 or -1) x relevance. That is `criterion`.
        # 2. standardised in the partition, and 3. their mean over the response's criteria
        token = ops.criterion_advantage(
            criterion, mask, rollout.group, self.partition, union=self.criteria == "union", least=self.least_spread
        ).to(advantage.dtype)
        # 4. both together
        combined = torch.where(rollout.mask, alpha * advantage + self.beta * token, 0.0)
        told = ops.known_criteria(criterion, rollout.mask).any(dim=1)
        return combined, {
            "token_advantage": Mean(token.abs().sum(), mask.sum()),
            "group_advantage": Mean(advantage.abs().sum(), rollout.mask.sum()),
            "untold": float((~told).float().mean()),
        }

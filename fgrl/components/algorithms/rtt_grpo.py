"""RTT-GRPO: group advantages of whole responses and token advantages of their criteria ("Rubrics to Tokens", section
4.2).

`rtt_grpo` follows Eq. 6 and 7 and section 4.2.2; `rtt_grpo_released_order` differs from it as the authors' code does.
Not supported: two normalizations of that code that the paper does not mention. One mixes responses to different
prompts; the other weights group advantages of single criteria by a softmax of their relevances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from fgrl.base import lazy, ops
from fgrl.kinds import Numbers
from fgrl.registry import register
from fgrl.training.group_relative import GroupRelative
from fgrl.types import Mean, Rewards, Rollout

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


@register("rtt_grpo")
class RTTGRPO(GroupRelative):
    """GRPO with an additional token advantage: each criterion's verdict on the tokens that it depends on."""

    columns_read = frozenset({"criterion"})

    response_weight: float = Field(1.0, ge=0, le=1e6)
    """Weight of the group advantage of the response (alpha in Eq. 7)."""
    token_weight: float = Field(0.5, ge=0, le=1e6)
    """Weight of the token advantage (beta in Eq. 7); 0 gives GRPO."""
    mixing: Literal["add", "mix"] = "add"
    """Combination of the two advantages. `add`: response_weight x group + token_weight x token (Eq. 7). `mix`: (1 -
    token_weight) x group + token_weight x token, an option of the authors' release.
    """
    partition: Literal["intra_sample", "inter_sample", "none"] = "intra_sample"
    """Set of token rewards of a criterion that is standardized together: the tokens of one response, of all responses
    to the prompt (longer ones count more), or none.
    """
    criteria: Literal["each", "union"] = "each"
    """Order of averaging: standardize each criterion separately and then take their mean, or take the mean of all
    criteria first.
    """
    include_eos: bool = True
    """Count the token that ends the response among the T tokens of section 4.2.2. If false, this token has no token
    advantage. If a criterion then blames single tokens, all other tokens have a positive advantage, so responses grow.
    """
    min_std: float = Field(0.0, ge=0, le=1e6)
    """Minimum standard deviation (population) of a criterion's token rewards inside their partition. Below it, the
    criterion has no token advantage. With 0, as in the paper, the noise of nearly equal relevances is scaled up to the
    size of any difference.
    """

    @model_validator(mode="after")
    def _check_mixing(self) -> RTTGRPO:
        if self.mixing == "mix" and "response_weight" in self.model_fields_set:
            raise ValueError("mixing: mix weighs the group advantage with 1 - token_weight; leave out response_weight")
        if self.mixing == "mix" and self.token_weight > 1:
            raise ValueError(f"mixing: mix wants token_weight of at most 1, got {self.token_weight:g}")
        if self.min_std and self.partition == "none":
            raise ValueError("min_std is used to standardise, and partition: none does not: leave one of them out")
        return self

    def reads(self) -> frozenset[str]:
        return self.columns_read if self.token_weight else frozenset()

    def criterion_rewards(self, criterion: Tensor, rollout: Rollout) -> Tensor:
        """Return the token rewards [B,C,T] of each criterion, verdict (+1 or -1) x relevance, in the order in which
        they are standardized.
        """
        return criterion

    def combine(self, advantage: Tensor, rollout: Rollout, rewards: Rewards) -> tuple[Tensor, Numbers]:
        """Return the combined advantages of Eq. 7, [B,T]."""
        response_weight = 1.0 - self.token_weight if self.mixing == "mix" else self.response_weight
        if not self.token_weight:
            return response_weight * advantage, {}
        if rewards.criterion is None:
            raise ValueError(
                "rtt_grpo reads rewards for single criteria: use a reward that has them, such as rubric with relevance"
            )
        mask = rollout.drawn if self.include_eos else rollout.drawn & ~rollout.eos
        # 1. token rewards of each criterion
        criterion = self.criterion_rewards(rewards.criterion, rollout)
        # 2. standardised in the partition, and 3. their mean over the response's criteria
        token = ops.criterion_advantage(
            criterion, mask, rollout.group, self.partition, union=self.criteria == "union", min_std=self.min_std
        ).to(advantage.dtype)
        # 4. both together
        combined = torch.where(rollout.drawn, response_weight * advantage + self.token_weight * token, 0.0)
        has_criterion = ops.known_criteria(criterion, rollout.drawn).any(dim=1)
        return combined, {
            "token_advantage": Mean(token.abs().sum(), mask.sum()),
            "group_advantage": Mean(advantage.abs().sum(), rollout.drawn.sum()),
            "without_criteria": float((~has_criterion).float().mean()),
        }


@register("rtt_grpo_released_order")
class ReleasedOrder(RTTGRPO):
    """`rtt_grpo` with the incorrect order of responses and criteria of the authors' release, for comparison with its
    numbers.

    For a group with G responses and K criteria, the release reshapes [G,K,T] to [K,G,T] instead of transposing it. In
    place of criterion k of response g it therefore uses criterion (kG + g) mod K of response (kG + g) div K.
    """

    def criterion_rewards(self, criterion: Tensor, rollout: Rollout) -> Tensor:
        reordered = criterion.clone()
        for number in torch.unique(rollout.group):
            rows = (rollout.group == number).nonzero().flatten()
            known = ops.known_criteria(criterion[rows], rollout.drawn[rows]).any(dim=0).nonzero().flatten().tolist()
            count = known[-1] + 1 if known else 0  # absent criteria come last
            of_group = criterion[rows, :count]
            reordered[rows, :count] = of_group.reshape(count, len(rows), of_group.shape[2]).transpose(0, 1)
        return reordered

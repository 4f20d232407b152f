"""Only the most uncertain tokens (arXiv 2506.01939): the policy gradient of the fifth of all tokens with the highest entropy."""

from __future__ import annotations

from pydantic import Field

from fgrl import Aggregation, GroupRelative, register


@register("top_entropy_grpo")
class TopEntropyGRPO(GroupRelative):
    """GRPO on the tokens with the highest entropy of the policy; the other tokens take no part in any term of the
    loss.
    """

    aggregate: Aggregation = "token_mean"
    """Aggregation of the loss: each trained token of a step counts equally, as in the paper, also in a long
    response.
    """
    share: float = Field(0.2, gt=0, le=1)
    """Share of the tokens of an iteration that are trained on (rho in the paper)."""

    def needs(self):
        return super().needs() | {"entropy"}

    def credited(self, rollout, rewards):
        entropy = rollout.filled("entropy")
        real = entropy[rollout.drawn]
        cutoff = real.topk(max(1, round(self.share * len(real)))).values[-1]
        rounding = 1e-5  # of entropies that are equal, as those of a prompt's first tokens
        return rollout.drawn & (entropy >= cutoff - rounding)

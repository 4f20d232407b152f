"""DelTA (arXiv 2605.21467): tokens have a higher weight if their gradients separate responses above the mean of their
group from responses below it.

With the group's advantages A_i, and a token's gradient v_i,t = (1 - p(y_t)) h_t, that of log p(y_t) to its row of the output layer, which
reads the state h_t (Appendix F),

    mu+     = mean of v weighted with A_i score_i,t over responses with A_i > 0;  mu- the same with |A_i| where A_i < 0    (Eq. 3, 7)
    margin  = |v - mu-|^2 - |v - mu+|^2 of a token on the + side, the negative of it on the - side
    score   = sigmoid(margin / std of the margins on the token's side)                                                     (Eq. 6)

starting from scores of 1, `refinements` times. The last margins are of the refined means, and their stds those of the pass before
(Appendix H). Then a token's advantage is A_i times 1 - spread + 2 spread score, scaled to a mean of 1 over all tokens (Eq. 8).
docs/credit/delta.md lists what differs.
"""

from __future__ import annotations

import torch
from pydantic import Field

from fgrl import Aggregation, GroupRelative, Mean, ops, register


@register("delta")
class DelTA(GroupRelative):
    """GRPO with a weight per token, by the side (above or below the mean) whose gradients are similar to its own, over
    the responses of an iteration.
    """

    aggregate: Aggregation = "token_mean"
    """Aggregation of the loss: each token of a step counts equally before its weight (DAPO)."""
    spread: float = Field(0.2, ge=0, le=1)
    """Half width of the range of weights, from 1 - spread to 1 + spread, before they are scaled to a mean of 1."""
    refinements: int = Field(1, ge=0)
    """Number of times that the means of the sides are computed again with scores (K)."""

    def needs(self):
        return super().needs() | {"policy"}

    def combine(self, advantage, rollout, rewards):
        mask = rollout.drawn
        gradients, given = self.gradients(rollout), advantage[mask]
        score, own = self.scores(gradients, given)
        weight = 1.0 - self.spread + 2.0 * self.spread * score
        combined = torch.zeros_like(advantage)
        combined[mask] = given * weight / weight.mean()
        return combined, {"own_side": Mean(own[given != 0].sum(), (given != 0).sum())}

    def gradients(self, rollout):
        """Return the gradients [N,h] of the N tokens, in the order of the mask; one pass over all responses."""
        policy, mask = rollout.policy, rollout.drawn
        number = torch.zeros(mask.shape, dtype=torch.long, device=mask.device)
        number[mask] = torch.arange(int(mask.sum()), device=mask.device)
        found = None
        for _rows, part, place in policy.micro_batches(rollout, number):
            states = policy.states(part)
            logp = policy.model.score_states(states, part, temperature=policy.temperature).logp[part.drawn]
            if found is None:
                found = states.new_zeros(int(mask.sum()), states.shape[1], dtype=torch.float32)
            found[place[part.drawn]] = (1.0 - logp.float().exp())[:, None] * states[part.drawn[part.mask]].float()
        return found.to(mask.device)

    def scores(self, gradients, advantage):
        """Return scores [N] from 0 to 1, 0 if the advantage is 0, and the tokens that are nearer to their own side,
        bool [N].
        """
        side, size, score, temperature = advantage.sign(), advantage.abs(), torch.ones_like(advantage), None
        for _ in range(self.refinements + 1):
            above, below = (size * score * (side == sign) for sign in (1, -1))
            mean, other = ((mass @ gradients) / mass.sum().clamp(min=1e-8) for mass in (above, below))
            margin = side * (2.0 * (gradients @ (mean - other)) + other.square().sum() - mean.square().sum())
            stds = [ops.masked_var(margin, side == sign).clamp(min=1e-8).sqrt() for sign in (1, -1)]
            found = torch.where(side > 0, *stds)
            score = torch.where(side == 0, 0.0, (margin / (found if temperature is None else temperature)).sigmoid())
            temperature = found
        return score, margin > 0

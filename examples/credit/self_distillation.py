"""On-policy self-distillation: the policy, when it is told the answer, scores each token that it wrote without knowing
the answer.

    r_t = log p(y_t | prompt with the reference, y_<t) - log p(y_t | prompt, y_<t)

Both terms are computed by the policy that drew the response, at the temperature of sampling. In the first term it reads
a prompt that names the reference. With `ppo`, no values and `lam: 0`, the advantage of a token is its own reward, and
the mean of the gradient is that of -KL(policy || policy that is told), token by token. With the algorithm
`told_distance` (told_distance.py) the loss is that KL over the whole vocabulary, of the distribution of each token,
which has less noise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from pydantic import Field

from fgrl import (
    DataError,
    Mean,
    Message,
    Reward,
    Rewards,
    encode_prompt,
    pad_prompts,
    per_row,
    register,
)


@dataclass
class ToldRewards(Rewards):
    """Rewards, and the prompts of the policy that is told, long [B,W]."""

    told: torch.Tensor = field(kw_only=True, metadata={"column": per_row(fill=-1, side="left")})


@register("self_distillation")
class SelfDistillation(Reward):
    """Reward of each token of a response: how much more probable it is for the policy that is told the prompt's
    reference.
    """

    told: str = "\n(The right answer is: {reference})"
    """Text after the prompt of the policy that is told; {reference} stands for the reference."""
    clip: float | None = Field(None, gt=0)
    """Limit of a token's reward in nats; null: no limit."""

    def needs(self):
        return frozenset({"policy", "old_logp"})

    def fills(self):
        return frozenset({"told"})

    def on_tokens(self):
        return True

    def score(self, rollout):
        policy, own = rollout.policy, rollout.filled("old_logp")
        prompts = [encode_prompt(policy.tokenizer, self.with_answer(sample)).token_ids for sample in rollout.samples]
        ids, mask = pad_prompts(prompts, 0)
        informed = replace(rollout, prompt_ids=ids.to(own.device), prompt_mask=mask.to(own.device))
        gain = torch.where(rollout.drawn, policy.score(informed).logp.to(own) - own, 0.0)
        token = gain if self.clip is None else gain.clamp(-self.clip, self.clip)
        return ToldRewards(
            token.sum(dim=1), token, rollout.drawn, told=informed.prompt_ids.masked_fill(~informed.prompt_mask, -1),
            metrics={"gain": Mean(gain.sum(), rollout.drawn.sum())},
        )  # fmt: skip

    def with_answer(self, sample):
        """Return the prompt with the reference in its last message."""
        if not sample.reference:
            raise DataError(f"prompt {sample.id} has no reference that the policy could be told")
        reference = sample.reference if isinstance(sample.reference, str) else sample.reference[0]
        told = self.told.replace("{reference}", reference)
        if isinstance(sample.prompt, str):
            return sample.prompt + told
        return [*sample.prompt[:-1], Message(role=sample.prompt[-1].role, content=sample.prompt[-1].content + told)]

"""Changes to token rewards before training: centring, and a reward of the end token.

Rewards are on tokens of the text, and the token that ends a response gets 0. Whitened advantages compare the two: if
the mean token reward is negative, ending early looks good; if it is positive, it looks bad, whatever the text is worth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from fgrl.base import lazy, ops
from fgrl.kinds import OnlineAlgorithm, Reward
from fgrl.registry import Settings, name_of

if TYPE_CHECKING:
    from torch import Tensor

    from fgrl.types import Rewards, Rollout
torch = lazy.load("torch")


class TokenRewards(Settings):
    """Changes to token rewards between the reward and the algorithm: first `center`, then `end_reward`. The KL is not
    changed.
    """

    center: Literal["none", "batch", "prompt"] = "none"
    """Mean token reward that is subtracted from each token of a response except its end token: the mean of the
    iteration (`batch`) or of the responses to the same prompt (`prompt`). Then an average token is worth as much as the
    end. The mean is over all these tokens; a token without a reward counts as 0. Rewards of single criteria, which
    `rtt_grpo` reads, are centred too: `prompt` centres each criterion separately, `batch` all of them together.
    """
    end_reward: float = 0.0
    """Number that is added to the reward of the token that ends a response, which is 0 with most rewards. A response
    that was cut off has no such token.
    """

    def check(self, reward: Reward, algorithm: OnlineAlgorithm, per_prompt: int) -> None:
        """Raise ValueError if the settings would change nothing, or lose information of the reward."""
        if not algorithm.reads_token_rewards and "criterion" not in algorithm.reads():
            raise ValueError(
                f"{name_of(algorithm)[1]} reads no token rewards, so that center and end_reward would change nothing: use an "
                "algorithm that reads them, such as ppo, or leave token_rewards out"
            )
        if self.center == "none":
            return
        if reward.on_tokens() is False:
            raise ValueError(
                f"center: {self.center} takes the mean over the tokens of responses, and the reward {name_of(reward)[1]} as it is set "
                "here is one number per response, on its last token: use a reward of tokens or spans, or center: none"
            )
        if self.center == "prompt" and per_prompt == 1:
            raise ValueError(
                "center: prompt takes the mean over the responses to a prompt, and with one response its rewards would add up to 0, "
                "whatever it is worth: set rollout.per_prompt to 2 or more, or use center: batch"
            )

    def applied(self, rollout: Rollout, rewards: Rewards) -> tuple[Rewards, dict[str, float]]:
        """Return the rewards for training, and metrics. Only `token` and `criterion` change; rollout and rewards are
        those of all processes.
        """
        mask, criterion = rollout.drawn, rewards.criterion
        token = self._changed(torch.where(mask, rewards.token, 0.0)[:, None], mask[:, None], rollout)[:, 0]
        if criterion is not None:
            known = ops.known_criteria(criterion, mask)[:, :, None] & mask[:, None]
            criterion = self._changed(criterion, known, rollout)
        metrics = {"token_reward_given": float(ops.masked_mean(rewards.token, mask))}
        return replace(rewards, token=token, criterion=criterion), metrics

    def _changed(self, x: Tensor, known: Tensor, rollout: Rollout) -> Tensor:
        """Return the rewards [B,C,T] after both changes; values that are not `known` (bool [B,C,T]) are unchanged."""
        ends = known & rollout.eos[:, None]
        if self.center != "none":
            kinds = torch.arange(x.shape[1], device=x.device)
            by_prompt = ops.group_index(rollout.group)[:, None] * len(kinds) + kinds
            group = by_prompt if self.center == "prompt" else torch.zeros_like(by_prompt)
            text = known & ~ends
            centred = ops.centred(x.flatten(0, 1), text.flatten(0, 1), group.flatten())
            x = torch.where(text, centred.view_as(x), x)
        changed: Tensor = torch.where(ends, x + self.end_reward, x)
        return changed

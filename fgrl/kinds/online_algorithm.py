"""Online algorithms: policy-gradient methods on the policy's own samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from fgrl.registry import Component, kind
from fgrl.types import Advantages, Batch, Numbers, Rewards, Rollout

if TYPE_CHECKING:
    from torch import Tensor


@kind("online_algorithm")
class OnlineAlgorithm(Component, ABC):
    """Online algorithm: a policy-gradient method on the policy's own samples."""

    critic: ClassVar[bool] = False
    """True if it can train a value function beside the policy. See `uses_critic`."""
    min_per_prompt: ClassVar[int] = 1
    """Minimum number of responses per prompt."""
    reads_token_rewards: ClassVar[bool] = True
    """True if it reads `Rewards.token`, False if it takes one reward per response."""
    columns_read: ClassVar[frozenset[str]] = frozenset()
    """Columns that `reads` may return with any settings."""

    epochs: int = Field(1, ge=1, le=1_000)
    """Number of passes over each rollout."""

    def uses_critic(self) -> bool:
        """Return True if a value function is trained beside the policy."""
        return self.critic

    def needs(self) -> frozenset[str]:
        """Return the fields of `Rollout` to fill, from `ROLLOUT_NEEDS`."""
        return frozenset({"old_logp"})

    def can_skip_old_logp(self) -> bool:
        """Return True if the algorithm does not need `old_logp` as long as an iteration is one optimizer step.

        The policy is then the one that sampled, so `loss` can take its own log-probabilities, detached: the ratio is 1.
        `rollout.old_logp` is not computed: the column "old_logp" is missing (unless the reward needs it), and `loss`
        reports "entropy", and "kl" if it has "ref_logp", for the responses of the micro-batch.
        """
        return False

    def reads(self) -> frozenset[str]:
        """Return the optional fields and `columns` of `Rewards` that the algorithm requires: a reward that does not
        fill them is refused.
        """
        return self.columns_read

    @abstractmethod
    def advantages(self, rollout: Rollout, rewards: Rewards) -> Advantages: ...

    def short_of(self, rollout: Rollout, rewards: Rewards, advantages: Advantages, groups: int) -> int:
        """Return the number of groups that are missing before it trains, of the `groups` that an iteration has; 0 if
        none is missing.

        If `rollout.draws_at_most` allows it, the next prompts are answered, and `advantages` is called again with
        everything that was drawn.
        """
        return 0

    @abstractmethod
    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Numbers]: ...

    def state_dict(self) -> dict[str, Any]:
        """Return the state that changes while training (an adaptive KL coefficient): numbers, text, tensors, in
        mappings or lists.

        Checkpoints are read without unpickling anything else.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

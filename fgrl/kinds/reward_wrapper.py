"""Rewards that are computed from another reward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from fgrl.kinds.planning import AtMost, stated
from fgrl.kinds.reward import Reward
from fgrl.types import Request, Rollout, Sample

if TYPE_CHECKING:
    from torch import Tensor

    from fgrl.base.errors import FgrlError


class RewardWrapper(Reward):
    """A reward that is computed from another reward.

    The needs, fields and requests of `reward` count for the wrapper as well. A subclass defines `score`, and names its
    own needs and fields.

        @register("halved")
        class Halved(RewardWrapper):
            '''Half of another reward.'''

            def score(self, rollout):
                rewards = self.reward.scored(rollout)
                return replace(rewards, response=rewards.response / 2, token=rewards.token / 2)
    """

    own_needs: ClassVar[frozenset[str]] = frozenset()
    """Fields of the rollout that the wrapper needs in addition to those of `reward`."""
    own_fills: ClassVar[frozenset[str]] = frozenset()
    """Fields that it fills in addition to those of `reward`."""

    reward: Reward
    """Reward that is wrapped."""

    def needs(self) -> frozenset[str]:
        return self.own_needs | self.reward.needs()

    def tokenizer(self) -> Any:
        return self.reward.tokenizer()

    def fills(self) -> frozenset[str]:
        return self.own_fills | self.reward.fills()

    def on_tokens(self) -> bool | None:
        return self.reward.on_tokens()

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        self.reward.check_prompts(samples)

    def nothing_scored(self, where: str, example: str) -> FgrlError:
        return self.reward.nothing_scored(where, example)

    def asks(self, given: Sequence[tuple[Sample, str]]) -> list[Request]:
        return self.reward.asks(given)

    def asks_at_most(self, expected: Any) -> Sequence[AtMost] | int | None:
        bound: Sequence[AtMost] | int | None = stated(self.reward, "asks_at_most", expected)
        return bound

    def counts(self) -> dict[str, Any]:
        return self.reward.counts()

    def actions(self, rollout: Rollout) -> tuple[Tensor, Tensor, Tensor]:
        return self.reward.actions(rollout)

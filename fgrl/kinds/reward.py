"""Rewards, which score rollouts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from fgrl.base.errors import FgrlError
from fgrl.kinds.asker import Asker
from fgrl.kinds.functions import checked_rewards, nothing_scored, own_code
from fgrl.kinds.needs import Needing
from fgrl.kinds.relevance import Relevance
from fgrl.registry import Component, Key, kind, walk
from fgrl.types import Rewards, Rollout, Sample

if TYPE_CHECKING:
    from torch import Tensor


@kind("reward")
class Reward(Asker, Needing, ABC):
    """Reward that scores rollouts."""

    def tokenizer(self) -> Any:
        """Return the tokenizer whose token ids it reads; None if it reads text. It is known after `setup`."""
        return None

    def fills(self) -> frozenset[str]:
        """Return the optional fields of `Rewards` that `score` fills, e.g. "criterion", and the names of its
        `columns`.
        """
        return frozenset()

    def on_tokens(self) -> bool | None:
        """Return True if rewards are on tokens or segments of a response, False if all of the reward is on the last
        token; None if it is not declared.
        """
        return None

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        """Raise `DataError` if responses to these prompts cannot be scored. Called after `setup`, before training."""

    @abstractmethod
    def score(self, rollout: Rollout) -> Rewards:
        """Return the rewards of sampled responses. A failed judgement is NaN, never 0."""

    def scored(self, rollout: Rollout) -> Rewards:
        """Return the result of `score`. Raises `UserCodeError` if its shapes do not fit the rollout."""
        with own_code(self, "score"):
            value = self.score(rollout)
        return checked_rewards(self, value, rollout)

    def nothing_scored(self, where: str, example: str) -> FgrlError:
        """Return the error that no response has a reward. where: "8 responses of iteration 0". example: the reason for
        one of them.
        """
        return nothing_scored(self, where, example)

    def actions(self, rollout: Rollout) -> tuple[Tensor, Tensor, Tensor]:
        """Return raw rewards of the actions for the fit of a normalizer: rewards, locations, valid, each [B,S]."""
        raise TypeError(f"{type(self).__name__} has no segment rewards to calibrate")


def scorers(scorer: Component) -> dict[Key, Reward | Relevance]:
    """Return the rewards and relevances that a component holds, and itself if it is one, by their path in it."""
    inside = {path: part for path, part in walk(scorer) if isinstance(part, Reward | Relevance)}
    return {(): scorer, **inside} if isinstance(scorer, Reward | Relevance) else inside


@runtime_checkable
class FollowsSteps(Protocol):
    """A reward that depends on the progress of a training."""

    def at_step(self, step: int, total: int) -> None:
        """Record the progress of the training, before the responses of each iteration are scored: `step` of `total`
        optimizer steps are taken.
        """


@runtime_checkable
class FollowsProgress(Protocol):
    """A reward with a schedule."""

    def at_progress(self, share: float) -> None:
        """Record the progress of the training, before the responses of each iteration are scored: 0 in the first
        iteration, 1 in the last.
        """


def note_step(reward: Reward, step: int, total: int, share: float = 0.0) -> None:
    """Call `at_step` and `at_progress` of a reward, and of every reward that it holds, each once."""
    for part in scorers(reward).values():
        if isinstance(part, FollowsSteps):
            part.at_step(step, total)
        if isinstance(part, FollowsProgress):
            part.at_progress(share)

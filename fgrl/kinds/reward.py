"""Rewards: they score rollouts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from fgrl.functions import checked_rewards, own_code
from fgrl.kinds.asker import Asker
from fgrl.kinds.judge import Judge
from fgrl.kinds.needs import REFERENCE_OUTPUTS
from fgrl.kinds.planning import AtMost, DrawnShape, PolicyWork, ToDraw
from fgrl.kinds.relevance import Relevance
from fgrl.registry import Component, Key, kind, walk
from fgrl.types import Criterion, Request, Rewards, Rollout, Sample

if TYPE_CHECKING:
    from torch import Tensor


@kind("reward")
class Reward(Asker, ABC):
    """Scores rollouts."""

    reads_reference: ClassVar[bool] = True
    """Of a reward whose `setup` decides its `needs`: may they contain outputs of the reference? If not, an `rl` stage loads no reference
    unless something else needs it. Rewards that it holds state this themselves."""

    def may_read_reference(self) -> bool:
        """May `needs` contain outputs of the reference? See `reads_reference`; all needs of a reward without a `setup` are known."""
        decided = type(self).setup is Component.setup
        return bool(self.needs_before_setup() & REFERENCE_OUTPUTS) or (self.reads_reference and not decided)

    def needs(self) -> frozenset[str]:
        """Fields of `Rollout` to fill, e.g. "ref_entropy", "offsets". Known after `setup`."""
        return frozenset()

    def needs_before_setup(self) -> frozenset[str]:
        """What is known of `needs` when a recipe is checked: all of it, unless `setup` decides."""
        return self.needs() if type(self).setup is Component.setup else frozenset()

    def tokenizer(self) -> Any:
        """The tokenizer whose token ids the reward reads; None when it reads text. Known after `setup`."""
        return None

    def fills(self) -> frozenset[str]:
        """Optional fields of `Rewards` that `score` fills, e.g. "criterion", and the names of its `columns`."""
        return frozenset()

    def on_tokens(self) -> bool | None:
        """True if rewards are on tokens or segments of a response; False if all of it is on the last token; None: not declared."""
        return None

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        """Raise `DataError` when responses to these prompts cannot be scored. Called after `setup`, before training."""

    def at_step(self, step: int, total: int) -> None:
        """Called before the responses of each iteration of a training are scored: `step` of `total` optimizer steps are taken. A
        training calls it of the rewards inside this one as well (`note_step`)."""

    def judged(self, sample: Sample) -> list[Criterion]:
        """Criteria of a prompt that the reward's judge decides in each response to it."""
        return []

    def asks(self, given: Sequence[tuple[Sample, str]]) -> list[Request]:
        """The requests about responses (each with its prompt), before any question is retried: those of its judge."""
        cases = [(prompt, response, criterion) for prompt, response in given for criterion in self.judged(prompt)]
        return [request for judge in self._judges() for request in judge.asks(cases)]

    def asks_at_most(self, expected: ToDraw) -> Sequence[AtMost] | None:
        """A bound on the requests about responses that are not drawn yet; None when it is not known."""
        if not self._judges():
            return None
        return expected.about_each(lambda prompt, response: self.asks([(prompt, response)]))

    def _judges(self) -> list[Judge]:
        """The judge that the reward holds, if any."""
        return [part for _path, part in walk(self) if isinstance(part, Judge)][:1]

    def policy_work(self, drawn: DrawnShape) -> PolicyWork | None:
        """At most what `score` asks of the policy for so many responses, for `fgrl plan`; None when it is not known. What relevances and
        rewards that it holds ask is counted apart."""
        own = "policy" in self.needs_before_setup()
        inside = any("policy" in part.needs_before_setup() for path, part in scorers(self).items() if path)
        return None if own and not inside else PolicyWork()

    @abstractmethod
    def score(self, rollout: Rollout) -> Rewards:
        """Rewards of sampled responses. A failed judgement is NaN, never 0."""

    def scored(self, rollout: Rollout) -> Rewards:
        """What `score` returns, after a check of its shapes. Raises `UserCodeError` when they do not fit the rollout."""
        with own_code(self, "score"):
            value = self.score(rollout)
        return checked_rewards(self, value, rollout)

    def actions(self, rollout: Rollout) -> tuple[Tensor, Tensor, Tensor]:
        """Raw rewards of the actions that a normalizer is fitted on: rewards, locations, valid, each [B,S]."""
        raise TypeError(f"{type(self).__name__} has no segment rewards to calibrate")


def scorers(scorer: Reward | Relevance) -> dict[Key, Reward | Relevance]:
    """A reward or a relevance, and the rewards and relevances that it holds, by their path in it."""
    inside = {path: part for path, part in walk(scorer) if isinstance(part, Reward | Relevance)}
    return {(): scorer, **inside}


def note_step(reward: Reward, step: int, total: int) -> None:
    """Call `at_step` of a reward, and of every reward that it holds, each once."""
    for part in scorers(reward).values():
        if isinstance(part, Reward):
            part.at_step(step, total)

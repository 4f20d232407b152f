"""Combination of several rewards, each normalized before they are added (GDPO: arXiv 2601.05242, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import PrivateAttr, model_validator

from fgrl.base import lazy, ops
from fgrl.kinds import AtMost, Reward, stated
from fgrl.registry import register
from fgrl.types import Mean, Number, Request, Rewards, Rollout, Sample

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")

OF_ONE = ("criterion", "verdict", "annotations")
"""Fields of `Rewards` that only one part may fill."""


@register("bundle")
class RewardBundle(Reward):
    """The weighted sum of different rewards. Each is normalized by itself first, so that a reward with large numbers,
    or with larger differences between responses, does not dominate the others. A weight may change during training.
    """

    rewards: dict[str, Reward]
    """Rewards, by names of your choice: `reward/NAME` in the log is the mean before normalization."""
    weights: dict[str, float] = {}
    """Initial weights by name; 1 if a reward is not listed."""
    last_weights: dict[str, float] = {}
    """Weights in the last iteration, by name; each weight changes linearly over the iterations. The weight of a reward
    that is not listed is constant.
    """
    normalize: Literal["group", "none"] = "group"
    """Normalization of each reward. `group`: subtract the mean of the responses to the prompt and divide by their
    standard deviation (sample); 0 if they are equal. Token rewards are scaled alike, and the mean is subtracted on the
    last token. `none`: no normalization.
    """
    missing: Literal["any", "all"] = "any"
    """Condition under which a response has no reward: if any part is missing, or if all parts are missing. In the
    second case a missing part counts as 0.
    """

    _share: float = PrivateAttr(0.0)

    @model_validator(mode="after")
    def _check(self) -> RewardBundle:
        if not self.rewards:
            raise ValueError("rewards: name one at least")
        for field in ("weights", "last_weights"):
            if unknown := sorted(getattr(self, field).keys() - self.rewards.keys()):
                raise ValueError(f"{field}: there is no reward {unknown[0]}; the rewards: {', '.join(self.rewards)}")
        filled: set[str] = set()
        for name, part in self.rewards.items():
            if twice := sorted(filled & part.fills()):
                raise ValueError(f"rewards.{name}: another reward fills {twice[0]} already")
            filled |= part.fills()
        return self

    def needs(self) -> frozenset[str]:
        return frozenset().union(*(part.needs() for part in self.rewards.values()))

    def fills(self) -> frozenset[str]:
        return frozenset().union(*(part.fills() for part in self.rewards.values()))

    def tokenizer(self) -> Any:
        return next((found for part in self.rewards.values() if (found := part.tokenizer()) is not None), None)

    def on_tokens(self) -> bool | None:
        declared = {part.on_tokens() for part in self.rewards.values()}
        return True if True in declared else None if None in declared else False

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        for part in self.rewards.values():
            part.check_prompts(samples)

    def asks(self, given: Sequence[tuple[Sample, str]]) -> list[Request]:
        return [request for part in self.rewards.values() for request in part.asks(given)]

    def asks_at_most(self, expected: Any) -> Sequence[AtMost] | None:
        asking = [part for part in self.rewards.values() if part.asked_client() is not None]
        bounds = [stated(part, "asks_at_most", expected) for part in asking]
        return None if None in bounds else [each for bound in bounds for each in bound]

    def counts(self) -> dict[str, Any]:
        return {name: counted for name, part in self.rewards.items() if (counted := part.counts())}

    def at_progress(self, share: float) -> None:
        self._share = share

    def weight(self, name: str) -> float:
        """Return the weight of a reward at this point of the training."""
        first = self.weights.get(name, 1.0)
        return first + self._share * (self.last_weights.get(name, first) - first)

    def scored_each(self, rollout: Rollout) -> dict[str, Rewards]:
        """Return the rewards by name, before they are normalized."""
        return {name: part.scored(rollout) for name, part in self.rewards.items()}

    def score(self, rollout: Rollout) -> Rewards:
        parts, shape = self.scored_each(rollout), rollout.mask
        response, token = (torch.zeros(size, device=shape.device) for size in (len(shape), shape.shape))
        missing, credit_mask = [], torch.zeros_like(shape)
        metrics: dict[str, Number] = {}
        for name, part in parts.items():
            unknown, weight = part.response.isnan(), self.weight(name)
            missing.append(unknown)
            of_response, of_token = self.normalized(part, rollout)
            response = response + weight * of_response.masked_fill(unknown, 0.0)
            token = token + weight * of_token.masked_fill(unknown[:, None], 0.0)
            credit_mask = credit_mask | (part.credit_mask & ~unknown[:, None])
            metrics |= {f"{name}/{key}": value for key, value in part.metrics.items()}
            metrics[name] = Mean(part.response[~unknown].sum(), (~unknown).sum())
            metrics[f"{name}/weight"] = Mean(weight * len(shape), len(shape))
        without = torch.stack(missing)
        lost = without.any(dim=0) if self.missing == "any" else without.all(dim=0)
        filled = {
            field: getattr(part, field)
            for part in parts.values()
            for field in OF_ONE
            if getattr(part, field) is not None
        }
        columns = {key: value for part in parts.values() for key, value in part.columns.items()}
        return Rewards(
            response.masked_fill(lost, torch.nan), token, credit_mask, columns=columns, metrics=metrics, **filled
        )

    def normalized(self, part: Rewards, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Return a part's rewards of responses [B] and of tokens [B,T] in the form in which they are added."""
        token = torch.where(rollout.mask, part.token, 0.0)
        if self.normalize == "none":
            return part.response, token
        known = ~part.response.isnan()
        of_response = ops.group_advantage(part.response, rollout.group)
        total = part.response.masked_fill(~known, 0.0).double()
        difference = ops.centred(total[:, None], known[:, None], rollout.group)[:, 0]
        index, none = ops.group_index(rollout.group), torch.zeros_like(total)
        sizes = (none.index_add(0, index, each.double().abs())[index] for each in (of_response, difference))
        scale = next(sizes) / next(sizes).clamp(min=1e-30)  # one over the standard deviation; 0 where all are equal
        last = ops.segment_ends(torch.where(rollout.drawn, 0, -1))
        return of_response, (scale[:, None] * (token + last * (difference - total)[:, None])).to(token.dtype)

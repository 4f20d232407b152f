"""Rewards of a segment reward model (segment paper, section 2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from fgrl.base import lazy, ops
from fgrl.base.errors import DataError
from fgrl.kinds import Normalizer, Reward, Run, Segmenter
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import Problems, Unkeyed, build, register
from fgrl.types import Checkpoint, Mean, Ref, Rewards, Rollout, Stats

if TYPE_CHECKING:
    from torch import Tensor
rollouts = lazy.load("fgrl.rollouts")
torch = lazy.load("torch")


@register("segment_rm")
class SegmentRM(Reward):
    """A reward model reads each segment at its last token. The reward is normalized, then spread over the segment's
    tokens.

    Table 1's hybrids are values of two fields: "bandit as segment" is a bandit reward model with `segmenter: entropy`,
    "segment as bandit" is a segment reward model with `credit: response`.
    """

    reads_reference = True

    model: ModelSpec
    """Reward model."""
    segmenter: Segmenter | None = None
    """Division of responses into segments. null: as in the training of the reward model."""
    aggregate: Literal["mean", "sum", "last"] | None = None
    """Combination of segment rewards into a response's score (Eq. 4). null: as in the training of the reward model."""
    credit: Literal["segments", "response"] = "segments"
    """Unit of reward: every segment, or the response, whose last token gets the aggregated score."""
    normalizer: Normalizer | None = None
    """Normalizer of the rewards (Eq. 6); null leaves them unchanged."""
    spread: Literal["even", "repeat", "last"] = "even"
    """Distribution of a segment's reward over its tokens: split evenly, repeated on each, or only on the last (Table
    6).
    """
    clamp: float | None = Field(10.0, gt=0, le=1e6)
    """Bound on the absolute value of token rewards, applied after spreading; null disables it."""
    micro_batch_size: Annotated[int, Unkeyed] = Field(32, ge=1, le=1_000_000)
    """Number of responses in one forward pass of the reward model."""

    _model: Any = PrivateAttr(None)
    _stats: dict[str, Any] | None = PrivateAttr(None)
    _segmenter: Segmenter | None = PrivateAttr(None)
    _aggregate: Literal["mean", "sum", "last"] = PrivateAttr("mean")

    @model_validator(mode="after")
    def _check(self) -> SegmentRM:
        if self.normalizer is not None and not self.normalizer.ready():
            raise ValueError(
                "the normalizer has no fit: add a stage with `name: calibrate` and set normalizer.fitted: ${out:that stage}"
            )
        return self

    def setup(self, run: Run) -> None:
        about: dict[str, Any] = {}
        if isinstance(self.model.base, Ref):
            about = Checkpoint(run.path(self.model.base)).about()
        trained = about.get("segmenter")
        if self.segmenter is None and trained is None:
            raise DataError(
                "the reward model does not record which segmenter it was trained with; set `segmenter` in the reward"
            )
        try:
            self._segmenter = self.segmenter or build(Segmenter, trained)
        except Problems as problems:
            raise DataError(
                f"the segmenter that the reward model was trained with cannot be built ({problems}); train it again, or set "
                "`segmenter` in the reward"
            ) from None
        self._aggregate = self.aggregate or about.get("aggregate", "mean")
        if self.normalizer is not None and self.normalizer.fitted is not None:
            self._stats = Stats(run.path(self.normalizer.fitted)).read()
        self._model = run.model(self.model, head="scalar")

    def tokenizer(self) -> Any:
        return self._model.tokenizer

    def needs(self) -> frozenset[str]:
        segmenter = self._segmenter or self.segmenter
        return frozenset() if segmenter is None else segmenter.rollout_needs()

    def divisible_models(self) -> Sequence[Any]:
        return [self._model]

    def on_tokens(self) -> bool:
        return self.credit == "segments"

    def _segments(self, rollout: Rollout) -> tuple[Tensor, Tensor, Tensor]:
        """Return segment ids [B,T], rewards [B,S] at the segments' last tokens, and valid [B,S]."""
        assert self._segmenter is not None
        ids = self._segmenter.segment_ids_of(rollout)
        with torch.no_grad():
            token = rollouts.in_micro_batches(
                rollout, lambda part: {"reward": self._model.rewards(part)}, self.micro_batch_size, [self._model]
            )["reward"]
        rewards, valid = ops.to_segments(token, ids, "last")
        return ids, rewards, valid

    def actions(self, rollout: Rollout) -> tuple[Tensor, Tensor, Tensor]:
        """Return raw rewards, locations in (0, 1] and valid [B,S] of the actions that `normalizer` will get."""
        _ids, rewards, valid = self._segments(rollout)
        return self._credited(rewards, valid)

    def _credited(self, rewards: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rewards, locations and valid of the credited actions: the segments, each [B,S], or the response, each
        [B,1].
        """
        if self.credit == "response":
            score = ops.aggregate_segments(rewards, valid, self._aggregate)[:, None]
            return score, torch.ones_like(score), valid.any(dim=1, keepdim=True)
        return rewards, ops.locations(valid), valid

    def _normalize(self, rewards: Tensor, locations: Tensor, valid: Tensor) -> Tensor:
        if self.normalizer is None:
            return torch.where(valid, rewards, 0.0)
        return self.normalizer.apply(rewards, locations, valid, self._stats)

    def score(self, rollout: Rollout) -> Rewards:
        """Return the rewards: 1. division into segments, 2. output of the reward head, 3. normalization by location, 4.
        distribution over tokens, 5. clamping.
        """
        ids, rewards, valid = self._segments(rollout)
        credited, spread = ids, self.spread
        if self.credit == "response":
            credited, spread = torch.where(rollout.mask, 0, -1), "last"
        token = ops.spread(self._normalize(*self._credited(rewards, valid)), credited, spread)
        if self.clamp is not None:
            token = token.clamp(-self.clamp, self.clamp)
        segments = valid.sum(dim=1).float()
        response = ops.aggregate_segments(rewards, valid, self._aggregate)
        return Rewards(
            response=response,
            token=token,
            credit_mask=ops.segment_ends(credited) if spread == "last" else credited >= 0,
            segment_ids=ids,
            metrics={
                "raw": float(response.mean()),
                "normalized": float(token.sum(dim=1).mean()),
                "segments": float(segments.mean()),
                "segment_tokens": Mean((ids >= 0).sum(), segments.sum()),
            },
        )

"""Reward models from preference pairs (segment paper, Eq. 1, 3 and 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from fgrl.base import lazy, ops
from fgrl.kinds import Numbers, OfflineAlgorithm, Run, Segmenter
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import dump, register
from fgrl.types import Batch, Mean, per_response, per_token

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")
passes = lazy.load("fgrl.rollouts.passes")


@register("bradley_terry")
class BradleyTerry(OfflineAlgorithm):
    """Loss -log sigmoid(e(chosen) - e(rejected)), where e combines the rewards of a response's segments."""

    data = "pairs"
    head = "scalar"
    columns: ClassVar = {"segment": per_token(fill=-1), "p": per_response()}

    segmenter: Segmenter
    """Division of responses into segments, each of which is one action: `bandit` gives Eq. 1, `entropy` Eq. 3."""
    aggregate: Literal["mean", "sum", "last"] = "mean"
    """Combination of segment rewards into the evaluation of a response; the paper takes the mean (Eq. 4)."""
    segment_by: ModelSpec | None = None
    """Model whose entropies determine the segments. null: the initial model of the reward model (pi_SFT)."""
    margin: float = Field(0.0, ge=0, le=1e6)
    """Required difference between the evaluations of chosen and rejected responses."""
    soft_labels: bool = False
    """Train on the judge's probability p that the chosen response is better instead of its verdict. The pair builder
    `judged` writes p. With d the difference minus the margin, the loss is -p log sigmoid(d) - (1 - p) log sigmoid(-d)
    (RLAIF, Lee et al. 2023, section 2.2).
    """

    def reads(self) -> frozenset[str]:
        """Return the columns that the pairs contain."""
        return frozenset({"p"}) if self.soft_labels else frozenset()

    def prepare(self, rows: Sequence[Mapping[str, Any]], run: Run, model: Any) -> None:
        """Divide every response into segments once, before training, and add the column "segment" (ids, -1 for no
        segment).
        """
        reference = self.segment_by or model.spec.frozen()
        passes.add_segments(rows, self.segmenter, run, reference, tokenizer=model.tokenizer)

    def frozen_models(self, model: ModelSpec) -> dict[str, ModelSpec]:
        return {"sft": self.segment_by or model.frozen()} if "entropy" in self.segmenter.needs else {}

    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Numbers]:
        """Return the loss of Eq. 3 on rows 2i (chosen) and 2i+1 (rejected): the mean over all pairs of the optimizer
        step.
        """
        rewards, valid = ops.to_segments(model.rewards(batch), batch.columns["segment"], "last")
        evaluation = ops.aggregate_segments(rewards, valid, self.aggregate)
        difference = evaluation[0::2] - evaluation[1::2]
        losses = -torch.nn.functional.logsigmoid(difference - self.margin)
        if self.soft_labels:
            losses = losses + (1 - batch.columns["p"][0::2]) * (difference - self.margin)
        loss = losses.sum() / (batch.total_rows / 2) * batch.scale
        with torch.no_grad():
            metrics: Numbers = {
                "loss": float(losses.mean()),
                "accuracy": float((difference > 0).float().mean()),
                "margin": float(difference.mean()),
                "reward_chosen": float(evaluation[0::2].mean()),
                "reward_rejected": float(evaluation[1::2].mean()),
                "segments": float(valid.sum(dim=1).float().mean()),
                "segment_tokens": Mean((batch.columns["segment"] >= 0).sum(), valid.sum()),
            }
        return loss, metrics

    def describe(self) -> dict[str, Any]:
        segment_by = self.segment_by.model_dump(mode="json") if self.segment_by else None
        return {"segmenter": dump(self.segmenter), "aggregate": self.aggregate, "segment_by": segment_by}

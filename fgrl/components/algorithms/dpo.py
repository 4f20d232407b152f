"""Direct preference optimization (Rafailov et al. 2023, Eq. 7): the baseline of the segment paper's Table 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from fgrl import lazy, ops
from fgrl.kinds import Numbers, OfflineAlgorithm, Run
from fgrl.registry import register
from fgrl.specs import ModelSpec
from fgrl.types import Batch, per_response

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")
passes = lazy.load("fgrl.rollouts.passes")


@register("dpo")
class DPO(OfflineAlgorithm):
    """-log sigmoid(beta * (log-ratio of chosen - log-ratio of rejected)), log-ratios summed over response tokens."""

    data = "pairs"
    columns: ClassVar = {"ref_logp": per_response()}

    beta: float = Field(0.1, gt=0)
    """Strength of the constraint to stay near the reference."""
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    """Assumed share of flipped preferences (conservative DPO)."""
    reference: ModelSpec | None = None
    """The reference model. null: the model that training starts from."""

    def prepare(self, rows: Sequence[Mapping[str, Any]], run: Run, model: Any) -> None:
        """The reference's log-probabilities, once: adds the column "ref_logp" (nats, one per response)."""
        passes.add_reference_logp(rows, run, self.frozen_models(model.spec)["reference"])

    def frozen_models(self, model: ModelSpec) -> dict[str, ModelSpec]:
        return {"reference": self.reference or model.frozen()}

    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Numbers]:
        """Rows 2i are chosen, 2i+1 rejected; the mean over all pairs of the optimizer step."""
        logp = ops.masked_sum(model.score(batch).logp, batch.mask, dim=1)
        log_ratio = logp - batch.columns["ref_logp"]
        chosen, rejected = log_ratio[0::2], log_ratio[1::2]
        logits = self.beta * (chosen - rejected)
        smooth = self.label_smoothing
        losses = (
            -torch.nn.functional.logsigmoid(logits) * (1 - smooth) - torch.nn.functional.logsigmoid(-logits) * smooth
        )
        loss = losses.sum() / (batch.total_rows / 2) * batch.scale
        with torch.no_grad():
            metrics: Numbers = {
                "loss": float(losses.mean()),
                "accuracy": float((logits > 0).float().mean()),
                "margin": float(logits.mean()),
                "log_ratio_chosen": float(chosen.mean()),
                "log_ratio_rejected": float(rejected.mean()),
            }
        return loss, metrics

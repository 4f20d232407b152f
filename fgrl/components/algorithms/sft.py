"""Supervised fine-tuning on responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fgrl.base import lazy, ops
from fgrl.kinds import Numbers, OfflineAlgorithm
from fgrl.registry import register
from fgrl.types import Aggregation, Batch

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


@register("sft")
class SFT(OfflineAlgorithm):
    """Cross-entropy of the response's tokens, including its end-of-sequence token. Prompts have no loss."""

    data = "samples"

    aggregate: Aggregation = "token_mean"
    """Average of the loss: over all tokens of an optimizer step (`token_mean`), or over tokens and then over responses
    (`seq_mean`); `sum` is the sum over all tokens divided by the number of responses.
    """

    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Numbers]:
        """Return -log p(token), aggregated over the whole optimizer step."""
        nll = -model.score(batch).logp
        loss = ops.aggregate(nll, batch.drawn, self.aggregate, **batch.totals())
        with torch.no_grad():
            return loss, {"loss": ops.mean_metric(nll, batch.drawn)}

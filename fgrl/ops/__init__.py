"""Pure tensor functions: masked statistics, segments, credit, advantages, losses.

Letters as in `fgrl.types`: `B` responses, `T` response tokens, `S` segments, `C` criteria. A mask is True on real tokens.

Two promises hold for every function here. What stands in a masked slot, NaN and infinity included, changes neither the
value nor the gradient of anything. And a function that takes a `mask` puts 0 into the masked slots of its result.

Left out: anything that knows a model, a tokenizer or a recipe, and communication between processes.
"""

from fgrl.ops.criteria import Partition, criterion_advantage, group_advantage, group_index, known_criteria, standardize
from fgrl.ops.losses import KL, aggregate, clip_loss, gae, kl, value_loss
from fgrl.ops.segments import (
    Reduce,
    Spread,
    aggregate_segments,
    inside_segments,
    locations,
    segment_ends,
    segment_ids,
    spread,
    to_segments,
)
from fgrl.ops.spans import Conflict, TokenPolicy, overlaps, spans_to_tokens, uncovered_spans, without_characters
from fgrl.ops.statistics import explained_variance, masked_mean, masked_sum, masked_var, masked_whiten, mean_metric

__all__ = [
    "KL", "Conflict", "Partition", "Reduce", "Spread", "TokenPolicy", "aggregate", "aggregate_segments", "clip_loss",
    "criterion_advantage", "explained_variance", "gae", "group_advantage", "group_index", "inside_segments", "kl",
    "known_criteria", "locations", "masked_mean", "masked_sum", "masked_var", "masked_whiten", "mean_metric", "overlaps",
    "segment_ends", "segment_ids", "spans_to_tokens", "spread", "standardize", "to_segments", "uncovered_spans",
    "value_loss", "without_characters",
]  # fmt: skip

"""Pure tensor functions: masked statistics, segments, credit, advantages, losses.

Letters as in `fgrl.types`: `B` responses, `T` response tokens, `S` segments, `C` criteria. A mask is True on real
tokens.

Two guarantees hold for every function here. The content of a masked slot, including NaN and infinity, changes neither a
value nor a gradient. A function that takes a `mask` puts 0 into the masked slots of its result.

Out of scope: everything that depends on a model, a tokenizer or a recipe, and communication between processes.
"""

from fgrl.base.ops.losses import (
    KL,
    Correct,
    Gap,
    aggregate,
    amplification,
    clip_loss,
    criterion_advantage,
    gae,
    group_advantage,
    group_index,
    importance_weight,
    kl,
    known_criteria,
    leave_one_out,
    standardize,
    value_loss,
)
from fgrl.base.ops.preferences import Objective, preference_loss
from fgrl.base.ops.segments import (
    Reduce,
    aggregate_segments,
    inside_segments,
    locations,
    segment_ends,
    segment_ids,
    spread,
    to_segments,
    turn_starts,
)
from fgrl.base.ops.spans import (
    TOKEN_POLICY,
    Conflict,
    SpanRewards,
    SpanSpread,
    TokenPolicy,
    Within,
    fading_weights,
    overlaps,
    span_rewards,
    spans_to_tokens,
    tokens_of_spans,
    uncovered_spans,
    without_characters,
)
from fgrl.base.ops.statistics import (
    centred,
    explained_variance,
    masked_mean,
    masked_sum,
    masked_var,
    masked_whiten,
    mean_metric,
)

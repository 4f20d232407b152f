"""Rollouts from prompts: encoding, padding, sampling, and the scores that an algorithm or a reward needs.

Token ids are made once. A sampled response is never decoded and encoded again; texts and character offsets are computed
from the drawn ids.
"""

from fgrl.rollouts.collecting import (
    answered,
    check_exact,
    collect,
    draw,
    draw_parts,
    requests,
    sample,
    score,
    score_with,
)
from fgrl.rollouts.cutting import CutPrompts, cut_prompts
from fgrl.rollouts.padding import (
    FROZEN_MICRO_BATCH_SIZE,
    in_micro_batches,
    pad,
    pad_prompts,
    pad_responses,
    pad_rows,
    select,
    trim,
)
from fgrl.rollouts.probing import logp_of
from fgrl.rollouts.responses import as_rollout, given
from fgrl.rollouts.text import (
    check_same_tokens,
    cut_response,
    decode,
    encode_prompt,
    encode_response,
    encode_text,
    ids_of,
    offsets,
    pieces,
    token_texts,
)

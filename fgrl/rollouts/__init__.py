"""From prompts to rollouts: encoding, padding, sampling, and the scores that an algorithm or a reward needs.

Token ids are made once. A sampled response is never as_response and encoded again; texts and character offsets come
from the very ids that were drawn.
"""

from fgrl.rollouts.collecting import (
    Generated,
    as_response,
    check_exact,
    collect,
    draw,
    requests,
    sample,
    score,
    score_with,
)
from fgrl.rollouts.cutting import CutPrompts, cut_prompts
from fgrl.rollouts.padding import FROZEN_MICRO_BATCH_SIZE, in_micro_batches, pad, pad_rows, select, trim
from fgrl.rollouts.text import (
    check_same_tokens,
    cut_prompt,
    cut_response,
    decode,
    encode_prompt,
    encode_response,
    encode_text,
    offsets,
    token_texts,
)

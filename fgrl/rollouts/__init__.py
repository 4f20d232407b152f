"""From prompts to rollouts: encoding, padding, sampling, and the scores that an algorithm or a reward needs.

Token ids are made once. A sampled response is never decoded and encoded again; texts and character offsets come from
the very ids that were drawn.
"""

from fgrl.rollouts.collecting import NEEDS, collect
from fgrl.rollouts.ids_to_text import decode, encode_text, offsets, token_texts
from fgrl.rollouts.micro_batches import in_micro_batches
from fgrl.rollouts.padding import pad, select, trim
from fgrl.rollouts.sampling import check_exact, sample
from fgrl.rollouts.scoring import score
from fgrl.rollouts.text_to_ids import cut_prompt, cut_response, encode_prompt, encode_response

__all__ = [
    "NEEDS", "check_exact", "collect", "cut_prompt", "cut_response", "decode", "encode_prompt", "encode_response",
    "encode_text", "in_micro_batches", "offsets", "pad", "sample", "score", "select", "token_texts", "trim",
]  # fmt: skip

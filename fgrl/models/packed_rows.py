"""Rows in one sequence, one after another, without padding.

    row 1   a b c d            packed      a b c d x y
    row 2   x y . .            positions   0 1 2 3 0 1

Attention keeps the rows apart, and no other part of the model may use neighbouring tokens. Recurrent and convolutional
layers do, so `LanguageModel.pack_rows` compares packed rows with padded ones before a model is used in this way.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from fgrl.types import Tokens

HALF = (torch.bfloat16, torch.float16)
"""Types in which the kernels for rows of different lengths compute."""


def install() -> None:
    """Let transformers' fused attention keep rows apart if it gets their bounds."""
    AttentionInterface.register("sdpa", attention)


def attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Return the result of transformers' fused attention; with bounds of rows among the options, of causal attention
    inside each row.
    """
    bounds = options.get("cu_seq_lens_q")
    if bounds is None or options.get("cache") is not None:  # transformers' own pages, with a mask
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    window, dropout = options.get("sliding_window"), options.get("dropout", 0.0)
    more: dict[str, Any] = {"scale": options.get("scaling"), "enable_gqa": query.shape[1] != key.shape[1]}
    if query.is_cuda and query.dtype in HALF and not dropout:
        from torch.nn.attention.varlen import varlen_attn

        q, k, v = (states[0].transpose(0, 1) for states in (query, key, value))
        longest, left = options["max_length_q"], -1 if window is None else window - 1
        mixed: Any = varlen_attn(q, k, v, bounds, bounds, longest, longest, window_size=(left, 0), **more)
        return mixed[None], None
    lengths, of_rows = bounds.diff().tolist(), []
    for q, k, v in zip(*(states.split(lengths, dim=2) for states in (query, key, value)), strict=True):
        length, seen = q.shape[2], None
        if window is not None and length > window:
            seen = torch.ones(length, length, dtype=torch.bool, device=q.device).tril().triu(1 - window)
        of_rows.append(scaled_dot_product_attention(q, k, v, seen, dropout, is_causal=seen is None, **more))
    return torch.cat(of_rows, 2).transpose(1, 2).contiguous(), None


def inputs(mask: Tensor, attention: str) -> dict[str, Any]:
    """Return the model's inputs besides the tokens of rows whose real tokens are `mask` [B,L]: positions, and bounds."""
    lengths = mask.sum(1)
    bounds, longest = pad(lengths.cumsum(0), (1, 0)).int(), int(lengths.max())
    given = {
        "position_ids": (mask.long().cumsum(1) - 1)[mask][None],
        "cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": longest, "max_length_k": longest,
    }  # fmt: skip
    if attention == "sdpa":  # transformers makes no mask [N,N] where it is given one with four axes
        given["attention_mask"] = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=mask.device)
    return given


def places(tokens: Tokens) -> Tensor:
    """Return the index, among all real tokens, of each real response token [N], both in row order."""
    answers = torch.cat([torch.zeros_like(tokens.prompt_mask), tokens.mask], 1)
    return answers[torch.cat([tokens.prompt_mask, tokens.mask], 1)].nonzero().flatten()


def probe(config: Any, limit: int | None, device: torch.device) -> Tokens:
    """Return two rows that show whether a model keeps packed rows apart: the first is longer than the window of
    attention, if possible.
    """
    window = max(getattr(config, name, None) or 0 for name in ("sliding_window", "attention_chunk_size"))
    length = window + 8 if limit is None or window < limit else 8
    length = length if limit is None else min(length, limit)
    ids = torch.arange(2 * length, device=device).reshape(2, length) * 7 % config.vocab_size
    mask = torch.arange(length, device=device) < torch.tensor([[length], [6]], device=device)
    return Tokens(ids[:, :1], mask[:, :1], ids[:, 1:], mask[:, 1:], torch.zeros_like(mask[:, 1:]))

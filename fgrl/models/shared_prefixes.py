"""Rows with a common beginning as one sequence, in which the common tokens occur once.

    row 1   a b c d e          packed   a b c d e x y
    row 2   a b c x y          a mask lets `x y` attend to `a b c` and themselves, not to `d e`

The common tokens go through the model once, forward and backward. The result is the same function of the weights as
with separate rows, up to the rounding of differently shaped products. Dropout draws once for common tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn

from fgrl.models.shared_prompts import LEAST_SAVING, can_share
from fgrl.types import Tokens

ARCHITECTURES = ("gpt2", "gpt_neox", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3")
"""`model_type` of models that use positions and a mask [B,1,N,N] unchanged; the tests compare both ways for each of
them.
"""
ATTENTION = ("sdpa", "eager")


def can_pack(trunk: nn.Module) -> bool:
    """Return True if the model takes our own mask, and attends to all tokens that this mask allows (no sliding
    windows).
    """
    config: Any = trunk.config
    windows = getattr(config, "layer_types", None) or ["full_attention" if _no_window(config) else "sliding_attention"]
    return config.model_type in ARCHITECTURES and set(windows) == {"full_attention"} and can_share(trunk)


def _no_window(config: Any) -> bool:
    return getattr(config, "sliding_window", None) is None or not getattr(config, "use_sliding_window", True)


@dataclass(frozen=True)
class Packed:
    """G groups of rows, each of them a sequence of at most N tokens, right-padded."""

    ids: Tensor  # [G,N] long
    positions: Tensor  # [G,N] long: the token's place in its row
    branch: Tensor  # [G,N] long: 0 where the group's rows share the token, 1, 2, ... in what only one row has, -1 for padding
    before: Tensor  # [E] long: index, in G x N, of the state before each distinct response token
    labels: Tensor  # [E] long: that token's id
    place: (
        Tensor  # [R] long: for each real response token of the rows, in row order, its index among the E distinct ones
    )

    @property
    def tokens(self) -> int:
        """Return the number of tokens that go through the model, including padding."""
        return self.ids.numel()

    def allowed(self) -> Tensor:
        """Return a mask, bool [G,1,N,N], of the tokens (last axis) that each token attends to."""
        length = self.ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=self.ids.device).tril()
        of_key, of_query = self.branch[:, None, :], self.branch[:, :, None]
        return (causal & ((of_key == 0) | (of_key == of_query)))[:, None]


def pack(tokens: Tokens, each: int, pad_id: int) -> Packed | None:
    """Return rows `each * i` to `each * i + each - 1` as one sequence for each i; None if that saves too few tokens."""
    prompts = [ids[mask].tolist() for ids, mask in zip(tokens.prompt_ids, tokens.prompt_mask, strict=True)]
    responses = [ids[mask].tolist() for ids, mask in zip(tokens.response_ids, tokens.mask, strict=True)]
    rows = [prompt + response for prompt, response in zip(prompts, responses, strict=True)]
    groups = [range(first, min(first + each, len(rows))) for first in range(0, len(rows), each)]
    shared = [_in_common([rows[row] for row in group]) for group in groups]
    lengths = [
        common + sum(len(rows[row]) - common for row in group) for group, common in zip(groups, shared, strict=True)
    ]
    width = max(lengths, default=0)
    if len(groups) * width > (1 - LEAST_SAVING) * len(rows) * max(map(len, rows), default=0):
        return None
    ids, positions, branches = [], [], []
    distinct: dict[tuple[int, int], int] = {}  # (index of the state before, token) -> index among the distinct ones
    place = []
    for number, (group, common) in enumerate(zip(groups, shared, strict=True)):
        one, at, branch = rows[group[0]][:common], list(range(common)), [0] * common
        for index, row in enumerate(group, 1):
            start = len(one) - common  # of the row's own tokens, apart from the shared ones

            def where(position: int, common: int = common, start: int = start, first: int = number * width) -> int:
                return first + (position if position < common else start + position)

            for position in range(len(prompts[row]), len(rows[row])):
                key = (where(position - 1), rows[row][position])
                place.append(distinct.setdefault(key, len(distinct)))
            one = one + rows[row][common:]
            at += range(common, len(rows[row]))
            branch += [index] * (len(rows[row]) - common)
        padding = width - len(one)
        ids.append(one + [pad_id] * padding)
        positions.append(at + [0] * padding)
        branches.append(branch + [-1] * padding)
    before, labels = zip(*distinct, strict=True) if distinct else ((), ())

    def tensor(values: Sequence[Any]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=tokens.mask.device)

    return Packed(tensor(ids), tensor(positions), tensor(branches), tensor(before), tensor(labels), tensor(place))


def _in_common(rows: Sequence[Sequence[int]]) -> int:
    """Return the number of tokens that the rows have in common at their beginning."""
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*rows, strict=False)))

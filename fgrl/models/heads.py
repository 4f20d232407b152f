"""Heads with one number per position: `scalar` (reward, value) and `token` (a logit per token)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class NumberHead(nn.Module):
    """`Linear(hidden, 1)` stored and computed in float32, whatever the types of the backbone and of autocast.

    Only DeepSpeed in bfloat16 stores the float32 weights elsewhere, as for all trained weights, and gives the head a
    copy rounded to bfloat16; the head still computes in float32.

    `scalar` has no bias, as in the segment paper's release; `token` has one (a classifier's prior). Initial weights are
    drawn from N(0, 1/(hidden + 1)).
    """

    def __init__(self, hidden_size: int, *, bias: bool) -> None:
        super().__init__()
        self.trained = False
        """True if its weights come from a checkpoint."""
        self.weight = nn.Parameter(torch.empty(hidden_size, dtype=torch.float32))
        self.bias = nn.Parameter(torch.zeros((), dtype=torch.float32)) if bias else None
        nn.init.normal_(self.weight, std=(hidden_size + 1) ** -0.5)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the head's numbers: [..., h] -> [...]."""
        with torch.autocast(hidden.device.type, enabled=False):
            numbers = hidden.float() @ self.weight.float()
        return numbers if self.bias is None else numbers + self.bias.float()

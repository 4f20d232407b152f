"""Heads with one number per position: `scalar` (reward, value) and `token` (a logit per token)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class NumberHead(nn.Module):
    """`Linear(hidden, 1)` kept and computed in float32, whatever the types of the backbone and of autocast.

    Only DeepSpeed in bfloat16 keeps the float32 weights elsewhere, as it does with all that is trained, and gives the
    head a copy rounded to bfloat16; it computes in float32 all the same.

    `scalar` has no bias, as in the segment paper's release; `token` has one (a classifier's prior). Weights start from
    N(0, 1/(hidden + 1)).
    """

    def __init__(self, hidden_size: int, *, bias: bool) -> None:
        super().__init__()
        self.trained = False
        """Do its weights come from a checkpoint?"""
        self.weight = nn.Parameter(torch.empty(hidden_size, dtype=torch.float32))
        self.bias = nn.Parameter(torch.zeros((), dtype=torch.float32)) if bias else None
        nn.init.normal_(self.weight, std=(hidden_size + 1) ** -0.5)

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., h] -> [...]."""
        with torch.autocast(hidden.device.type, enabled=False):
            numbers = hidden.float() @ self.weight.float()
        return numbers if self.bias is None else numbers + self.bias.float()

"""Masks for fused attention in which padding attends to a token.

Padding before a prompt attends to no token. For such a query cuDNN's attention, which PyTorch prefers on Hopper GPUs,
returns gradients that are not finite if the length is an odd multiple of 64 (seen with PyTorch 2.11 and cuDNN 9.19).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import masking_utils

DEVICES = ("cuda",)
"""Kinds of devices with such kernels."""
_transformers_mask = masking_utils.sdpa_mask


def install() -> None:
    """Let transformers create its masks of fused attention by `sdpa_mask`."""
    masking_utils.AttentionMaskInterface.register("sdpa", sdpa_mask)


def sdpa_mask(*args: Any, **options: Any) -> Tensor | None:
    """Return transformers' mask, bool [B,1,Q,K], with True in whole rows that had no True; None if none is needed."""
    mask: Tensor | None = _transformers_mask(*args, **options)
    return mask if mask is None or mask.device.type not in DEVICES else mask | ~mask.any(-1, keepdim=True)

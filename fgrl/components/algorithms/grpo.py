"""Group relative policy optimization (Shao et al. 2024)."""

from __future__ import annotations

from fgrl.registry import register
from fgrl.training.group_relative import GroupRelative


@register("grpo")
class GRPO(GroupRelative):
    """Clipped policy gradient whose advantage is the response's reward, standardized over the responses to its prompt."""

"""What a rollout is worth, token by token."""

from fgrl.components.rewards.rubric import Rubric, SignedRubric
from fgrl.components.rewards.segment_rm import SegmentRM

__all__ = ["Rubric", "SegmentRM", "SignedRubric"]

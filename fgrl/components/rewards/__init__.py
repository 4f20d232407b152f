"""Rewards of a rollout, for each token."""

from fgrl.components.rewards.critic import CriticReward
from fgrl.components.rewards.function import FunctionReward
from fgrl.components.rewards.rubric import Rubric, SignedRubric
from fgrl.components.rewards.segment_rm import SegmentRM

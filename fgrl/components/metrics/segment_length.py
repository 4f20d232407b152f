"""Length of the segments into which a reward divides answers."""

from __future__ import annotations

from collections.abc import Sequence

from fgrl.kinds import Meaning
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import mean
from fgrl.measuring.reward_numbers import OfRewards
from fgrl.measuring.statistics import Measured
from fgrl.registry import register


@register("segment_length")
class SegmentLength(OfRewards):
    """Tokens per segment (segment paper, Figure 3), by reward: the tokens of all segments / the number of segments.

    Tokens outside of every segment, such as the end-of-sequence token, do not count.
    """

    purpose = "reward"
    meanings = {"*": Meaning("tokens per segment of the reward {number}")}

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        return {name: _tokens_per_segment(answers, own) for name, own in self.recorded(answers, "segments").items()}


def _tokens_per_segment(answers: Sequence[Answer], segments: Sequence[Sequence[int]]) -> Measured:
    inside = [[index for index in own if index >= 0] for own in segments]
    counts = [len(set(own)) for own in inside]
    lengths = [len(own) / count if count else None for own, count in zip(inside, counts, strict=True)]
    return mean(answers, lengths, counts)

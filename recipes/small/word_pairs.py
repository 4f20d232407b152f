"""Pairs of answers for word_segments.yaml: most words of the better one belong to the topic, few of the worse one."""

from __future__ import annotations

import random
from collections.abc import Iterator

from length_words import WORDS

from fgrl.kinds import Reader
from fgrl.registry import register
from fgrl.types import Pair, Response, Sample

BETTER, WORSE = 0.7, 0.3
"""Share of the words that belong to the topic."""
SHORTEST, LONGEST = 4, 7


@register("word_pairs")
class WordPairs(Reader):
    """Two answers to prompts such as `sea 17`."""

    count: int = 480
    """Number of pairs."""

    def read(self) -> Iterator[Sample]:
        for pair in self.pairs():
            yield Sample(
                id=pair.id, prompt=pair.prompt, responses=[Response(text=pair.rejected), Response(text=pair.chosen)]
            )

    def pairs(self) -> Iterator[Pair]:
        draw, topics = random.Random(1), list(WORDS)
        for number in range(self.count):
            topic = topics[number % len(topics)]
            better, worse = _answer(topic, BETTER, draw), _answer(topic, WORSE, draw)
            yield Pair(id=f"{topic}-{number}", prompt=f"{topic} {number % 32}", chosen=better, rejected=worse)


def _answer(topic: str, right: float, draw: random.Random) -> str:
    own = draw.sample(WORDS[topic], len(WORDS[topic]))
    others = [word for other, words in WORDS.items() if other != topic for word in words]
    length = draw.randint(SHORTEST, LONGEST)
    return " ".join(own.pop() if own and draw.random() < right else draw.choice(others) for _ in range(length))

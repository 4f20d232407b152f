"""Credit of known quality: the value of an answer, on the words that its rule judges, or elsewhere."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from credit_language import HERE, TaskName
from credit_tasks import task
from pydantic import Field, model_validator

from fgrl.kinds import Reward
from fgrl.registry import File, register
from fgrl.types import Rewards


@register("task_credit")
class TaskCredit(Reward):
    """The value of an answer, 1 for each right and -1 for each wrong word, distributed over its words.

    With any distribution, the token rewards of an answer add up to its value (except for `bias`): the amount that a
    change removes or adds is spread evenly over all words.
    """

    task: TaskName
    """Task whose rule judges."""
    parts: int = Field(8, ge=1, le=64)
    """Number of parts, as in the prompts."""
    fillers: int = Field(2, ge=0, le=64)
    """Number of fillers, as in the prompts."""
    credit: Literal["oracle", "even", "last", "random", "wrong"] = "oracle"
    """Distribution of the credit. `oracle`: on the words that the rule judges. `even`: equal for every word, so one
    number per answer. `last`: on the last word. `random`: random shares of the total. `wrong`: the oracle's values, on
    irrelevant words.
    """
    value: Literal["signed", "share"] = "signed"
    """Value of an answer. `share`: its share of right words among those that are judged; a wrong word has no value."""
    drop: float = Field(0.0, ge=0, le=1)
    """Share of the judged words whose value is lost."""
    flip: float = Field(0.0, ge=0, le=1)
    """Share of the judged words whose value has the wrong sign."""
    invent: float = Field(0.0, ge=0, le=1)
    """Share of the irrelevant words that get a value of 1 or -1."""
    shift: int = Field(0, ge=-64, le=64)
    """Number of words by which values are moved to the right."""
    smear: int = Field(1, ge=1, le=64)
    """Number of words over which each value is spread evenly, with its own word in the middle; of two middle words, its
    own is the later.
    """
    bias: float = Field(0.0, ge=-10, le=10)
    """Number that is added to each word's reward."""
    tasks: Annotated[str, File] = str(HERE / "credit_tasks.py")
    """File that defines the rule."""

    @model_validator(mode="after")
    def _only_the_oracle_is_made_worse(self) -> TaskCredit:
        changed = self.drop or self.flip or self.invent or self.shift or self.smear > 1
        if changed and self.credit != "oracle":
            raise ValueError(f"drop, flip, invent, shift and smear are about credit: oracle, not {self.credit}")
        return self

    def needs(self):
        return frozenset({"offsets"})

    def score(self, rollout):
        kind = task(self.task, self.parts, self.fillers)
        token = torch.zeros(rollout.mask.shape)
        worth = []
        for row, (sample, text) in enumerate(zip(rollout.samples, rollout.texts, strict=True)):
            prompt = str(sample.prompt)
            judged = self.valued(kind.judge(prompt, text))
            given = self.credited(judged, random.Random(f"{prompt}\n{text}"))
            for value, places in zip(given, tokens_of_words(text, rollout.offsets[row]), strict=True):
                token[row, places] = value / max(1, len(places))
            worth.append(sum(judged))
        token = torch.where(rollout.mask, token.to(rollout.mask.device), 0.0)
        return Rewards(torch.tensor(worth, device=rollout.mask.device), token, rollout.mask)

    def on_tokens(self):
        return True

    def valued(self, judged: list[float]) -> list[float]:
        """Return the values of the words that the rule judges."""
        if self.value == "signed":
            return judged
        count = max(1, sum(each != 0 for each in judged))
        return [max(0.0, each) / count for each in judged]

    def credited(self, judged: list[float], draw: random.Random) -> list[float]:
        """Return a token reward for each word, from the rule's values."""
        total, count = sum(judged), len(judged)
        if not count:
            return []
        if self.credit == "even":
            values = [total / count] * count
        elif self.credit == "last":
            values = [*[0.0] * (count - 1), total]
        elif self.credit == "random":
            shares = [-math.log(1.0 - draw.random()) for _ in judged]
            values = [total * share / sum(shares) for share in shares]
        elif self.credit == "wrong":
            places = [i for i, value in enumerate(judged) if value == 0] or list(range(count))
            values = [0.0] * count
            for value in judged:
                if value:
                    values[draw.choice(places)] += value
        else:
            values = self.made_worse(judged, draw)
        left = (total - sum(values)) / count
        return [value + left + self.bias for value in values]

    def made_worse(self, judged: list[float], draw: random.Random) -> list[float]:
        """Return the rule's values with the mistakes that are set."""
        changed = []
        for value in judged:
            lost, flipped, invented = (draw.random() < share for share in (self.drop, self.flip, self.invent))
            if value:
                changed.append(0.0 if lost else -value if flipped else value)
            else:
                changed.append(draw.choice([1.0, -1.0]) if invented else 0.0)
        values = [0.0] * len(judged)
        for place, value in enumerate(changed):
            for near in range(self.smear):
                to = place + self.shift + near - self.smear // 2
                if 0 <= to < len(values):
                    values[to] += value / self.smear
        return values


def tokens_of_words(text: str, offsets: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the tokens of each word of a text: one token if the tokenizer knows all words. A token belongs to the word
    in which it ends.
    """
    found: list[list[int]] = [[] for _ in text.split()]
    for place, (start, end) in enumerate(offsets):
        if text[start:end].strip():
            found[len(text[:end].split()) - 1].append(place)
    return found

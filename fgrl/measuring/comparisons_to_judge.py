"""Answers of several models in pairs, as samples that people compare."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

from fgrl.base.errors import DataError
from fgrl.measuring import pairwise
from fgrl.measuring.answer import Answer
from fgrl.measuring.judging import answer_text
from fgrl.measuring.pairwise import PROMPT_ID
from fgrl.types import Sample

Pairing = tuple[str, str, Answer, Answer]
"""Two models and their answers to one prompt."""


def to_compare(answers: Mapping[str, Sequence[Answer]], count: int | None = None, seed: int = 0) -> list[Sample]:
    """Return samples with two responses each, whose `by` is the model. `meta.prompt_id` names the prompt, so that
    intervals can resample it.

    count: number of pairs, drawn so that every two models and every prompt occur about equally often; None: every two
    models on every prompt. The order of pairs and of the responses in a pair is drawn from `seed`. Raises `DataError`
    for more pairs than there are.
    """
    generator = random.Random(seed)
    pairs = list(pairwise.pairings(answers))
    generator.shuffle(pairs)
    if count is not None:
        pairs = _balanced(pairs, count)
    return [
        _sample(number, [(name, own), (opponent, other)], generator)
        for number, (name, opponent, own, other) in enumerate(pairs)
    ]


def _balanced(pairs: list[Pairing], count: int) -> list[Pairing]:
    """Return `count` of the pairs. The next pair always belongs to the two models, and then to the prompt, that were
    chosen least often so far.
    """
    if count > len(pairs):
        raise DataError(f"{count} comparisons are wanted, but there are {len(pairs)} pairs of answers")
    of_models: Counter[tuple[str, str]] = Counter()
    of_prompt: Counter[str] = Counter()
    left, taken = list(pairs), []
    for _ in range(count):
        place = min(range(len(left)), key=lambda i: (of_models[left[i][:2]], of_prompt[left[i][2].id]))
        pair = left.pop(place)
        of_models[pair[:2]] += 1
        of_prompt[pair[2].id] += 1
        taken.append(pair)
    return taken


def _sample(number: int, sides: list[tuple[str, Answer]], generator: random.Random) -> Sample:
    generator.shuffle(sides)
    prompt = sides[0][1].sample
    return prompt.model_copy(
        update={
            "id": f"{prompt.id}-{number}",
            "responses": [
                answer.response.model_copy(update={"by": model, "text": answer_text(answer)}) for model, answer in sides
            ],
            "meta": {**prompt.meta, PROMPT_ID: prompt.id},
        }
    )

"""Numbers of tokens of prompts and answers, and the limits that follow."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fgrl import lazy, registry
from fgrl.errors import DataError, Unavailable
from fgrl.kinds import Reader
from fgrl.specs import ModelSpec
from fgrl.types import Message, Pair, Request, Sample

rollouts = lazy.load("fgrl.rollouts")
shapes = lazy.load("fgrl.models.shapes")
tokens = lazy.load("fgrl.llm.tokens")

MEASURED = 2000
"""Rows whose tokens are counted."""
LONGEST_PROMPT, LONGEST_ROW = 1024, 2048
"""Tokens to which limits are set at most, whatever the data has."""


@dataclass(frozen=True)
class Lengths:
    """Tokens: median, 95th percentile and maximum."""

    median: int
    most: int
    longest: int

    def __str__(self) -> str:
        return f"{self.median} tokens in the median, {self.most} at the 95th percentile, {self.longest} at most"


@dataclass(frozen=True)
class Measured:
    """Findings about rows and model."""

    count: int
    """Rows that fit."""
    bad: int
    """Rows that do not."""
    first_bad: str
    prompts: Lengths
    answers: Lengths | None
    """None: the rows have prompts alone."""
    repeated: int
    """Prompts that occur in an earlier row as well."""
    template: bool | None
    """True if the model has a chat template; None: its tokenizer is not on this machine, and lengths are estimates."""
    positions: int | None
    """Number of tokens that the model can read; None if unknown."""


class _Listener:
    """Parts of a run that a reader needs."""

    limit = None

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def read_all(reader: dict[str, Any], form: str) -> tuple[list[Sample] | list[Pair], str]:
    """Return the rows that fit a reader, and what it reports about the others. Raises `DataError` when none fits."""
    built: Reader = registry.build("reader", {**reader, "bad_rows": "drop"})
    listener = _Listener()
    built.setup(listener)
    rows: Any = list(built.pairs() if form == "preference" else built.read())
    return rows, " ".join(line for line in listener.lines if "left out" in line)


def measure(rows: Sequence[Sample | Pair], total: int, omitted: str, model: ModelSpec) -> Measured:
    """Count tokens with the model's tokenizer. Raises `DataError` where prompts are conversations and the model has no
    template.

    rows: those that fit, of `total`. omitted: about the others.
    """
    tokenizer = _tokenizer(model)
    part = rows[:MEASURED]
    prompts = [_prompt_tokens(tokenizer, row.prompt) for row in part]
    answers = [_answer_tokens(tokenizer, answer) for row in part for answer in answers_of(row)]
    texts = Counter(_as_text(row.prompt) for row in rows)
    return Measured(
        count=len(rows),
        bad=total - len(rows),
        first_bad=omitted.partition("the first that does not fit: ")[2],
        prompts=_lengths(prompts),
        answers=_lengths(answers) if answers else None,
        repeated=len(rows) - len(texts),
        template=None if tokenizer is None else bool(tokenizer.chat_template),
        positions=_positions(model),
    )


def answers_of(row: Sample | Pair) -> list[str]:
    """Return the answers in a row."""
    return [row.chosen, row.rejected] if isinstance(row, Pair) else [response.text for response in row.responses]


def rounded_up(tokens: float, to: int = 16) -> int:
    """To a multiple of 16."""
    return to * max(1, math.ceil(tokens / to))


def _as_text(prompt: str | list[Message]) -> str:
    return prompt if isinstance(prompt, str) else "\0".join(f"{turn.role}\1{turn.content}" for turn in prompt)


def _lengths(counts: Sequence[int]) -> Lengths:
    ordered = sorted(counts)
    at = [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.95)]
    return Lengths(at[0], at[1], ordered[-1])


def _tokenizer(model: ModelSpec) -> Any:
    """None for a model of the hub that is not on this machine."""
    try:
        return tokens.load_tokenizer(model)
    except Unavailable:
        return None


def _prompt_tokens(tokenizer: Any, prompt: str | list[Message]) -> int:
    """Tokens of a prompt as the model gets it; an estimate without a tokenizer."""
    if tokenizer is None:
        turns = [Message(role="user", content=prompt)] if isinstance(prompt, str) else prompt
        return tokens.estimate(Request(messages=turns))
    if isinstance(prompt, list) and not tokenizer.chat_template:
        raise DataError(
            "the prompts are conversations (a system prompt makes them such), but the model has no chat template: name a file "
            "with one (--chat-template FILE)"
        )
    return len(rollouts.encode_prompt(tokenizer, prompt))


def _answer_tokens(tokenizer: Any, answer: str) -> int:
    """Tokens of an answer with the one that ends it."""
    if tokenizer is None:
        return tokens.estimate(Request(messages=[Message(role="assistant", content=answer)]))
    return len(tokenizer(answer, add_special_tokens=False).input_ids) + 1


def _positions(model: ModelSpec) -> int | None:
    try:
        config, _folder = shapes.find(str(model.base), model.revision)
    except shapes.Unknown:
        return None
    return next((config[name] for name in ("max_position_embeddings", "n_positions") if config.get(name)), None)

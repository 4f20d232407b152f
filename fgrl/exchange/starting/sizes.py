"""Numbers of tokens of prompts and answers, and the sizes of a recipe that follow from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fgrl.base import lazy
from fgrl.base.console import Console
from fgrl.base.errors import DataError, Unavailable
from fgrl.exchange.starting.templates import numbers
from fgrl.kinds import default_engine
from fgrl.kinds.specs import ModelSpec, Sampling
from fgrl.types import Message, Pair, Request, Sample

models = lazy.load("fgrl.models")
rollouts = lazy.load("fgrl.rollouts")
shapes = lazy.load("fgrl.models.shapes")
tokens = lazy.load("fgrl.feedback.llm.tokens")
torch = lazy.load("torch")

DRAWN = 8
"""Number of drawn answers whose lengths decide the length limit of answers."""
MEASURED = 2000
"""Number of rows whose tokens are counted."""
LONGEST_PROMPT, LONGEST_ROW = 1024, 2048
"""Upper bounds of the limits in tokens, whatever the data has."""
IN_GROUPS = ("grpo", "rtt", "agent")
"""Kinds that compare several answers to a prompt."""


@dataclass(frozen=True)
class Lengths:
    """Number of tokens: median, 95th percentile and maximum."""

    median: int
    most: int
    longest: int

    @classmethod
    def of(cls, counts: Sequence[int]) -> Lengths:
        ordered = sorted(counts)
        median, most = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.95))
        return cls(median, most, ordered[-1])

    def __str__(self) -> str:
        return f"{self.median} tokens in the median, {self.most} at the 95th percentile, {self.longest} at most"


class Counter:
    """Counter of a model's tokens; it estimates if the model's tokenizer is not on this machine."""

    def __init__(self, model: ModelSpec) -> None:
        self.positions = _positions(model)
        try:
            self.tokenizer = tokens.load_tokenizer(model)
        except Unavailable:
            self.tokenizer = None

    def prompts(self, rows: Sequence[Sample | Pair]) -> Lengths:
        return Lengths.of([self._prompt(row.prompt) for row in rows[:MEASURED]])

    def answers(self, rows: Sequence[Sample | Pair]) -> Lengths | None:
        """Return the lengths of the answers; None if the rows have only prompts."""
        counts = [self._answer(answer) for row in rows[:MEASURED] for answer in _answers_of(row)]
        return Lengths.of(counts) if counts else None

    def _prompt(self, prompt: str | list[Message]) -> int:
        if self.tokenizer is None:
            turns = [Message(role="user", content=prompt)] if isinstance(prompt, str) else prompt
            return tokens.estimate(Request(messages=turns))
        if isinstance(prompt, list) and not self.tokenizer.chat_template:
            raise DataError(
                "the prompts are conversations (a system prompt makes them such), but the model has no chat template: name a "
                "file with one (--chat-template FILE)"
            )
        return len(rollouts.encode_prompt(self.tokenizer, prompt))

    def _answer(self, answer: str) -> int:
        """Return the number of tokens, including the one that ends the answer."""
        if self.tokenizer is None:
            return tokens.estimate(Request(messages=[Message(role="assistant", content=answer)]))
        return len(self.tokenizer(answer, add_special_tokens=False).input_ids) + 1


def rounded_up(tokens: float, to: int = 16) -> int:
    """Return the number of tokens, rounded up to a multiple of 16."""
    return to * max(1, math.ceil(tokens / to))


def prompt_limit(prompts: Lengths) -> int:
    """Return `max_prompt_tokens` for prompts of these lengths."""
    return rounded_up(prompts.longest if prompts.longest <= LONGEST_PROMPT else min(prompts.most, LONGEST_PROMPT))


def drawn(spec: ModelSpec, rows: Sequence[Sample | Pair], max_prompt: int, most: int) -> tuple[Lengths, int] | None:
    """Draw an answer to each of a few prompts. Return their lengths in tokens, and the number of answers that were cut
    at `most`; None if the model is not on this machine.
    """
    samples = [Sample(id=str(number), prompt=row.prompt) for number, row in enumerate(rows[:DRAWN])]
    sampling = Sampling(max_new_tokens=most, max_prompt_tokens=max_prompt, **numbers()["drawing"])
    with Console().progress(f"answers of {spec.base}, to choose the length limit", len(samples)) as ticker:
        try:
            model = models.load(spec).to("cuda" if torch.cuda.is_available() else "cpu")
        except Unavailable:
            return None
        with default_engine().open(model) as drawer:
            answers = [own for (own,) in rollouts.draw(model, drawer, samples, sampling, 1, seed=0)]
        ticker.advance(len(samples))
    return Lengths.of([len(own) for own in answers]), sum(own.finish != "end" for own in answers)


def sizes(
    kind: str, count: int, prompts: Lengths, answers: Lengths | None, max_prompt: int, max_tokens: int | None,
    new_tokens: int, positions: int, machine: str,
) -> dict[str, Any]:  # fmt: skip
    """Return the sizes for this number of rows with these lengths, by their names in the templates.

    positions: number of tokens that the model can read. machine: `gpu` or `no_gpu`. max_tokens: the requested limit.
    """
    limits = numbers()[machine]
    share = 0.2 if count < 1_000 else 0.1 if count < 10_000 else 0.02
    held_out = round(share * count)
    trained = count - held_out
    batch, epochs, max_steps = limits["batch"], 1, None
    if answers is not None:
        chosen = min(max(rounded_up(prompts.longest + answers.longest), max_prompt + 16), LONGEST_ROW, positions)
        max_tokens = max_tokens or chosen
        max_prompt = min(max_prompt, max_tokens - 16)
        batch = next(size for size in (batch, 16, 8, 4, 2) if size * 10 <= trained or size == 2)
        epochs = 3 if trained <= 2_000 else 1
        each = (prompts.median + answers.median) * (1 if kind == "sft" else 2)
        most = max(10, limits["tokens"] // (batch * each)) if limits["tokens"] else math.inf
        max_steps = most if epochs * -(-trained // batch) > most else None
    responses, wanted = limits["responses"], 8 if kind in IN_GROUPS else 1
    return {
        "held_out": held_out, "share": share, "evaluated": min(held_out, limits["evaluated"]),
        "max_prompt": max(1, min(max_prompt, positions - new_tokens)), "max_tokens": max_tokens, "new_tokens": new_tokens,
        "responses": responses, "step": responses if kind in ("grpo", "agent") else responses // 2, "iterations": limits["iterations"],
        "per_prompt": next(n for n in (1, 2, 4, 8, 16, 32, 64) if n >= wanted and responses // n <= trained),
        "batch": batch, "epochs": epochs, "max_steps": max_steps,
    }  # fmt: skip


def _answers_of(row: Sample | Pair) -> list[str]:
    return [row.chosen, row.rejected] if isinstance(row, Pair) else [response.text for response in row.responses]


def _positions(model: ModelSpec) -> int:
    """Return the number of tokens that a model can read; a large one if it is unknown."""
    try:
        config, _folder = shapes.find(str(model.base), model.revision)
    except shapes.Unknown:
        config = {}
    return next((config[name] for name in ("max_position_embeddings", "n_positions") if config.get(name)), 10**9)

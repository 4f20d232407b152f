"""What metrics share that ask a judge: the client, the prompt, the outcomes of the questions."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field, PrivateAttr

from fgrl.evaluation.answer import Answer
from fgrl.evaluation.comparison import Compared
from fgrl.evaluation.statistics import Measured, weighted_mean
from fgrl.kinds import AtMost, Client, ToDraw
from fgrl.llm.asking import FAILURES, Asked, Question, ask, tally
from fgrl.registry import File
from fgrl.templates import Prompt, as_text, read_prompt
from fgrl.types import Request

V = TypeVar("V")

NONE = "(none)"
"""Stands in a prompt for a field that is empty."""


class Judged(Compared):
    """A metric that a language model judges."""

    says: ClassVar[tuple[str, ...]]
    """Fields that its prompt may have."""
    needed: ClassVar[tuple[str, ...]]
    """Fields that it must have."""
    shows: ClassVar[int] = 1
    """Answers in one question."""

    client: Client
    """The judge."""
    prompt: Annotated[str, File]
    """Prompt file."""
    tries: int = Field(2, ge=1)
    """How often a question is asked in all when its answer cannot be read."""
    max_tokens: int | None = Field(None, ge=1)
    """Length limit of a judgement; null is the client's own."""
    temperature: float | None = Field(0.0, ge=0)
    """Of the judge; null is the client's own."""

    _out: Path | None = PrivateAttr(default=None)
    _counts: dict[str, Any] = PrivateAttr(default_factory=dict)

    def setup(self, run: Any) -> None:
        self.client.setup(run)
        self._out = run.out

    def why_not_remeasured(self) -> str:
        return "it asks a judge"

    def counts(self) -> dict[str, Any]:
        """The outcomes of the questions."""
        return self._counts

    @abstractmethod
    def calls(self, expected: ToDraw) -> int:
        """How many questions `measure` asks about the answers to come, before any is retried."""

    def asks(self, given: Mapping[str, Sequence[Answer]], *, baseline: str | None = None) -> list[Request]:
        return [question.request for _about, question in self.plan(given, baseline)]

    def asks_at_most(self, expected: ToDraw) -> list[AtMost]:
        """The prompts themselves are not read: each has at most as many tokens as the sampling keeps of it."""
        _prompts, turns = expected.size()
        request = Request(messages=self.template().fill({}), max_tokens=self.longest)
        texts = expected.sampling.max_prompt_tokens + self.shows * turns * expected.sampling.max_new_tokens
        return [AtMost(request, self.calls(expected), texts, fewer=False)]

    @property
    def longest(self) -> int | None:
        """Length limit of a judgement in tokens; None is the client's own."""
        return self.max_tokens

    def template(self) -> Prompt:
        """The prompt. Raises `DataError` when it has an unknown field, or lacks the fields that are judged."""
        return read_prompt(self.prompt, self.says, self.needed)

    @abstractmethod
    def plan(
        self, answers: Mapping[str, Sequence[Answer]], baseline: str | None
    ) -> list[tuple[dict[str, Any], Question[Any]]]:
        """The questions of `measure`, each with what it is about (for the record)."""

    def put(self, plan: Sequence[tuple[Mapping[str, Any], Question[V]]]) -> list[Asked[V]]:
        """The outcome of each question; all answers are recorded in `judgements-<name>.jsonl`."""
        asked = ask(self.client, [question for _about, question in plan], self.tries)
        self._counts = tally(asked)
        if self._out is not None:
            path = self._out / f"judgements-{self.slug}.jsonl"
            with path.open("w", encoding="utf-8") as file:
                for (about, _question), outcome in zip(plan, asked, strict=True):
                    line = {
                        **about,
                        "said": outcome.completion.text,
                        "failure": outcome.failure,
                        "reason": outcome.reason,
                    }
                    kept = {name: value for name, value in line.items() if value is not None or name in about}
                    file.write(json.dumps(kept, ensure_ascii=False) + "\n")
        return asked


def shares(asked: Sequence[Asked[Any]], clusters: Sequence[Hashable]) -> dict[str, Measured]:
    """Of all questions, the shares that the judge refused to answer, whose answer could not be read, and that failed."""
    return {
        name: weighted_mean([float(outcome.failure in kinds) for outcome in asked], clusters)
        for name, kinds in FAILURES.items()
    }


def asked_text(answer: Answer) -> str:
    """The prompt as a judge reads it: a chat of several turns with its roles."""
    return as_text(answer.sample.prompt)


def answer_text(answer: Answer) -> str:
    """The answer as a judge reads it, and what followed."""
    later = [f"[user]\n{turn.question}\n\n[assistant]\n{turn.response.text}" for turn in answer.follow_ups]
    return "\n\n".join([answer.text, *later])

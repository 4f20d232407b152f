"""Common parts of metrics that ask a judge: the client, the prompt, the outcomes of the questions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from fgrl.base.files import write_json_lines
from fgrl.feedback.llm.asking import FAILURES, Asked, Question, ask, tally
from fgrl.feedback.llm.prompted import Prompted
from fgrl.feedback.templates import NONE, as_text
from fgrl.kinds import AtMost, ToDraw
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import Compared
from fgrl.measuring.statistics import Measured, weighted_mean
from fgrl.types import Request, messages_of

V = TypeVar("V")


class JudgedMetric(Prompted, Compared):
    """A metric that a language model judges."""

    shows: ClassVar[int] = 1
    """Number of answers in one question."""

    temperature: float | None = Field(0.0, ge=0, le=100)

    @abstractmethod
    def calls(self, expected: ToDraw) -> int:
        """Return the number of questions that `measure` will ask about the answers, before retries."""

    def asks(self, given: Mapping[str, Sequence[Answer]], *, baseline: str | None = None) -> list[Request]:
        return [question.request for _about, question in self.plan(given, baseline)]

    def asks_at_most(self, expected: ToDraw) -> list[AtMost]:
        """Return upper bounds on the questions. The prompts are not read: each is assumed to have the maximum number of
        tokens that the sampling keeps.
        """
        _prompts, turns = expected.size()
        request = Request(messages=self.template().fill({}), max_tokens=self.longest)
        texts = expected.sampling.max_prompt_tokens + self.shows * turns * expected.sampling.max_new_tokens
        return [AtMost(request, self.calls(expected), texts, fewer=False)]

    @abstractmethod
    def plan(
        self, answers: Mapping[str, Sequence[Answer]], baseline: str | None
    ) -> list[tuple[dict[str, Any], Question[Any]]]:
        """Return the questions of `measure`, each with its "model", "id" (of the prompt), and further entries for the
        record.
        """

    def put(
        self, plan: Sequence[tuple[dict[str, Any], Question[V]]]
    ) -> dict[str, list[tuple[dict[str, Any], Asked[V]]]]:
        """Return the outcome of each question with its description, by model. All are recorded in
        `judgements-<name>.jsonl`.
        """
        asked = ask(self.client, [question for _about, question in plan], self.tries)
        self._counted = tally(asked)
        outcomes = [(about, outcome) for (about, _question), outcome in zip(plan, asked, strict=True)]
        if self._run is not None:
            write_json_lines(self._run.out / f"judgements-{self.slug}.jsonl", (as_record(*pair) for pair in outcomes))
        by_model: dict[str, list[tuple[dict[str, Any], Asked[V]]]] = {}
        for about, outcome in outcomes:
            by_model.setdefault(about["model"], []).append((about, outcome))
        return by_model


def as_record(about: Mapping[str, Any], outcome: Asked[Any]) -> dict[str, Any]:
    """Return a line of a file of judgements."""
    failed = {"failure": outcome.failure, "reason": outcome.reason}
    known = {name: value for name, value in failed.items() if value is not None}
    return {**about, "said": outcome.completion.text, **known}


def shares(
    asked: Sequence[Asked[Any]], clusters: Sequence[Hashable], every: Sequence[Hashable] = ()
) -> dict[str, Measured]:
    """Return the shares of all questions that the judge refused to answer, whose answer could not be read, and that
    failed. every: as in `weighted_mean`.
    """
    return {
        name: weighted_mean([float(outcome.failure in kinds) for outcome in asked], clusters, every=every)
        for name, kinds in FAILURES.items()
    }


def compared_texts(first: Answer, second: Answer) -> dict[str, str]:
    """Return the fields of a prompt for a judge of two answers: the question, both answers, the references."""
    return {
        "question": asked_text(first),
        "first": answer_text(first),
        "second": answer_text(second),
        "reference": "\n\n".join(first.references) or NONE,
    }


def asked_text(answer: Answer) -> str:
    """Return the prompt in the form that a judge reads: a chat of several turns with its roles."""
    return as_text(answer.sample.prompt)


def answer_text(answer: Answer) -> str:
    """Return the answer and its follow-ups in the form that a judge reads; for a conversation with an environment, all
    messages.
    """
    if answer.turns:
        return as_text(messages_of(answer.turns))
    later = [f"[user]\n{turn.question}\n\n[assistant]\n{turn.response.text}" for turn in answer.follow_ups]
    return "\n\n".join([answer.text, *later])

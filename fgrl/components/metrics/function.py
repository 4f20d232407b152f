"""Metrics that are functions of a user's Python file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import PrivateAttr, model_validator

from fgrl.kinds import Better, Meaning
from fgrl.kinds.functions import Caller, Form, FunctionFile, Texts, key_of
from fgrl.kinds.functions.calling import OF_TEXTS
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import Comparison, mean
from fgrl.measuring.statistics import Measured
from fgrl.registry import File, register
from fgrl.types import Sample


@register("function")
class FunctionMetric(Comparison):
    """A Python function that measures answers: `def words(completions, **kwargs)` returns a number for each answer, or
    None for an answer to which it does not apply. The metric is their mean, with an interval over prompts.

    With the annotation `-> dict[str, list[float]]` it returns several numbers by name. Numbers per token (`->
    list[list[float]]`) are averaged over all tokens. The values of scored spans (`-> list[list[tuple[int, int,
    float]]]`) are added for each answer.
    """

    path: Annotated[str, FunctionFile]
    """Function such as `metrics.py:words`, relative to the recipe. Without a `title` the metric has the function's
    name.
    """
    arguments: dict[str, Any] = {}
    """Additional keyword arguments of the function."""
    files: list[Annotated[str, File]] = []
    """Files that the function reads. Their content is part of the cache key."""
    completions: Form = "as_prompt"
    """Form of the answers that the function gets. `as_prompt`: a list of one message if the prompt is a list of
    messages, else a text. `messages`, `text`: always in this form.
    """
    better: Better | None = None
    """Direction in which the numbers are better: `higher` or `lower`. The report's first screen uses it to conclude
    whether training helped; null: no direction, and no conclusion.
    """

    _caller: Caller = PrivateAttr()

    @model_validator(mode="after")
    def _check(self) -> FunctionMetric:
        self._caller = Caller(
            [self.path],
            allowed=("numbers", "named", "tokens", "spans"),
            arguments=self.arguments,
            form=self.completions,
        )
        return self

    @property
    def called(self) -> str:
        return self.title or self._caller.names[0]

    def behind(self) -> list[str]:
        return key_of([self.path])

    def meaning(self, number: str) -> Meaning | None:
        return None if self.better is None else Meaning(number.replace("_", " "), self.better)

    def needs(self) -> frozenset[str]:
        return frozenset({"offsets"} if self._caller.needs_offsets() or "tokens" in self._caller.kinds else ())

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        """Raise `UserCodeError` if the function requires a column that the prompts do not have, or token ids."""
        self._caller.check_arguments(samples, [*OF_TEXTS, "completion_tokens", "completion_offsets"])

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        """Return the numbers by name. Answers that were given as text have no tokens, so they have no numbers per
        token.
        """
        name = self._caller.names[0]
        has_tokens = bool(answers) and not any(answer.given for answer in answers)
        texts = Texts(
            [answer.sample for answer in answers], [answer.text for answer in answers],
            offsets=[answer.offsets for answer in answers] if has_tokens else None,
        )  # fmt: skip
        if self._caller.kinds[0] == "tokens" and not has_tokens:
            return {name: mean(answers, [None] * len(answers))}
        outcome = self._caller.call(texts)[0]
        values = outcome.values
        if outcome.kind == "named":
            return {number: mean(answers, own) for number, own in values.items()}
        if outcome.kind == "numbers":
            return {name: mean(answers, values)}
        if outcome.kind == "spans":
            return {name: mean(answers, [None if own is None else sum(span.label for span in own) for own in values])}
        known = [[value for value in own or () if value is not None] for own in values]
        return {
            name: mean(answers, [sum(own) / len(own) if own else None for own in known], [len(own) for own in known])
        }

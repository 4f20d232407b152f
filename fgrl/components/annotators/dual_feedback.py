"""Critiques of responses, with the passages that are good and poor (Text2Grad, section 3.3, Algorithm 2, appendix
B).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from fgrl.feedback.critic import Critic
from fgrl.feedback.critiques import Critique
from fgrl.feedback.llm.asking import Asked, Parsed, Question, ask, summary
from fgrl.feedback.quoting import Quotes, QuotingAnnotator, counted
from fgrl.feedback.response_annotator import (
    ResponseAnnotator,
    ResponseCase,
    annotated,
    with_matches,
    with_responses,
)
from fgrl.feedback.templates import Prompt
from fgrl.registry import register
from fgrl.types import Response, Sample


@register("dual_feedback")
class DualFeedback(Critic, QuotingAnnotator, ResponseAnnotator):
    """A language model criticises a response and quotes its good and poor passages; each quote becomes a span.

    The response gets an annotation: the critique, and the spans with the labels of `format`. With `format: {text:
    null}` and a prompt that asks only for spans, there is no critique (Text2Grad, section 4.5). An unparseable answer,
    and an answer with a quote that the response does not contain, is requested again with the reason. After the last
    request, the last answer with at least one found quote (or without any quotes) counts; only the spans of the missing
    quotes are lost. A response without such an answer gets no annotation, and is counted.

    `meta.matches` of the response records, by the annotator's name, where and how each quote was found: its `list`,
    `start` and `end`, `kind` (exact, normalised, fuzzy; null: not found) and `score`. For a program, {outcome} and
    {tests} show `meta.tests` of the response (`{"passed": false, "detail": "what the tests printed"}`).
    """

    version = 2

    draw: int = Field(0, ge=0)
    """Number of the answer among several answers to the same question. A different number asks again even if an answer
    is cached.
    """

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the annotated samples: 1. ask, 2. convert quotes to spans, 3. count. Raise `Stopped` if too many
        quotes are not found and `alarm` is `stop`.

        Counts: responses `annotated`; `spans` by list; annotations `without spans`; matches of quotes (`quotes`,
        `unmatched rate`; for each question those of the answer that counts, or else of the last one); the `unmatched
        rate of first answers`, before any retry; the outcomes of the questions; and the responses without an
        annotation.
        """
        # 1.
        cases, skipped = self.cases(samples)
        template = self.template()
        readings = [Reading(self, case) for case in cases]
        questions: list[Question[Critique]] = [
            Question(self.question(template, case).request, reading.read)
            for case, reading in zip(cases, readings, strict=True)
        ]
        answers = ask(self.client, questions, self.tries)
        asked = [reading.outcome(answer) for reading, answer in zip(readings, answers, strict=True)]
        # 2.
        criticised = {
            (case.owner, case.place): self._criticised(case.response, answer.value)
            for case, answer in zip(cases, asked, strict=True)
            if answer.value is not None
        }
        # 3.
        spans = [span for response in criticised.values() for span in self._own(response)]
        first = (quotes for reading in readings if reading.first for quotes in reading.first.value.quotes.values())
        self._counted = {
            "annotated": len(criticised),
            **{
                f"spans: {key}": sum(span.label == label for span in spans) for key, label in self.format.labels.items()
            },
            "without spans": sum(not self._own(response) for response in criticised.values()),
            **self.check_unmatched(quotes for reading in readings for quotes in reading.quotes),
            "unmatched rate of first answers": round(counted(first).rate, 4),
            **summary(self.client, asked),
            **skipped,
        }
        return with_responses(samples, criticised)

    def cases(self, samples: Sequence[Sample]) -> tuple[list[ResponseCase], dict[str, int]]:
        return self.response_cases(samples)

    def question(self, template: Prompt, case: ResponseCase) -> Question[Critique]:
        request = self.critique_request(template, case.sample, case.response)
        return Question(request.model_copy(update={"sample": self.draw}), Reading(self, case).read)

    def _criticised(self, response: Response, critique: Critique) -> Response:
        by = self.annotator_name
        matches = with_matches(response, by, critique.records()) if critique.quotes else {}
        return annotated(response, critique.annotation.model_copy(update={"by": by}), **matches)

    def _own(self, response: Response) -> list[Any]:
        return response.annotations[-1].spans


class Reading:
    """Reader of the answers to one question, which remembers the last usable answer."""

    def __init__(self, critic: Critic, case: ResponseCase) -> None:
        self.critic, self.text = critic, case.response.text
        self.first: Parsed[Critique] | None = None
        self.last: Parsed[Critique] | None = None
        self.usable: Parsed[Critique] | None = None

    def read(self, output: str) -> Parsed[Critique]:
        """Return the critique in an answer. Raise ValueError also if a quote of it is not found."""
        parsed = self.critic.read(output, self.text)
        located = [entry for quotes in parsed.value.quotes.values() for entry in quotes.located]
        lost = [quote for quote, matches in located if not matches]
        self.first, self.last = self.first or parsed, parsed
        if len(lost) < len(located) or not located:
            self.usable = parsed
        if lost:
            raise ValueError(
                f"{len(lost)} of {len(located)} passages do not stand in the response, {lost[0][:80]!r} for one: copy each "
                "letter by letter, as one unbroken piece"
            )
        return parsed

    def outcome(self, answer: Asked[Critique]) -> Asked[Critique]:
        """Return the outcome of the question. An answer that lost some of its quotes counts if there is no better one."""
        if answer.value is not None or self.usable is None:
            return answer
        return replace(answer, value=self.usable.value, failure=None, reason=None, repaired=self.usable.repaired)

    @property
    def quotes(self) -> Sequence[Quotes]:
        """Return the quotes of the answer that counts, or else of the last answer that could be read."""
        counting = self.usable or self.last
        return () if counting is None else list(counting.value.quotes.values())

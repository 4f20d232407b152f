"""Responses of a language model to the samples' prompts, for example of a strong model ("Rubrics to Tokens", appendix
C.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from fgrl.feedback.asking_annotator import AskingAnnotator
from fgrl.feedback.llm.asking import Question, ask, summary
from fgrl.feedback.llm.reading import read_answer
from fgrl.feedback.negatives import listed
from fgrl.feedback.templates import Prompt, as_text
from fgrl.kinds import Expected
from fgrl.registry import register
from fgrl.types import Response, Sample


@register("answer")
class AnswerByModel(AskingAnnotator):
    """A language model answers each prompt; its answer becomes the sample's chosen response.

    A sample whose request finally fails, or whose answer is empty or cut off, is dropped and counted. The prompt file
    contains {prompt} (a chat of several turns with its roles), and may contain {rubric}, the criteria.
    """

    placeholders: ClassVar[tuple[str, ...]] = ("prompt", "rubric")
    required: ClassVar[tuple[str, ...]] = ("prompt",)

    max_tokens: int | None = Field(4096, ge=1)

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        template = self.template()
        asked = ask(self.client, [self.question(template, sample) for sample in samples], self.tries)
        self._counted = summary(self.client, asked)
        return [
            sample.with_chosen(Response(text=answer.value))
            for sample, answer in zip(samples, asked, strict=True)
            if answer.value is not None
        ]

    def asks_at_most(self, expected: Expected) -> int | None:
        return expected.samples

    def cases(self, samples: Sequence[Sample]) -> tuple[Sequence[Sample], dict[str, int]]:
        return samples, {}

    def question(self, template: Prompt, case: Sample) -> Question[str]:
        values = {"prompt": as_text(case.prompt), "rubric": listed(case.rubric)}
        return Question(self.request(template, values, about=case.id), read_answer)

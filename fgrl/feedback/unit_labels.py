"""Common parts of annotators whose language model gives a label to every unit of a response: to every word, sentence or
statement.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from fgrl.feedback.asking_annotator import AskingAnnotator
from fgrl.feedback.critic import PLACEHOLDERS, shown
from fgrl.feedback.llm.asking import Parsed, Question, ask, parse_json, summary
from fgrl.feedback.response_annotator import ResponseAnnotator, ResponseCase, annotated, with_responses
from fgrl.feedback.rules.text import CharRange
from fgrl.feedback.templates import Prompt
from fgrl.feedback.text_units import numbered
from fgrl.types import Annotation, Request, Sample, Span


class UnitLabels(BaseModel):
    """Labels from the answer of a labeller."""

    model_config = ConfigDict(extra="forbid")

    labels: list[int]


class UnitLabeller(ResponseAnnotator, AskingAnnotator):
    """Annotator that divides a response into units and asks for one label each; every unit with a label becomes a span.

    If an answer has more or fewer labels than there are units, or other labels, it is requested again with the reason.
    If this fails too, the response has no annotation. Labels are never shifted, cut or filled up.
    """

    placeholders: ClassVar[tuple[str, ...]] = (*PLACEHOLDERS, "units", "count")
    required: ClassVar[tuple[str, ...]] = ("units",)
    allowed: ClassVar[tuple[int, ...]]
    """Labels that an answer may contain."""

    temperature: float | None = Field(0.0, ge=0, le=100)

    @abstractmethod
    def divide(self, text: str) -> Sequence[CharRange]:
        """Return the units of a response, which is not blank."""

    def keeps(self, label: int) -> bool:
        """Return True if a unit with this label becomes a span."""
        return True

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Annotate in three steps: 1. divide and ask, 2. turn labels into spans, 3. count. Counts: responses
        `annotated`, their `units`, the number of units with each label, the outcomes of the questions, and the
        responses without a question.
        """
        # 1.
        cases, skipped = self.cases(samples)
        units = [self.divide(case.response.text) for case in cases]
        template = self.template()
        questions = [self._question(template, case, own) for case, own in zip(cases, units, strict=True)]
        asked = ask(self.client, questions, self.tries)
        # 2.
        labelled = {
            (case.owner, case.place): (case, _spans(own, answer.value))
            for case, own, answer in zip(cases, units, asked, strict=True)
            if answer.value is not None
        }
        responses = {
            key: annotated(
                case.response,
                Annotation(by=self.annotator_name, spans=[span for span in spans if self.keeps(int(span.label))]),
            )
            for key, (case, spans) in labelled.items()
        }
        # 3.
        labels = Counter(int(span.label) for _case, spans in labelled.values() for span in spans)
        self._counted = {
            "annotated": len(labelled),
            "units": labels.total(),
            **{f"label {label:+d}" if label else "label 0": labels[label] for label in self.allowed},
            **summary(self.client, asked),
            **skipped,
        }
        return with_responses(samples, responses)

    def cases(self, samples: Sequence[Sample]) -> tuple[list[ResponseCase], dict[str, int]]:
        cases, skipped = self.response_cases(samples)
        divided = [case for case in cases if self.divide(case.response.text)]
        return divided, skipped | ({"without units": len(cases) - len(divided)} if len(divided) < len(cases) else {})

    def question(self, template: Prompt, case: ResponseCase) -> Question[list[int]]:
        return self._question(template, case, self.divide(case.response.text))

    def _question(self, template: Prompt, case: ResponseCase, units: Sequence[CharRange]) -> Question[list[int]]:
        return Question(self._request(template, case, units), lambda text: read_labels(text, len(units), self.allowed))

    def _request(self, template: Prompt, case: ResponseCase, units: Sequence[CharRange]) -> Request:
        listed = {"units": numbered(case.response.text, units), "count": str(len(units))}
        values, schema = shown(case.sample, case.response) | listed, labels_schema(len(units), self.allowed)
        return self.request(template, values, json_schema=schema, about=case.sample.id)


def labels_schema(count: int, allowed: Sequence[int]) -> dict[str, Any]:
    """Return the JSON schema of an answer about this many units."""
    labels = {"type": "array", "items": {"enum": list(allowed)}, "minItems": count, "maxItems": count}
    return {"type": "object", "properties": {"labels": labels}, "required": ["labels"], "additionalProperties": False}


def read_labels(text: str, count: int, allowed: Sequence[int]) -> Parsed[list[int]]:
    """Return the labels of an answer, one for each unit. Raises ValueError for another number of labels, and for labels
    that are not allowed.
    """
    parsed = parse_json(text, UnitLabels, "it declines to label")
    labels = parsed.value.labels
    if len(labels) != count:
        raise ValueError(f"it has {len(labels)} labels for {count} units: there has to be one label for each")
    if wrong := sorted(set(labels) - set(allowed)):
        known = ", ".join(map(str, allowed))
        raise ValueError(f"{wrong[0]} is no label: each one is {known}")
    return Parsed(labels, parsed.repaired)


def _spans(units: Sequence[CharRange], labels: Sequence[int]) -> list[Span]:
    return [Span(start=start, end=end, label=float(label)) for (start, end), label in zip(units, labels, strict=True)]

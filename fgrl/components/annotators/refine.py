"""Rewrites that follow a critique: training data of ILF (Scheurer et al. 2023), and reflection (Text2Grad, Table 2:
ILF, SFT + Reflection).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from fgrl.base.errors import DataError
from fgrl.feedback.asking_annotator import AskingAnnotator
from fgrl.feedback.critic import PLACEHOLDERS, shown
from fgrl.feedback.llm.asking import Asked, Question, ask, summary
from fgrl.feedback.llm.reading import Refused, declines, read_answer
from fgrl.feedback.response_annotator import NamedAnnotator, ResponseCase
from fgrl.feedback.templates import NONE, Prompt
from fgrl.kinds import Annotator, Expected
from fgrl.registry import name_of, register
from fgrl.types import Annotation, Request, Response, Sample


@register("refine")
class Refine(NamedAnnotator, AskingAnnotator):
    """A language model rewrites the chosen (or only) response of a sample according to one of its annotations. The
    rewrite is added as a response and becomes the chosen one: `sft` trains on it, and an evaluation takes it as a given
    answer.

    The rewrite's `by` is the name in `by`; its `meta.refines` is the place of the rewritten response, `meta.critic` the
    author of the critique, and `meta.critique` the critique. If there are several rewrites, the annotator `best`
    selects the one with the highest score. The prompt file contains {response} and {critique}, and may contain
    {prompt}, {reference}, {good}, {poor} and {neutral} (the passages of the annotation by their label, one a line),
    {tests} and {outcome}: `prompts/refine.txt`. An answer that is empty or declines is requested again, and finally
    missing.
    """

    placeholders: ClassVar[tuple[str, ...]] = (*PLACEHOLDERS, "critique", "good", "poor", "neutral")
    required: ClassVar[tuple[str, ...]] = ("response", "critique")

    by: str | None = None
    """Author name of the rewrites, stored in their `by`; null is `refine`."""
    critic: str | None = None
    """Author of the annotation to follow; null takes the last annotation that has a critique or spans."""
    n: int = Field(1, ge=1)
    """Number of rewrites to draw for each response. Set `temperature` if there are several."""
    best: Annotator | None = None
    """Annotator that scores the rewrites: `similarity` to the reference, `rubric_score` with rules, or another one that
    asks no language model.
    """
    missing: Literal["drop", "keep"] = "drop"
    """Treatment of a sample without a critique or without a usable rewrite: drop it, or keep it unchanged, as an
    evaluation needs one answer to each prompt.
    """
    max_tokens: int | None = Field(4096, ge=1)

    @model_validator(mode="after")
    def _best_of_several(self) -> Refine:
        if self.n > 1 and self.best is None:
            raise ValueError(
                "best: of several rewrites one is taken: name an annotator that scores them, e.g. similarity"
            )
        if self.best is not None and self.best.asked_client() is not None:
            raise ValueError(
                "best: it asks a language model, which `fgrl plan` could not count: use one that scores by itself"
            )
        return self

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the samples with rewrites: 1. ask n times about each response, 2. score and choose, 3. add the rewrite
        after the other responses.

        Counts: samples that were `refined`, usable `rewrites`, the `unchanged` ones among them, the chosen rewrites
        with a score (`scored`), samples `dropped` or `kept as they were`, the outcomes of the questions, and the
        samples without a rewrite.
        """
        # 1.
        cases, skipped = self.cases(samples)
        template = self.template()
        questions = [question for case in cases for question in self._draws(template, case)]
        asked = ask(self.client, questions, self.tries)
        # 2.
        drawn = [
            self._rewrites(case, asked[self.n * number : self.n * (number + 1)]) for number, case in enumerate(cases)
        ]
        chosen = self._choose(cases, drawn)
        # 3.
        refined = {
            case.owner: _answered_by(case.sample, rewrite)
            for case, rewrite in zip(cases, chosen, strict=True)
            if rewrite is not None
        }
        rewrites = [rewrite for own in drawn for rewrite in own]
        scored = sum(rewrite.score is not None for rewrite in chosen if rewrite is not None)
        self._counted = {
            "refined": len(refined),
            "rewrites": len(rewrites),
            "unchanged": sum(
                rewrite.text == case.response.text for case, own in zip(cases, drawn, strict=True) for rewrite in own
            ),
            **({"scored": scored} if self.best is not None else {}),
            ("dropped" if self.missing == "drop" else "kept as they were"): len(samples) - len(refined),
            **summary(self.client, asked),
            **skipped,
        }
        if self.missing == "drop":
            return [refined[owner] for owner in range(len(samples)) if owner in refined]
        return [refined.get(owner, sample) for owner, sample in enumerate(samples)]

    def asks(self, given: Sequence[Sample]) -> list[Request]:
        template = self.template()
        return [question.request for case in self.cases(given)[0] for question in self._draws(template, case)]

    def asks_at_most(self, expected: Expected) -> int | None:
        return expected.samples * self.n

    def cases(self, samples: Sequence[Sample]) -> tuple[list[ResponseCase], dict[str, int]]:
        skipped = {"without a response": 0, "without a critique": 0}
        cases: list[ResponseCase] = []
        for owner, sample in enumerate(samples):
            if sample.chosen_response is None:
                skipped["without a response"] += 1
                continue
            case = ResponseCase(owner, sample.chosen or 0, sample)
            if self._annotation(case) is None:
                skipped["without a critique"] += 1
            else:
                cases.append(case)
        return cases, {name: count for name, count in skipped.items() if count}

    def question(self, template: Prompt, case: ResponseCase) -> Question[str]:
        return self._draws(template, case)[0]

    def _draws(self, template: Prompt, case: ResponseCase) -> list[Question[str]]:
        annotation = self._annotation(case)
        assert annotation is not None
        text = case.response.text
        values = shown(case.sample, case.response) | {
            "critique": annotation.critique or NONE,
            "good": _quoted(text, annotation, lambda label: label > 0),
            "poor": _quoted(text, annotation, lambda label: label < 0),
            "neutral": _quoted(text, annotation, lambda label: label == 0),
        }

        def read(answer: str) -> str:
            if declines(answer) and not declines(text):
                raise Refused("it declines to rewrite")
            return read_answer(answer)

        requests = [self.request(template, values, sample=draw, about=case.sample.id) for draw in range(self.n)]
        return [Question(request, read) for request in requests]

    def _annotation(self, case: ResponseCase) -> Annotation | None:
        """Return the annotation to follow; None if no annotation has a critique or spans."""
        own = [
            annotation
            for annotation in case.response.annotations
            if self.critic in (None, annotation.by) and (annotation.spans or (annotation.critique or "").strip())
        ]
        return own[-1] if own else None

    def _rewrites(self, case: ResponseCase, asked: Sequence[Asked[str]]) -> list[Response]:
        """Return the usable rewrites of a response, in the order in which they were drawn."""
        annotation = self._annotation(case)
        assert annotation is not None
        about = {"refines": case.place, "critic": annotation.by, "critique": annotation.critique}
        return [
            Response(text=answer.value, finished=True, by=self.annotator_name, meta=about)
            for answer in asked
            if answer.value is not None
        ]

    def _choose(self, cases: Sequence[ResponseCase], drawn: Sequence[Sequence[Response]]) -> list[Response | None]:
        """Return the rewrite of each case with the highest score (the first in case of a tie); None if no rewrite has a
        score.
        """
        if self.best is None:
            return [own[0] if own else None for own in drawn]
        given = {
            f"{number}": case.sample.model_copy(
                update={"id": f"{number}", "responses": list(own), "chosen": None, "verdicts": None}
            )
            for number, (case, own) in enumerate(zip(cases, drawn, strict=True))
            if own
        }
        scored = {sample.id: sample.responses for sample in self.best.annotate(list(given.values()))}
        if wrong := [
            name for name, own in scored.items() if name not in given or len(own) != len(given[name].responses)
        ]:
            raise DataError(
                f"best: {name_of(self.best)[1]} returned other responses than it was given, for {len(wrong)}"
            )
        return [_highest(scored.get(f"{number}", [])) for number in range(len(cases))]


def _quoted(text: str, annotation: Annotation, fits: Any) -> str:
    """Return the passages of an annotation with a matching label, one per line."""
    passages = [text[span.start : span.end] for span in annotation.spans if fits(span.label)]
    return "\n".join(f"- {passage}" for passage in passages) or NONE


def _highest(responses: Sequence[Response]) -> Response | None:
    known = [response for response in responses if response.score is not None]
    return max(known, key=lambda response: response.score or 0.0, default=None)


def _answered_by(sample: Sample, rewrite: Response) -> Sample:
    return sample.model_copy(update={"responses": [*sample.responses, rewrite], "chosen": len(sample.responses)})

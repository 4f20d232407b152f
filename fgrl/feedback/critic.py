"""A language model that criticises responses: common parts of the annotator and the reward that ask such a model
(Text2Grad, section 3.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from fgrl.feedback.critiques import Critique, CritiqueFormat, read_critique
from fgrl.feedback.llm import together
from fgrl.feedback.llm.asking import Asked, Parsed, Question, ask
from fgrl.feedback.llm.prompted import Prompted
from fgrl.feedback.quoting import QuoteSearch
from fgrl.feedback.templates import NONE, Prompt, as_text
from fgrl.types import Request, Response, Sample

PLACEHOLDERS = ("prompt", "response", "reference", "tests", "outcome")
REQUIRED = ("prompt", "response")
TESTS = "tests"
"""Key in the `meta` of a response: `{"passed": true | false | null, "detail": "what the tests printed"}`. In a sample's
`meta`, or in the check of a criterion of its rubric: the source of the tests, a text or a list of texts.
"""


def result_of_tests(response: Response) -> Mapping[str, Any] | None:
    """Return the recorded result of a response's tests; None if they were not run."""
    known = response.meta.get(TESTS)
    return known if isinstance(known, Mapping) and known.get("passed") is not None else None


def shown(sample: Sample, response: Response) -> dict[str, str]:
    """Return the texts for the placeholders of a prompt about a response.

    {reference}: all references. {outcome}: whether the response passed its tests, by `meta.tests` of the response.
    {tests}: the tests (`meta.tests` of the sample, or else the tests in the checks of its rubric). For a response that
    failed, with the output of the tests; empty for a response that passed (Text2Grad, appendix B.3). Anything unknown
    is "(none)".
    """
    references = [sample.reference] if isinstance(sample.reference, str) else sample.reference or []
    result = result_of_tests(response)
    return {
        "prompt": as_text(sample.prompt),
        "response": response.text,
        "reference": "\n\n".join(references) or NONE,
        "outcome": f"Passed: {'yes' if result['passed'] else 'no'}" if result is not None else NONE,
        "tests": _tests(sample, result),
    }


def _tests(sample: Sample, result: Mapping[str, Any] | None) -> str:
    if result is not None and result["passed"]:
        return ""
    known = (
        [sample.meta.get(TESTS)] if sample.meta.get(TESTS) else [(one.check or {}).get(TESTS) for one in sample.rubric]
    )
    sources = [text for own in known if own for text in ([own] if isinstance(own, str) else own)]
    tests = "Tests:\n" + ("\n\n".join(map(str, sources)) or NONE)
    return tests if result is None else f"{tests}\n\nError output:\n{result.get('detail') or NONE}"


class Critic(QuoteSearch, Prompted):
    """Settings of a critic: the language model, how it is asked, and the form of its critiques. The prompt file
    contains {prompt} and {response}, and may contain the other placeholders of `shown`.
    """

    placeholders: ClassVar[tuple[str, ...]] = PLACEHOLDERS
    required: ClassVar[tuple[str, ...]] = REQUIRED

    format: CritiqueFormat = Field(default_factory=CritiqueFormat)
    """The JSON object that the critic writes."""

    def critique_request(self, template: Prompt, sample: Sample, response: Response) -> Request:
        """Return the request about a response."""
        schema = self.format.json_schema()
        return self.request(template, shown(sample, response), json_schema=schema, about=sample.id)

    def read(self, output: str, response: str) -> Parsed[Critique]:
        """Return the critique in an answer about a response. Raises as `read_critique` does."""
        return read_critique(output, response, self.format, self)

    def critique_question(self, request: Request, response: str) -> Question[Critique]:
        """Return the question whose answer `read` reads."""
        return Question(request, lambda output: self.read(output, response))

    def critiques(self, cases: Sequence[tuple[Sample, Response]]) -> list[Asked[Critique] | None]:
        """Return the outcome of the question about each response; None for a response without text, in which nothing
        can be quoted. Equal cases are one question. In a stage with several processes every rank must call it, each
        with its own cases.
        """
        template = self.template()
        own: list[tuple[str, str] | None] = []
        named: dict[tuple[str, str], str] = {}
        for sample, response in cases:
            own.append(None)
            if response.text.strip():
                request = self.critique_request(template, sample, response)
                own[-1] = case = (request.model_dump_json(exclude={"about"}), response.text)
                named.setdefault(case, request.about)
        distinct: dict[tuple[str, str], str] = {}
        for case, about in together.everybody(list(named.items())):
            distinct.setdefault(case, about)
        questions = [
            self.critique_question(Request.model_validate_json(request).model_copy(update={"about": about}), text)
            for (request, text), about in distinct.items()
        ]
        asked = dict(zip(distinct, ask(self.client, questions, self.tries), strict=True))
        return [None if case is None else asked[case] for case in own]

"""A language model decides the criteria that no program can check, after "Rubrics to Tokens", appendix B.3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from fgrl.feedback.llm import together
from fgrl.feedback.llm.asking import Question, ask, missing, tally
from fgrl.feedback.llm.prompted import Prompted
from fgrl.feedback.llm.reading import read_yes_no
from fgrl.feedback.templates import Prompt, as_text
from fgrl.kinds import Judge
from fgrl.registry import register
from fgrl.types import Criterion, Request, Sample

Shown = tuple[str, str, str]
"""Prompt, response and criterion of a question."""


@register("llm")
class LLMJudge(Prompted, Judge):
    """A language model answers YES or NO to each criterion.

    Any other answer ("NO, not a YES", an empty answer, "Yes and no") is requested again. In the end the verdict is
    missing: neither satisfied nor violated. A response without text satisfies no criterion, as it satisfies no rule,
    and is not judged. The prompt file contains {response} and {criterion}, and may contain {prompt} (a chat of several
    turns with its roles).
    """

    version = 2
    placeholders: ClassVar[tuple[str, ...]] = ("prompt", "response", "criterion")
    required: ClassVar[tuple[str, ...]] = ("response", "criterion")

    max_tokens: int | None = Field(16, ge=1)
    temperature: float | None = Field(0.01, ge=0, le=100)
    """Sampling temperature of the judge; 0.01 as in the authors' release. null is the client's own temperature."""

    def decide(self, cases: Sequence[tuple[Sample, str, Criterion]]) -> list[bool | None]:
        """Decide the cases, as in `Judge`. Equal cases are one question. In a stage of several processes every rank has
        to call it with its own cases.

        Raises `OverBudget` from the client; all answers until then are in the client's cache.

        Counts, for the last cases of all processes: `questions` (equal ones count once), `cached` answers, questions
        that were `asked_again`, and verdicts that are missing because the model `refused`, was `unparsed` (neither YES
        nor NO, or cut off at the length limit), or the request `failed`.
        """
        shown = [_shown(*case) for case in cases]
        own = dict.fromkeys(case for case in shown if case is not None)
        verdicts = self._verdicts(list(dict.fromkeys(together.everybody(list(own)))))
        return [False if case is None else verdicts[case] for case in shown]

    def asks(self, given: Sequence[tuple[Sample, str, Criterion]]) -> list[Request]:
        prompt = self.template()
        shown = [_shown(*case) for case in given]
        return [self._question(prompt, case).request for case in dict.fromkeys(shown) if case is not None]

    def _verdicts(self, distinct: Sequence[Shown]) -> dict[Shown, bool | None]:
        """Return the verdicts and count the outcomes of the questions."""
        prompt = self.template()
        asked = ask(self.client, [self._question(prompt, case) for case in distinct], self.tries)
        totals = tally(asked)
        self._counted = {
            "questions": float(totals["questions"]),
            "cached": float(totals["cached"]),
            "asked_again": float(totals["asked again"]),
            **{kind: float(count) for kind, count in missing(asked).items()},
        }
        return {case: answer.value for case, answer in zip(distinct, asked, strict=True)}

    def _question(self, prompt: Prompt, shown: Shown) -> Question[bool]:
        values = dict(zip(self.placeholders, shown, strict=True))
        return Question(self.request(prompt, values, about=shown[0][:100]), read_yes_no)


def _shown(sample: Sample, response: str, criterion: Criterion) -> Shown | None:
    """Return the texts of a question; None if there is nothing to judge."""
    return (as_text(sample.prompt), response, criterion.text) if response.strip() else None

"""Relevance labels from a language model that quotes what matters ("Rubrics to Tokens", appendices C.3 and C.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fgrl.feedback.llm.asking import Parsed, Question, ask, parse_json, summary
from fgrl.feedback.marks import Case, Extent, Marker, cases, marked
from fgrl.feedback.quoting import Quotes, QuotingAnnotator
from fgrl.feedback.rules.criterion_rules import CriterionRules
from fgrl.feedback.templates import Prompt, as_text
from fgrl.registry import register
from fgrl.types import Sample, Span

EXTENTS: dict[str, Extent] = {"all_relevant": "all", "partial_relevant": "part", "all_irrelevant": "none"}


class Marking(BaseModel):
    """Answer of a language model that marks passages."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["all_relevant", "partial_relevant", "all_irrelevant"]
    relevant_texts: list[str]

    @model_validator(mode="before")
    @classmethod
    def _none_given(cls, value: Any) -> Any:
        """Insert empty lists for missing ones. Answers may omit an empty list, but the schema requires it, so that
        endpoints can enforce the whole object.
        """
        return {"relevant_texts": [], **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _quotes_where_they_belong(self) -> Marking:
        if (self.type == "partial_relevant") != bool(self.relevant_texts):
            raise ValueError("relevant_texts has passages for partial_relevant, and none for the other types")
        return self


@register("mark_by_llm")
class MarkByLLM(Marker, QuotingAnnotator):
    """A language model decides for each response and each criterion whether the whole response, nothing or certain
    passages are relevant, and quotes these passages. Each decision becomes a separate sample, as in `mark_by_rules`;
    `spans` (label 1) are the places of the quotes.

    `meta` contains `relevant` (`all`, `part`, `none`), `kept`, `scope` and `group` as far as a rule can determine them
    (else null), and `matches`. The latter records for each quote its place (`start`, `end`), the kind of match (`kind`:
    exact, normalised, fuzzy; null if it was not found) and its similarity (`score`). An answer without any found quote
    cannot be used; it is requested again, and finally missing. The prompt file contains {criterion} and {response}, and
    may contain {prompt}: `prompts/mark_taxonomy.txt` asks by scope and polarity, `prompts/mark_greedy.txt` for the
    passages that matter most.
    """

    version = 2

    placeholders: ClassVar[tuple[str, ...]] = ("prompt", "criterion", "response")
    required: ClassVar[tuple[str, ...]] = ("criterion", "response")

    criteria: Literal["all", "judged"] = "all"
    """Criteria that are asked about: all, or only those without a rule."""
    max_tokens: int | None = Field(1024, ge=1)
    temperature: float | None = Field(0.0, ge=0, le=100)

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the new samples: 1. ask, 2. convert quotes to spans, 3. count. Raise `Stopped` if too many quotes are
        not found and `alarm` is `stop`.

        Counts: the number of `labels` and the relevant share; matches of quotes (`quotes`, `unmatched rate`; quotes of
        unusable answers count too); the outcomes of the questions, and the cases without a label.
        """
        # 1.
        plan, skipped = self.cases(samples)
        quotes = [self.quotes_of(case.response) for case in plan]
        template = self.template()
        questions = [self.question(template, case, own) for case, own in zip(plan, quotes, strict=True)]
        asked = ask(self.client, questions, self.tries)
        # 2.
        rules = CriterionRules(self._run)
        labelled = [
            self._labelled(case, answer.value, own, rules)
            for case, own, answer in zip(plan, quotes, asked, strict=True)
            if answer.value is not None
        ]
        kept, labels = self.select(labelled)
        # 3.
        self._counted = {
            **labels,
            **self.check_unmatched(quotes),
            **summary(self.client, asked),
            **skipped,
        }
        return kept

    def cases(self, samples: Sequence[Sample]) -> tuple[list[Case], dict[str, int]]:
        every, skipped = cases(samples)
        plan = [case for case in every if self.criteria == "all" or case.criterion.check is None]
        return plan, skipped | ({"checked by a rule": len(every) - len(plan)} if len(every) > len(plan) else {})

    def question(self, template: Prompt, case: Case, quotes: Quotes | None = None) -> Question[Extent]:
        """Return the question; `quotes` then contains the quotes of the last answer that was read."""
        located = self.quotes_of(case.response) if quotes is None else quotes
        values = {
            "prompt": as_text(case.sample.prompt),
            "criterion": case.criterion.text,
            "response": case.response,
        }
        request = self.request(template, values, json_schema=Marking.model_json_schema(), about=case.sample.id)
        return Question(request, lambda text: read_marking(text, located))

    def _labelled(self, case: Case, extent: Extent, quotes: Quotes, rules: CriterionRules) -> Sample:
        whole = [Span(start=0, end=len(case.response))] if extent == "all" else []
        rule = rules.get(case.criterion, case.sample.id)
        kept = None if rule is None else rule.verdict(case.response)
        spans = [*whole, *quotes.spans()]
        return marked(case, spans, rule, kept=kept, relevant=extent, matches=quotes.records())


def read_marking(text: str, quotes: Quotes) -> Parsed[Extent]:
    """Parse an answer and return how much of the response it marks; its passages are added to `quotes`.

    Raises ValueError for an unparseable answer or an answer of which no passage is found, and `Refused` for an answer
    that declines.
    """
    quotes.clear()
    marking = parse_json(text, Marking, "it declines to mark")
    quotes.locate(marking.value.relevant_texts)
    return Parsed(EXTENTS[marking.value.type], marking.repaired)

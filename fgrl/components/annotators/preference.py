"""Preference of a judge between two responses: AI feedback (Lee et al. 2023, RLAIF; the baseline of RLA's Table 1)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fgrl.base.errors import DataError
from fgrl.feedback.asking_annotator import AskingAnnotator
from fgrl.feedback.llm.asking import Asked, Parsed, Question, ask, parse_json, summary
from fgrl.feedback.llm.reading import Verdict, odds, read_verdict
from fgrl.feedback.templates import Prompt
from fgrl.kinds import Expected
from fgrl.measuring import pairwise
from fgrl.measuring.pairwise import Ballot, Disagreement, Orders, PairOutcome
from fgrl.registry import register
from fgrl.types import PairVerdict, Sample

TOKENS = {"text": 4, "json": 256, "logprobs": 1}
"""Default length limits, by kind of verdict."""


class Judgement(BaseModel):
    """A verdict as JSON."""

    model_config = ConfigDict(extra="forbid")

    better: Literal["1", "2", "tie"]

    @field_validator("better", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) else value


@dataclass(frozen=True)
class Shown:
    """Two responses of a sample in the order in which a question shows them."""

    owner: int
    """Index of the sample among the given samples."""
    sample: Sample
    first: int
    """Index of the first response among the sample's responses."""
    second: int


@register("preference")
class Preference(AskingAnnotator):
    """A judge compares every two distinct responses of a sample.

    Each comparison becomes an entry of the sample's `verdicts`: `first` and `second` (their places among the
    responses), `verdict` (`first`, `second`, `tie`, or null if it is missing), `agree` (true if both orders gave the
    same verdict; null if one is missing or was not requested) and `p`, the judge's probability that the first is
    better. The pair builder `judged` makes preference pairs from them. The prompt file contains {first} and {second},
    and may contain {question} (`meta.question`, or else the prompt's last user turn), {context} (`meta.context`, or
    else the turns before it) and {reference}.
    """

    keeps_responses = True

    version = 3
    placeholders: ClassVar[tuple[str, ...]] = ("question", "context", "reference", "first", "second")
    required: ClassVar[tuple[str, ...]] = ("first", "second")

    orders: Orders = "both"
    """Order of the two responses in a question: ask in both orders, or only in the order in which they were drawn. With
    one order, the judge's position bias affects the verdict.
    """
    verdict: Literal["text", "json", "logprobs"] = "text"
    """Form of the judge's answer: the text 1, 2 or tie; JSON `{"better": "1"}`, enforced by a schema if the endpoint
    supports it; or the log-probabilities of the tokens 1 and 2 as its first token, whatever follows (Lee et al. 2023,
    section 2.2).
    """
    disagreement: Disagreement = "average"
    """Treatment of two orders that disagree: take the mean of the two probabilities (as Lee et al. do; two opposite
    texts are then a tie), leave the verdict missing, or call it a tie.
    """
    top_logprobs: int = Field(20, ge=2)
    """Number of the most probable tokens to request, with `verdict: logprobs`."""
    weigh: bool = False
    """With `verdict: text`, also request log-probabilities and take `p` from them if the endpoint provides them."""
    tries: int = Field(2, ge=1)
    """Maximum number of times a question is asked while the answer is no verdict. (`verdict: logprobs` reads any
    answer.)
    """
    max_tokens: int | None = Field(None, ge=1)
    """Maximum number of tokens of an answer; null is 4 for text, 256 for JSON, 1 for log-probabilities. Models that
    think before they answer need more.
    """
    temperature: float | None = Field(0.0, ge=0, le=100)

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the annotated samples. Counts: `pairs` of responses; `position bias`: the share of decided judgements
        that chose the response shown first (0.5 is no bias); `disagreements` of the two orders; `ties` and `missing`
        verdicts; the outcomes of the questions.
        """
        template, (shown, _skipped) = self.template(), self.cases(samples)
        asked = ask(self.client, [self.question(template, case) for case in shown], self.tries)
        ballots = [self._ballot(answer) for answer in asked]
        comparisons = pairwise.compare_each(ballots, self.orders, self.disagreement)
        verdicts: list[list[PairVerdict]] = [[] for _ in samples]
        for pair, decided in zip(shown[:: 2 if self.orders == "both" else 1], comparisons, strict=True):
            about = {"first": pair.first, "second": pair.second}
            verdicts[pair.owner].append(PairVerdict(**about, verdict=decided.verdict, p=decided.p, agree=decided.agree))
        self._counted = self._count(asked, ballots, comparisons)
        return [sample.model_copy(update={"verdicts": own}) for sample, own in zip(samples, verdicts, strict=True)]

    def asks_at_most(self, expected: Expected) -> int | None:
        if expected.responses is None:
            return None
        pairs = expected.responses * (expected.responses - 1) // 2
        return expected.samples * pairs * (2 if self.orders == "both" else 1)

    def cases(self, samples: Sequence[Sample]) -> tuple[list[Shown], dict[str, int]]:
        """Return the cases to judge. The two orders of a pair are neighbours."""
        shown = [
            Shown(owner, sample, *pair)
            for owner, sample in enumerate(samples)
            for first, second in combinations(distinct(sample), 2)
            for pair in pairwise.in_orders(first, second, self.orders)
        ]
        return shown, {}

    @property
    def longest(self) -> int | None:
        return self.max_tokens or TOKENS[self.verdict]

    def question(self, template: Prompt, case: Shown) -> Question[Verdict | None]:
        responses = case.sample.responses
        texts = {"first": responses[case.first].text, "second": responses[case.second].text}
        read = {"text": read_verdict, "json": _from_json, "logprobs": lambda text: None}
        request = self.request(
            template,
            about(case.sample, template) | texts,
            about=case.sample.id,
            json_schema=Judgement.model_json_schema() if self.verdict == "json" else None,
            logprobs=self.top_logprobs if self.verdict == "logprobs" or self.weigh else 0,
        )
        return Question(request, read[self.verdict], allow_truncated=self.verdict != "json")

    def _ballot(self, answer: Asked[Verdict | None]) -> Ballot:
        if answer.failure is not None:
            return Ballot()
        p = odds(answer.completion.logprobs)
        if self.verdict == "logprobs":
            return Ballot.of_probability(p)
        ballot = Ballot.of_verdict(answer.value)
        return replace(ballot, p=p) if self.weigh and p is not None else ballot

    def _count(
        self, asked: Sequence[Asked[Any]], ballots: Sequence[Ballot], comparisons: Sequence[PairOutcome]
    ) -> dict[str, Any]:
        share = pairwise.share_for_first(ballots)
        answered = [ballot for answer, ballot in zip(asked, ballots, strict=True) if answer.failure is None]
        without = sum(ballot.verdict is None for ballot in answered)
        pairs = pairwise.counts(comparisons)
        return {
            "pairs": pairs.pop("pairs"),
            "position bias": None if share is None else round(share, 4),
            **pairs,
            **summary(self.client, asked),
            **({"without log-probabilities of 1 and 2": without} if without else {}),
        }


def distinct(sample: Sample) -> list[int]:
    """Return the places of a sample's distinct responses, the first of each text (surrounding white space is ignored)."""
    if not sample.responses:
        raise DataError(f"sample {sample.id} has no responses: preference wants samples of a `sample` stage")
    seen: dict[str, int] = {}
    for place, response in enumerate(sample.responses):
        seen.setdefault(response.text.strip(), place)
    return list(seen.values())


def about(sample: Sample, prompt: Prompt) -> dict[str, str]:
    """Return question, context and reference of a sample, if the prompt uses them. Raise `DataError` if one is missing."""
    turns = [] if isinstance(sample.prompt, str) else sample.prompt
    asked = sample.prompt if isinstance(sample.prompt, str) else turns[-1].content
    before = "\n\n".join(turn.content for turn in turns[:-1])
    context = sample.meta.get("context", before)
    reference = sample.reference if isinstance(sample.reference, str) else " / ".join(sample.reference or [])
    values = {
        "question": str(sample.meta.get("question", asked)),
        "context": context if isinstance(context, str) else "\n\n".join(map(_plain, context)),
        "reference": reference,
    }
    if "reference" in prompt.fields and not reference:
        raise DataError(f"sample {sample.id} has no reference, and {prompt.path} says {{reference}}")
    return {**values, "context": values["context"] or "(none)"}


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _from_json(text: str) -> Parsed[Verdict]:
    judgement = parse_json(text, Judgement, "it declines to choose")
    return Parsed(read_verdict(judgement.value.better), judgement.repaired)

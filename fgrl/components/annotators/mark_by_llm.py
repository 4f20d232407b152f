"""Relevance labels from a language model that quotes what matters ("Rubrics to Tokens", appendices C.3 and C.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from fgrl.errors import Stopped
from fgrl.feedback.marks import Case, Extent, cases, marked, thin
from fgrl.kinds import Annotator, Client, Run
from fgrl.llm.asking import Asked, Parsed, Question, Refused, ask, parse_json, spent, tally
from fgrl.llm.reading import declines
from fgrl.quotes import USUAL_UNMATCHED, Located, Match, Occurrence, locate_each
from fgrl.registry import File, Unkeyed, register
from fgrl.rules.criterion_rules import CriterionRules
from fgrl.templates import Prompt, as_text, read_prompt
from fgrl.types import Request, Sample, Span

KNOWN = ("prompt", "criterion", "response")
"""What a marker's prompt may say."""
EXTENTS: dict[str, Extent] = {"all_relevant": "all", "partial_relevant": "part", "all_irrelevant": "none"}


class Marking(BaseModel):
    """A marker's answer."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["all_relevant", "partial_relevant", "all_irrelevant"]
    relevant_texts: list[str]

    @model_validator(mode="before")
    @classmethod
    def _none_given(cls, value: Any) -> Any:
        """Answers may leave out an empty list; the schema wants it, so that endpoints can hold a model to the whole."""
        return {"relevant_texts": [], **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _quotes_where_they_belong(self) -> Marking:
        if (self.type == "partial_relevant") != bool(self.relevant_texts):
            raise ValueError("relevant_texts has passages for partial_relevant, and none for the other types")
        return self


class _Reader:
    """Reads the answers about one response, and remembers how the last one's quotes were found."""

    def __init__(self, response: str, occurrence: Occurrence, fuzzy: float | None, *, ignore_case: bool) -> None:
        self.response, self.occurrence, self.fuzzy, self.ignore_case = response, occurrence, fuzzy, ignore_case
        self.located: list[tuple[str, list[Match]]] = []

    def __call__(self, text: str) -> Parsed[Extent]:
        self.located = []
        try:
            marking = parse_json(text, Marking)
        except ValueError:
            if declines(text):
                raise Refused("it declines to mark") from None
            raise
        quotes = marking.value.relevant_texts
        found = locate_each(quotes, self.response, self.occurrence, self.fuzzy, ignore_case=self.ignore_case)
        self.located = list(zip(quotes, found, strict=True))
        if quotes and not any(found):
            raise ValueError(
                f"none of the passages stands in the response, {quotes[0][:80]!r} for one: copy them letter by letter"
            )
        return Parsed(EXTENTS[marking.value.type], marking.repaired)


@register("mark_by_llm")
class MarkByLLM(Annotator):
    """A language model says of each response and each criterion whether all of it, nothing or certain passages are relevant,
    and quotes those. Each becomes a sample of its own, as `mark_by_rules` makes them; `spans` (label 1) are where the
    quotes stand.

    `meta` says `relevant` (`all`, `part`, `none`), `kept`, `scope` and `group` as far as a rule can tell (else null), and
    `matches`: of each quote where it was found (`start`, `end`), how (`kind`: exact, normalised, fuzzy) and how like it is
    (`score`); one that was not found has `kind` null. An answer none of whose quotes is found cannot be used; it is asked
    for again, and then missing.
    """

    client: Client
    """Who marks."""
    prompt: Annotated[str, File]
    """Prompt file; it says {criterion} and {response}, and may say {prompt}. `prompts/mark_taxonomy.txt` asks by scope and
    polarity, `prompts/mark_greedy.txt` for the passages that matter most."""
    criteria: Literal["all", "judged"] = "all"
    """Ask about every criterion, or only about those that no rule checks."""
    occurrence: Literal["first", "all"] = "first"
    """Mark the first place of a quote (of one that is given n times, the first n), or every place."""
    fuzzy: float | None = Field(0.9, gt=0, le=1)
    """Least likeness of a passage to a quote that does not stand in the response as it is; null takes no such passage."""
    ignore_case: bool = False
    """Find quotes in another case than they stand in, too."""
    max_unmatched: Annotated[float, Unkeyed] = Field(USUAL_UNMATCHED, ge=0, le=1)
    """The alarm: share of quotes that may not be found."""
    alarm: Annotated[Literal["warn", "stop"], Unkeyed] = "warn"
    """When it rings: say so, or stop the stage. (Answers are cached.)"""
    max_all: float | None = Field(None, ge=0, le=1)
    """At most this share of the labels marks a whole response; those left out are told by a hash of their ids. Null keeps all."""
    tries: int = Field(2, ge=1)
    """How often a question is put in all when the answer cannot be used."""
    max_tokens: int | None = Field(1024, ge=1)
    """Length limit of an answer; null is the client's own."""
    temperature: float | None = Field(0.0, ge=0)
    """Of the marker; null is the client's own."""

    _run: Any = PrivateAttr(None)
    _counts: dict[str, Any] = PrivateAttr(default_factory=dict)

    def setup(self, run: Run) -> None:
        self._run = run
        self.client.setup(run)

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """1. ask, 2. quotes to spans, 3. count. Raises `Stopped` when the alarm says so."""
        # 1.
        plan, skipped = self._plan(samples)
        readers = [self._reader(case) for case in plan]
        prompt = self._template()
        questions = [self._question(prompt, case, reader) for case, reader in zip(plan, readers, strict=True)]
        asked = ask(self.client, questions, self.tries)
        # 2.
        rules = CriterionRules(self._run)
        labelled = [
            self._labelled(case, answer.value, reader, rules)
            for case, reader, answer in zip(plan, readers, asked, strict=True)
            if answer.value is not None
        ]
        left = thin(labelled, self.max_all)
        # 3.
        located = Located()
        for reader in readers:
            located.add(matches for _quote, matches in reader.located)
        self._counts = {**self._count(left, asked, located), **skipped}
        if len(labelled) > len(left):
            self._counts["left out by max_all"] = len(labelled) - len(left)
        self._ring(located)
        return left

    def asks(self, given: Sequence[Sample]) -> list[Request]:
        prompt = self._template()
        return [self._question(prompt, case, self._reader(case)).request for case in self._plan(given)[0]]

    def counts(self) -> dict[str, Any]:
        """How many `labels` and how much is relevant; how quotes were found (`quotes`, `unmatched rate`; those of an answer
        that could not be used count too); what became of the questions, and what gave none."""
        return self._counts

    # ------------------------------------------------------------------------------------------------------------------

    def _plan(self, samples: Sequence[Sample]) -> tuple[list[Case], dict[str, int]]:
        found, skipped = cases(samples)
        plan = [case for case in found if self.criteria == "all" or case.criterion.check is None]
        skipped["checked by a rule"] = len(found) - len(plan)
        return plan, {name: count for name, count in skipped.items() if count}

    def _template(self) -> Prompt:
        return read_prompt(self.prompt, KNOWN, ("criterion", "response"))

    def _reader(self, case: Case) -> _Reader:
        return _Reader(case.response, self.occurrence, self.fuzzy, ignore_case=self.ignore_case)

    def _question(self, prompt: Prompt, case: Case, reader: _Reader) -> Question[Extent]:
        values = {
            "prompt": as_text(case.sample.prompt),
            "criterion": case.criterion.text,
            "response": case.response,
        }
        return Question(
            prompt.fill(values),
            reader,
            json_schema=Marking.model_json_schema(),
            max_tokens=self.max_tokens,
            temperature=self.temperature,
        )

    def _labelled(self, case: Case, extent: Extent, reader: _Reader, rules: CriterionRules) -> tuple[Sample, Extent]:
        spans = [Span(start=0, end=len(case.response))] if extent == "all" else []
        places = {(match.start, match.end) for _quote, matches in reader.located for match in matches}
        spans += [Span(start=start, end=end) for start, end in sorted(places)]
        rule = rules.get(case.criterion, case.sample.id)
        kept = None if rule is None else rule.verdict(case.response)
        matches = [entry for quote, found in reader.located for entry in _entries(quote, found)]
        return marked(case, spans, rule, kept=kept, relevant=extent, matches=matches)[0], extent

    def _count(self, left: Sequence[Sample], asked: Sequence[Asked[Any]], located: Located) -> dict[str, Any]:
        extents = Counter(sample.meta["relevant"] for sample in left)
        return {
            "labels": len(left),
            **{f"relevant: {extent}": extents[extent] for extent in EXTENTS.values()},
            **located.counts(),
            **tally(asked),
            **spent(self.client),
        }

    def _ring(self, located: Located) -> None:
        message = located.alarm(self.max_unmatched)
        if message is None:
            return
        if self.alarm == "stop":
            raise Stopped(f"{message}\nstopped by `max_unmatched`; `alarm: warn` goes on")
        if self._run is not None:
            self._run.say(f"alarm: {message}")


def _entries(quote: str, found: Sequence[Match]) -> list[dict[str, Any]]:
    """What `meta.matches` says of a quote: one entry for each place."""
    if not found:
        return [{"quote": quote, "kind": None}]
    return [{"quote": quote, "kind": one.kind, "score": one.score, "start": one.start, "end": one.end} for one in found]

"""Comparison of sets of spans, and of weights of tokens, with spans on the same responses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fgrl.base import lazy, ranks
from fgrl.base.errors import DataError
from fgrl.base.files import write_json, write_json_lines
from fgrl.base.ops.spans import TOKEN_POLICY, Conflict, TokenPolicy
from fgrl.experiments.stages import names
from fgrl.experiments.stages.sizes import scorers
from fgrl.feedback.llm import estimating
from fgrl.feedback.rules.criterion_rules import CriterionRules
from fgrl.kinds import GRADED_NEEDS, Peek, Reader, Relevance, Stage, check_scorer
from fgrl.kinds.specs import ModelSpec
from fgrl.measuring import comparison, relevance_grading, span_numbers, span_sets
from fgrl.measuring.annotation_judging import AnnotationJudge, Contest
from fgrl.measuring.observations import Observations, Observed
from fgrl.measuring.span_numbers import GradedResponse, MarkedSpan, Place
from fgrl.measuring.span_sets import Labels, MarkedResponse, Marks, Offsets, SpanSet, Unit
from fgrl.measuring.statistics import Measured
from fgrl.registry import Unkeyed, register, walk
from fgrl.training.memory import Workload, estimate
from fgrl.types import Report, Sample, Span

pretrained = lazy.load("fgrl.models.pretrained")
sources = lazy.load("fgrl.models.sources")

RELEVANCE, SPANS, LENGTHS, ACCURACY, JUDGED = "relevance", "spans", "span_lengths", "span_accuracy", "judged"
"""Names of metrics. The metric on units is named after the units."""
LEFT = "left"
COUNTED = ("left", "labels", "policy", "units", "token_policy", "conflict", "overlap", "threshold", "version")
"""Settings that change what is counted."""

Row = list[MarkedResponse | None]
"""Responses of a set, one for each response of the left side; None if the set has no such response."""


@register("grade")
class GradeStage(Stage):
    """Comparison of sets of spans (`right`) with a reference set (`left`) on the same responses, matched by sample id
    and text.

    It measures precision, recall and F1 of each label in units (tokens, words or characters), exact and partial matches
    of spans, lengths of spans, shares of matched spans by length, and shares of good and of bad responses with a mark.
    Relevances are graded on the left side's spans; a judge compares annotations. A response without an annotation is
    missing and counted; a response whose annotation has no spans is neutral as a whole. Intervals resample prompts. The
    left side is assumed to be correct: exchanging the sides exchanges precision and recall.
    """

    version = 3
    makes = Report

    left: Reader | SpanSet
    """Reference for the comparison: a reader of annotated samples, or {data: <reader>, by: <annotator>}."""
    right: dict[str, Reader | SpanSet] = {}
    """Sets of spans to grade, by the names that tables show."""
    relevance: dict[str, Relevance] = {}
    """Relevances to grade on the left side's spans, by the names that tables show; each of its samples must then have
    one criterion, as mark_by_rules and mark_by_llm make them.
    """
    lines: list[Literal["all_neutral", "shuffled"]] = []
    """Additional rows for comparison. `all_neutral`: nothing is marked. `shuffled`: the spans of each set of `right` at
    random places of the same response, with the same number of units each (`NAME_shuffled`).
    """
    baseline: str | None = None
    """Name of the row for differences; null: the last one."""
    labels: dict[str, float] | None = None
    """Names of the labels, e.g. {wrong: -1, improvable: 0}; null: `positive` and `negative` by their sign, and `zero`.
    """
    policy: ModelSpec | None = None
    """Model whose tokens are the units; only its tokenizer is loaded."""
    units: Unit | None = None
    """Unit in which precision, recall and lengths are counted; null: tokens if there is a `policy`, else words."""
    token_policy: TokenPolicy = TOKEN_POLICY
    """Rule for when a unit belongs to a span. It should be that of the reward used for training."""
    conflict: Conflict = "poor"
    """Label of a unit in several spans: the lowest, the highest, or no label (`cancel`) if good and poor spans meet, as
    in the reward.
    """
    overlap: float = Field(0.9, gt=0, le=1)
    """Minimum share of the characters of both spans that they must have in common to count in `LABEL_overlap_N`."""
    threshold: float = Field(0.5, ge=0, lt=1)
    """Weight above which a token counts as relevant (for relevances)."""
    judge: AnnotationJudge | None = None
    """Judge that compares the annotations of two sets, response by response."""
    resamples: int = Field(1000, ge=100)
    """Number of bootstrap samples."""
    batch_size: Annotated[int, Unkeyed] = Field(64, ge=1)
    """Number of responses weighed at the same time (by relevances)."""
    devices: Annotated[int, Unkeyed] = Field(1, ge=1, le=100_000)
    """Number of processes that share the work of models on this machine, of relevances or of a `local` judge, one per
    device. The result is the same as with one process.
    """

    def processes(self) -> int:
        """Return `devices` if relevances have a model, or if a model on this machine judges."""
        parts = [value for part in (*self.relevance.values(), self.judge) if part for _path, value in walk(part)]
        return super().processes() if any(isinstance(value, ModelSpec) for value in parts) else 1

    @property
    def rows(self) -> list[str]:
        """Return the names of the sets that have numbers in units and spans."""
        moved = [f"{name}_shuffled" for name in self.right] if "shuffled" in self.lines else []
        return [*self.right, *(["all_neutral"] if "all_neutral" in self.lines else []), *moved]

    @property
    def unit(self) -> Unit:
        return self.units or ("words" if self.policy is None else "tokens")

    @model_validator(mode="after")
    def _names(self) -> GradeStage:
        if not self.right and not self.relevance:
            raise ValueError("nothing to grade: name sets of spans under `right`, or relevances under `relevance`")
        every = [*self.rows, *self.relevance]
        twice = next((name for name in every if every.count(name) > 1 or name == LEFT), None)
        if twice is not None:
            raise ValueError(f"two rows would be called {twice!r} (the left side is `{LEFT}`): choose another name")
        names.check("set", every, self.baseline)
        if self.labels is not None and (not self.labels or len(set(self.labels.values())) < len(self.labels)):
            raise ValueError("labels: wants at least one label, and a different value for each")
        if self.policy is None and (self.units == "tokens" or self.relevance):
            raise ValueError("policy: name the model whose tokens are counted")
        for name, relevance in self.relevance.items():
            check_scorer(relevance, GRADED_NEEDS, field=f"relevance.{name}")
        if self.lines and not self.right:
            raise ValueError("lines: there is no set of spans to read them with; name one under `right`")
        if self.judge is not None:
            known = [name for name in self.right if name != self.judge.versus]
            if not known or self.judge.versus not in (None, *self.right):
                raise ValueError(
                    f"judge.versus: wants one of {', '.join(self.right) or 'right'}, and another set beside it"
                )
        return self

    # -- plan ----------------------------------------------------------------------------------------------------------

    def estimate(self, peek: Peek) -> dict[str, Any]:
        roles = [role for name, relevance in self.relevance.items() for role in scorers(name, relevance)]
        return (estimate(Workload(roles), peek) if roles else {}) | self._calls(peek)

    def _calls(self, peek: Peek) -> dict[str, Any]:
        judge = self.judge
        if judge is None:
            return {}

        def exactly() -> dict[str, Any] | None:
            for part in (self.left, *self.right.values()):
                (part.data if isinstance(part, SpanSet) else part).setup(peek)
            left, right, _counts = self._read(peek.limit)
            labels = self._labels([left, *right.values()])
            questions = judge.questions(self._contests(left, right), labels, seed=0)
            requests = [question.request for question in questions]
            return estimating.bill([(judge.client, estimating.known(judge.client, requests, peek))])

        return estimating.section(exactly)

    # -- run -----------------------------------------------------------------------------------------------------------

    def run(self, run: Any) -> dict[str, Any]:
        self.setup(run)
        tokenizer = self._tokenizer(run)
        observed: dict[str, Observed] = {}
        summary: dict[str, Any] = {}
        if self.relevance:
            graded, counts = self._of_relevances(run, tokenizer)
            observed[RELEVANCE] = self._observed(graded)
            summary |= counts
        if self.right:
            # 1. read and match
            left, right, counts = self._read(run.limit)
            summary |= {"responses": len(left), **counts}
            labels = self._labels([left, *right.values()])
            # 2. units, and the rows of the reference lines
            offsets = [span_sets.units(marked.text, self.unit, tokenizer) for marked in left.values()]
            rows = {name: span_sets.matched(left, own) for name, own in right.items()}
            rows |= self._lines(rows, list(left.values()), offsets, run.seed)
            # 3. numbers
            observed |= self._of_sets(left, rows, offsets, labels)
            # 4. the judge
            if self.judge is not None:
                observed[JUDGED], counts = self._judged(self.judge, left, right, labels, run)
                summary |= counts
            if run.rank == 0:
                write_json_lines(run.out / "graded.jsonl", _records(left, rows))
        if not ranks.leave():
            return {}
        numbers = {pattern: meaning._asdict() for pattern, meaning in span_numbers.MEANINGS.items()}
        about = {name: {"purpose": "reward", "numbers": numbers} for name in (self.unit, SPANS) if name in observed}
        metrics = {name: own.derived() for name, own in observed.items()}
        measured = comparison.write(run.out, self._baseline(), metrics, about, Observations(observed))
        return {**summary, "measured": measured}

    def _tokenizer(self, run: Any) -> Any:
        if self.policy is None:
            return None
        source = sources.locate(self.policy, run.path)
        policy = self.policy
        return pretrained.tokenizer_of(source.name, source.revision, policy.templating)

    def _read(self, limit: int | None) -> tuple[Marks, dict[str, Marks], dict[str, int]]:
        """Return both sides by (sample id, text), and counts of the left-out responses. The limit applies to the left
        side's samples.
        """
        left, counts = span_sets.marks(list(islice(_samples(self.left), limit)))
        if not left:
            raise DataError(f"left: there are no annotated responses to grade on ({counts or 'it has no responses'})")
        known = {f"left: {reason}": count for reason, count in counts.items()}
        right: dict[str, Marks] = {}
        for name, part in self.right.items():
            right[name], counts = span_sets.marks(list(_samples(part)))
            only = len(right[name].keys() - left.keys())
            counts |= {"missing": len(left.keys() - right[name].keys())} | ({} if limit else {"only there": only})
            if not left.keys() & right[name].keys():
                raise DataError(
                    f"right.{name}: none of its {len(right[name]):,} annotated responses is among the {len(left):,} of the left "
                    "side: both need the same sample ids and the same texts"
                )
            known |= {f"{name}: {reason}": count for reason, count in counts.items() if count}
        return left, right, known

    def _labels(self, sides: Sequence[Marks]) -> Labels:
        return Labels.of(self.labels, (span for side in sides for marked in side.values() for span in marked.spans))

    def _lines(
        self, rows: Mapping[str, Row], left: Sequence[MarkedResponse], offsets: Sequence[Offsets], seed: int
    ) -> dict[str, Row]:
        lines: dict[str, Row] = {}
        if "all_neutral" in self.lines:
            lines["all_neutral"] = [span_sets.without_spans(marked) for marked in left]
        if "shuffled" in self.lines:
            for name, row in rows.items():
                lines[f"{name}_shuffled"] = [
                    None if marked is None else span_sets.shuffled(marked, places, self.token_policy, seed)
                    for marked, places in zip(row, offsets, strict=True)
                ]
        return lines

    def _of_sets(
        self, left: Marks, rows: Mapping[str, Row], offsets: Sequence[Offsets], labels: Labels
    ) -> dict[str, Observed]:
        prompts = [marked.prompt for marked in left.values()]
        names, good = list(labels.values), [marked.good for marked in left.values()]
        graded = {name: list(self._graded(left, row, offsets, labels)) for name, row in rows.items()}

        spans = {name: span_numbers.right_side(own, prompts) for name, own in graded.items()}
        marked = [
            MarkedSpan(one.prompt, place.label, place.length)
            for one, own in zip(left.values(), offsets, strict=True)
            for place in _places(one.spans, own, labels)
        ]
        found: dict[str, dict[str, dict[str, Measured]]] = {
            self.unit: {name: span_numbers.of_units(own, prompts, names, good) for name, own in graded.items()},
            SPANS: {name: span_numbers.of_spans(own, prompts, names, self.overlap) for name, own in graded.items()},
            LENGTHS: {
                name: span_numbers.of_lengths(own, prompts, names) for name, own in ({LEFT: marked} | spans).items()
            },
            ACCURACY: {name: span_numbers.by_length(own, prompts, names) for name, own in spans.items()},
        }
        about = {
            self.unit: f"{self._unit_named()}; a unit belongs to a span by `{self.token_policy}`, conflicts: {self.conflict}",
            SPANS: "characters; exact: the same start, end and label",
            LENGTHS: f"{self._unit_named()} per span",
            ACCURACY: "a span is right when it shares a character with a span of the same label of the left side",
        }
        return {name: self._observed(own, about[name]) for name, own in found.items()}

    def _unit_named(self) -> str:
        return f"tokens of {self.policy.base}" if self.unit == "tokens" and self.policy is not None else self.unit

    def _graded(
        self, left: Marks, row: Row, offsets: Sequence[Offsets], labels: Labels
    ) -> Iterator[GradedResponse | None]:
        def of_units(marked: MarkedResponse, own: Offsets) -> list[str | None]:
            return span_sets.labels_of_units(marked.spans, marked.text, own, labels, self.token_policy, self.conflict)

        for marked, other, own in zip(left.values(), row, offsets, strict=True):
            if other is None:
                yield None
                continue
            right = _places(other.spans, own, labels)
            yield GradedResponse(
                of_units(marked, own), of_units(other, own), _places(marked.spans, own, labels), right,
                uncovered=len(span_sets.uncovered(right, own, self.token_policy, other.text)),
                quotes=other.quotes, unmatched=other.unmatched,
            )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------------------

    def _contests(self, left: Marks, right: Mapping[str, Marks]) -> list[Contest]:
        """Return every response that both sets have, for each set."""
        versus = None if self.judge is None else self.judge.versus
        others = left if versus is None else right[versus]
        return [
            Contest(name, own[key], others[key])
            for name, own in right.items()
            if name != versus
            for key in left
            if key in own and key in others
        ]

    def _judged(
        self, judge: AnnotationJudge, left: Marks, right: Mapping[str, Marks], labels: Labels, run: Any
    ) -> tuple[Observed, dict[str, Any]]:
        prompts = [marked.prompt for marked in left.values()]
        every = {name: prompts for name in right if name != judge.versus}
        numbers, said, counts = judge.decide(self._contests(left, right), labels, run.seed, every)
        if run.rank == 0:
            write_json_lines(run.out / "judgements.jsonl", said)
        about = f"against {judge.versus or LEFT}; own prompt, orders: {judge.orders}"
        judged = ["judge", *([f"right.{judge.versus}"] if judge.versus else [])]
        return self._observed(numbers, about, judged), {f"judge: {name}": n for name, n in counts.items()}

    def _of_relevances(self, run: Any, tokenizer: Any) -> tuple[dict[str, dict[str, Measured]], dict[str, Any]]:
        read = list(islice(_samples(self.left), run.limit))
        samples = [sample for sample in read if relevance_grading.text_of(sample)]
        if not samples:
            raise DataError("there are no responses with marked spans to grade on")
        for name, relevance in self.relevance.items():
            check_scorer(relevance, GRADED_NEEDS, field=f"relevance.{name}")
        rules = CriterionRules(run)
        graded: dict[str, list[relevance_grading.Graded]] = {name: [] for name in self.relevance}
        parts: list[tuple[str, Path]] = []
        (run.dir / "parts").mkdir(exist_ok=True)
        with run.progress("responses", len(samples) * len(graded) // ranks.connected()) as ticker:
            for name, relevance in self.relevance.items():
                for start in range(0, len(samples), self.batch_size):
                    batch = samples[start : start + self.batch_size]
                    part = run.dir / "parts" / f"{name}-{start:08d}-{start + len(batch):08d}.json"
                    parts.append((name, part))
                    if ranks.is_mine(len(parts)) and not part.exists():
                        weighed = relevance_grading.grade(relevance, batch, rules, tokenizer)
                        write_json(part, [asdict(row) for row in weighed], indent=None)
                        ticker.advance(len(batch))
                    run.stop_if_interrupted()
        ranks.meet()
        for name, part in parts:
            graded[name] += [relevance_grading.Graded(**row) for row in json.loads(part.read_text())]
        left_out = {"without a response": len(read) - len(samples)} if len(samples) < len(read) else {}
        by_relevance = {name: relevance_grading.numbers(rows, self.threshold) for name, rows in graded.items()}
        return by_relevance, {"responses": len(samples), **left_out}

    def _observed(
        self, by_row: Mapping[str, Mapping[str, Measured]], about: str = "", depends: Sequence[str] = ()
    ) -> Observed:
        """Return the numbers, with differences to the baseline if the metric has it, else to the metric's last row."""
        baseline = self.baseline if self.baseline in by_row else list(by_row)[-1]
        return Observed(by_row, {"resamples": self.resamples}, baseline, about, [*COUNTED, *depends])

    def _baseline(self) -> str:
        """Return the row that tables show first."""
        return self.baseline or ([*self.rows] or [*self.relevance])[-1]


# ----------------------------------------------------------------------------------------------------------------------


def _samples(part: Reader | SpanSet) -> Iterator[Sample]:
    return (part if isinstance(part, SpanSet) else SpanSet(data=part)).read()


def _places(spans: Sequence[Span], offsets: Offsets, labels: Labels) -> list[Place]:
    """Return the distinct spans, in order."""
    places = {
        Place(span.start, span.end, labels.name(span.label), span_sets.length(span, offsets)): None for span in spans
    }
    return list(places)


def _records(left: Marks, rows: Mapping[str, Row]) -> Iterator[dict[str, Any]]:
    """Yield one line for each response: the spans of both sides."""
    for number, marked in enumerate(left.values()):
        graded = {name: row[number] for name, row in rows.items()}
        yield {
            "id": marked.id,
            "response": marked.text,
            "left": _as_data(marked),
            "right": {name: None if own is None else _as_data(own) for name, own in graded.items()},
        }


def _as_data(marked: MarkedResponse) -> list[dict[str, Any]]:
    return [span.model_dump(exclude_defaults=True) for span in marked.spans]

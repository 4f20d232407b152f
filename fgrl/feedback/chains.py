"""Improvement chains: a response, and its rewrites that address one disliked passage after the other (CH-Wang et al.
2025).

A chain is a `Sample`. Its responses are a0, a1, ..., a*, of which the last is chosen; a0 has the one annotation from
which the chain was made, whose disliked spans name in `answered_by` the response that addresses them. `meta.chain`
records how the chain was made, `meta.step` of each rewrite what changed and where the other spans are now.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from fgrl.base.errors import DataError
from fgrl.feedback.chain_checks import BrokenStep, Edit, replaced
from fgrl.kinds import ChainAttempt, ChainCase, Rewriter
from fgrl.types import Annotation, Highlight, Marked, Response, Sample, Span

RECORD = "chain"
"""In the `meta` of a chain's sample: `of` (the id of the sample that was annotated), `response` (the place of a0 in
it), `annotator`, `rewriter`, `steps_per_call`, `steps`, `attempts`, and `refused` (what was wrong with earlier
attempts).
"""
STEP = "step"
"""In the `meta` of a rewrite: `span` (the place of the addressed span in the annotation), `start`, `end`, `new_end`
(the characters `start:end` of the response before became `start:new_end`), and `remaining` (`span`, `start`, `end` of
each liked or disliked span that has not been addressed yet: where it is in this response).
"""
FAILED = "failed"
"""In the record of a response for which no chain could be written: the last attempt's problem."""
OTHER = "other"
"""The reason that only refers to the span's note."""
NO_REASON = "(no reason was given)"


# -- annotations -------------------------------------------------------------------------------------------------------


def highlights(annotation: Annotation) -> dict[int, Highlight]:
    """Return the highlight of each disliked and liked span, by the span's place in the annotation. Numbers go from left
    to right; neutral spans (label 0) have none.
    """
    spans = annotation.spans

    def those(fits: Callable[[float], bool]) -> list[int]:
        places = [place for place, span in enumerate(spans) if fits(span.label)]
        return sorted(places, key=lambda place: (spans[place].start, spans[place].end, place))

    dislikes, likes = those(lambda label: label < 0), those(lambda label: label > 0)
    return {
        **{at: Highlight("dislike", n, spans[at].start, spans[at].end) for n, at in enumerate(dislikes, start=1)},
        **{at: Highlight("like", n, spans[at].start, spans[at].end) for n, at in enumerate(likes, start=1)},
    }


def explanation(span: Span, texts: Mapping[str, str]) -> str:
    """Why a span was marked, in sentences: its reasons in the words of `texts` (by the reason's id; one that has no
    text stands for itself), and its note. "Other" alone says nothing.
    """
    reasons = [texts.get(reason, reason) for reason in span.reasons if reason != OTHER]
    written = [part.strip() for part in (*reasons, span.note or "") if part.strip()]
    return " ".join(part if part[-1] in ".!?\u3002" else f"{part}." for part in written) or NO_REASON


# -- the record --------------------------------------------------------------------------------------------------------


def chain(
    sample: Sample, place: int, annotation: Annotation, steps: Sequence[tuple[Marked, Edit]], about: Mapping[str, Any]
) -> Sample:
    """Return the record of a chain.

    place: of a0 among the sample's responses; steps: of each rewrite its text, with the highlights that remain, and
    what changed; about: the rest of `meta.chain`, with `rewriter`.
    """
    numbered = highlights(annotation)
    span_of = {highlight.key: span for span, highlight in numbered.items()}
    spans = [
        span.model_copy(update={"answered_by": one.number if (one := numbered.get(at)) and span.label < 0 else None})
        for at, span in enumerate(annotation.spans)
    ]
    first = sample.responses[place].model_copy(update={"annotations": [annotation.model_copy(update={"spans": spans})]})
    rewrites = [
        Response(
            text=after.text,
            finished=True,
            by=str(about["rewriter"]),
            meta={
                STEP: {
                    "span": span_of["dislike", number],
                    "start": edit.start,
                    "end": edit.end,
                    "new_end": edit.new_end,
                    "remaining": [
                        {"span": span_of[one.key], "start": one.start, "end": one.end} for one in after.highlights
                    ],
                }
            },
        )
        for number, (after, edit) in enumerate(steps, start=1)
    ]
    return _record(sample, place, annotation, [first, *rewrites], {"steps": len(rewrites), **about})


def failed_chain(
    sample: Sample, place: int, annotation: Annotation, attempts: Sequence[ChainAttempt], about: Mapping[str, Any]
) -> Sample:
    """Return the record of a response for which no chain could be written: the response alone, and what was wrong with
    each attempt, with its answer.
    """
    first = sample.responses[place].model_copy(update={"annotations": [annotation]})
    refused = [{"problem": attempt.problem, "detail": attempt.detail, "answer": attempt.answer} for attempt in attempts]
    more = {FAILED: attempts[-1].problem, "attempts": len(attempts), "refused": refused}
    return _record(sample, place, annotation, [first], {**about, **more})


def _record(
    sample: Sample, place: int, annotation: Annotation, responses: list[Response], about: Mapping[str, Any]
) -> Sample:
    source = {"of": sample.id, "response": place, "annotator": annotation.by}
    return sample.model_copy(
        update={
            "id": "/".join(filter(None, (sample.id, str(place), annotation.by))),
            "responses": responses,
            "chosen": len(responses) - 1,
            "verdicts": None,
            "meta": {**sample.meta, RECORD: {**source, **about}},
        }
    )


def is_chain(sample: Sample) -> bool:
    """Is it the record of a finished chain?"""
    record = sample.meta.get(RECORD)
    return isinstance(record, Mapping) and FAILED not in record and len(sample.responses) > 1


def spans_at(sample: Sample, step: int) -> list[tuple[int, Span]]:
    """Return the liked and disliked spans of a chain that are not addressed up to a step (0: the original response),
    where they are in that step's response, each after its place in the annotation. Raises `DataError` for what is no
    chain.
    """
    if not is_chain(sample) or len(sample.responses[0].annotations) != 1:
        raise DataError(f"sample {sample.id} is not a chain that the annotator improvement_chain wrote")
    spans = sample.responses[0].annotations[0].spans
    if step == 0:
        return [(place, span) for place, span in enumerate(spans) if span.label]
    remaining = sample.responses[step].meta[STEP]["remaining"]
    return [
        (one["span"], spans[one["span"]].model_copy(update={"start": one["start"], "end": one["end"]}))
        for one in remaining
    ]


def edits(sample: Sample) -> Iterator[tuple[Response, Response, Edit]]:
    """Each step of a chain: the response before it, the one after it, and what changed."""
    for before, after in pairwise(sample.responses):
        step = after.meta[STEP]
        yield before, after, Edit(step["start"], step["end"], step["new_end"])


# -- rules -------------------------------------------------------------------------------------------------------------


class RuleRewriter(Rewriter):
    """Rewrites without a language model. A subclass states by what a disliked passage is replaced."""

    varies: ClassVar[bool] = False

    @abstractmethod
    def edit(self, text: str, span: Span, case: ChainCase) -> tuple[int, int, str]:
        """Return the edit that addresses a disliked passage: `(start, end, new)` replaces `text[start:end]` by `new`.

        text: the response as the steps before have left it; span: the annotator's span with its reasons, where it is in
        this text. Raises ValueError when there is no way to address it: the response then has no chain.
        """

    def about(self) -> dict[str, Any]:
        return {**super().about(), "steps_per_call": "one"}

    def attempt(self, cases: Sequence[ChainCase], number: int) -> list[ChainAttempt]:
        return [self._chain(case) for case in cases]

    def _chain(self, case: ChainCase) -> ChainAttempt:
        current, steps = case.original, []
        for number in range(1, case.steps + 1):
            place = current.disliked(number)
            span = case.spans["dislike", number].model_copy(update={"start": place.start, "end": place.end})
            try:
                after = replaced(current, number, *self.edit(current.text, span, case))
                case.check(current, after, number)
            except BrokenStep as broken:
                return ChainAttempt(problem=broken.problem, detail=f"step {number}: {broken}", answer=after.text)
            except ValueError as problem:
                return ChainAttempt(problem=NO_EDIT, detail=f"step {number}: {problem}", answer=current.text)
            steps.append(after)
            current = after
        return ChainAttempt(steps)


NO_EDIT = "no rule applies"
"""The problem of a chain that a rule could not write."""

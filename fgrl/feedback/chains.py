"""Improvement chains: a response, and its rewrites that address one disliked passage after the other (CH-Wang et al.
2025).

A chain is a `Sample`. Its responses are a0, a1, ..., a*; the last is the chosen one. a0 has the annotation from which
the chain was made, and no other. Each disliked span of this annotation names in `answered_by` the response that
addresses it. `meta.chain` records how the chain was made. `meta.step` of each rewrite records what changed, and the new
places of the other spans.
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
"""Key in the `meta` of a chain's sample. Its entries: `of` (the id of the annotated sample), `response` (the place of
a0 in it), `annotator`, `rewriter`, `steps_per_call`, `steps`, `attempts`, and `refused` (the mistakes of earlier
attempts).
"""
STEP = "step"
"""Key in the `meta` of a rewrite. Its entries: `span` (the place of the addressed span in the annotation), `start`,
`end`, `new_end` (the characters `start:end` of the previous response became `start:new_end`), and `remaining` (`span`,
`start`, `end` of each liked or disliked span that has not been addressed yet: its place in this response).
"""
FAILED = "failed"
"""Key in the record of a response for which no chain could be written: the last attempt's problem."""
OTHER = "other"
"""Reason that only refers to the span's note."""
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
    """Return why a span was marked, in sentences: its reasons in the words of `texts`, and its note. `texts` has the
    words by the reason's id; a reason without words is shown by its id. "Other" alone says nothing.
    """
    reasons = [texts.get(reason, reason) for reason in span.reasons if reason != OTHER]
    written = [part.strip() for part in (*reasons, span.note or "") if part.strip()]
    return " ".join(part if part[-1] in ".!?\u3002" else f"{part}." for part in written) or NO_REASON


# -- the record --------------------------------------------------------------------------------------------------------


def chain(
    sample: Sample, place: int, annotation: Annotation, steps: Sequence[tuple[Marked, Edit]], about: Mapping[str, Any]
) -> Sample:
    """Return the record of a chain.

    place: place of a0 among the sample's responses; steps: the text of each rewrite, with the highlights that remain,
    and its edit; about: the rest of `meta.chain`, with `rewriter`.
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
    """Return the record of a response for which no chain could be written: the response alone, and the problem of each
    attempt with its answer.
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
    """Return True if the sample is the record of a finished chain."""
    record = sample.meta.get(RECORD)
    return isinstance(record, Mapping) and FAILED not in record and len(sample.responses) > 1


def spans_at(sample: Sample, step: int) -> list[tuple[int, Span]]:
    """Return the liked and disliked spans of a chain that are not addressed up to a step (0: the original response).
    Each has its place in that step's response, and is preceded by its place in the annotation. Raises `DataError` for a
    sample that is no chain.
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
    """Yield each step of a chain: the response before it, the response after it, and the edit."""
    for before, after in pairwise(sample.responses):
        step = after.meta[STEP]
        yield before, after, Edit(step["start"], step["end"], step["new_end"])


# -- rules -------------------------------------------------------------------------------------------------------------


class RuleRewriter(Rewriter):
    """Rewriter without a language model. A subclass defines the replacement of a disliked passage."""

    varies: ClassVar[bool] = False

    @abstractmethod
    def edit(self, text: str, span: Span, case: ChainCase) -> tuple[int, int, str]:
        """Return the edit that addresses a disliked passage: `(start, end, new)` replaces `text[start:end]` by `new`.

        text: the response after the previous steps; span: the annotator's span with its reasons, at its place in this
        text. Raises ValueError if the passage cannot be addressed: the response then has no chain.
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
"""Problem of the chain that a rule could not write."""

"""Improvement chains from marked spans: one edit for each disliked passage (CH-Wang et al. 2025, section 3)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr

from fgrl.base import files, lazy
from fgrl.feedback import chains
from fgrl.feedback.chain_checks import PROBLEMS, BrokenStep, Edit, EditLimits
from fgrl.feedback.llm.asking import SPENT
from fgrl.kinds import Annotator, ChainAttempt, ChainCase, Expected, Rewriter
from fgrl.registry import File, register
from fgrl.types import Annotation, Feeling, Marked, Request, Sample, Span

page_settings = lazy.load("fgrl.feedback.page_settings")

WRONG_COUNT = "wrong number of steps"


@dataclass(frozen=True)
class _Source:
    """An annotation that is the start of a chain."""

    case: ChainCase
    annotation: Annotation


@register("improvement_chain")
class ImprovementChain(Annotator):
    """Rewrites every annotated response step by step: each step addresses one disliked passage, from left to right.

    An annotation with disliked spans becomes a separate sample. If a response has several annotations, one of them or
    each is used (`several`). The responses of the sample are the original, with this annotation alone, and one rewrite
    per disliked span; the last one is chosen. `by` of a rewrite names the rewriter, `answered_by` of a span the
    response that addresses it, `meta.chain` records how the chain was made, and `meta.step` of a rewrite what changed
    and where the remaining spans are.

    Every step has to pass the check of `limits`. If a step fails, the whole chain is discarded and written again, up to
    `attempts` times. After that it is missing, counted by its problem, and stored in `failed.jsonl` next to the
    product, with every refused answer.
    """

    rewriter: Rewriter
    """Author of the rewrites: a language model (`model`) or a rule (`delete`, `replace`)."""
    attempts: int = Field(3, ge=1)
    """Maximum number of attempts to write a chain. (Rules write it once.) Set the `temperature` of a language model
    above 0, or every attempt gives the same answer.
    """
    limits: EditLimits = EditLimits()
    """Limits on the change in one step."""
    annotators: list[str] | None = None
    """Authors whose annotations are used, people or models; null uses all annotations."""
    several: Literal["one", "each"] = "one"
    """Use of several annotations of one response: one of them becomes a chain, or each of them. `one` chooses among the
    annotations with a disliked span by a hash of the response's place and the annotator's name, so that annotators are
    used about equally often.
    """
    taxonomy: Annotated[str | None, File] = None
    """File of the settings of an annotation page, whose `taxonomy` contains the text of each selectable reason. Null
    shows the stored reasons to the rewriter.
    """

    _failed: list[Sample] = PrivateAttr(default_factory=list)

    def behind(self) -> list[str]:
        """Return the digests of the files that `taxonomy` extends, for the cache key. The digest of `taxonomy` itself
        is already part of it.
        """
        if self.taxonomy is None:
            return []
        return [f"taxonomy extends {files.sha256_of_file(path)}" for path in page_settings.extended_by(self.taxonomy)]

    def setup(self, run: Any) -> None:
        self._texts()
        super().setup(run)

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the new samples: 1. make a case for each annotation, 2. attempt each until it is a chain, 3. record
        and count.

        Counts: numbers of `chains` and of `steps`; the number of answered attempts (`checked`), the number of those
        that `passed` the check, and the `check pass rate`, of all and of first attempts; `refused: ...`, answers by
        their first problem; `failed: ...`, chains that could not be written by their last problem. With a language
        model: `questions` (one for each chain, regardless of the number of attempts), `answered` (chains), and the
        expenses.
        """
        # 1.
        sources, skipped = self._sources(samples)
        history: list[list[ChainAttempt]] = [[] for _ in sources]
        steps: dict[int, list[tuple[Marked, Edit]]] = {}
        # 2.
        for number in range(self.attempts if self.rewriter.varies else 1):
            open_places = [place for place, made in enumerate(history) if not made or _again(made[-1])]
            if not open_places:
                break
            outcomes = self.rewriter.attempt([sources[place].case for place in open_places], number)
            for place, outcome in zip(open_places, outcomes, strict=True):
                attempt, steps[place] = self._checked(sources[place].case, outcome)
                history[place].append(attempt)
        # 3.
        records = [self._record(source, history[place], steps[place]) for place, source in enumerate(sources)]
        complete = [record for record in records if chains.is_chain(record)]
        self._failed = [record for record in records if not chains.is_chain(record)]
        self._counted = {**self._count(history, complete), **skipped}
        return complete

    def failed(self) -> list[Sample]:
        """Return the annotated responses for which no chain could be written; `meta.chain` contains the problems and
        the answers.
        """
        return self._failed

    def makes_at_most(self, expected: Expected) -> None:
        """Leave the number unknown: it depends on the number of people who annotated each response."""

    def asks(self, given: Sequence[Sample]) -> list[Request]:
        return self.rewriter.asks([source.case for source in self._sources(given)[0]])

    def _texts(self) -> dict[str, str]:
        """Return the text of each reason by its id."""
        if self.taxonomy is None:
            return {}
        taxonomy = page_settings.load_settings(self.taxonomy).taxonomy
        return {} if taxonomy is None else taxonomy.texts()

    def _sources(self, samples: Sequence[Sample]) -> tuple[list[_Source], dict[str, int]]:
        """Return the annotations for which to write chains, in order, and counts of the other annotations and of
        responses without any.
        """
        texts = self._texts()
        sources: list[_Source] = []
        skipped: Counter[str] = Counter()
        responses = [(sample, place) for sample in samples for place in range(len(sample.responses))]
        for owner, place in responses:
            annotations = owner.responses[place].annotations
            own = [one for one in annotations if self.annotators is None or one.by in self.annotators]
            usable = [one for one in own if any(span.label < 0 for span in one.spans)]
            skipped["responses without an annotation"] += not own
            skipped["annotations without a disliked passage"] += len(own) - len(usable)
            if self.several == "one" and len(usable) > 1:
                skipped["further annotations of a response"] += len(usable) - 1
                usable = [min(usable, key=lambda one: _lot(owner, place, one))]
            sources += [_Source(self._case(owner, place, one, texts), one) for one in usable]
        return sources, dict(+skipped)

    def _case(self, sample: Sample, place: int, annotation: Annotation, texts: Mapping[str, str]) -> ChainCase:
        numbered = chains.highlights(annotation)
        spans: dict[tuple[Feeling, int], Span] = {
            highlight.key: annotation.spans[number] for number, highlight in numbered.items()
        }
        return ChainCase(
            sample=sample,
            place=place,
            original=Marked.of(sample.responses[place].text, numbered.values()),
            spans=spans,
            explanations={key: chains.explanation(span, texts) for key, span in spans.items()},
            check=self.limits.check,
        )

    def _record(self, source: _Source, history: Sequence[ChainAttempt], steps: Sequence[tuple[Marked, Edit]]) -> Sample:
        case, last = source.case, history[-1]
        about = self.rewriter.about()
        if last.problem is not None:
            return chains.failed_chain(case.sample, case.place, source.annotation, history, about)
        refused = [attempt.problem for attempt in history[:-1]]
        return chains.chain(
            case.sample,
            case.place,
            source.annotation,
            steps,
            {**about, "attempts": len(history), **({"refused": refused} if refused else {})},
        )

    def _checked(self, case: ChainCase, outcome: ChainAttempt) -> tuple[ChainAttempt, list[tuple[Marked, Edit]]]:
        """Return the attempt and the change in each step, or the attempt with its problem. The check is necessary
        because a custom rewriter may not check its steps.
        """
        if outcome.problem is not None:
            return outcome, []
        if len(outcome.steps) != case.steps:
            detail = f"{len(outcome.steps)} steps for {case.steps} disliked passages"
            return ChainAttempt(problem=WRONG_COUNT, detail=detail), []
        try:
            return outcome, list(self._edits(case.original, outcome.steps))
        except BrokenStep as broken:
            return ChainAttempt(problem=broken.problem, detail=str(broken)), []

    def _edits(self, original: Marked, steps: Sequence[Marked]) -> Iterator[tuple[Marked, Edit]]:
        """Yield each step with its change. Raise `BrokenStep` for a step that violates the limits."""
        before = original
        for number, after in enumerate(steps, start=1):
            yield after, self.limits.check(before, after, number)
            before = after

    def _count(self, history: Sequence[Sequence[ChainAttempt]], complete: Sequence[Sample]) -> dict[str, Any]:
        answered = [attempt for made in history for attempt in made if attempt.answered]
        first = [made[0] for made in history if made[0].answered]
        refused = Counter(attempt.problem for attempt in answered if attempt.problem is not None)
        failed = Counter(made[-1].problem for made in history if made[-1].problem is not None)
        names = [*PROBLEMS, *sorted({*refused, *failed} - {*PROBLEMS, None}, key=str)]
        counts: dict[str, Any] = {
            "chains": len(complete),
            "steps": sum(len(sample.responses) - 1 for sample in complete),
            "checked": len(answered),
            "passed": len(complete),
            "check pass rate": _rate(len(complete), len(answered)),
            "check pass rate of first attempts": _rate(sum(one.problem is None for one in first), len(first)),
            **{f"refused: {name}": refused[name] for name in names if refused[name]},
            "failed": failed.total(),
            **{f"failed: {name}": failed[name] for name in names if failed[name]},
        }
        client = self.asked_client()
        if client is None:
            return counts
        spent = client.counts()
        return {
            **counts,
            "questions": len(history),
            "answered": len(complete),
            **{name.replace("_", " "): spent[name] for name in SPENT if name in spent},
        }


def _lot(sample: Sample, place: int, annotation: Annotation) -> bytes:
    """Return the rank of an annotation among those of one response. A new annotator changes the choice only if it ranks
    first.
    """
    return hashlib.blake2b(f"{sample.id}\n{place}\n{annotation.by}".encode("utf-8", "surrogatepass")).digest()


def _again(attempt: ChainAttempt) -> bool:
    """Return True if another attempt should be made."""
    return attempt.problem is not None and attempt.answered


def _rate(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None

"""What markers share: which responses of a sample are marked, the form of a marked sample, and how many labels mark a whole response."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fgrl.kinds import Verifier
from fgrl.types import Annotation, Criterion, Response, Sample, Span

Extent = Literal["all", "part", "none"]
"""How much of a response is relevant."""
CHOSEN = "response"
"""Names the chosen response where the others have their numbers."""


@dataclass(frozen=True)
class Case:
    """A response and one criterion of its rubric."""

    sample: Sample
    response: str
    place: str
    """Which response: its number among the sample's, or `response` for the chosen one."""
    criterion: Criterion
    number: int
    """Which criterion of the rubric."""

    @property
    def id(self) -> str:
        return f"{self.sample.id}/{self.place}/{self.number}"


def responses(sample: Sample) -> Iterator[tuple[str, str]]:
    """(place, text) of the chosen response, when there is one, and then of the others."""
    if sample.chosen is not None:
        yield CHOSEN, sample.responses[sample.chosen].text
    for number, response in enumerate(sample.responses):
        if number != sample.chosen:
            yield str(number), response.text


def cases(samples: Sequence[Sample]) -> tuple[list[Case], dict[str, int]]:
    """Every response with every criterion of its rubric, and counts of what gives none.

    A text that a sample has twice is marked once; an empty one has nothing to mark.
    """
    every: list[Case] = []
    counts = dict.fromkeys(("without a rubric", "without a response", "empty responses", "repeated responses"), 0)
    for sample in samples:
        counts["without a rubric"] += not sample.rubric
        seen: set[str] = set()
        for place, text in responses(sample):
            counts["empty responses"] += not text
            counts["repeated responses"] += text in seen
            if text and text not in seen:
                every += [
                    Case(sample, text, place, criterion, number) for number, criterion in enumerate(sample.rubric)
                ]
            seen.add(text)
        counts["without a response"] += not seen
    return every, counts


def marked(
    case: Case, spans: Sequence[Span], rule: Verifier | None, *, kept: bool | None, **more: Any
) -> tuple[Sample, Extent]:
    """The labelled sample of a case, and how much of the response is relevant.

    Its `meta` gets `kept` (null where nobody knows), `relevant`, `scope` and `group` (the rule's name; null without a
    rule), and `more`; the original's is kept as well.
    """
    extent = _extent(spans, len(case.response))
    about = {
        "kept": kept,
        "scope": None if rule is None else rule.scope(),
        "relevant": extent,
        "group": None if case.criterion.check is None else case.criterion.check.get("name"),
        **more,
    }
    response = Response(text=case.response, annotations=[Annotation(spans=list(spans))])
    sample = case.sample.only_with(response, id=case.id, rubric=[case.criterion], meta={**case.sample.meta, **about})
    return sample, extent


def _extent(spans: Sequence[Span], length: int) -> Extent:
    reached = 0
    for span in sorted(spans, key=lambda span: span.start):
        if span.start > reached:
            return "part"
        reached = max(reached, span.end)
    return "none" if not spans else "all" if reached >= length else "part"


def thin(labelled: Sequence[tuple[Sample, Extent]], max_all: float | None) -> list[Sample]:
    """The samples, in order, of which at most the share `max_all` is marked as a whole. Which of those stay depends
    on their ids alone: a hash decides, not the order."""
    whole = [sample.id for sample, extent in labelled if extent == "all"]
    others = len(labelled) - len(whole)
    room = len(whole)
    if max_all is not None and max_all < 1:
        room = int(max_all * others / (1 - max_all) + 1e-9)
    stay = set(sorted(whole, key=_lot)[:room])
    return [sample for sample, extent in labelled if extent != "all" or sample.id in stay]


def _lot(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=8).digest()

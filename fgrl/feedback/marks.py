"""Common parts of markers: which responses of a sample are marked, the form of a marked sample, and the limit on labels
that mark a whole response.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import Field

from fgrl.kinds import Verifier
from fgrl.registry import Settings
from fgrl.types import Annotation, Criterion, Response, Sample, Span

Extent = Literal["all", "part", "none"]
"""Part of a response that is relevant."""
CHOSEN = "response"
"""Name of the chosen response; the other responses have numbers."""


@dataclass(frozen=True)
class Case:
    """A response and one criterion of its rubric."""

    sample: Sample
    response: str
    place: str
    """Name of the response: its number among the sample's responses, or `response` for the chosen one."""
    criterion: Criterion
    number: int
    """Place of the criterion in the rubric."""

    @property
    def id(self) -> str:
        return f"{self.sample.id}/{self.place}/{self.number}"


def responses(sample: Sample) -> Iterator[tuple[str, str]]:
    """Yield (place, text) of the chosen response, if there is one, and then of the others."""
    if sample.chosen is not None:
        yield CHOSEN, sample.responses[sample.chosen].text
    for number, response in enumerate(sample.responses):
        if number != sample.chosen:
            yield str(number), response.text


def cases(samples: Sequence[Sample]) -> tuple[list[Case], dict[str, int]]:
    """Return every response with every criterion of its rubric, and counts of the samples and responses that yield no
    case.

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
    return every, {name: count for name, count in counts.items() if count}


class Marker(Settings):
    """Settings of components that mark the relevant passages of responses."""

    max_all: float | None = Field(None, ge=0, le=1)
    """Maximum share of the labels that may mark a whole response. A hash of their ids selects the labels to drop. Null
    keeps all.
    """

    def select(self, labelled: Sequence[Sample]) -> tuple[list[Sample], dict[str, int]]:
        """Return the labels that stay, and counts: their number, how much they mark, and how many `max_all` dropped."""
        kept = thin(labelled, self.max_all)
        extents = Counter(sample.meta["relevant"] for sample in kept)
        counts = {"labels": len(kept), **{f"relevant: {extent}": extents[extent] for extent in get_args(Extent)}}
        left_out = len(labelled) - len(kept)
        return kept, counts | ({"left out by max_all": left_out} if left_out else {})


def marked(case: Case, spans: Sequence[Span], rule: Verifier | None, *, kept: bool | None, **more: Any) -> Sample:
    """Return the labelled sample of a case.

    Its `meta` gets `kept` (null if unknown), `relevant` (an `Extent`), `scope` and `group` (the rule's name; null
    without a rule), and `more`; the original's is kept as well.
    """
    about = {
        "kept": kept,
        "scope": None if rule is None else rule.scope(),
        "relevant": _extent(spans, len(case.response)),
        "group": None if case.criterion.check is None else case.criterion.check.get("name"),
        **more,
    }
    response = Response(text=case.response, annotations=[Annotation(spans=list(spans))])
    return case.sample.only_with(response, id=case.id, rubric=[case.criterion], meta={**case.sample.meta, **about})


def _extent(spans: Sequence[Span], length: int) -> Extent:
    reached = 0
    for span in sorted(spans, key=lambda span: span.start):
        if span.start > reached:
            return "part"
        reached = max(reached, span.end)
    return "none" if not spans else "all" if reached >= length else "part"


def thin(labelled: Sequence[Sample], max_all: float | None) -> list[Sample]:
    """Return the samples, in order, such that at most the share `max_all` is marked as a whole. A hash of the ids
    selects the samples that stay, so their order does not matter.
    """
    if max_all is None or max_all == 1:
        return list(labelled)
    whole = [sample.id for sample in labelled if sample.meta["relevant"] == "all"]
    room = int(max_all * (len(labelled) - len(whole)) / (1 - max_all) + 1e-9)
    stay = set(sorted(whole, key=lambda name: hashlib.blake2b(name.encode(), digest_size=8).digest())[:room])
    return [sample for sample in labelled if sample.meta["relevant"] != "all" or sample.id in stay]

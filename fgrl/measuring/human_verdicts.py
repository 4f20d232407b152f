"""Verdicts of people on annotations: whether the critique is correct, and whether each span is correct (Text2Grad,
appendix M).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from fgrl.base.errors import DataError
from fgrl.measuring.span_sets import MarkedResponse, Marks
from fgrl.measuring.statistics import Measured, of_sums, weighted_mean
from fgrl.types import Record, parse_line

WORDS = {"correct": True, "incorrect": False}


def _as_bool(value: Any) -> Any:
    if isinstance(value, str) and value.strip().lower() in WORDS:
        return WORDS[value.strip().lower()]
    if isinstance(value, bool) or value is None:
        return value
    raise ValueError("wants true or false, or correct or incorrect; null where it was not judged")


Correct = Annotated[bool | None, BeforeValidator(_as_bool)]


class HumanVerdict(Record):
    """Line of a file of verdicts: one person on one annotated response."""

    id: str
    """Id of the sample."""
    response: str | None = None
    """Text of the response; None if the sample has only one annotated response."""
    by: str
    """Name of the person."""
    critique: Correct = None
    """True if the critique is correct; None if it was not judged."""
    spans: list[Correct] = []
    """True for each correct span, in the annotation's order; empty if they were not judged."""


@dataclass
class JudgedAnnotation:
    """Annotation with the verdicts of each person."""

    marked: MarkedResponse
    critique: dict[str, bool] = field(default_factory=dict)
    """Verdicts on the critique, by person."""
    spans: list[dict[str, bool]] = field(default_factory=list)
    """Verdicts on each span, by person."""
    people: set[str] = field(default_factory=set)
    """Everybody who has a line about the annotation."""


def read_verdicts(path: Path) -> Iterator[tuple[str, HumanVerdict]]:
    """Yield (place, verdict) of each line. Raises `DataError` for a line that is not a verdict."""
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                where = f"{path}:{number}"
                yield where, parse_line(line, HumanVerdict, where)


def judged(
    annotations: Marks, verdicts: Iterator[tuple[str, HumanVerdict]], *, partial: bool = False
) -> list[JudgedAnnotation]:
    """Return every annotation with its verdicts, in the annotations' order.

    partial: leave out verdicts on samples that were not read. Raises `DataError` with the place of a verdict on an
    unknown response, of a second verdict by the same person, and of a verdict on more or fewer spans than there are.
    """
    result = {
        key: JudgedAnnotation(marked, spans=[{} for _span in marked.spans]) for key, marked in annotations.items()
    }
    by_sample: dict[str, list[JudgedAnnotation]] = {}
    for own in result.values():
        by_sample.setdefault(own.marked.id, []).append(own)
    for where, verdict in verdicts:
        candidates = by_sample.get(verdict.id, [])
        if verdict.response is not None:
            candidates = [own for own in candidates if own.marked.text == verdict.response]
        if not candidates and partial:
            continue
        if len(candidates) != 1:
            problem = (
                "no annotated response"
                if not candidates
                else f"{len(candidates)} annotated responses: name one as `response`"
            )
            raise DataError(f"{where}: sample {verdict.id!r} has {problem}")
        (about,) = candidates
        if verdict.by in about.people:
            raise DataError(f"{where}: a second verdict of {verdict.by!r} on this response: keep one of them")
        if verdict.spans and len(verdict.spans) != len(about.spans):
            raise DataError(f"{where}: it judges {len(verdict.spans)} spans, and the annotation has {len(about.spans)}")
        about.people.add(verdict.by)
        if verdict.critique is not None:
            about.critique[verdict.by] = verdict.critique
        for given, of_span in zip(verdict.spans, about.spans, strict=False):
            if given is not None:
                of_span[verdict.by] = given
    return list(result.values())


def numbers(annotations: Sequence[JudgedAnnotation]) -> dict[str, Measured]:
    """Return for critiques and for spans: `..._correct`, the share of verdicts that say correct; `..._majority`, the
    share of items that the majority of their judges finds correct (a tied vote is left out); `..._agreement`, the share
    of pairs of judges of an item who say the same; `..._alpha`, Krippendorff's (2011) for two values: 1 is perfect
    agreement, 0 that of chance.

    `missing`: the share of annotations that nobody judged. Intervals resample prompts.
    """
    prompts: list[Hashable] = [own.marked.prompt for own in annotations]
    kinds: dict[str, list[tuple[Hashable, Mapping[str, bool]]]] = {
        "critique": [(own.marked.prompt, own.critique) for own in annotations],
        "spans": [(own.marked.prompt, votes) for own in annotations for votes in own.spans],
    }
    result: dict[str, Measured] = {}
    for kind, items in kinds.items():
        clusters = [prompt for prompt, _votes in items]
        counts = [(sum(votes.values()), len(votes)) for _prompt, votes in items]
        known = [(float(yes), float(of)) if of else None for yes, of in counts]
        result[f"{kind}_correct"] = of_sums(known, clusters, every=prompts)
        majority = [None if 2 * yes == of else float(2 * yes > of) for yes, of in counts]
        result[f"{kind}_majority"] = weighted_mean(majority, clusters, every=prompts)
        several = [coincidences(yes, of - yes) if of > 1 else None for yes, of in counts]
        agree = [None if of < 2 else pairs_that_agree(yes, of - yes) for yes, of in counts]
        result[f"{kind}_agreement"] = of_sums(agree, clusters, every=prompts)
        result[f"{kind}_alpha"] = of_sums(several, clusters, "krippendorff_alpha", {}, prompts)
    result["missing"] = weighted_mean([float(not own.people) for own in annotations], prompts)
    return result


def pairs_that_agree(yes: int, no: int) -> tuple[float, float]:
    """Return the number of pairs of judges of one item who agree, and of all pairs."""
    judges = yes + no
    return (yes * (yes - 1) + no * (no - 1)) / 2, judges * (judges - 1) / 2


def coincidences(yes: int, no: int) -> tuple[float, float, float]:
    """Return the entries (yes, yes), (yes, no), (no, no) of Krippendorff's matrix of coincidences for one item with at
    least two verdicts: ordered pairs of different judges / (judges - 1).
    """
    others = yes + no - 1
    return yes * (yes - 1) / others, yes * no / others, no * (no - 1) / others

"""Two sets of spans on the same responses: read, matched, divided into units (tokens, words, characters), and moved at
random.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from fgrl.base import lazy, ops
from fgrl.base.errors import DataError
from fgrl.base.ops.spans import Conflict, TokenPolicy
from fgrl.feedback.critic import result_of_tests
from fgrl.kinds import Reader
from fgrl.registry import Settings
from fgrl.types import Annotation, Response, Sample, Span

rollouts = lazy.load("fgrl.rollouts")

Unit = Literal["tokens", "words", "characters"]
UNITS = get_args(Unit)
Offsets = Sequence[tuple[int, int]]
"""Characters [start, end) of each unit of a text."""
WORD = re.compile(r"\w+|[^\w\s]")
"""A word, or a single other mark; white space belongs to no word."""
BY_SIGN = {"negative": -1.0, "zero": 0.0, "positive": 1.0}


class SpanSet(Settings):
    """Spans that one annotator marked in responses."""

    data: Reader
    """Reader of samples whose responses have annotations."""
    by: str | None = None
    """Annotator (`Annotation.by`) whose spans are used; null: each response must have annotations of only one
    annotator.
    """

    def read(self) -> Iterator[Sample]:
        """Yield the samples with only the chosen annotations.

        Raises `DataError` for a response with annotations of several annotators of which none is chosen.
        """
        for sample in self.data.read():
            responses = []
            for place, response in enumerate(sample.responses):
                names = sorted({annotation.by for annotation in response.annotations})
                if self.by is None and len(names) > 1:
                    raise DataError(
                        f"sample {sample.id}: response {place} has annotations by {', '.join(map(repr, names))}: choose one "
                        "of them with {data: ..., by: ...}"
                    )
                own = [annotation for annotation in response.annotations if self.by is None or annotation.by == self.by]
                responses.append(response.model_copy(update={"annotations": own}))
            yield sample.model_copy(update={"responses": responses})


@dataclass(frozen=True)
class MarkedResponse:
    """Response with the spans of one annotator."""

    id: str
    """Id of its sample."""
    prompt: str
    """Unit that intervals resample: responses to one prompt share it."""
    sample: Sample
    text: str
    spans: tuple[Span, ...]
    annotations: tuple[Annotation, ...]
    quotes: int | None = None
    """Number of quotes by the annotator; None if it was not recorded."""
    unmatched: int = 0
    """Number of these quotes that were not found in the text."""
    passed: bool | None = None
    """True if it passed its tests; None if that was not recorded."""

    @property
    def good(self) -> bool | None:
        """Return whether it passed its tests or, if they were not run, whether the labels of its spans add up to more
        than 0; None if they add up to 0.
        """
        total = sum(span.label for span in self.spans)
        return (total > 0 if total else None) if self.passed is None else self.passed

    @property
    def key(self) -> tuple[str, str]:
        """Return the key by which two sets are matched."""
        return self.id, self.text


Marks = dict[tuple[str, str], MarkedResponse]


def marks(samples: Sequence[Sample]) -> tuple[Marks, dict[str, int]]:
    """Return every annotated response by (sample id, text), and counts of the left-out ones.

    A response without an annotation is missing, because its spans are unknown. A response whose annotation has no spans
    is neutral as a whole.
    """
    result: Marks = {}
    left_out: Counter[str] = Counter()
    for sample in samples:
        for response in sample.responses:
            annotations = tuple(response.annotations)
            if not annotations:
                left_out["without an annotation"] += 1
                continue
            quotes = recorded_matches(sample, response)
            marked = MarkedResponse(
                sample.id, json.dumps(sample.model_dump()["prompt"]), sample, response.text, tuple(response.spans),
                annotations, None if quotes is None else len(quotes), 0 if quotes is None else quotes.count(None),
                (result_of_tests(response) or {}).get("passed"),
            )  # fmt: skip
            if result.setdefault(marked.key, marked) is not marked:
                left_out["repeated"] += 1
    return result, dict(left_out)


def recorded_matches(sample: Sample, response: Response) -> list[str | None] | None:
    """Return for each quote of the response's annotators how it was found (None: not found); None as a whole if this
    was not recorded.

    `matches` has the records of `fgrl.feedback.quoting.Quotes`, by annotator in the response's meta, or as one list in
    the sample's. A quote has an entry for each of its places, next to each other.
    """
    by_annotator = response.meta.get("matches")
    if isinstance(by_annotator, Mapping):
        names = dict.fromkeys(annotation.by for annotation in response.annotations)
        lists = [by_annotator[name] for name in names if name in by_annotator]
    else:
        lists = [sample.meta["matches"]] if "matches" in sample.meta else []
    if not lists or not all(isinstance(entries, list) for entries in lists):
        return None
    kinds: list[str | None] = []
    before: Any = None
    for entry in (entry for entries in lists for entry in entries):
        quote = (entry.get("list"), entry.get("quote"))
        if entry.get("kind") is None or quote != before:
            kinds.append(entry.get("kind"))
        before = quote
    return kinds


def matched(left: Marks, right: Marks) -> list[MarkedResponse | None]:
    """Return the right side's response for each of the left side's, in their order; None if there is none."""
    return [right.get(key) for key in left]


# -- labels ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labels:
    """Labels that are distinguished, by name."""

    values: Mapping[str, float]
    by_sign: bool

    @classmethod
    def of(cls, chosen: Mapping[str, float] | None, spans: Iterator[Span]) -> Labels:
        """Return the chosen labels, or `positive` and `negative` by the sign of a label, and `zero` if a span has the
        label 0.

        Raises `DataError` for a span whose label is not among the chosen ones.
        """
        present = {span.label for span in spans}
        if chosen is None:
            names = ["positive", "negative", *(["zero"] if 0.0 in present else [])]
            return cls({name: BY_SIGN[name] for name in names}, by_sign=True)
        unknown = sorted(present - set(chosen.values()))
        if unknown:
            known = ", ".join(f"{name}: {value:g}" for name, value in chosen.items())
            raise DataError(
                f"a span has the label {unknown[0]:g}, which is not among `labels` ({known}): add it there, or leave "
                "`labels` out to tell labels apart by their sign"
            )
        return cls(dict(chosen), by_sign=False)

    def name(self, label: float) -> str:
        """Return the name of a label."""
        if self.by_sign:
            return "positive" if label > 0 else "negative" if label < 0 else "zero"
        return next(name for name, value in self.values.items() if value == label)


# -- units -------------------------------------------------------------------------------------------------------------


def units(text: str, unit: Unit, tokenizer: Any = None) -> Offsets:
    """Return the characters of each unit of a text. tokens: those of the tokenizer; words: runs of letters and digits,
    and other marks separately; characters: all of them, including white space.
    """
    if unit == "tokens":
        return rollouts.encode_text(tokenizer, text)[1]
    if unit == "words":
        return [match.span() for match in WORD.finditer(text)]
    return [(place, place + 1) for place in range(len(text))]


def labels_of_units(
    spans: Sequence[Span], text: str, offsets: Offsets, labels: Labels, policy: TokenPolicy, conflict: Conflict
) -> list[str | None]:
    """Return the name of each unit's label [U]; None for a neutral unit, which no span covers.

    A span with the label 0 is a mark, not neutral. If spans of different signs overlap, their characters are resolved
    first (`ops.tokens_of_spans`). If a unit has several labels, the lowest counts (`poor`), the highest (`good`), or
    none (`cancel`).
    """
    covering: list[dict[str, float]] = [{} for _unit in offsets]
    for span, own in zip(spans, ops.tokens_of_spans(spans, offsets, text, policy, conflict), strict=True):
        name = labels.name(span.label)
        for unit in own:
            covering[unit][name] = labels.values[name]
    return [_settled(several, conflict) for several in covering]


def _settled(several: Mapping[str, float], conflict: Conflict) -> str | None:
    if not several or (conflict == "cancel" and len(several) > 1):
        return None
    return (max if conflict == "good" else min)(several, key=lambda name: several[name])


def uncovered(spans: Sequence[Any], offsets: Offsets, policy: TokenPolicy, text: str) -> list[int]:
    """Return the places of those `spans` (objects with a start and an end) to which no unit belongs."""
    return ops.uncovered_spans([Span(start=span.start, end=span.end) for span in spans], offsets, text, policy)


def length(span: Span, offsets: Offsets) -> int:
    """Return the number of units that share a character with the span."""
    return sum(span.start < end and start < span.end and start < end for start, end in offsets)


def belonging(span: Span, offsets: Offsets, policy: TokenPolicy, text: str) -> int:
    """Return the number of units that belong to the span, by the token policy."""
    (own,) = ops.tokens_of_spans([span], offsets, text, policy)
    return len(own)


# -- reference lines ---------------------------------------------------------------------------------------------------


def without_spans(marked: MarkedResponse) -> MarkedResponse:
    """Return the response without spans."""
    return replace(marked, spans=(), quotes=None, unmatched=0)


def shuffled(marked: MarkedResponse, offsets: Offsets, policy: TokenPolicy, seed: int) -> MarkedResponse:
    """Return the spans with their labels and lengths at random places: the same number of units is marked, but
    elsewhere.

    A span to which n units belong is moved to n neighbouring units; a span without units is left out. The moved spans
    do not overlap, unless they have more units together than the response has. Their places depend only on the seed,
    the sample's id and the text.
    """
    generator = random.Random(f"{seed} {marked.id} {marked.text}")
    cells = [offset for offset in offsets if offset[0] < offset[1]]
    sized = [(belonging(span, cells, policy, marked.text), span) for span in marked.spans]
    sized = [(size, span) for size, span in sized if size]
    generator.shuffle(sized)
    free = len(cells) - sum(size for size, _span in sized)
    if free >= 0:
        gaps = sorted(generator.sample(range(free + len(sized)), len(sized)))
        before = 0
        starts = []
        for number, (gap, (size, _span)) in enumerate(zip(gaps, sized, strict=True)):
            starts.append(gap - number + before)
            before += size
    else:
        starts = [generator.randint(0, len(cells) - size) for size, _span in sized]
    spans = tuple(
        Span(start=cells[start][0], end=cells[start + size - 1][1], label=span.label)
        for start, (size, span) in zip(starts, sized, strict=True)
    )
    return replace(marked, spans=spans, quotes=None, unmatched=0)

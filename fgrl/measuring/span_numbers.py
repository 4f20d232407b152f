"""Numbers that compare one set of spans with another on the same responses.

The right set is graded, the left one is the reference: precision is a share of the right set's marks, recall a share of
the left set's marks. Counts are summed over responses before they are divided, and intervals resample prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from fgrl.base import lazy
from fgrl.kinds import Meaning
from fgrl.measuring import statistics
from fgrl.measuring.named_statistics import OF_VALUES
from fgrl.measuring.statistics import Measured

np = lazy.load("numpy")

QUARTILES = (0.25, 0.5, 0.75)
KINDS = {"good": True, "bad": False}
"""Kinds of responses: True for good ones."""


@dataclass(frozen=True)
class Place:
    """Span reduced to the fields that matter for grading."""

    start: int
    end: int
    label: str
    length: int
    """Number of units that share a character with it."""


@dataclass(frozen=True)
class GradedResponse:
    """Response with the marks of both sides."""

    left: Sequence[str | None]
    """[U] label of each unit on the left side; None: neutral."""
    right: Sequence[str | None]
    """[U] label of each unit on the right side."""
    left_spans: Sequence[Place] = ()
    """Distinct spans of the left side."""
    right_spans: Sequence[Place] = ()
    uncovered: int = 0
    """Number of the right side's spans that cover no unit."""
    quotes: int | None = None
    """Number of quotes by the right side's annotator; None if it was not recorded."""
    unmatched: int = 0
    """Number of these quotes that were not found in the response."""


Rows = Sequence[GradedResponse | None]
"""One graded response for each response of the left side; None if the right side has none."""


def of_units(
    rows: Rows, prompts: Sequence[Hashable], labels: Sequence[str], good: Sequence[bool | None] | None = None
) -> dict[str, Measured]:
    """Return for each label `LABEL_precision`, `LABEL_recall`, `LABEL_f1` (Table 1 of Text2Grad) and
    `LABEL_overlap_index`: units with the label on both sides / units with it on either (the paper's Table 6 names an
    Overlap Unit Index without a formula). `LABEL_run_overlap`: the overlap of runs, as in the authors' release
    (`run_overlap`), mean over responses.

    `neutral`, `left_neutral`: the share of units that the side does not mark. `marked`, `left_marked`, `length`: units
    per response that the side marks, and all units (the tokens per sample of the paper's Table 12). `missing`: share of
    the left side's responses that the right side lacks. `uncovered`: share of the right side's spans that cover no
    unit.

    `LABEL_precision_gain`: precision minus that of marking everything. good: True for each good response, None if it is
    unknown. `LABEL_in_good`, `LABEL_in_bad`: share of the good and of the bad responses in which the right side marks a
    unit with the label; if both shares are equal, the label contains no information about which is good.
    `missing_good`, `missing_bad`: `missing` for each kind.
    """

    def each(count: Callable[[GradedResponse], Any]) -> list[Any]:
        return [None if row is None else count(row) for row in rows]

    def of_kind(values: Sequence[bool | None], wanted: bool) -> Measured:
        own = [value if kind is wanted else None for value, kind in zip(values, kinds, strict=True)]
        return statistics.weighted_mean(own, prompts)

    kinds, lengths = good or [None] * len(rows), each(lambda row: len(row.left))
    numbers: dict[str, Measured] = {}
    for label in labels:
        runs = each(partial(run_overlap, label=label))
        numbers[f"{label}_run_overlap"] = statistics.weighted_mean(runs, prompts)
        known = each(partial(counts, label=label))
        overlaps = statistics.overlaps(known, prompts, list(statistics.OVERLAPS))
        numbers |= {f"{label}_{name}": number for name, number in overlaps.items()}
        of_all = [own and (*own, length) for own, length in zip(known, lengths, strict=True)]
        numbers[f"{label}_precision_gain"] = statistics.of_sums(of_all, prompts, "precision_gain", {})
        found = each(partial(marks, label=label))
        numbers |= {f"{label}_in_{kind}": of_kind(found, wanted) for kind, wanted in KINDS.items()}
    sides = {"": each(lambda row: row.right), "left_": each(lambda row: row.left)}
    for prefix, side in sides.items():
        neutral = [None if own is None else (own.count(None), len(own)) for own in side]
        numbers[f"{prefix}neutral"] = statistics.of_sums(neutral, prompts)
    for prefix, side in sides.items():
        marked = [None if own is None else len(own) - own.count(None) for own in side]
        numbers[f"{prefix}marked"] = statistics.weighted_mean(marked, prompts)
    numbers["length"] = statistics.weighted_mean(lengths, prompts)
    lacking = [row is None for row in rows]
    numbers["missing"] = statistics.weighted_mean(lacking, prompts)
    numbers |= {f"missing_{kind}": of_kind(lacking, wanted) for kind, wanted in KINDS.items()}
    numbers["uncovered"] = statistics.of_sums(each(lambda row: (row.uncovered, len(row.right_spans))), prompts)
    return numbers


def counts(row: GradedResponse, label: str) -> tuple[int, int, int]:
    """Return the numbers of units with the label on both sides, on the right, and on the left."""
    left, right = ([own == label for own in side] for side in (row.left, row.right))
    return sum(a and b for a, b in zip(left, right, strict=True)), sum(right), sum(left)


def marks(row: GradedResponse, label: str) -> bool:
    """Return True if the right side marks a unit with the label."""
    return label in row.right


def run_overlap(row: GradedResponse, label: str) -> float:
    """Return the mean highest overlap of a run of the left side with a run of the right side. Only left runs that share a
    unit with a right run count; 0 if there are none. A run is a maximal sequence of neighbouring units with the label.
    """
    left, right = (runs_of(side, label) for side in (row.left, row.right))
    best = [max((overlap(run, other) for other in right), default=0.0) for run in left]
    touching = [value for value in best if value > 0]
    return sum(touching) / len(touching) if touching else 0.0


def runs_of(side: Sequence[str | None], label: str) -> list[tuple[int, int]]:
    """Return [start, end) of each maximal run of units with the label."""
    runs: list[tuple[int, int]] = []
    for place, own in enumerate(side):
        if own != label:
            continue
        start = runs.pop()[0] if runs and runs[-1][1] == place else place
        runs.append((start, place + 1))
    return runs


def of_spans(
    rows: Rows, prompts: Sequence[Hashable], labels: Sequence[str], least_overlap: float
) -> dict[str, Measured]:
    """Return numbers for each label, in characters.

    `LABEL_left`, `LABEL_right`: number of spans of a side. `LABEL_exact`: number of spans on both sides.
    `LABEL_partial`: number of other spans of the left side that share a character with a span of the right side (the
    paper's Table 6: GT / Pred (Exact - Partial)). `LABEL_exact_precision`, `LABEL_exact_recall`: exact spans, as a
    share of the right and of the left side's spans. `LABEL_partial_precision`, `LABEL_partial_recall`: exact and
    partial spans of the right and of the left side, as a share of all its spans. `LABEL_overlap_N`: share of the right
    side's spans that have at least N% of the characters of both in common with one span of the left side (Table 7:
    90%).

    `unmatched`: share of the quotes of the right side's annotator that were not found; missing if the annotations do
    not record how quotes were found.
    """
    numbers: dict[str, Measured] = {}
    for label in labels:
        known = [None if row is None else span_counts(row, label, least_overlap) for row in rows]

        def number(top: Sequence[str], bottom: str | None = None, known: Any = known) -> Measured:
            """Return the sum of some counts, over another one where it is named."""
            parameters = {
                "top": [int(name in top) for name in COUNTS],
                "bottom": [int(name == bottom) for name in COUNTS] if bottom else (),
            }
            return statistics.of_sums(known, prompts, parameters=parameters)

        for name in ("left", "right", "exact", "partial"):
            numbers[f"{label}_{name}"] = number([name])
        numbers |= {
            f"{label}_exact_precision": number(["exact"], "right"),
            f"{label}_exact_recall": number(["exact"], "left"),
            f"{label}_partial_precision": number(["exact", "right_partial"], "right"),
            f"{label}_partial_recall": number(["exact", "partial"], "left"),
            f"{label}_overlap_{100 * least_overlap:g}": number(["overlapping"], "right"),
        }
    quotes = [None if row is None or row.quotes is None else (row.unmatched, row.quotes) for row in rows]
    return numbers | {"unmatched": statistics.of_sums(quotes, prompts)}


MEANINGS = {
    "*_precision": Meaning("precision of the marked spans ({number})", "higher"),
    "*_precision_gain": Meaning("precision of the marked spans above that of marking everything ({number})", "higher"),
    "*_recall": Meaning("recall of the marked spans ({number})", "higher"),
    "*_f1": Meaning("F1 of the marked spans ({number})", "higher"),
    "*_run_overlap": Meaning("overlap of runs of marked units ({number})", "higher"),
    "*_overlap_index": Meaning("overlap of the marked spans ({number})", "higher"),
}
"""Meanings of the numbers of `of_units` and `of_spans`."""
COUNTS = ("left", "right", "exact", "partial", "right_partial", "overlapping")


def span_counts(row: GradedResponse, label: str, least_overlap: float) -> tuple[float, ...]:
    """Return `COUNTS` of one response."""
    left = {(span.start, span.end) for span in row.left_spans if span.label == label}
    right = {(span.start, span.end) for span in row.right_spans if span.label == label}
    exact = left & right
    return (
        len(left),
        len(right),
        len(exact),
        sum(touches(span, right) for span in left - exact),
        sum(touches(span, left) for span in right - exact),
        sum(any(overlap(span, other) >= least_overlap for other in left) for span in right),
    )


def touches(span: tuple[int, int], others: Any) -> bool:
    """Return True if the span shares a character with one of the others."""
    return any(overlap(span, other) > 0 for other in others)


def overlap(one: tuple[int, int], other: tuple[int, int]) -> float:
    """Return characters in both spans / characters in either; 0 to 1, and 0 for two empty spans."""
    both = max(0, min(one[1], other[1]) - max(one[0], other[0]))
    either = (one[1] - one[0]) + (other[1] - other[0]) - both
    return both / either if either else 0.0


class MarkedSpan(NamedTuple):
    """Row of the table of spans that one side marks."""

    prompt: Hashable
    label: str
    length: int
    """Length in units."""
    right: bool | None = None
    """True if it is correct, by the other side or by a person; None if nobody judged it."""


def right_side(rows: Rows, prompts: Sequence[Hashable]) -> list[MarkedSpan]:
    """Return the right side's spans, each with whether it shares a character with a span of the left side with the same
    label.
    """
    found = []
    known = ((row, prompt) for row, prompt in zip(rows, prompts, strict=True) if row is not None)
    for row, prompt in known:
        for span in row.right_spans:
            left = [(own.start, own.end) for own in row.left_spans if own.label == span.label]
            found.append(MarkedSpan(prompt, span.label, span.length, touches((span.start, span.end), left)))
    return found


def of_lengths(spans: Sequence[MarkedSpan], prompts: Sequence[Hashable], labels: Sequence[str]) -> dict[str, Measured]:
    """Return units per span of each label: `LABEL_mean`, `_min`, `_q1`, `_median`, `_q3`, `_max` (Table 18 of
    Text2Grad).

    prompts: of all responses, with and without spans. Quartiles are interpolated linearly.
    """
    numbers: dict[str, Measured] = {}
    for label in labels:
        own = [span for span in spans if span.label == label]
        values, clusters = [float(span.length) for span in own], [span.prompt for span in own]
        for name in OF_VALUES:
            numbers[f"{label}_{name}"] = statistics.of_values(values, clusters, prompts, name, "no spans")
    return numbers


def by_length(spans: Sequence[MarkedSpan], prompts: Sequence[Hashable], labels: Sequence[str]) -> dict[str, Measured]:
    """Return for each label the share of correct spans, `LABEL_all`, and by the quarter of their length,
    `LABEL_quarter_1` (the shortest) to `LABEL_quarter_4` (Table 19 of Text2Grad).

    prompts: of all responses. A span as long as a quartile belongs to the quarter below it, so with few different
    lengths a quarter may be empty. The quartiles are over all spans of the label that were judged.
    """
    numbers: dict[str, Measured] = {}
    for label in labels:
        own = [span for span in spans if span.label == label and span.right is not None]
        edges = np.quantile([span.length for span in own], QUARTILES).tolist() if own else []
        chosen_by = {f"{label}_all": own} | {f"{label}_quarter_{place}": [] for place in (1, 2, 3, 4)}
        for span in own:
            chosen_by[f"{label}_quarter_{1 + sum(span.length > edge for edge in edges)}"].append(span)
        for name, chosen in chosen_by.items():
            rights = [float(span.right or False) for span in chosen]
            numbers[name] = statistics.weighted_mean(rights, [span.prompt for span in chosen], every=prompts)
    return numbers

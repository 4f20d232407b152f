"""Statistics of annotations (CH-Wang et al., Table 1 and section 3): marks, times, and agreement between annotators.

Everything is computed per *work*: one annotator on one item. If a sample's `meta.annotation.by` names its annotators,
only they count (a model's annotations of the same responses do not); otherwise everybody who annotated or compared
counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median, quantiles
from typing import Any

from fgrl.base.visible import quantity
from fgrl.feedback.page_settings import OTHER
from fgrl.measuring.named_statistics import agreement_by_chance
from fgrl.measuring.statistics import Estimate, estimate, of_sums
from fgrl.pages.annotation.conversion import about, annotations_by, by_annotator, decisions, named_in
from fgrl.types import Annotation, PairVerdict, Record, Sample, Span

NO_DOMAIN = "(no domain)"
UNKNOWN_PAGE = "unknown page"
PREFERENCE_ONLY = "A/B only"
VERDICTS = ("first", "second", "tie")
REACH = 1.5
"""Number of interquartile ranges from the median beyond which a time is an outlier."""


@dataclass(frozen=True)
class Work:
    """Work of one annotator on one item."""

    source: str
    """Store or file that the sample comes from. The same id in two sources means two items, and the same name two
    people.
    """
    item: str
    """Id of the sample."""
    by: str
    domain: str
    page: str
    """Parts of the page that were shown, in words."""
    annotations: dict[int, Annotation]
    """Annotations by the place of the response."""
    texts: dict[int, str]
    """Texts of the annotated responses, by place."""
    verdict: PairVerdict | None
    """Verdict on the first two responses, or the first comparison of others."""
    order: list[int] | None
    """Places of the responses as they were shown."""
    seconds: float | None
    """Active time in seconds; None if it was not measured."""
    done: bool | None
    """True if the annotator has finished the item; None if it is unknown."""
    unjudged: str | None = None
    """Reason why the annotator cannot judge the item; None if they can."""
    suggestions: tuple[tuple[str, bool], ...] = ()
    """Source of each decided suggestion, and whether the annotator accepted it."""

    @property
    def key(self) -> tuple[str, str]:
        """Return source and item, which together identify the item."""
        return self.source, self.item

    @property
    def spans(self) -> list[Span]:
        """Return the spans of all responses."""
        return [span for annotation in self.annotations.values() for span in annotation.spans]


class DomainCounts(Record):
    """Row of Table 1."""

    responses: int = 0
    """Different responses that were annotated."""
    annotations: int = 0
    """Annotated responses, one for each annotator (N): the denominator of the averages."""
    likes: int = 0
    """Spans with a label above 0 (H+)."""
    dislikes: int = 0
    """Spans with a label below 0 (H-)."""
    attributes: int = 0
    """Ticked check boxes, Other included (sum of A)."""
    other: int = 0
    """Number of times that Other was ticked."""
    words: int = 0
    """Highlighted words, separated by white space (#w); a word in two spans counts twice."""
    likes_per_response: float | None = None
    dislikes_per_response: float | None = None
    attributes_per_span: float | None = None
    pairs_per_item: float | None = None
    """Preference pairs from one annotator's work on an item: one for a preference that is not a tie, one for each
    disliked span. Averaged over works with at least one annotated response that are not known to be unfinished (the
    paper: 1 + 4.7 + 4.7).
    """


class Times(Record):
    """Active seconds per item under one setting of the page. Unfinished works are left out of all numbers except their
    count.
    """

    items: int
    """Works with a time."""
    omitted: int
    """Outliers: farther from the median than 1.5 interquartile ranges."""
    mean: float | None
    """Mean over the works that are not outliers."""
    median: float | None
    """Median over all works."""
    not_measured: int = 0
    """Works without a time."""
    unfinished: int = 0
    """Works that were left out because the annotator has not finished them."""
    pairs_per_item: float | None = None
    """As in `DomainCounts`, over works with an annotation or a preference. If the page only asked for the preference,
    it is 1 minus the share of ties.
    """
    seconds_per_pair: float | None = None


class Kappa(Record):
    """Fleiss' kappa of preferences."""

    kappa: Estimate
    """Kappa with a bootstrap interval over items; missing with a note if it is undefined."""
    observed: float | None
    """Observed agreement: share of pairs of annotators who agree, averaged over items."""
    expected: float | None
    """Agreement expected by chance, from the frequency of each verdict."""
    items: int
    """Items with the verdicts of at least two annotators."""
    single: int
    """Items with only one verdict, which say nothing about agreement."""
    ratings: dict[str, int]
    """Number of times that each verdict was given on `items`."""
    raters: dict[int, int]
    """Number of `items` by their number of verdicts."""


class Agreement(Record):
    """Agreement of annotators' marks on the same response. Each number is a Dice coefficient over all pairs of
    annotators of a response: twice the number of common marks, divided by the sum of both numbers of marks, summed over
    all pairs. Not corrected for chance; None without pairs, or if nobody marked anything.
    """

    pairs: int
    """Pairs of annotators of the same response."""
    spans: Estimate
    """Spans with the same start, end and sign of the label."""
    overlapping: Estimate
    """Spans that share at least one character with a span of the same sign of the other annotator."""
    span_attributes: Estimate
    """Attributes ticked on spans with the same start, end and sign."""
    response_attributes: Estimate
    """Attributes (of likes and of dislikes) ticked on any span of the response."""


class Statistics(Record):
    """All statistics of a set of annotations."""

    items: int
    """Samples with at least one work."""
    works: int
    """Pairs of an annotator and an item."""
    unfinished: int
    """Works that the annotator has not finished. They count, except in times and in pairs per item."""
    annotators: dict[str, int]
    """Works by annotator."""
    domains: dict[str, DomainCounts]
    """Counts by domain, in order of first appearance."""
    total: DomainCounts
    times: dict[str, Times]
    """Times by setting of the page."""
    preference: Kappa
    agreement: Agreement
    verdicts: dict[str, int]
    """Number of times that each verdict was given, over all works."""
    unjudged: int = 0
    """Works in which the annotator cannot judge the item. They count, except in times."""
    suggestions: dict[str, dict[str, int]] = {}
    """Numbers of `accepted` and `rejected` suggestions, by their source."""
    left: Estimate
    """Share of preferences (no ties) for the response that was shown on the left, if the order is known."""


# ----- works ----------------------------------------------------------------------------------------------------------


def works(
    samples: Iterable[Sample], domain: str = "domain", *, source: str = "", of: Collection[str] | None = None
) -> list[Work]:
    """Return every annotator's work on every item. domain: entry of a sample's `meta`; source: name of the store or
    file; of: names of the annotators, if they are known, which excludes a model that has marked the samples before.

    Raises `DataError` for an annotator who annotated a response twice.
    """
    found = (work for sample in samples for work in _works(sample, domain, source))
    return [work for work in found if of is None or work.by in of]


def _works(sample: Sample, domain: str, source: str) -> Iterator[Work]:
    people = by_annotator(sample)
    page = page_name(about(sample).get("page"))
    unjudged = [name for name, noted in people.items() if "cannot_judge" in noted]
    for name in dict.fromkeys([*named_in(sample), *unjudged]):
        if people and name not in people:
            continue
        annotations = annotations_by(sample, name)
        verdicts = [verdict for verdict in sample.verdicts or [] if verdict.by == name and verdict.verdict is not None]
        noted = people.get(name, {})
        alone = [one.seconds for one in annotations.values() if one.seconds is not None]
        yield Work(
            source=source,
            item=sample.id,
            by=name,
            domain=str(sample.meta.get(domain, NO_DOMAIN)),
            page=page,
            annotations=annotations,
            texts={place: sample.responses[place].text for place in annotations},
            verdict=verdicts[0] if verdicts else None,
            order=noted.get("order"),
            seconds=noted.get("seconds", alone[0] if len(alone) == 1 else None),
            done=noted.get("done"),
            unjudged=noted.get("cannot_judge"),
            suggestions=tuple((str(one.get("by", "")), bool(one.get("accepted"))) for one in decisions(noted)),
        )


def page_name(modes: Any) -> str:
    """Return the modes of a page in words: `A/B only`, `full`, or the differences from the full page."""
    if not isinstance(modes, Mapping):
        return UNKNOWN_PAGE
    preference = modes.get("preference", True)
    if modes.get("spans") == "none":
        return PREFERENCE_ONLY if preference else "questions only"
    parts = {
        "dislikes only": modes.get("spans") == "dislikes",
        "one response": modes.get("responses") == 1,
        "free text": modes.get("reasons") == "free_text",
        "no reasons": modes.get("reasons") == "none",
        "few spans": modes.get("most_spans") is not None,
        "no preference": not preference and modes.get("responses") != 1,
    }
    return ", ".join(part for part, holds in parts.items() if holds) or "full"


# ----- numbers --------------------------------------------------------------------------------------------------------


def statistics(samples: Iterable[Sample], *, domain: str = "domain", resamples: int = 2000) -> Statistics:
    """Return all statistics of the annotations of samples from one source. domain: entry of a sample's `meta`;
    resamples: bootstrap draws of items for the intervals.
    """
    return statistics_of(works(samples, domain), resamples=resamples)


def statistics_of(all_works: Sequence[Work], *, resamples: int = 2000) -> Statistics:
    """Return all statistics of these works, which may come from several sources."""
    by_domain = _grouped(all_works, lambda work: work.domain)
    return Statistics(
        items=len({work.key for work in all_works}),
        works=len(all_works),
        unfinished=sum(work.done is False for work in all_works),
        annotators=dict(sorted(Counter(work.by for work in all_works).items())),
        domains={name: counts(own) for name, own in by_domain.items()},
        total=counts(all_works),
        times={page: times(own) for page, own in _grouped(all_works, lambda work: work.page).items()},
        preference=preference_agreement(all_works, resamples=resamples),
        agreement=agreement(all_works, resamples=resamples),
        verdicts=_totals(_votes(all_works)),
        unjudged=sum(work.unjudged is not None for work in all_works),
        suggestions=_suggestions(all_works),
        left=_left(all_works, resamples),
    )


def counts(some: Sequence[Work]) -> DomainCounts:
    """Return the numbers of Table 1 for these works."""
    spans = [span for work in some for span in work.spans]
    likes, dislikes = sum(span.label > 0 for span in spans), sum(span.label < 0 for span in spans)
    annotations = sum(len(work.annotations) for work in some)
    attributes = sum(len(span.reasons) for span in spans)
    return DomainCounts(
        responses=len({(work.key, place) for work in some for place in work.annotations}),
        annotations=annotations,
        likes=likes,
        dislikes=dislikes,
        attributes=attributes,
        other=sum(span.reasons.count(OTHER) for span in spans),
        words=sum(
            len(work.texts[place][span.start : span.end].split())
            for work in some
            for place, annotation in work.annotations.items()
            for span in annotation.spans
        ),
        likes_per_response=_ratio(likes, annotations),
        dislikes_per_response=_ratio(dislikes, annotations),
        attributes_per_span=_ratio(attributes, likes + dislikes),
        pairs_per_item=_pairs_per_item([work for work in some if work.annotations and work.done is not False]),
    )


def times(some: Sequence[Work]) -> Times:
    """Return seconds per item without outliers, and per preference pair that results from it."""
    finished = [work for work in some if work.done is not False and work.unjudged is None]
    known = [work.seconds for work in finished if work.seconds is not None]
    kept = without_outliers(known)
    mean = _ratio(math.fsum(kept), len(kept))
    pairs = _pairs_per_item([work for work in finished if work.annotations or work.verdict is not None])
    return Times(
        items=len(known),
        omitted=len(known) - len(kept),
        mean=mean,
        median=median(known) if known else None,
        not_measured=len(finished) - len(known),
        unfinished=len(some) - len(finished),
        pairs_per_item=pairs,
        seconds_per_pair=mean / pairs if mean is not None and pairs else None,
    )


def without_outliers(values: Sequence[float], reach: float = REACH) -> list[float]:
    """Return the values that are at most `reach` interquartile ranges from the median, in their order (the paper's
    section 3).

    Quartiles are interpolated linearly between the ordered values. If the interquartile range is 0, only values equal
    to the median stay.
    """
    if len(values) < 2:
        return list(values)
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return [value for value in values if abs(value - middle) <= reach * (high - low)]


def _pairs_per_item(some: Sequence[Work]) -> float | None:
    decided = sum(work.verdict is not None and work.verdict.verdict != "tie" for work in some)
    return _ratio(decided + sum(span.label < 0 for work in some for span in work.spans), len(some))


def preference_agreement(some: Sequence[Work], *, resamples: int = 2000) -> Kappa:
    """Return Fleiss' kappa of first, second and tie, over items that at least two annotators compared."""
    votes = _votes(some)
    several = {item: own for item, own in votes.items() if sum(own) > 1}
    observed, expected, _kappa = fleiss_kappa(list(several.values()))
    if expected is None:
        kappa = Estimate(mean=None, note="no item has the verdicts of two annotators")
    elif expected == 1:
        kappa = Estimate(mean=None, n=len(several), note="every verdict is the same: agreement cannot exceed chance")
    else:
        rows = [_row(own) for own in several.values()]
        kappa = estimate(of_sums(rows, list(several), "fleiss_kappa", {}), resamples=resamples)
    return Kappa(
        kappa=kappa,
        observed=observed,
        expected=expected,
        items=len(several),
        single=len(votes) - len(several),
        ratings=_totals(several),
        raters=dict(sorted(Counter(sum(own) for own in several.values()).items())),
    )


def _totals(votes: Mapping[Hashable, Sequence[int]]) -> dict[str, int]:
    return {name: sum(own[place] for own in votes.values()) for place, name in enumerate(VERDICTS)}


def fleiss_kappa(table: Sequence[Sequence[int]]) -> tuple[float | None, float | None, float | None]:
    """Return (observed agreement, agreement by chance, kappa) of counts [items, categories] (Fleiss 1971).

    Row i has the number of its n_i raters who chose each category. Items may have different numbers of raters: an
    item's agreement is the share of its n_i(n_i - 1)/2 pairs of raters who agree, every item has the same weight, and
    chance agreement is computed from all ratings together. With the same n_i everywhere this is Fleiss' formula. Rows
    with fewer than two raters are left out. All three are None without a row; only kappa is None when all ratings are
    the same, because it would be 0/0.
    """
    rows = [row for row in (_row(own) for own in table) if row is not None]
    if not rows:
        return None, None, None
    sums = [math.fsum(column) for column in zip(*rows, strict=True)]
    observed, expected = sums[0] / sums[1], agreement_by_chance(sums[2:])
    return observed, expected, None if expected == 1 else (observed - expected) / (1 - expected)


def _row(votes: Sequence[int]) -> tuple[float, ...] | None:
    """Return (agreement, 1, votes...) of one item, or None with fewer than two raters."""
    raters = sum(votes)
    if raters < 2:
        return None
    return sum(count * (count - 1) for count in votes) / (raters * (raters - 1)), 1.0, *map(float, votes)


def _votes(some: Sequence[Work]) -> dict[Hashable, list[int]]:
    """Return the number of times that each verdict was given, by item and pair of responses."""
    votes: dict[Hashable, list[int]] = {}
    for work in some:
        if work.verdict is not None:
            place = VERDICTS.index(_ordered_verdict(work.verdict))
            key = (*work.key, *sorted((work.verdict.first, work.verdict.second)))
            votes.setdefault(key, [0] * len(VERDICTS))[place] += 1
    return votes


def _ordered_verdict(verdict: PairVerdict) -> str:
    """Return first or second by the place of the responses, independent of their order in the record."""
    if verdict.verdict == "tie" or verdict.first < verdict.second:
        return str(verdict.verdict)
    return "second" if verdict.verdict == "first" else "first"


def _suggestions(some: Sequence[Work]) -> dict[str, dict[str, int]]:
    decided = Counter(decision for work in some for decision in work.suggestions)
    names = sorted({by for by, _accepted in decided})
    return {by: {"accepted": decided[by, True], "rejected": decided[by, False]} for by in names}


def _left(some: Sequence[Work], resamples: int) -> Estimate:
    rows: list[tuple[float, float]] = []
    items: list[Hashable] = []
    for work in some:
        if work.verdict is not None and work.verdict.verdict != "tie" and work.order:
            better = work.verdict.first if work.verdict.verdict == "first" else work.verdict.second
            rows.append((float(better == work.order[0]), 1.0))
            items.append(work.key)
    return _share(rows, items, resamples, "no preference with a known order")


def agreement(some: Sequence[Work], *, resamples: int = 2000) -> Agreement:
    """Return the agreement of annotators' marks on the same response."""
    by_response: dict[tuple[tuple[str, str], int], list[Annotation]] = {}
    for work in some:
        for place, annotation in work.annotations.items():
            by_response.setdefault((work.key, place), []).append(annotation)
    pairs = [(item, pair) for (item, _place), own in by_response.items() for pair in combinations(own, 2)]
    items: list[Hashable] = [item for item, _pair in pairs]

    def measured(shared: Callable[[Annotation, Annotation], tuple[float, float]], what: str) -> Estimate:
        missing = f"no {what} on a response of two annotators" if pairs else "no response has two annotators"
        return _share([shared(*pair) for _item, pair in pairs], items, resamples, missing)

    return Agreement(
        pairs=len(pairs),
        spans=measured(_dice(lambda own: [_place(span) for span in own.spans]), "span"),
        overlapping=measured(_overlapping, "span"),
        span_attributes=measured(
            _dice(lambda own: [(_place(span), name) for span in own.spans for name in span.reasons]), "attribute"
        ),
        response_attributes=measured(
            _dice(lambda own: {(_sign(span), name) for span in own.spans for name in span.reasons}), "attribute"
        ),
    )


def _dice(marks: Callable[[Annotation], Iterable[Any]]) -> Callable[[Annotation, Annotation], tuple[float, float]]:
    """Return a function that computes twice the number of common marks, and the sum of both numbers of marks."""

    def shared(one: Annotation, other: Annotation) -> tuple[float, float]:
        first, second = Counter(marks(one)), Counter(marks(other))
        return 2.0 * (first & second).total(), float(first.total() + second.total())

    return shared


def _place(span: Span) -> tuple[int, int, int]:
    return span.start, span.end, _sign(span)


def _overlapping(one: Annotation, other: Annotation) -> tuple[float, float]:
    def met(own: Annotation, theirs: Annotation) -> int:
        return sum(
            any(_sign(span) == _sign(it) and span.start < it.end and it.start < span.end for it in theirs.spans)
            for span in own.spans
        )

    return float(met(one, other) + met(other, one)), float(len(one.spans) + len(other.spans))


def _sign(span: Span) -> int:
    return (span.label > 0) - (span.label < 0)


def _share(rows: Sequence[tuple[float, float]], items: Sequence[Hashable], resamples: int, missing: str) -> Estimate:
    """Return the sum of the first numbers divided by the sum of the second numbers, with an interval over items."""
    if not math.fsum(below for _above, below in rows):
        return Estimate(mean=None, n=len(rows), note=missing)
    measured = of_sums(rows, items)
    return estimate(measured, resamples=resamples)


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None


def _grouped(some: Sequence[Work], key: Callable[[Work], str]) -> dict[str, list[Work]]:
    groups: dict[str, list[Work]] = {}
    for work in some:
        groups.setdefault(key(work), []).append(work)
    return groups


# ----- tables ---------------------------------------------------------------------------------------------------------

Table = tuple[str, list[list[str]]]
"""Title, and rows, the first of which is the head."""


COUNTED = {
    "N": "annotations", "H+": "likes", "H-": "dislikes", "attributes": "attributes", "words": "words",
    "H+/response": "likes_per_response", "H-/response": "dislikes_per_response",
    "attributes/span": "attributes_per_span", "pairs/item": "pairs_per_item",
}  # fmt: skip
"""Fields of `DomainCounts`, by column."""
TIMED = {
    "items": "items", "outliers": "omitted", "seconds/item": "mean", "median": "median", "pairs/item": "pairs_per_item",
    "seconds/pair": "seconds_per_pair", "without a time": "not_measured", "not finished": "unfinished",
}  # fmt: skip
"""Fields of `Times`, by column."""


def tables(own: Statistics) -> list[Table]:
    """Return the numbers as tables to print."""
    people = quantity(len(own.annotators), "annotator")
    title = f"{quantity(own.items, 'item')}, {quantity(own.works, 'annotation')} by {people}"
    title += f"; {own.unfinished:,} not finished" + f", {own.unjudged:,} cannot be judged" * bool(own.unjudged)
    result = [(title, _table("domain", COUNTED, {**own.domains, "total": own.total}))]
    if any(row.items for row in own.times.values()):
        left_out = "those farther than 1.5 interquartile ranges from the median are left out of the mean"
        result.append((f"active time of finished items; {left_out}", _table("page", TIMED, own.times)))
    if sum(own.verdicts.values()):
        given = ", ".join(f"{name} {count:,}" for name, count in own.verdicts.items())
        preference = own.preference
        raters = [f"{count:,} by {quantity(number, 'annotator')}" for number, count in preference.raters.items()]
        rows = [
            ["Fleiss' kappa", _estimate(preference.kappa)],
            ["observed agreement", _number(preference.observed, 3)],
            ["agreement by chance", _number(preference.expected, 3)],
            ["items compared by several", ", ".join(raters) or "none"],
            ["preferred the response on the left", _estimate(own.left)],
        ]
        result.append((f"preferences: {given}", rows))
    if own.suggestions:
        head = ["suggested by", "accepted", "rejected"]
        rows = [[by or "(unknown)", *(f"{count:,}" for count in row.values())] for by, row in own.suggestions.items()]
        result.append(("suggestions that were decided", [head, *rows]))
    marked = own.agreement
    if marked.pairs:
        title = f"agreement of annotators of the same response ({marked.pairs:,} pairs; Dice, not corrected for chance)"
        rows = [
            ["same spans", _estimate(marked.spans)],
            ["spans that overlap", _estimate(marked.overlapping)],
            ["same spans with the same attributes", _estimate(marked.span_attributes)],
            ["same attributes anywhere on the response", _estimate(marked.response_attributes)],
        ]
        result.append((title, rows))
    return result


def _table(first: str, columns: Mapping[str, str], rows: Mapping[str, Record]) -> list[list[str]]:
    """Return a table. columns: field of each column. Seconds have one decimal, other averages two."""
    digits = {"mean": 1, "median": 1, "seconds_per_pair": 1}
    cells = (
        [name, *(_number(getattr(row, own), digits.get(own, 2)) for own in columns.values())]
        for name, row in rows.items()
    )
    return [[first, *columns], *cells]


def _number(value: float | None, digits: int = 2) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else f"{value:,.{digits}f}"


def _estimate(own: Estimate) -> str:
    if own.mean is None:
        return f"undefined: {own.note}"
    interval = "" if own.low is None or own.high is None else f" [{own.low:.2f} to {own.high:.2f}]"
    return f"{own.mean:.2f}{interval}" + (f" ({own.note})" if own.note and not interval else "")

"""Table 1, times, Fleiss' kappa and agreement on spans, against closed forms and a library."""

from __future__ import annotations

import random
from typing import Any

import pytest
from annotated_samples import annotated
from hypothesis import given
from hypothesis import strategies as st

from fgrl.base.errors import DataError
from fgrl.pages.annotation.statistics import (
    fleiss_kappa,
    page_name,
    statistics,
    statistics_of,
    tables,
    times,
    without_outliers,
    works,
)
from fgrl.types import Annotation, PairVerdict, Response, Sample, Span

TEXT = "one two three four five six seven eight nine ten"
TABLE_1 = {
    "Yelp": (86, 45, 397, 1589), "News": (81, 49, 379, 1693), "Wikipedia": (67, 24, 334, 1375), "arXiv": (43, 27, 193, 863)
}  # fmt: skip
FULL = {"spans": "both", "responses": 2, "reasons": "taxonomy", "preference": True}
PREFERENCE_ONLY = FULL | {"spans": "none"}


def spread(total: int, over: int) -> list[int]:
    """A total as `over` numbers that differ by at most one."""
    return [total // over + (number < total % over) for number in range(over)]


def test_the_averages_of_the_paper_follow_from_its_table() -> None:
    """277 responses, 145 likes, 1303 dislikes and 5520 ticks give 0.5, 4.7 and 3.8 (section 3), in every domain and in total."""
    samples = []
    for domain, (responses, likes, dislikes, ticks) in TABLE_1.items():
        attributes = iter(spread(ticks, likes + dislikes))
        for number, (liked, disliked) in enumerate(
            zip(spread(likes, responses), spread(dislikes, responses), strict=True)
        ):
            spans = [
                Span(start=0, end=3, label=label, reasons=[f"r{n}" for n in range(next(attributes))])
                for label in [1.0] * liked + [-1.0] * disliked
            ]
            response = Response(text=TEXT, annotations=[Annotation(by="Ada", spans=spans)])
            samples.append(Sample(id=f"{domain}{number}", prompt="p", responses=[response], meta={"domain": domain}))
    own = statistics(samples)
    assert {
        name: (row.annotations, row.likes, row.dislikes, row.attributes) for name, row in own.domains.items()
    } == TABLE_1
    total = own.total
    assert (total.annotations, total.likes, total.dislikes, total.attributes) == (277, 145, 1303, 5520)
    assert total.likes_per_response == pytest.approx(0.5, abs=0.05)
    assert total.dislikes_per_response == pytest.approx(4.7, abs=0.05)
    assert total.attributes_per_span == pytest.approx(3.8, abs=0.05)
    assert total.words == 145 + 1303


def test_pairs_per_item_are_the_preference_and_one_per_disliked_span() -> None:
    """1 + 4.7 + 4.7 = 10.4 where ten items have 94 dislikes on two responses; a tie is no pair."""
    samples = []
    for number, (first, second) in enumerate(zip(spread(47, 10), spread(47, 10), strict=True)):
        responses = [
            Response(
                text=TEXT,
                annotations=[Annotation(by="Ada", spans=[Span(start=0, end=3, label=-1.0) for _ in range(count)])],
            )
            for count in (first, second)
        ]
        verdicts = [PairVerdict(first=0, second=1, verdict="first", by="Ada")]
        samples.append(Sample(id=str(number), prompt="p", responses=responses, verdicts=verdicts))
    assert statistics(samples).total.pairs_per_item == pytest.approx(10.4)
    tied = [
        sample.model_copy(update={"verdicts": [PairVerdict(first=0, second=1, verdict="tie", by="Ada")]})
        for sample in samples
    ]
    assert statistics(tied).total.pairs_per_item == pytest.approx(9.4)


def test_words_are_what_white_space_separates() -> None:
    spans = [Span(start=0, end=7, label=1.0), Span(start=4, end=16, label=-1.0), Span(start=3, end=4, label=1.0)]
    sample = Sample(id="1", prompt="p", responses=[Response(text=TEXT, annotations=[Annotation(by="a", spans=spans)])])
    own = statistics([sample])
    assert own.total.words == 2 + 3 + 0
    assert list(own.domains) == ["(no domain)"]


def test_only_the_people_of_the_page_count() -> None:
    sample = annotated()
    by_model = Annotation(by="critic", spans=[Span(start=0, end=3, label=-1.0)])
    first = sample.responses[0].model_copy(update={"annotations": [*sample.responses[0].annotations, by_model]})
    own = statistics([sample.model_copy(update={"responses": [first, sample.responses[1]]})])
    assert own.annotators == {"Ada": 1, "bob@example.org": 1}
    assert (own.total.responses, own.total.annotations, own.total.likes, own.total.dislikes) == (2, 3, 2, 3)
    assert (own.total.attributes, own.total.other) == (5, 1)
    without = sample.model_copy(update={"responses": [first, sample.responses[1]], "meta": {}})
    assert statistics([without]).annotators == {"Ada": 1, "bob@example.org": 1, "critic": 1}


def test_two_annotations_of_one_response_by_one_person_are_refused() -> None:
    response = Response(text=TEXT, annotations=[Annotation(by="Ada"), Annotation(by="Ada")])
    with pytest.raises(DataError, match="'Ada' annotated response 0 twice"):
        statistics([Sample(id="1", prompt="p", responses=[response])])


# ----- times ----------------------------------------------------------------------------------------------------------


def test_a_time_beyond_one_and_a_half_interquartile_ranges_from_the_median_is_left_out() -> None:
    """Median 30, quartiles 20 and 40: 30 +- 30 stay, however far 1000 is."""
    assert without_outliers([10, 20, 30, 40, 1000]) == [10, 20, 30, 40]
    assert without_outliers([0.0, 20, 30, 40, 60.0]) == [0.0, 20, 30, 40, 60.0]
    assert without_outliers([-0.1, 20, 30, 40, 60.1]) == [20, 30, 40]
    assert without_outliers([40, 1000, 10, 30, 20], reach=0.5) == [40, 30, 20]
    assert without_outliers([5.0, 5, 5, 5, 9]) == [5.0, 5, 5, 5], "no spread"
    assert without_outliers([]) == []
    assert without_outliers([3.0]) == [3.0]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_the_rule_is_the_one_of_numpys_quartiles(values: list[float]) -> None:
    import numpy as np

    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    slack = 1e-9 * max(values)
    kept = without_outliers(values)
    for value in values:
        distance = abs(value - middle) - 1.5 * (high - low)
        if abs(distance) > slack:
            assert (value in kept) == (distance < 0)


def timed(seconds: dict[str, float | None], modes: dict[str, Any], spans: int, verdict: Any = "first") -> Sample:
    names = list(seconds)
    annotations = [
        Annotation(by=name, spans=[Span(start=0, end=3, label=-1.0) for _ in range(spans)]) for name in names
    ]
    people = {name: {} if value is None else {"seconds": value} for name, value in seconds.items()}
    return Sample(
        id=f"{modes['spans']}{len(seconds)}{spans}",
        prompt="p",
        responses=[Response(text=TEXT, annotations=annotations if spans else []), Response(text="b")],
        verdicts=[PairVerdict(first=0, second=1, verdict=verdict, by=name) for name in names],
        meta={"annotation": {"page": modes, "by": people}},
    )


def test_times_by_page_setting_and_per_pair() -> None:
    """The paper's 455 s for 10.4 pairs against 419 s for one: more than nine times faster per pair."""
    own = statistics(
        [
            timed({"a": 455.0, "b": 400.0, "c": 510.0, "d": 9999.0, "e": None}, FULL, 9),
            timed({"a": 419.0, "b": 400.0, "c": 438.0}, PREFERENCE_ONLY, 0),
        ]
    ).times
    assert list(own) == ["full", "A/B only"]
    full, only = own["full"], own["A/B only"]
    assert (full.items, full.omitted, full.not_measured, full.mean) == (4, 1, 1, 455.0)
    assert (only.items, only.omitted, only.mean, only.pairs_per_item) == (3, 0, 419.0, 1.0)
    assert full.pairs_per_item == 10.0
    assert (full.seconds_per_pair, only.seconds_per_pair) == (45.5, 419.0)


def test_unfinished_items_are_counted_and_left_out_of_times_and_pairs() -> None:
    sample = timed({"a": 100.0, "b": 3.0, "c": None}, FULL, 2)
    people = sample.meta["annotation"]["by"]
    people["a"]["done"], people["b"]["done"], people["c"]["done"] = True, False, False
    own = statistics([sample.model_copy(update={"verdicts": (sample.verdicts or [])[:1]})])
    full = own.times["full"]
    assert (full.items, full.unfinished, full.not_measured, full.mean, full.median) == (1, 2, 0, 100.0, 100.0)
    assert full.pairs_per_item == own.total.pairs_per_item == own.domains["(no domain)"].pairs_per_item == 3.0
    assert (own.unfinished, own.total.annotations, own.total.dislikes) == (2, 3, 6), "what was marked counts"
    (row,) = [row for title, rows in tables(own) if title.startswith("active time") for row in rows[1:]]
    assert (row[1], row[-1]) == ("1", "2")


def test_times_of_one_response_are_those_of_the_annotation() -> None:
    response = Response(text=TEXT, annotations=[Annotation(by="a", seconds=7.0)])
    (work,) = works([Sample(id="1", prompt="p", responses=[response])])
    assert work.seconds == 7.0
    both = works([Sample(id="1", prompt="p", responses=[response, response])])
    assert both[0].seconds is None, "nobody knows how to divide them"
    assert times([]).mean is None


def test_the_same_names_in_two_sources_are_other_people_and_other_items() -> None:
    mine, theirs = compared([["first"]])[0], compared([["second"]])[0]
    own = statistics_of([*works([mine], source="one.sqlite"), *works([theirs], source="two.sqlite")])
    assert (own.items, own.works, own.preference.items, own.preference.single) == (2, 2, 0, 2)
    spans = marked([(0, 3, -1.0, [])])
    apart = statistics_of([*works([spans], source="one.sqlite"), *works([spans], source="two.sqlite")])
    assert (apart.agreement.pairs, apart.total.responses) == (0, 2)


@pytest.mark.parametrize(
    ("modes", "name"),
    [
        (FULL, "full"),
        (PREFERENCE_ONLY, "A/B only"),
        (PREFERENCE_ONLY | {"preference": False}, "questions only"),
        (FULL | {"spans": "dislikes", "preference": False}, "dislikes only, no preference"),
        (FULL | {"responses": 1, "preference": False}, "one response"),
        (FULL | {"reasons": "free_text"}, "free text"),
        (FULL | {"reasons": "none", "most_spans": 2}, "no reasons, few spans"),
        (None, "unknown page"),
    ],
)
def test_pages_have_names(modes: Any, name: str) -> None:
    assert page_name(modes) == name


# ----- preferences ----------------------------------------------------------------------------------------------------


def test_fleiss_own_example() -> None:
    """Fleiss (1971), as it is often quoted: 10 subjects, 14 raters, 5 categories: 0.378, 0.213 and 0.210."""
    table = [
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ]  # fmt: skip
    observed, expected, kappa = fleiss_kappa(table)
    assert (round(observed or 0, 3), round(expected or 0, 3), round(kappa or 0, 3)) == (0.378, 0.213, 0.210)


@pytest.mark.parametrize("seed", range(5))
def test_kappa_is_that_of_statsmodels_for_equal_numbers_of_raters(seed: int) -> None:
    rater = pytest.importorskip("statsmodels.stats.inter_rater", reason="needs statsmodels")
    draw = random.Random(seed)
    table = [[0, 0, 0] for _ in range(40)]
    for row in table:
        for _ in range(4):
            row[draw.choices(range(3), [5, 4, 1])[0]] += 1
    assert fleiss_kappa(table)[2] == pytest.approx(rater.fleiss_kappa(table, method="fleiss"), abs=1e-12)


def test_kappa_with_different_numbers_of_raters() -> None:
    """Agreements 1, 1/3, 0 (mean 4/9) of 2, 3 and 2 raters; of 7 ratings 4, 2 and 1 give 21/49 by chance."""
    observed, expected, kappa = fleiss_kappa([[2, 0, 0], [2, 1, 0], [0, 1, 1], [0, 0, 1], [0, 0, 0]])
    assert observed == pytest.approx(4 / 9)
    assert expected == pytest.approx(21 / 49)
    assert kappa == pytest.approx((4 / 9 - 21 / 49) / (1 - 21 / 49))


def test_where_kappa_is_undefined() -> None:
    assert fleiss_kappa([]) == (None, None, None)
    assert fleiss_kappa([[1, 0, 0]]) == (None, None, None)
    assert fleiss_kappa([[3, 0, 0], [2, 0, 0]]) == (1.0, 1.0, None)
    assert fleiss_kappa([[2, 0], [0, 2]])[2] == 1.0
    assert fleiss_kappa([[1, 1], [1, 1]])[2] == -1.0


def compared(votes: list[list[str]], order: list[int] | None = None) -> list[Sample]:
    """An item for each list of verdicts."""
    return [
        Sample(
            id=str(number),
            prompt="p",
            responses=[Response(text="a"), Response(text="b")],
            verdicts=[
                PairVerdict(first=0, second=1, verdict=verdict, by=f"p{rater}")  # type: ignore[arg-type]
                for rater, verdict in enumerate(own)
            ],
            meta={"annotation": {"by": {f"p{rater}": {"order": order} for rater in range(len(own))}}} if order else {},
        )
        for number, own in enumerate(votes)
    ]


def test_preferences_are_counted_by_place_whichever_response_the_verdict_names_first() -> None:
    turned = PairVerdict(first=1, second=0, verdict="first", by="q")
    (sample,) = compared([["second"]])
    own = statistics([sample.model_copy(update={"verdicts": [*(sample.verdicts or []), turned]})])
    assert own.verdicts == {"first": 0, "second": 2, "tie": 0}
    assert own.preference.observed == 1.0
    assert own.preference.kappa.note == "every verdict is the same: agreement cannot exceed chance"


def test_kappa_of_samples_has_an_interval_over_items() -> None:
    draw = random.Random(0)
    votes = [[draw.choice(["first", "second"]) for _ in range(draw.choice([1, 2, 4]))] for _ in range(60)]
    votes += [["first"] * 3] * 15 + [["second"] * 3] * 15
    own = statistics(compared(votes)).preference
    assert own.items + own.single == 90
    assert own.raters == {n: sum(len(v) == n for v in votes) for n in (2, 3, 4)}
    assert sum(own.ratings.values()) == sum(n * items for n, items in own.raters.items())
    assert own.kappa.low is not None
    assert own.kappa.high is not None
    assert own.kappa.low < own.kappa.mean < own.kappa.high  # type: ignore[operator]
    assert own.kappa.mean == pytest.approx((own.observed - own.expected) / (1 - own.expected))  # type: ignore[operator]


def test_without_verdicts_kappa_is_missing_with_the_reason() -> None:
    own = statistics(compared([["first"]]))
    assert (own.preference.kappa.mean, own.preference.kappa.note) == (
        None,
        "no item has the verdicts of two annotators",
    )
    assert own.left.note == "no preference with a known order"


def test_the_share_of_preferences_for_the_left() -> None:
    samples = compared([["first", "second", "tie"], ["second"]], order=[1, 0])
    assert statistics(samples).left.mean == pytest.approx(2 / 3)


# ----- spans ----------------------------------------------------------------------------------------------------------


def marked(*people: list[tuple[int, int, float, list[str]]]) -> Sample:
    annotations = [
        Annotation(by=f"p{n}", spans=[Span(start=a, end=b, label=c, reasons=r) for a, b, c, r in spans])
        for n, spans in enumerate(people)
    ]
    return Sample(id="1", prompt="p", responses=[Response(text=TEXT, annotations=annotations)])


def test_agreement_on_spans_and_attributes() -> None:
    """Two people: one span is the same, one overlaps, one has the other sign; of five and three attributes one is on the same
    span, and two are ticked by both somewhere."""
    own = statistics(
        [
            marked(
                [(0, 3, -1.0, ["a", "b"]), (8, 13, -1.0, ["c"]), (20, 25, 1.0, ["d", "e"])],
                [(0, 3, -1.0, ["a", "c"]), (10, 14, -1.0, []), (20, 25, -1.0, ["d"])],
            )
        ]
    ).agreement
    assert own.pairs == 1
    assert own.spans.mean == pytest.approx(2 * 1 / 6)
    assert own.overlapping.mean == pytest.approx(4 / 6)
    assert own.span_attributes.mean == pytest.approx(2 * 1 / 8)
    assert own.response_attributes.mean == pytest.approx(2 * 2 / 8)


def test_agreement_is_pooled_over_all_pairs() -> None:
    same, none = [(0, 3, -1.0, ["a"])], list[Any]()
    own = statistics([marked(same, same, none)]).agreement
    assert own.pairs == 3
    assert own.spans.mean == pytest.approx((2 + 0 + 0) / (2 + 1 + 1))


def test_agreement_is_undefined_without_pairs_or_marks() -> None:
    alone = statistics([marked([(0, 3, -1.0, [])])]).agreement
    assert (alone.pairs, alone.spans.mean, alone.spans.note) == (0, None, "no response has two annotators")
    nothing = statistics([marked([], [])]).agreement
    assert (nothing.pairs, nothing.spans.note) == (1, "no span on a response of two annotators")


# ----- tables ---------------------------------------------------------------------------------------------------------


def test_tables_have_rows_of_equal_width_and_name_what_is_undefined() -> None:
    blocks = tables(statistics([annotated(), *compared([["first", "first"]])]))
    assert len(blocks) == 4
    for _title, rows in blocks:
        assert len({len(row) for row in rows}) == 1
    assert tables(statistics([]))[0][1][-1][0] == "total"
    assert ["Fleiss' kappa", "undefined: no item has the verdicts of two annotators"] in [
        row for _title, rows in tables(statistics(compared([["tie"]]))) for row in rows
    ]

"""Elo ratings: against choix, closed forms, limits, and how often the intervals cover the truth."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import choix
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl.base.errors import DataError
from fgrl.feedback.llm.reading import Verdict
from fgrl.measuring import bradley_terry, elo
from fgrl.measuring.bradley_terry import POINTS_PER_NAT
from fgrl.measuring.elo import Anchor, Contest, EloSettings, Ratings, RatingSettings
from fgrl.measuring.pairwise import Game, Look, PairOutcome
from fgrl.measuring.statistics import Measured, estimate, value_of
from fgrl.runs.results.elo_views import EloView, of_games

PLAIN = EloSettings()


def game(first: str, second: str, verdict: Verdict | None, id: str = "0", by: str = "judge", **more: Any) -> Game:
    return Game.of(id, first, second, PairOutcome(verdict), by, **more)


def games_of(wins: dict[tuple[str, str], int], ties: dict[tuple[str, str], int] | None = None) -> list[Game]:
    """So many games that the first of each key won, and so many ties, each on a prompt of its own."""
    verdicts = [(pair, verdict, count) for table, verdict in ((wins, "first"), (ties or {}, "tie")) for pair, count in table.items()]  # fmt: skip
    played = [(pair, verdict) for pair, verdict, count in verdicts for _ in range(count)]
    return [game(*pair, verdict, str(number)) for number, (pair, verdict) in enumerate(played)]  # type: ignore[arg-type]


def rated(games: Sequence[Game], settings: EloSettings = PLAIN) -> dict[str, float | None]:
    ratings = Ratings(Contest.of(games), settings)
    return {model: value_of(ratings.rating(model)) for model in ratings.contest.models}


def random_games(seed: int, models: int = 5, count: int = 200) -> list[Game]:
    """Every two models meet; who wins depends on their places, and a tenth are ties."""
    draw = random.Random(seed)
    result = []
    for number in range(count):
        one, two = draw.sample(range(models), 2)
        chance = 1 / (1 + math.exp((two - one) * -0.4))
        verdict: Verdict = "tie" if draw.random() < 0.1 else "first" if draw.random() < chance else "second"
        result.append(game(f"m{one}", f"m{two}", verdict, f"p{number % 40}"))
    return result


def reversed_games(games: Sequence[Game]) -> list[Game]:
    other: dict[Any, Any] = {"first": "second", "second": "first", "tie": "tie", None: None}
    return [Game.of(g.id, g.first, g.second, PairOutcome(other[g.verdict]), g.by) for g in games]


# -- against choix and closed forms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ridge", [0.0, 0.02, 2.0])
def test_the_fit_is_choix_s(seed: int, ridge: float) -> None:
    games = random_games(seed)
    names = sorted({name for g in games for name in (g.first, g.second)})
    place = {name: number for number, name in enumerate(names)}
    twice = []  # a tie is one win for each side, so every other game counts double
    for g in games:
        pair = (place[g.first], place[g.second])
        verdict = g.verdict
        twice += [pair, pair] if verdict == "first" else [pair[::-1]] * 2 if verdict == "second" else [pair, pair[::-1]]
    # choix penalises alpha * |s|^2, and all games are there twice: alpha = ridge
    oracle = choix.opt_pairwise(len(names), twice, alpha=ridge, method="Newton-CG", tol=1e-10)
    oracle = oracle - oracle.mean()
    own = rated(games, EloSettings(ridge=ridge))
    for name in names:
        assert own[name] == pytest.approx(1500 + POINTS_PER_NAT * oracle[place[name]], abs=1e-3)


@pytest.mark.parametrize(
    ("won", "lost", "tied"), [(3, 1, 0), (10, 1, 0), (7, 7, 3), (5, 2, 4), (1, 30, 2), (500, 1, 0)]
)
def test_two_models_have_the_closed_form(won: int, lost: int, tied: int) -> None:
    own = rated(games_of({("a", "b"): won, ("b", "a"): lost}, {("a", "b"): tied}))
    assert own["a"] is not None
    assert own["b"] is not None
    assert own["a"] - own["b"] == pytest.approx(400 * math.log10((won + tied / 2) / (lost + tied / 2)), abs=1e-9)
    assert (own["a"] + own["b"]) / 2 == pytest.approx(1500, abs=1e-9)


def test_the_probability_of_a_win_is_the_papers() -> None:
    """400 points more are ten wins to one loss."""
    own = rated(games_of({("a", "b"): 10, ("b", "a"): 1}))
    assert own["a"] - own["b"] == pytest.approx(400)  # type: ignore[operator]


def test_a_chain_of_three_is_the_sum_of_its_links() -> None:
    own = rated(games_of({("a", "b"): 3, ("b", "a"): 1, ("b", "c"): 3, ("c", "b"): 1}))
    assert own["a"] - own["c"] == pytest.approx(2 * 400 * math.log10(3))  # type: ignore[operator]


def test_a_tie_is_half_a_win_for_each_side() -> None:
    with_ties = games_of({("a", "b"): 2, ("b", "c"): 2, ("c", "a"): 1}, {("a", "b"): 2, ("c", "a"): 2})
    without = games_of({("a", "b"): 3, ("b", "a"): 1, ("b", "c"): 2, ("c", "a"): 2, ("a", "c"): 1})
    assert rated(with_ties) == pytest.approx(rated(without))
    assert rated(games_of({}, {("a", "b"): 3})) == {"a": pytest.approx(1500), "b": pytest.approx(1500)}


def test_a_missing_verdict_is_counted_and_left_out() -> None:
    games = random_games(1)
    more = [*games, *(game("m0", "m1", None, f"p{number}") for number in range(40))]
    assert rated(more) == rated(games)
    missing = {model: own["missing"] for model, own in view_of(more).numbers.items()}
    assert {name: round(own.mean * own.n) for name, own in missing.items()} == dict.fromkeys(missing, 0) | {
        "m0": 40,
        "m1": 40,
    }
    assert sum(own["win_rate"].n for own in view_of(more).numbers.values()) == 2 * len(games)


def test_the_anchor_moves_all_ratings_and_no_difference() -> None:
    games = random_games(2)
    free, fixed = rated(games), rated(games, EloSettings(anchor=Anchor(model="m3", rating=1000)))
    assert fixed["m3"] == pytest.approx(1000)
    shifts = {round(fixed[name] - free[name], 6) for name in free}  # type: ignore[operator]
    assert len(shifts) == 1
    assert rated(games, EloSettings(anchor=Anchor(rating=0)))["m1"] == pytest.approx(free["m1"] - 1500)  # type: ignore[operator]
    with pytest.raises(DataError, match="anchor: 'nobody' has no games; there are games of m0, m1"):
        Ratings(Contest.of(games), EloSettings(anchor=Anchor(model="nobody")))


def test_many_one_sided_games_still_converge() -> None:
    own = rated(games_of({("a", "b"): 100_000, ("b", "a"): 1, ("c", "a"): 1, ("a", "c"): 50_000, ("b", "c"): 1}))
    assert own["a"] > own["b"]  # type: ignore[operator]
    assert all(value is not None and math.isfinite(value) for value in own.values())


@pytest.mark.parametrize("ridge", [0.0, 1e-4, 1.0])
def test_tables_with_a_million_games_and_one_loss_converge(ridge: float) -> None:
    """Up to 10^6 games a pair, from 0 to all of them lost: the score equations hold to rounding."""
    generator = np.random.default_rng(0)
    points = np.floor(10 ** generator.uniform(-1, 6, size=(300, 4, 4))) * (1 - np.eye(4))
    s = bradley_terry.strengths(points, ridge)
    reach = bradley_terry.won_against(points)
    inside = points * (reach & reach.swapaxes(1, 2)) if ridge == 0 else points
    games = inside + inside.swapaxes(1, 2)
    expected = (games / (1 + np.exp(s[:, None, :] - s[:, :, None]))).sum(-1)
    assert np.abs((inside.sum(-1) - expected - ridge * s) / (1 + inside.sum(-1))).max() < 1e-8


# -- the table turned round, order, names ------------------------------------------------------------------------------


def view_of(games: Sequence[Game], settings: EloSettings = PLAIN, resamples: int = 200, seed: int = 0) -> EloView:
    return of_games("", "elo", games, RatingSettings(**dict(settings), resamples=resamples, seed=seed), ())


def ratings_of(view: EloView) -> dict[str, float | None]:
    return {model: own["rating"].mean for model, own in view.numbers.items()}


def test_reversing_wins_and_losses_reverses_the_table() -> None:
    games = random_games(3)
    table, other = view_of(games), view_of(reversed_games(games))
    assert [*table.numbers] == [*other.numbers][::-1]
    assert other.best == [*table.numbers][-1]
    for model in table.numbers:
        own, mirrored = table.numbers[model]["rating"], other.numbers[model]["rating"]
        assert own.mean is not None
        assert mirrored.mean is not None
        assert own.low is not None
        assert mirrored.high is not None
        assert own.mean - 1500 == pytest.approx(1500 - mirrored.mean)
        assert own.low - 1500 == pytest.approx(1500 - mirrored.high)


def test_the_order_of_games_and_of_sides_changes_nothing() -> None:
    games = random_games(4)
    whole = view_of(games).as_json()
    shuffled = list(games)
    random.Random(7).shuffle(shuffled)
    assert view_of(shuffled).as_json() == whole
    other: dict[Any, Any] = {"first": "second", "second": "first"}
    swapped = [Game.of(g.id, g.second, g.first, PairOutcome(other.get(g.verdict, g.verdict)), g.by) for g in games]
    assert view_of(swapped).as_json() == whole


def test_models_are_rated_whatever_they_are_called() -> None:
    games = random_games(5)
    names = {f"m{place}": name for place, name in enumerate("zyxwv")}
    renamed = [g.model_copy(update={"first": names[g.first], "second": names[g.second]}) for g in games]
    own, other = rated(games), rated(renamed)
    for name, value in own.items():
        assert other[names[name]] == pytest.approx(value)


# -- no finite rating --------------------------------------------------------------------------------------------------

UNDEFEATED = games_of({("top", "a"): 4, ("top", "b"): 4, ("a", "b"): 3, ("b", "a"): 1})


def test_an_undefeated_model_has_no_finite_rating_and_the_reason() -> None:
    ratings = Ratings(Contest.of(UNDEFEATED), PLAIN)
    assert ratings.rating("top").missing == "it won all of its 8 decided games; `ridge` gives a finite rating"
    own = rated(UNDEFEATED)
    assert own["top"] is None
    assert own["a"] - own["b"] == pytest.approx(400 * math.log10(3))  # type: ignore[operator]
    assert own["a"] + own["b"] == pytest.approx(3000)  # type: ignore[operator]
    table = view_of(UNDEFEATED)
    assert [*table.numbers] == ["top", "a", "b"]
    assert table.best == "top"
    assert table.numbers["a"]["difference"].mean is None
    assert table.numbers["top"]["rating"].note == ratings.rating("top").missing


def test_a_winless_model_too() -> None:
    table = view_of(reversed_games(UNDEFEATED))
    assert [*table.numbers] == ["b", "a", "top"]
    assert table.best == "b"
    assert table.numbers["a"]["difference"].mean == pytest.approx(-400 * math.log10(3))
    last = table.numbers["top"]
    assert last["rating"].mean is last["difference"].mean is None
    assert last["rating"].note == "it lost all of its 8 decided games; `ridge` gives a finite rating"


def test_a_ridge_gives_a_finite_rating() -> None:
    top, second, _ = ratings_of(view_of(UNDEFEATED, EloSettings(ridge=0.1))).values()
    assert top is not None
    assert second is not None
    assert top > second
    assert top < rated(UNDEFEATED, EloSettings(ridge=0.01))["top"]  # type: ignore[operator]


def test_two_models_of_which_one_always_wins_have_no_ratings() -> None:
    table = view_of(games_of({("a", "b"): 5}))
    assert ratings_of(table) == {"a": None, "b": None}
    assert table.best == "a"
    assert "nothing can be the mean" in str(table.numbers["a"]["rating"].note)


def test_an_anchor_puts_a_finite_level_beside_an_undefeated_model() -> None:
    own = rated(UNDEFEATED, EloSettings(anchor=Anchor(model="b", rating=1000)))
    assert own == {"a": pytest.approx(1000 + 400 * math.log10(3)), "b": pytest.approx(1000), "top": None}


def test_groups_that_never_met_have_no_ratings() -> None:
    games = games_of({("a", "b"): 2, ("b", "a"): 1, ("c", "d"): 2, ("d", "c"): 1})
    table = view_of(games)
    assert table.best is None
    assert set(ratings_of(table).values()) == {None}
    assert {own["difference"].note for own in table.numbers.values()} == {"no model can be compared with all others"}
    assert None not in ratings_of(view_of(games, EloSettings(ridge=0.01))).values()
    larger = [*games, *games_of({("e", "a"): 1, ("b", "e"): 1})]
    own = rated(larger)
    assert own["c"] is own["d"] is None
    assert own["a"] is not None
    assert value_of(Ratings(Contest.of(larger), PLAIN).difference("c", "d")) == pytest.approx(400 * math.log10(2))


def test_two_that_only_beat_a_third_cannot_be_compared() -> None:
    ratings = Ratings(Contest.of(games_of({("a", "c"): 2, ("b", "c"): 2})), PLAIN)
    assert ratings.difference("a", "b").missing is not None
    assert ratings.best is None
    assert np.isnan(ratings.whole[0, 1])
    assert ratings.whole[0, 2] == math.inf


def test_a_model_without_a_decided_game_is_in_the_table() -> None:
    late = view_of([*random_games(1), game("m0", "late", None)]).numbers["late"]
    assert (late["rating"].mean, late["missing"].mean, late["win_rate"].mean) == (None, 1, None)
    assert late["rating"].note == "none of its games was decided; `ridge` gives a finite rating"


def test_a_resample_without_a_loss_has_no_end_of_its_interval() -> None:
    """One loss in ten prompts: about a third of the draws do not have it, and the upper end is infinite."""
    games = [game("a", "b", "second" if number == 0 else "first", str(number)) for number in range(10)]
    rating = view_of(games, EloSettings(anchor=Anchor(model="b")), resamples=1000).numbers["a"]["rating"]
    assert rating.mean == pytest.approx(1500 + 400 * math.log10(9))
    assert rating.low is not None
    assert rating.high is None
    assert "no upper end: infinite in " in str(rating.note)


# -- properties --------------------------------------------------------------------------------------------------------

RESULTS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.sampled_from(["first", "second", "tie", None])),
    min_size=1,
    max_size=30,
).map(lambda rows: [game(one, two, verdict, str(n % 5)) for n, (one, two, verdict) in enumerate(rows) if one != two])


@settings(max_examples=150, deadline=None)
@given(RESULTS.filter(bool))
def test_any_games_have_consistent_gaps(games: list[Game]) -> None:
    contest = Contest.of(games)
    points = contest.points.sum(0)
    gap = bradley_terry.gaps(points[None])[0]
    assert np.array_equal(np.isnan(gap), np.isnan(gap.T))
    known = ~np.isnan(gap)
    assert np.allclose(gap[known], -gap.T[known])
    turned = bradley_terry.gaps(points.T[None])[0]
    assert np.allclose(np.where(known, gap, 0), np.where(known, turned.T, 0), atol=1e-6)
    for place in range(len(contest.models)):  # inside a group points are what the ratings expect
        group = np.isfinite(gap[place])
        expected = (points + points.T)[place, group] / (1 + np.exp(-gap[place, group]))
        assert points[place, group].sum() == pytest.approx(
            expected.sum() - (points + points.T)[place, place] / 2, abs=1e-6
        )


@settings(max_examples=100, deadline=None)
@given(RESULTS.filter(bool), st.floats(0.01, 10))
def test_with_a_ridge_every_rating_is_finite_and_smaller_with_a_larger_one(games: list[Game], ridge: float) -> None:
    points = Contest.of(games).points.sum(0)[None]
    s, smaller = bradley_terry.strengths(points, ridge)[0], bradley_terry.strengths(points, 2 * ridge)[0]
    assert np.isfinite(s).all()
    assert s.sum() == pytest.approx(0, abs=1e-6)
    assert np.linalg.norm(smaller) <= np.linalg.norm(s) + 1e-9
    assert np.allclose(bradley_terry.strengths(points.swapaxes(1, 2), ridge)[0], -s, atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(RESULTS.filter(bool))
def test_any_games_make_a_table(games: list[Game]) -> None:
    table = view_of(games, resamples=100)
    assert len(table.numbers) == len({name for g in games for name in (g.first, g.second)})
    better = [rating for rating in ratings_of(table).values() if rating is not None]
    assert better == sorted(better, reverse=True)


@settings(max_examples=50, deadline=None)
@given(RESULTS.filter(bool), st.sampled_from([0.0, 0.1, 2.0]))
def test_games_are_found_again_in_the_observations(games: list[Game], ridge: float) -> None:
    contest = Contest.of(games)
    ratings = Ratings(contest, EloSettings(ridge=ridge))
    again = Contest.observed({model: ratings.rating(model) for model in contest.models})
    assert (again.models, again.prompts) == (contest.models, contest.prompts)
    assert np.array_equal(again.points, contest.points)


def test_many_fits_at_once_are_the_single_ones() -> None:
    tables = np.stack([Contest.of(random_games(seed)).points.sum(0) for seed in range(8)])
    together = bradley_terry.strengths(tables)
    for number, points in enumerate(tables):
        assert together[number] == pytest.approx(bradley_terry.strengths(points[None])[0], abs=1e-9)


# -- intervals ---------------------------------------------------------------------------------------------------------


def ends(measured: Measured, seed: int = 0, resamples: int = 1000) -> tuple[float, float]:
    known = estimate(measured, resamples=resamples, seed=seed)
    assert known.low is not None
    assert known.high is not None
    return known.low, known.high


def test_the_bootstrap_refits_every_draw_of_prompts() -> None:
    """Written out: draw prompts, take all their games, fit, take percentiles of the difference."""
    games = random_games(6)
    contest = Contest.of(games)
    ratings = Ratings(contest, PLAIN)
    generator = np.random.default_rng(3)
    differences = []
    for times in generator.multinomial(
        len(contest.prompts), np.full(len(contest.prompts), 1 / len(contest.prompts)), size=300
    ):
        drawn = [
            g
            for id, count in zip(contest.prompts, times, strict=True)
            for g in games
            if g.id == id
            for _ in range(count)
        ]
        own = rated(drawn)
        differences.append(own["m0"] - own["m4"])  # type: ignore[operator]
    own_ends = ends(ratings.difference("m0", "m4"), seed=3, resamples=300)
    assert own_ends == pytest.approx(np.quantile(differences, [0.025, 0.975]), abs=1e-6)


def test_judgments_of_one_prompt_stay_together() -> None:
    """Every game four times on its prompt tells nothing new; on prompts of its own it would."""
    games = random_games(7)
    once = ends(Ratings(Contest.of(games), PLAIN).difference("m0", "m4"))
    copies = [g.model_copy(update={"by": f"judge {n}"}) for g in games for n in range(4)]
    apart = [g.model_copy(update={"id": f"{g.id}.{n}"}) for g in games for n in range(4)]
    assert ends(Ratings(Contest.of(copies), PLAIN).difference("m0", "m4")) == pytest.approx(once)
    narrow = ends(Ratings(Contest.of(apart), PLAIN).difference("m0", "m4"))
    assert narrow[1] - narrow[0] < 0.7 * (once[1] - once[0])


def test_the_same_seed_gives_the_same_intervals() -> None:
    games = random_games(8)
    assert view_of(games) == view_of(games)
    own, other = (list(view_of(games, seed=seed).numbers.values())[1]["difference"] for seed in (0, 1))
    assert own != other


TRUE = np.array([0.0, 0.35, 0.6, 1.0])
"""Strengths in nats."""


def simulated(generator: Any, prompts: int, spread: float = 0.8) -> Contest:
    """Each model is better or worse by a random amount on each prompt, so games on one prompt go together: every two models meet,
    and two people, who agree more than chance, judge."""
    size = len(TRUE)
    quality = TRUE + spread * generator.normal(size=(prompts, size))
    points = np.zeros((prompts, size, size))
    for one, two in itertools.combinations(range(size), 2):
        chance = 1 / (1 + np.exp(quality[:, two] - quality[:, one]))
        won = (generator.uniform(size=(2, prompts)) < chance).sum(0)
        points[:, one, two], points[:, two, one] = won, 2 - won
    return Contest(tuple(f"m{place}" for place in range(size)), tuple(f"{id:04d}" for id in range(prompts)), points)


def population() -> Any:
    """Gaps in points of the fit to infinitely many prompts: what the intervals should cover."""
    generator = np.random.default_rng(0)
    size, noise = len(TRUE), generator.normal(size=(400_000, len(TRUE)))
    points = np.zeros((size, size))
    for one, two in itertools.combinations(range(size), 2):
        quality = TRUE + 0.8 * noise
        chance = (1 / (1 + np.exp(quality[:, two] - quality[:, one]))).mean()
        points[one, two], points[two, one] = chance, 1 - chance
    return POINTS_PER_NAT * bradley_terry.gaps(points[None])[0]


def one_by_one(contest: Contest) -> Contest:
    """The same points, every two models on a prompt of their own: as if judgments were independent."""
    rows, ids = [], []
    for one, two in itertools.combinations(range(len(contest.models)), 2):
        for place, id in enumerate(contest.prompts):
            row = np.zeros(contest.points.shape[1:])
            row[one, two], row[two, one] = contest.points[place, one, two], contest.points[place, two, one]
            rows.append(row)
            ids.append(f"{id}.{one}{two}")
    return Contest(contest.models, tuple(ids), np.stack(rows))


def coverage(simulations: int, prompts: int, resamples: int, *, clustered: bool = True) -> float:
    """Share of the intervals of the differences to the best model that hold the population's value."""
    truth, hits, intervals = population(), 0, 0
    for seed in range(simulations):
        contest = simulated(np.random.default_rng(1000 + seed), prompts)
        ratings = Ratings(contest if clustered else one_by_one(contest), PLAIN)
        for place in range(len(TRUE) - 1):
            low, high = ends(ratings.difference(f"m{place}", "m3"), seed, resamples)
            hits += low <= truth[place, len(TRUE) - 1] <= high
            intervals += 1
    return hits / intervals


def test_intervals_cover_the_truth_about_as_often_as_they_should() -> None:
    """60 simulations are enough to see an interval that is half as wide, or twice."""
    assert 0.88 <= coverage(60, prompts=60, resamples=200) <= 0.995


@pytest.mark.evidence
def test_over_500_simulations_intervals_cover_95_percent_within_2(record_property: Any) -> None:
    share = coverage(500, prompts=138, resamples=1000)
    naive = coverage(500, prompts=138, resamples=200, clustered=False)
    print(f"coverage over 500 simulations of 138 prompts: {share:.3f}; with independent judgments {naive:.3f}")
    record_property("coverage", round(share, 4))
    record_property("coverage of independent draws", round(naive, 4))
    assert 0.93 <= share <= 0.97
    assert naive < 0.93


@pytest.mark.evidence
def test_a_table_of_seven_models_takes_seconds(record_property: Any) -> None:
    """The paper's size: 138 prompts, 21 pairs, 2,898 games, 1,000 resamples. The time is printed."""
    import time

    draw = random.Random(0)
    games = [
        game(
            f"m{one}",
            f"m{two}",
            "first" if draw.random() < 1 / (1 + math.exp((two - one) / 3)) else "second",
            str(prompt),
        )
        for prompt in range(138)
        for one, two in itertools.combinations(range(7), 2)
    ]
    began = time.monotonic()
    table = view_of(games, resamples=1000)
    seconds = time.monotonic() - began
    print(f"{len(games):,} games, 7 models, 1,000 resamples, all pairs: {seconds:.2f} s")
    record_property("seconds", round(seconds, 2))
    assert (len(games), len(table.numbers), len(table.meetings)) == (2898, 7, 21)


def test_position_bias_is_the_share_for_the_answer_shown_first() -> None:
    looks = [("a", "first"), ("b", "first"), ("a", "second"), ("b", "tie"), ("a", None)]
    games = [
        game("a", "b", "first" if (shown == "a") == (verdict == "first") else "second", str(n),
             shown=[Look(first=shown, verdict=verdict)])
        for n, (shown, verdict) in enumerate(looks)
    ]  # fmt: skip
    numbers = elo.numbers(games, Ratings(Contest.of(games), PLAIN))
    assert value_of(numbers["a"]["chose_first"]) == pytest.approx(2 / 3)
    assert "chose_first" not in view_of(random_games(1)).numbers["m0"]

"""Elo ratings as text."""

from __future__ import annotations

from fgrl.measuring.elo import RatingSettings
from fgrl.measuring.pairwise import Game, PairOutcome
from fgrl.pages.report import elo_text
from fgrl.runs.results.elo_views import EloView, of_games


def view() -> EloView:
    """The first model wins all games."""
    games = [Game.of(str(n), "top", name, PairOutcome("first"), "ada") for n in range(3) for name in ("a", "b")]
    games += [Game.of(str(n), "a", "b", PairOutcome("tie" if n else None), "ada") for n in range(3)]
    return of_games("", "elo", games, RatingSettings(resamples=200), ())


def test_a_model_without_a_rating_is_in_the_table_with_the_reason() -> None:
    head, top, *others = elo_text.rows(view())
    assert head == ["model", "rating", "difference to the best", "win_rate", "ties", "missing"]
    assert top[:4] == ["top", "–", "best", "1.00 [1.00 to 1.00]"]
    assert [row[0] for row in others] == ["a", "b"]
    text = elo_text.text(view(), pairs=True)
    assert "top has no rating: it won all of its 6 decided games; `ridge` gives a finite rating" in text
    assert "9 games judged by ada, 1 of them without a verdict; intervals over 200 resamples of the prompts" in text
    assert [line.split()[:4] for line in text.splitlines() if line.startswith("  a ")][-1] == ["a", "b", "1", "1"]
    assert elo_text.text(view(), as_markdown=True).startswith("**elo**\n\n| model | rating |")


def test_a_model_that_one_of_two_views_does_not_have_is_a_dash_there() -> None:
    games = [Game.of("0", "a", "new", PairOutcome("tie"), "ben")]
    other = of_games("", "people", games, RatingSettings(resamples=200), ())
    lines = [line.split() for line in elo_text.side_by_side([view(), other]).splitlines()]
    assert lines[0] == ["model", "elo", "people"]
    assert {line[0]: line[-1] == "–" for line in lines[1:5]} == {"top": True, "a": False, "b": True, "new": False}


def test_games_that_are_all_ties_are_said_to_show_nothing() -> None:
    games = [Game.of(str(n), "a", "b", PairOutcome("tie" if n else None), "ada") for n in range(4)]
    remark = "all decided games are ties: they show no difference between the models"
    assert remark in elo_text.text(of_games("", "elo", games, RatingSettings(resamples=200), ()))
    assert remark not in elo_text.text(view())

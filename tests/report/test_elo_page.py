"""The Elo table of a run's page, and as text."""

from __future__ import annotations

import random
from pathlib import Path

from fake_runs import fake_run
from pages import HOSTILE, assert_safe, page, stage

from fgrl.evaluation import rated
from fgrl.evaluation.elo import Bootstrap, EloSettings, EloTable, RatingSettings
from fgrl.evaluation.pairwise import Game, PairOutcome
from fgrl.report import elo_tables as elo


def write(folder: Path, names: tuple[str, str, str] = ("base", "sft", "chains"), by: str = "ada") -> EloTable:
    """Three models on 20 prompts; the last is the best, and has no rating without a ridge where it never loses."""
    draw = random.Random(1)
    games = [
        Game.of(str(prompt), names[one], names[two], PairOutcome("second" if draw.random() < 0.75 else "first"), by)
        for prompt in range(20)
        for one, two in ((0, 1), (0, 2), (1, 2))
    ]
    return rated.write(folder / "out", "people", "people", games, RatingSettings(resamples=200))


def test_the_page_has_ratings_differences_and_what_is_to_be_known(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    before = sum(tag == "circle" for tag, _ in page(run)[1].tags)
    table = write(stage(run, "evaluate"))
    text, parsed = page(run)
    assert_safe(text, parsed)
    seen = " ".join(" ".join(parsed.text).split())
    assert "Elo ratings" in seen
    assert 'href="#elo"' in text
    for standing in table.standings:
        assert f"{standing.rating.mean:,.0f}" in seen
    assert "60 games on 20 prompts, decided by ada (60)" in seen
    assert "difference to chains" in seen
    assert sum(tag == "circle" for tag, _ in parsed.tags) == before + 5  # three ratings, two differences


def test_names_of_models_and_people_are_text(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    write(stage(run, "evaluate"), (HOSTILE[0], HOSTILE[1], HOSTILE[2]), by=HOSTILE[3])
    text, parsed = page(run)
    assert_safe(text, parsed)
    assert HOSTILE[0] in " ".join(parsed.text)


def test_a_damaged_table_is_a_note(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    folder = stage(run, "evaluate")
    write(folder)
    (folder / "out" / "elo-people.json").write_text("{")
    text, _parsed = page(run)
    assert "elo-people.json is not a table of Elo ratings" in text
    assert 'href="#elo"' not in text


def test_a_model_without_a_rating_is_in_the_table_with_the_reason() -> None:
    games = [Game.of(str(n), "top", name, PairOutcome("first")) for n in range(3) for name in ("a", "b")]
    games += [Game.of(str(n), "a", "b", PairOutcome("tie" if n else None)) for n in range(3)]
    table = elo_table(games)
    head, top, *_ = elo.rows(table)
    assert head == ["model", "rating", "difference to the best", "games", "won", "tied", "lost", "missing", "win rate"]
    assert top[:7] == ["top", "–", "best", "6", "6", "0", "0"]
    text = elo.text("elo", table, pairs=True)
    assert (
        "Note: top: it won all of its 6 decided games, so its rating is not finite; `ridge` gives a finite rating"
        in text
    )
    assert "9 games on 3 prompts, decided by unknown (9); 1 without a verdict are left out" in text
    assert elo.text("elo", table, as_markdown=True).startswith("**elo**\n\n| model | rating |")


def elo_table(games: list[Game]) -> EloTable:
    from fgrl.evaluation.elo import table

    return table("elo", games, EloSettings(), Bootstrap(200))

"""The corpus of users' mistakes: what the command line says about them, scored (`score.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest
import score

SCORE = 147
"""Mistakes of 150 that count. The one that does not: a span without a label, which counts as good."""
MISTAKES = score.mistakes()


def test_there_are_150_of_them() -> None:
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES) == 150


def test_each_changes_a_right_folder_and_expects_a_place_a_cause_and_a_next_step(tmp_path: Path) -> None:
    for number, mistake in enumerate(MISTAKES):
        folder = tmp_path / str(number)
        folder.mkdir()
        mistake.make(folder)
        lacking = mistake.lacking("", -1, folder)
        assert {part.partition(":")[0] for part in lacking} >= {"place", "cause", "next"}, mistake.name


@pytest.mark.parametrize(
    ("said", "lacks"),
    [
        ('recipe.yaml:25:7: unknown key "learning_rate"\n   = did you mean "lr"?\n', []),
        ('recipe.yaml:26:7: unknown key "learning_rate"\n   = did you mean "lr"?\n', ["place"]),
        ('recipe.yaml:7:1: missing\nrecipe.yaml:25:7: unknown key\n   = did you mean "lr"?\n', ["place"]),
        ('recipe.yaml:25:7: unknown key "learning_rate"\n  25 | "lr"\n', ["next"]),
        ('recipe.yaml:25:7: no such key\n   = did you mean "lr"?\n', ["cause"]),
        ('recipe.yaml:25:7: unknown key\n = did you mean "lr"?\nTraceback (most recent call last)\n', ["a traceback"]),
        ('recipe.yaml:25:7: unknown key\n = did you mean "lr"?\n' + "more\n" * 40, ["42 lines"]),
    ],
)
def test_what_a_message_lacks(tmp_path: Path, said: str, lacks: list[str]) -> None:
    [mistake] = [one for one in MISTAKES if one.name == "TRL's learning_rate"]
    mistake.make(tmp_path)
    assert [part.partition(":")[0] for part in mistake.lacking(said, 2, tmp_path)] == lacks
    assert mistake.lacking(said, 1, tmp_path)[0] == "exit code 1, not 2"


@pytest.mark.parametrize("world", score._worlds())
def test_without_a_mistake_a_folder_is_right(world: str, steady_model_dir: Path) -> None:
    nothing = score.Mistake("none", "none", "recipe.yaml", ["ok"], ["ok"], world=world, exit=0)
    with score.as_a_user(steady_model_dir) as home:
        assert score.judge(nothing, home, 0)[0] == []


@pytest.mark.parametrize("mistake", score.mistakes("later"), ids=lambda mistake: mistake.name)
def test_later_mistakes(mistake: score.Mistake, steady_model_dir: Path) -> None:
    with score.as_a_user(steady_model_dir) as home:
        lacks, said = score.judge(mistake, home, 0)
        assert lacks == [], said


def test_the_score(steady_model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score.score(steady_model_dir, []) >= SCORE, capsys.readouterr().out

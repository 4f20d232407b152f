"""Elo ratings by judges that follow a rule, and by rules: the games are known, and so is the table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from answer_helpers import answer_of
from test_win_rate import to_draw

from fgrl.components.metrics.elo import Elo
from fgrl.components.metrics.elo_by_rule import EloByRule
from fgrl.components.verifiers.all_of import AllOf
from fgrl.components.verifiers.ifeval.keywords import Existence
from fgrl.components.verifiers.ifeval.punctuation import NoComma
from fgrl.kinds import Client
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import means_by_name
from fgrl.measuring.pairwise import Game
from fgrl.types import Completion, Request, read_jsonl

PROMPTS = Path(__file__).resolve().parents[2] / "prompts"
CHOICE = str(PROMPTS / "judge_choice.txt")


class Judge(Client):
    """Prefers the text with more letters x; of equal ones the first, and nothing where there is a question mark."""

    asked: list[Request] = []

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        self.asked += requests
        return [Completion(text=self._say(request.messages[-1].content), finish="stop") for request in requests]

    def _say(self, text: str) -> str:
        first, second = (re.search(rf"<answer_{n}>\n(.*?)\n</answer_{n}>", text, re.DOTALL)[1] for n in (1, 2))  # type: ignore[index]
        return "Hm." if "?" in first + second else "1" if first.count("x") >= second.count("x") else "2"


class Run:
    def __init__(self, out: Path) -> None:
        self.out = out


def model(*texts: str) -> list[Answer]:
    return [answer_of(f"p{n}", f"Question {n}?", text) for n, text in enumerate(texts)]


MODELS = {
    "good": model("xxx", "xxx", "x", "xxx", "xxx", "xxx", "xx", "x"),
    "fair": model("xx", "xx", "xx", "xx", "x", "xx", "xxx", "xx"),
    "poor": model("x", "x", "xxx", "x", "xx", "x", "x", "xxx"),
}


def measured(metric: Any, models: dict[str, list[Answer]], baseline: str | None = None) -> Any:
    ((name, found),) = metric.measure(models, baseline=baseline).items()
    assert name == metric.called
    return found


def test_a_judge_compares_every_two_models_once_on_each_prompt(tmp_path: Path) -> None:
    client = Judge()
    metric = Elo(client=client, prompt=CHOICE)
    metric.setup(Run(tmp_path))
    found = measured(metric, MODELS, "poor")
    assert len(client.asked) == metric.calls(to_draw(MODELS, prompts=8)) == 3 * 8
    assert len(metric.asks(MODELS)) == 24
    assert found["good"]["rating"]["mean"] > found["fair"]["rating"]["mean"] > found["poor"]["rating"]["mean"]
    assert sum(found[name]["rating"]["mean"] for name in MODELS) == pytest.approx(4500)
    assert found["good"]["difference"]["mean"] == 0
    fair = found["fair"]["difference"]
    assert fair["mean"] == pytest.approx(found["fair"]["rating"]["mean"] - found["good"]["rating"]["mean"])
    assert fair["low"] is None or fair["low"] < fair["mean"] < fair["high"]
    assert found["good"]["win_rate"]["mean"] == (6 + 5) / 16  # against fair and against poor
    assert found["differences"]["good"]["rating"]["mean"] == pytest.approx(
        found["good"]["rating"]["mean"] - found["poor"]["rating"]["mean"]
    )
    assert "difference" not in found["differences"]["good"]
    assert "Bradley-Terry by maximum likelihood, base 10, scale 400, mean 1500, 24 games" in found["about"]
    # the file holds the games
    games = list(read_jsonl(tmp_path / "games-elo.jsonl", Game))
    assert len(games) == 24
    assert {game.id for game in games} == {f"p{n}" for n in range(8)}
    assert len((tmp_path / "judgements-elo.jsonl").read_text().splitlines()) == 24
    assert "good/elo.rating" in means_by_name({"elo": found}, None)


def test_who_is_shown_first_depends_on_the_prompt_and_is_balanced() -> None:
    """A judge that always takes the first answer makes all models about equal, whatever their order in the recipe."""
    same = {name: model(*["x"] * 60) for name in ("a", "b", "c")}
    metric = Elo(client=Judge(), prompt=CHOICE)
    found = measured(metric, same)
    assert found["a"]["chose_first"]["mean"] == 1.0
    assert all(0.35 < found[name]["win_rate"]["mean"] < 0.65 for name in same)
    again = measured(metric, dict(reversed(same.items())))
    assert {name: again[name]["rating"] for name in same} == {name: found[name]["rating"] for name in same}


def test_both_orders_are_one_game_and_their_disagreement_is_a_tie() -> None:
    client = Judge()
    metric = Elo(client=client, prompt=CHOICE, orders="both")
    same = {"a": model("x", "xx"), "b": model("x", "x")}
    found = measured(metric, same)
    assert len(client.asked) == metric.calls(to_draw(same, prompts=2)) == 4
    assert found["a"]["ties"]["mean"] == found["a"]["inconsistent"]["mean"] == 0.5
    assert found["a"]["win_rate"]["mean"] == 0.75
    assert found["b"]["win_rate"]["mean"] == 0.25
    assert found["a"]["chose_first"]["mean"] == 3 / 4  # both orders of the equal texts, one of the others
    dropped = measured(Elo(client=Judge(), prompt=CHOICE, orders="both", disagreement="drop"), same)
    assert dropped["a"]["missing"]["mean"] == 0.5
    assert dropped["a"]["win_rate"]["mean"] == 1.0
    assert dropped["a"]["rating"]["mean"] is None


def test_a_judgment_that_cannot_be_read_is_missing_and_counted() -> None:
    models = {name: [*own[:-1], *model(*["?"] * 8)[-1:]] for name, own in MODELS.items()}
    found = measured(Elo(client=Judge(), prompt=CHOICE, tries=1), models)
    for name in models:
        assert found[name]["missing"]["mean"] == found[name]["unparsed"]["mean"] == 1 / 8
        assert found[name]["unparsed"]["n"] == 16
        assert found[name]["win_rate"]["n"] == 14
    assert "3 of them without a verdict" in found["about"]


def test_only_games_against_one_model() -> None:
    client = Judge()
    metric = Elo(client=client, prompt=CHOICE, versus="fair")
    found = measured(metric, MODELS)
    assert len(client.asked) == metric.calls(to_draw(MODELS, prompts=8)) == 16
    assert found["fair"]["win_rate"]["n"] == 16
    assert found["good"]["win_rate"]["n"] == 8


def test_several_answers_to_a_prompt_are_drawn_together() -> None:
    twice = {name: [answer for answer in own for _ in range(2)] for name, own in MODELS.items()}
    once = measured(Elo(client=Judge(), prompt=CHOICE), MODELS)
    found = measured(Elo(client=Judge(), prompt=CHOICE), twice)
    assert found["poor"]["rating"]["n"] == 2 * once["poor"]["rating"]["n"]
    for end in ("mean", "low", "high"):
        assert found["poor"]["rating"][end] == pytest.approx(once["poor"]["rating"][end])


def test_one_model_alone_has_no_rating() -> None:
    assert Elo(client=Judge(), prompt=CHOICE).measure({"start": MODELS["good"]}, baseline="start") == {"elo": {}}


@pytest.mark.parametrize(
    ("fields", "names", "said"),
    [
        ({"versus": "x"}, ["a", "b"], "elo: versus 'x' is not one of the models: a, b"),
        ({"anchor": {"model": "x"}}, ["a", "b"], "elo: anchor.model 'x' is not one of the models"),
        ({}, ["a"], "elo rates models by comparing them, and there is only one"),
    ],
)
def test_models_are_checked_with_the_recipe(fields: dict[str, Any], names: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Elo(client=Judge(), prompt=CHOICE, **fields).check_models(names, names[0])


# -- by a rule ---------------------------------------------------------------------------------------------------------


def test_a_rule_with_parts_compares_how_many_of_them_hold(tmp_path: Path) -> None:
    metric = EloByRule(rule=AllOf(rules=[NoComma(), Existence(keywords=["sea"])]))
    metric.setup(Run(tmp_path))
    models = {
        "both": model("sea", "sea", "a, b"),
        "one": model("x", "sea, x", "sea"),
        "none": model("a, b", "sea", "x, y"),
    }
    found = measured(metric, models)
    assert found["both"]["win_rate"]["mean"] == (2 + 1 + 2 * 0.5) / 6
    assert found["both"]["ties"]["mean"] == 2 / 6
    games = list(read_jsonl(tmp_path / "games-elo-by-rule.jsonl", Game))
    assert [game.by for game in games] == ["punctuation:no_comma and keywords:existence sea"] * 9
    assert metric.asked_client() is None
    assert "chose_first" not in found["both"]
    alike = metric.observe(models, None).alike
    assert set(alike["both"]) == {"answers of one", "answers of none"}
    assert alike["both"]["answers of one"] == alike["none"]["answers of one"] != alike["both"]["answers of none"]


def test_a_recorded_reward_decides_too_and_a_missing_one_is_missing() -> None:
    def scored(*values: float | None) -> list[Answer]:
        return [answer_of(f"p{n}", "q", "a", rewards={"critic": value}) for n, value in enumerate(values)]

    found = measured(
        EloByRule(reward="critic", margin=0.1), {"a": scored(1.0, 0.5, None, 0.2), "b": scored(0.0, 0.45, 1.0, 0.9)}
    )
    assert found["a"]["win_rate"]["mean"] == 0.5
    assert found["a"]["ties"]["mean"] == 1 / 3
    assert found["a"]["missing"]["mean"] == 1 / 4
    with pytest.raises(ValueError, match="reward 'critic' is not one of the evaluation's rewards: none"):
        EloByRule(reward="critic").check_rewards(())


@pytest.mark.parametrize("fields", [{}, {"rule": NoComma(), "reward": "r"}])
def test_a_rule_or_a_reward_decides(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="set either `rule` or `reward`"):
        EloByRule(**fields)

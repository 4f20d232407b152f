"""The games of the credit benchmark over turns are worth what they are said to be, and all credit adds up to what was earned."""

from __future__ import annotations

import importlib
import json
import random
import statistics
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import scratch_registry
import torch

import fgrl
from fgrl.types import Sample, Turn

FOLDER = Path(__file__).parents[2] / "fgrl_benchmark"
NAMES = ("lookup", "halves", "doors")


@pytest.fixture(scope="module", autouse=True)
def _importable():
    sys.path.insert(0, str(FOLDER))
    with scratch_registry.scratch_imports():
        yield importlib.import_module("turn_credit")
    sys.path.remove(str(FOLDER))


def games():
    return importlib.import_module("turn_games")


def episode(name: str, number: int):
    environment = importlib.import_module("turn_environment").TurnGame(task=name)
    return environment.begin(Sample(id="x", prompt="x", meta={"game": number}), 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_perfect_player_wins_with_as_few_turns_as_are_needed(name: str) -> None:
    module, draw = games(), random.Random(0)
    for number in range(30):
        game = module.game(name, number)
        said = module.played(game, draw, accuracy=1.0)
        needed = {"lookup": len(getattr(game, "needed", [])) + 1, "halves": 3, "doors": 4}[name]
        assert len(said) == needed < game.turns
        assert game.value(game.first, game.turns, 1.0) == pytest.approx(1 - needed * module.COST)


@pytest.mark.parametrize("name", NAMES)
def test_a_state_is_worth_what_the_player_earns_from_it(name: str) -> None:
    module, draw, earned, promised = games(), random.Random(0), [], []
    for number in range(1500):
        game, talk = module.game(name, number), episode(name, number)
        promised.append(game.value(game.first, game.turns))
        earned.append(sum(talk.step(move)[1] for move, _told in module.played(game, draw)))
    error = statistics.stdev(earned) / len(earned) ** 0.5
    assert statistics.mean(earned) == pytest.approx(statistics.mean(promised), abs=4 * error)


@pytest.mark.parametrize("name", NAMES)
def test_the_credit_of_all_turns_is_what_the_conversation_earned(name: str) -> None:
    module, draw = games(), random.Random(1)
    for number in range(60):
        talk = episode(name, number)
        odd = [("what is it", ""), ("answer", ""), ("look", ""), ("guess ten", ""), ("", "")] * (number % 3 == 0)
        steps = []
        for move, told in [*odd[: number % 5], *module.played(module.game(name, number), draw)]:
            steps.append(talk.step(move))
            assert (move, told) in odd or steps[-1][0] == told
            if steps[-1][2]:
                break
        assert sum(step[4]["credit"] for step in steps) == pytest.approx(sum(step[1] for step in steps))


def test_moves_are_worth_what_their_places_in_the_game_say() -> None:
    def worth(name: str, number: int, *moves: str) -> list[tuple[int, bool]]:
        talk = episode(name, number)
        return [(step[4]["worth"], step[4]["useless"]) for step in map(talk.step, moves)]

    doors = games().game("doors", 0)
    one, two = doors.doors
    assert worth("doors", 0, f"take {one}", "ring", f"open {two}", f"open {one}") == [
        (1, False), (-1, True), (-1, False), (1, False),
    ]  # fmt: skip
    number = next(number for number in range(50) if len(games().game("lookup", number).needed) == 2)
    look = games().game("lookup", number)
    (_, asked), (kind, friend) = look.needed
    said = [f"look {kind} {friend}", f"look friend {asked}", f"look {kind} {friend}", f"answer {look.answer}"]
    assert [each for each, _ in worth("lookup", number, *said)] == [-1, 1, 1, 1]
    low, high = games().game("halves", 3).first
    assert [each for each, _ in worth("halves", 3, f"guess {(low + high) // 2}", f"guess {high}")] == [1, -1]
    assert [each for each, _ in worth("halves", 3, f"answer {low}")] == [-1]


def test_conversations_fit_and_their_words_are_known() -> None:
    module, data = games(), importlib.import_module("turn_data")
    read = importlib.import_module("fgrl_benchmark.benchmark").read
    room, start = (
        read("turns.yaml")["stages"]["policy"]["rollout"]["sampling"],
        read("start_turns.yaml")["stages"]["start"],
    )
    words = set(module.vocabulary()) | {data.END}
    for sample in data.TurnConversations(split="train", count=300).read():
        prompt, said = str(sample.prompt).split(), str(sample.reference).split()
        assert {*prompt, *said} <= words
        assert len(prompt) <= min(room["max_prompt_tokens"], start["max_prompt_tokens"])
        assert len(said) + 1 <= room["max_new_tokens"]
        assert len(prompt) + len(said) + 1 <= start["max_tokens"]


def conversation(credits: list[float], sizes: list[int]) -> dict[str, Any]:
    turn = torch.tensor([[place for place, size in enumerate(sizes) for place in [place] * size + [-1]][:-1]])
    numbers = [{"credit": each, "worth": 1.0, "useless": 0.0} for each in credits]
    return {"turn": turn, "turns": [[Turn(0, 0.0, "x", numbers=each) for each in numbers]]}


@pytest.mark.parametrize("credit", ["oracle", "even", "last", "random"])
def test_a_conversation_earns_the_same_however_it_is_distributed(credit: str) -> None:
    world = importlib.import_module("turn_credit")
    made = conversation([0.3, -0.2, 0.5], [2, 1, 3])
    turn = made["turn"]
    reward = torch.full(turn.shape, 0.2)  # of each turn, 0.6 together
    rollout = SimpleNamespace(turns=made["turns"], turn_reward=reward, turn_ids=turn, drawn=turn >= 0)
    rewards = world.TurnCredit(credit=credit).score(rollout)
    assert rewards.response.tolist() == pytest.approx([0.6])
    assert float(rewards.token.sum()) == pytest.approx(0.6)
    assert not rewards.token[turn < 0].any()
    of_turns = [float(rewards.token[turn == number].sum()) for number in range(3)]
    if credit != "random":
        assert of_turns == pytest.approx(
            {"oracle": [0.3, -0.2, 0.5], "even": [0.2, 0.1, 0.3], "last": [0, 0, 0.6]}[credit]
        )
    assert torch.equal(world.TurnCredit(credit=credit).score(rollout).token, rewards.token)


def test_the_estimator_compares_turns_alone() -> None:
    world = importlib.import_module("turn_credit")
    earned = torch.tensor([[1.0, 0.5, 4.0], [2.0, 1.5, 0.0], [6.0, 0.0, 0.0]])
    reached = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]).bool()
    found, _ = world.TurnGroup().of_turns(earned, reached, SimpleNamespace(group=torch.tensor([5, 5, 5])), None)
    assert found.tolist() == [[-3.0, -1.0, 4.0], [-1.5, 1.0, 0.0], [4.5, 0.0, 0.0]]


def test_where_credit_over_turns_is() -> None:
    quality = importlib.import_module("fgrl_benchmark.turn_quality")
    worth = [(1, 0), (-1, 1), (1, 0), (-1, 0)]
    turns = [{"numbers": {"worth": one, "useless": other}} for one, other in worth]
    line = {"turns": turns, "turn": [0, 0, -1, 1, -1, 2, -1, 3], "advantages": [1, 3, None, 2, None, -1, None, -2]}
    assert quality.measured_turns([line]) == {"sign": 0.5, "auc": 0.625, "useless": 0.5}
    assert quality.measured_turns([]) == {}


def test_every_method_over_turns_is_a_recipe(tiny_model_dir: Path) -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    plan = benchmark.read("plan.yaml")
    methods = benchmark.methods_of(plan["turns_test"])
    assert set(plan["turns_test"]["methods"]) == set(methods)
    for name, method in methods.items():
        row = f"::{method['row']}" if "row" in method else ""
        assert not fgrl.validate(f"{FOLDER / 'turns.yaml'}{row}", {"vars.start": str(tiny_model_dir)}).needs
        assert name == method.get("as", name) or method["as"] in methods
        assert method["told"] != "control" or "as" in method
    tried = {(point.method, point.task) for point in benchmark.points("turns_tune")}
    of_each = len(plan["turns_tune"]["rates"]) * len(benchmark.seeds_of(plan["turns_tune"]["seeds"]))
    assert len(benchmark.points("turns_tune")) == of_each * len(tried)
    assert ("trace", "doors") not in tried


def test_the_test_has_the_rates_that_were_best_on_the_same_game(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path)
    rights = {("lookup", 1e-4): 0.6, ("lookup", 1e-3): 0.3, ("doors", 1e-4): 0.4, ("doors", 1e-3): 0.9}
    lines = [
        {"method": "even", "task": name, "settings": {"vars.lr": rate}, "policy.right": right}
        for (name, rate), right in rights.items()
    ]
    (tmp_path / "turns_tune.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines), encoding="utf-8")
    points = [each for each in benchmark.points("turns_test") if each.method in {"even", "random", "grpo"}]
    found = {(each.method, each.task): each.settings for each in points}
    for method in ("even", "random"):
        assert (found[method, "lookup"], found[method, "doors"]) == ({"vars.lr": 1e-4}, {"vars.lr": 1e-3})
    assert found["even", "halves"] == found["grpo", "doors"] == {}
    plan = benchmark.read("plan.yaml")["turns_test"]
    elsewhere = [each for each in points if each.task != "halves"]
    assert benchmark.untuned(plan, elsewhere) == ["grpo"]
    assert set(benchmark.untuned(plan, points)) == {"even", "random", "grpo"}, "settings of another task do not count"


@pytest.mark.parametrize("table", ["headline", "outcome"])
def test_the_page_shows_the_tables_of_the_committed_lines(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    """After new lines: paste what `turn_tables.py` prints into the page, and read the sentences around it again."""
    getattr(importlib.import_module("fgrl_benchmark.turn_tables"), table)()
    shown = set((FOLDER.parent / "docs" / "credit-benchmark-turns.md").read_text(encoding="utf-8").splitlines())
    assert [line for line in capsys.readouterr().out.splitlines() if line not in shown] == []


@pytest.fixture(scope="module")
def small_start(_importable, tmp_path_factory: pytest.TempPathFactory) -> str:
    smaller = {"stages.blank": {"name": "turn_language_model", "hidden": 16, "layers": 1}}
    smaller |= {"stages.start.data.count": 8, "stages.start.train.epochs": 1}
    made = fgrl.run(
        FOLDER / "start_turns.yaml", smaller, runs=tmp_path_factory.mktemp("start"), progress=False, page=False
    )
    return str(made.stage("start").product)


FEWER = {
    "vars.iterations": 1, "stages.policy.rollout.batch_size": 16, "stages.policy.train.batch_size": 16, "stages.evaluate.prompts.count": 4,
}  # fmt: skip


@pytest.mark.parametrize(("method", "name"), [("oracle", "doors"), ("trace", "lookup")])
def test_a_run_over_turns_gives_a_line(
    method: str, name: str, small_start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    monkeypatch.setattr(benchmark, "start", lambda *_: small_start)
    plan = benchmark.read("plan.yaml")["turns_tune"]
    line = benchmark.result(benchmark.Point(method, name, 0, FEWER), plan, str(tmp_path))
    assert json.loads(json.dumps(line)) == line
    assert 0 <= line["policy.right"] <= 1 <= line["policy.turns"] <= 6
    assert {"policy.kl", "policy.return", "start.right", "sign", "seconds of the policy"} <= line.keys()


def test_tables_over_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tables, benchmark = (
        importlib.import_module("fgrl_benchmark.turn_tables"),
        importlib.import_module("fgrl_benchmark.benchmark"),
    )
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path)

    def line(method: str, seed: int, right: float, rate: float = 1e-3) -> str:
        numbers = {
            "policy.right": right,
            "start.right": 0.25,
            "policy.turns": 3.0,
            "policy.return": 0.2,
            "policy.kl": 1.0,
            "processor seconds": 9.0,
        }
        return (
            json.dumps({"method": method, "task": "doors", "seed": seed, "settings": {"vars.lr": rate}, **numbers})
            + "\n"
        )

    def write(oracle: list[float]) -> None:
        rights = {"oracle": oracle, "even": [0.5, 0.7], "grpo": [0.601, 0.8]}
        test = [line(method, seed, right) for method, each in rights.items() for seed, right in enumerate(each)]
        (tmp_path / "turns_test.jsonl").write_text("".join(test), encoding="utf-8")

    write([0.8, 0.9])
    tune = [line("even", 0, right, rate) for rate, right in ((1e-4, 0.3), (3e-4, 0.6))]
    (tmp_path / "turns_tune.jsonl").write_text("".join(tune), encoding="utf-8")
    tables.headline()
    shown = capsys.readouterr().out.splitlines()
    assert shown[2:] == [
        "| worth of turns | `oracle` | 2 | 0.250 [-0.385, 0.885] |",
        "| outcome | `grpo` | 2 | **0.101 [0.094, 0.107]** |",
    ], "no share of an advantage that cannot be told from 0"
    write([0.8, 0.98])
    tables.headline()
    assert "| outcome | `grpo` | 2 | **0.101 [0.094, 0.107]**; 0.35 |" in capsys.readouterr().out.splitlines()
    tables.outcome()
    assert "| outcome | `grpo` |" not in capsys.readouterr().out, "nothing to compare with: no line of `outcome`"
    tables.methods()
    assert "| outcome | `grpo` | `doors` | 2 | 0.701 [-0.564, 1.965] | 0.250 |" in capsys.readouterr().out
    tables.tuned()
    assert capsys.readouterr().out.splitlines()[2:] == ["| `even` |  |  |  |  |  |  | 0.300 | **0.600** |  |"]

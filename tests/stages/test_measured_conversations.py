"""Evaluations of models that talk to an environment: what answers record, what metrics count, failures, kills."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
import torch
from rich.console import Console
from scratch_registry import scratch_imports
from training_helpers import tiny

from fgrl import rollouts
from fgrl.base.errors import UserCodeError
from fgrl.commands.checking import estimate_lines
from fgrl.components.engines.hf import HF
from fgrl.components.metrics.environment import EnvironmentMetric
from fgrl.experiments import pipeline
from fgrl.experiments.recipe import load
from fgrl.kinds.specs import Sampling
from fgrl.measuring import answering
from fgrl.measuring.answer import Answer, read_answers
from fgrl.measuring.held_out import judged, known, measure
from fgrl.measuring.judging import answer_text
from fgrl.pages.report.terminal import print_tokens
from fgrl.registry import Problems, build, get
from fgrl.rollouts.conversing import Conversing
from fgrl.runs.results.text import signed
from fgrl.types import Response, Sample, Turn, read_jsonl

ENVIRONMENT = '''
from pathlib import Path

from fgrl import Environment, Episode, register

HERE = Path(__file__).parent


class Game(Episode):
    def __init__(self, name, seed):
        self.name, self.number, self.prompt = name, 0, f"Game {seed}"

    def step(self, text):
        down = HERE / f"down-{self.name}"
        if down.exists():
            raise ConnectionError("the server of the game is gone")
        self.number += 1
        if "x" in text:
            raise ValueError("x is not allowed")
        return f"{len(text)} characters", len(text) % 4, self.number == 3, self.number == 2 and len(text) % 5 == 0, {"e": text.count("e")}


@register("game")
class GameEnvironment(Environment):
    """A game of three turns."""

    def begin(self, sample, seed):
        if (HERE / "down").exists():
            raise TimeoutError("no server")
        return Game(sample.meta["line"], seed)
'''
RECIPE = """
about: "Games."
seed: 5
imports: [game.py]
stages:
  evaluate:
    name: evaluate
    prompts: {{name: lines, path: topics.txt}}
    models: {{one: {base}, two: {{base: {base}, dtype: float32}}}}
    baseline: one
    per_prompt: 2
    environment: {{name: game, max_turn_tokens: 7, error_reward: -1.0}}
    metrics: [length, kl, reference_likelihood, {{name: environment, info: [e]}}, {{name: rule, rule: "punctuation:no_comma"}}]
    rewards: {{game: environment}}
    sampling: {{max_new_tokens: 90, max_prompt_tokens: 48, batch_size: 4}}
    show: 0
  samples:
    name: sample
    prompts: {{name: lines, path: topics.txt}}
    model: {base}
    per_prompt: 2
    environment: {{name: game, max_turn_tokens: 7}}
    sampling: {{max_new_tokens: 90, max_prompt_tokens: 48, batch_size: 4}}
  policy:
    name: rl
    prompts: {{name: lines, path: topics.txt}}
    model: {{base: {base}, lora: {{r: 4, alpha: 8}}}}
    reward: environment
    algorithm: {{name: grpo}}
    rollout:
      batch_size: 4
      per_prompt: 2
      environment: {{name: game, max_turn_tokens: 7}}
      sampling: {{max_new_tokens: 90, max_prompt_tokens: 48, batch_size: 4}}
    train: {{lr: 1e-2, iterations: 2, batch_size: 4, accelerator: cpu}}
    evaluate:
      every: 1
      sets:
        games:
          prompts: {{name: lines, path: topics.txt, limit: 2}}
          environment: {{name: game, max_turn_tokens: 7}}
          metrics: [environment]
          sampling: {{max_new_tokens: 60, max_prompt_tokens: 48, batch_size: 4}}
"""


@pytest.fixture
def recipe(tmp_path: Path, tiny_model_dir: Path) -> Iterator[Path]:
    with scratch_imports():
        (tmp_path / "game.py").write_text(ENVIRONMENT)
        (tmp_path / "topics.txt").write_text("\n".join(f"topic {number}" for number in range(5)))
        path = tmp_path / "games.yaml"
        path.write_text(RECIPE.format(base=tiny_model_dir))
        yield path


def ran(recipe: Path, name: str, stage: str = "evaluate", *changes: str) -> tuple[dict[str, Any], Path]:
    """Summary and product of a stage."""
    folder = recipe.parent / name
    one = load(recipe, [f"stages.{stage}.{change}" for change in changes]).stages[stage]
    return one.run(tiny_recipe.a_run(folder, stage)), folder / "out"


def metrics(out: Path) -> dict[str, Any]:
    measured: dict[str, Any] = json.loads((out / "metrics.json").read_text())["metrics"]
    return measured


def test_answers_are_conversations(recipe: Path, tiny_model_dir: Path) -> None:
    _summary, out = ran(recipe, "whole")
    model, environment = tiny(tiny_model_dir), build(get("environment", "game"), {"name": "game", "max_turn_tokens": 7})  # type: ignore[arg-type]
    environment.error_reward = -1.0
    prompts = load(recipe, []).stages["evaluate"].prompts
    run = tiny_recipe.a_run(recipe.parent / "again")
    prompts.setup(run)
    drawn = rollouts.draw(
        model, Conversing(HF().open(model), environment, model), list(prompts.read()), Sampling(max_new_tokens=90, max_prompt_tokens=48),
        2, seed=run.seed,
    )  # fmt: skip
    rows = [each for group in drawn for each in group]
    answers = read_answers(out / "answers.jsonl")
    assert [each.text for each in answers["one"]] == [each.text for each in answers["two"]]
    assert len({each.sample.prompt for each in answers["one"]}) == 5  # a seed for each prompt
    for answer, row in zip(answers["one"], rows, strict=True):
        assert answer.response.text == row.text
        assert answer.turn == row.turn
        assert answer.turns == list(row.turns)
        own = [[t for t, k in zip(row.token_ids, row.turn or [], strict=True) if k == n] for n in range(len(row.turns))]
        assert [turn.text for turn in answer.turns] == [rollouts.decode(model.tokenizer, ids) for ids in own]
        assert answer.text == "\n".join(turn.text for turn in answer.turns)
        assert answer.n_tokens == sum(map(len, own)) < len(answer.tokens)
        ids = torch.tensor([[*row.prompt.token_ids, *row.token_ids]])
        with torch.no_grad():
            logp = model.net(input_ids=ids).logits[0].float().log_softmax(-1)
        start = len(row.prompt)
        by_hand = sum(
            float(logp[start + place - 1, token])
            for place, (token, turn) in enumerate(zip(row.token_ids, row.turn or [], strict=True))
            if turn >= 0
        )
        assert answer.ref_logp == pytest.approx(by_hand, abs=1e-3)
        assert answer.kl == pytest.approx(0, abs=1e-4)
        assert answer.rewards["game"] == pytest.approx(sum(turn.reward for turn in row.turns))
        assert not answer.violations
    measured = metrics(out)
    every, counted = answers["one"], measured["environment"]["one"]
    returns = [sum(turn.reward for turn in each.turns) for each in every]
    assert counted["return"]["mean"] == pytest.approx(sum(returns) / 10)
    assert counted["return"]["low"] < counted["return"]["mean"] < counted["return"]["high"]
    assert counted["return"]["groups"] == 5
    turns = [turn for each in every for turn in each.turns]
    assert counted["turns"]["mean"] == pytest.approx(len(turns) / 10)
    assert counted["errors"]["mean"] == pytest.approx(sum(turn.error is not None for turn in turns) / len(turns))
    numbers = [turn.numbers["e"] for turn in turns if "e" in turn.numbers]
    assert counted["info e"]["mean"] == pytest.approx(sum(numbers) / len(numbers))
    assert counted["truncated"]["mean"] == pytest.approx(sum(not each.terminated for each in every) / 10)
    assert counted["terminated"]["mean"] + counted["truncated"]["mean"] == pytest.approx(1)
    assert counted["missing"]["mean"] == 0
    assert measured["environment"]["differences"]["two"]["return"]["mean"] == 0
    assert measured["length"]["one"]["tokens"]["mean"] == pytest.approx(sum(each.n_tokens for each in every) / 10)
    assert measured["token_reward"]["one"]["game"]["mean"] == pytest.approx(sum(returns) / 10)


def test_a_killed_evaluation_goes_on(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _summary, whole = ran(recipe, "whole")
    recorded, calls = answering.recorded, [0]

    def killed(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 7:  # the second batch of the first model
            raise KeyboardInterrupt
        return recorded(*arguments)

    monkeypatch.setattr(answering, "recorded", killed)
    with pytest.raises(KeyboardInterrupt):
        ran(recipe, "killed")
    assert len(list((recipe.parent / "killed" / "answers-one").iterdir())) == 1
    calls[0] = 100
    _summary, again = ran(recipe, "killed")
    assert calls[0] == 116  # the others of twenty
    for name in ("answers.jsonl", "metrics.json", "observations.jsonl"):
        assert (whole / name).read_bytes() == (again / name).read_bytes()


def test_a_failed_conversation_is_missing(recipe: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _summary, whole = ran(recipe, "whole")
    (recipe.parent / "down-topic 1").touch()
    _summary, out = ran(recipe, "partly")
    answers = read_answers(out / "answers.jsonl")["one"]
    lost = [each for each in answers if each.lost is not None]
    assert len(lost) == 2
    assert len({each.id for each in lost}) == 1
    assert lost[0].lost == "ConnectionError: the server of the game is gone"
    assert (lost[0].rewards, lost[0].kl, lost[0].verdicts) == ({"game": None}, None, {})
    counted, length = metrics(out)["environment"]["one"], metrics(out)["length"]["one"]["tokens"]
    assert counted["missing"]["mean"] == pytest.approx(0.2)
    assert (counted["return"]["n"], counted["return"]["groups"]) == (8, 5)
    assert (length["n"], length["groups"]) == (8, 4)
    left = [
        sum(t.reward for t in each.turns)
        for each in read_answers(whole / "answers.jsonl")["one"]
        if each.id != lost[0].id
    ]
    assert counted["return"]["mean"] == pytest.approx(sum(left) / 8)


def test_an_environment_that_always_fails_ends_the_run_and_is_asked_again(recipe: Path) -> None:
    (recipe.parent / "down").touch()
    message = r"game\.py:\d+(.|\n)*environment game failed in each of the 10 conversations of one(.|\n)*TimeoutError: no server"
    with pytest.raises(UserCodeError, match=message) as failed:
        ran(recipe, "down-and-up")
    assert failed.value.exit_code == 7
    (recipe.parent / "down").unlink()
    _summary, out = ran(recipe, "down-and-up")
    assert metrics(out)["environment"]["one"]["missing"]["mean"] == 0


def test_prompts_that_one_model_lost_are_compared_for_none() -> None:
    def answer(id: str, lost: str | None = None) -> Answer:
        turn = Turn(1, float(id))
        return Answer(
            sample=Sample(id=id, prompt="?"), response=Response(text="a", finished=True), tokens=["a"], offsets=[(0, 1)],
            turn=[0], turns=[] if lost else [turn], lost=lost,
        )  # fmt: skip

    answers = {
        "a": [answer("1"), answer("2"), answer("2", "gone")],
        "b": [answer("1", "gone"), answer("2"), answer("2")],
    }
    assert {model: [each.id for each in own] for model, own in known(answers).items()} == {"a": ["2"], "b": ["2", "2"]}
    measured, _observed = measure(
        [build(EnvironmentMetric, "environment"), build(get("metric", "length"), "length")], answers, "a"
    )  # type: ignore[arg-type]
    assert measured["environment"]["a"]["return"]["mean"] == 1.5
    assert measured["environment"]["b"]["return"]["mean"] == 2
    assert measured["environment"]["b"]["missing"]["mean"] == pytest.approx(1 / 3)
    assert measured["length"]["a"]["tokens"]["n"] == 1
    assert len(judged([build(EnvironmentMetric, "environment")], answers["a"])) == 3  # type: ignore[arg-type]


def test_evaluations_while_training_converse(recipe: Path) -> None:
    _summary, _out = ran(recipe, "trained", "policy")
    folder = recipe.parent / "trained"
    log = tiny_recipe.log(folder)
    assert all(row["environment_failed"] == 0 for row in log if "reward" in row)
    for step in ("0", "1", "2"):
        found = read_answers(folder / "evaluations" / step / "games" / "answers.jsonl")
        assert all(each.turns for own in found.values() for each in own)
    prompts = [
        [each.sample.prompt for own in read_answers(folder / "evaluations" / step / "games" / "answers.jsonl").values() for each in own]
        for step in ("0", "2")
    ]  # fmt: skip
    assert prompts[0] == prompts[1]


def test_a_training_without_its_environment_ends_and_goes_on(recipe: Path) -> None:
    _summary, whole = ran(recipe, "whole", "policy")
    (recipe.parent / "down").touch()
    message = r"environment game failed in each of the 4 conversations of iteration 0(.|\n)*TimeoutError: no server"
    with pytest.raises(UserCodeError, match=message) as failed:
        ran(recipe, "down-and-up", "policy", "evaluate=null")
    assert failed.value.exit_code == 7
    (recipe.parent / "down").unlink()
    _summary, out = ran(recipe, "down-and-up", "policy", "evaluate=null")
    assert tiny_recipe.weights(whole) == tiny_recipe.weights(out)


def test_follow_ups_and_an_environment_are_refused(recipe: Path) -> None:
    with pytest.raises(Problems, match=r"environment\.max_turns"):
        load(recipe, ["stages.evaluate.turns=2"])


def test_conversations_become_samples(recipe: Path) -> None:
    summary, out = ran(recipe, "whole", "samples")
    assert (summary["prompts"], summary["responses"]) == (5, 10)
    every = list(read_jsonl(out / "samples.jsonl", Sample))
    for sample in every:
        assert "Game" in str(sample.prompt)
        for response in sample.responses:
            said = response.meta["messages"]
            assert [message["role"] for message in said[:2]] == ["assistant", "user"]
            assert response.text == "\n".join(message["content"] for message in said if message["role"] == "assistant")
            assert len(response.meta["rewards"]) == (len(said) + 1) // 2
    (recipe.parent / "down-topic 1").touch()
    summary, out = ran(recipe, "partly", "samples")
    assert (summary["responses"], summary["missing"]) == (8, 2)
    assert [len(sample.responses) for sample in read_jsonl(out / "samples.jsonl", Sample)] == [2, 0, 2, 2, 2]
    (recipe.parent / "down-topic 1").unlink()
    ran(recipe, "partly", "samples")  # what failed is drawn again
    assert list(read_jsonl(out / "samples.jsonl", Sample)) == every


def test_a_plan_says_the_limits_of_conversations(recipe: Path) -> None:
    estimates = pipeline.estimates(pipeline.plan(load(recipe, []), recipe.parent / "runs"), None)
    for name, tokens in (("evaluate", 90), ("samples", 90), ("policy", 90)):
        assert (
            f"environment: name game, turns at most 8, tokens of a conversation at most {tokens}, of a turn 7, of an answer {tokens}, "
            "seconds of an answer 60.0"
        ) in estimate_lines(estimates[name])


def test_an_inspected_conversation_is_drawn_turn_by_turn(recipe: Path) -> None:
    stage = load(recipe, []).stages["policy"]
    items = list(stage.inspect(tiny_recipe.a_run(recipe.parent / "inspected", "policy"), 2))
    assert len(items) == 2
    for item in items:
        assert item.turns
        own = [place for place, kind in enumerate(item.kinds) if kind in ("response", "eos")]
        assert [item.turn[place] >= 0 for place in own] == [True] * len(own)
        known = [place for place, value in enumerate(item.layers["advantage"]) if value is not None]
        assert known == own
        console = Console(file=io.StringIO(), width=200, color_system=None)
        print_tokens([item], console)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert text.count("\n<<< ") == len(item.turns) - 1
        for number, turn in enumerate(item.turns, 1):
            assert f"turn {number}  reward {signed(turn.reward)}" in text
            assert turn.observation in text


def test_an_environment_without_models_is_refused(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recipe.parent)
    with pytest.raises(Problems, match="all answers are given"):
        load(recipe, [
            "stages.evaluate.models=null", "stages.evaluate.given={one: {name: lines, path: topics.txt}}", "stages.evaluate.sampling=null",
            "stages.evaluate.rewards=null", "stages.evaluate.metrics=[length]",
        ])  # fmt: skip


def test_an_environment_that_promises_nothing_is_named(recipe: Path) -> None:
    assert not any("not reproducible" in each for each in load(recipe, []).stages["policy"].warnings())
    text = (recipe.parent / "game.py").read_text()
    (recipe.parent / "game.py").write_text(
        text.replace('    """A game of three turns."""\n', '    """A game."""\n\n    reproducible = False\n')
    )
    with scratch_imports():
        (told,) = [each for each in load(recipe, []).stages["policy"].warnings() if "not reproducible" in each]
    assert told.startswith("rollout.environment: game is not reproducible")


def test_judges_read_all_messages(recipe: Path) -> None:
    _summary, out = ran(recipe, "whole")
    answer = read_answers(out / "answers.jsonl")["one"][0]
    told = answer_text(answer)
    for turn in answer.turns[:-1]:
        assert f"[assistant]\n{turn.text}\n\n[user]\n{turn.observation}" in told
    assert answer.turns[-1].observation not in told.rpartition("[assistant]")[2]

"""Trainings whose environment hangs, raises everywhere, answers too late, or gives what is no answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
from pipeline_helpers import fgrl_here
from scratch_registry import scratch_imports

from fgrl.experiments.recipe import load

ENVIRONMENT = '''
import threading
import time
from pathlib import Path

from fgrl import Environment, Episode, register

HERE = Path(__file__).parent
FAULT = (HERE / "fault").read_text() if (HERE / "fault").exists() else ""
BAD = float("nan")


class Odd(Episode):
    def __init__(self, name, seed):
        self.bad = FAULT.startswith("all") or name.endswith(("1", "2"))
        self.letter, self.turn, self.closed = "aeiou"[seed % 5], 0, 0
        self.prompt = f"Write many {self.letter}"

    def step(self, text):
        self.turn += 1
        answer = f"{text.count(self.letter)} of them", len(text) % 3, self.turn == 3, False, {}
        if self.bad and self.turn >= 2:
            kind = FAULT.removeprefix("all ")
            if kind == "hangs":
                threading.Event().wait()
            elif kind == "late":
                time.sleep(0.5)
            elif kind == "raises":
                raise ZeroDivisionError(f"{text!r} is odd")
            elif kind == "gone":
                raise ConnectionError("no server at 127.0.0.1")
            elif kind == "nan":
                return answer[0], BAD, False, False, {}
            elif kind == "bytes":
                return b"\\xff\\xfe", 0.0, False, False, {}
            elif kind == "huge":
                return "ten " * 2_600_000, 0.5, False, False, {}
            elif kind == "endless":
                return answer[0], 0.5, False, False, {}
        return answer


@register("odd")
class OddEnvironment(Environment):
    """Three turns, and faults."""

    def begin(self, sample, seed):
        if FAULT == "begin":
            raise KeyError("no such game")
        return Odd(sample.meta["line"], seed)
'''
RECIPE = """
about: "A letter to write, in turns."
seed: 3
imports: [odd.py]
stages:
  policy:
    name: rl
    prompts: {{name: lines, path: topics.txt}}
    model: {{base: {base}, lora: {{r: 4, alpha: 8}}}}
    reward: environment
    algorithm: {{name: grpo}}
    rollout:
      batch_size: 12
      per_prompt: 3
      environment: {{name: odd, max_turn_tokens: 6, step_seconds: 0.25, max_turns: 4, max_observation_tokens: 24}}
      sampling: {{max_new_tokens: 160, max_prompt_tokens: 48, batch_size: 12}}
    train: {{lr: 1e-2, iterations: 2, batch_size: 12, accelerator: cpu}}
"""


@pytest.fixture
def recipe(tmp_path: Path, tiny_model_dir: Path) -> Path:
    (tmp_path / "odd.py").write_text(ENVIRONMENT)
    (tmp_path / "topics.txt").write_text("\n".join(f"topic {number}" for number in range(4)))
    path = tmp_path / "odd.yaml"
    path.write_text(RECIPE.format(base=tiny_model_dir))
    return path


def trained(recipe: Path, fault: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The log of a training, and its stored rollouts of iteration 0."""
    (recipe.parent / "fault").write_text(fault)
    folder = recipe.parent / "run"
    with scratch_imports():
        one: Any = load(recipe, ["stages.policy.stored_rollouts=100"]).stages["policy"]
        one.run(tiny_recipe.a_run(folder, "policy"))
    stored = [json.loads(line) for line in (folder / "out" / "rollouts.jsonl").read_text().split("\n") if line]
    return tiny_recipe.log(folder), [line for line in stored if line["iteration"] == 0]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("hangs", "TimeoutError: no answer within step_seconds, 0.25 s"),
        ("late", "TimeoutError: no answer within step_seconds, 0.25 s"),
        ("gone", "ConnectionError: no server at 127.0.0.1"),
        ("nan", "the reward is no finite number but nan"),
        ("bytes", "the observation is no text but bytes"),
    ],
)
def test_failures_are_missing_and_counted(recipe: Path, fault: str, why: str) -> None:
    log, stored = trained(recipe, fault)
    for row in log:
        assert row["environment_failed"] == row["missing"] == 0.5
        assert row["turns"] == 3  # of those that are known
    lost = [line for line in stored if line.get("lost")]
    assert len(lost) == 6
    for line in lost:
        assert line["lost"] == why
        assert len(line["turns"]) == 1
        assert line["response"].get("score") is None
        assert line.get("advantages") is None
    assert all(line["advantages"] for line in stored if not line.get("lost"))


@pytest.mark.parametrize(("fault", "turns"), [("raises", 4), ("huge", 4), ("endless", 4)])
def test_what_is_no_failure_is_trained_on(recipe: Path, fault: str, turns: int) -> None:
    log, stored = trained(recipe, fault)
    for row in log:
        assert row["environment_failed"] == row["missing"] == 0
        assert row["turns"] == (3 + turns) / 2
        assert row["truncated"] == 0.5
        assert row["turn_errors"] == pytest.approx(6 * 3 / (6 * 7) if fault == "raises" else 0)
    bad = [line for line in stored if len(line["turns"]) == turns]
    assert len(bad) == 6
    for line in bad:
        assert not line.get("terminated", True)
        assert line["advantages"]
        assert all(len(turn["observation"]) < 500 for turn in line["turns"])
        if fault == "raises":
            assert line["turns"][1]["error"].startswith("ZeroDivisionError: ")
            assert line["turns"][1]["observation"].startswith("Error: ")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("all gone", ["the environment odd failed in each of the 12 conversations of iteration 0", "ConnectionError: no server at 127.0.0.1"]),
        ("all hangs", ["the environment odd failed in each of the 12 conversations of iteration 0", "TimeoutError: no answer within step_seconds, 0.25 s"]),
        ("begin", ["OddEnvironment.begin raised KeyError: 'no such game'"]),
    ],
)  # fmt: skip
def test_a_run_that_cannot_go_on_ends_with_7_and_loses_nothing(recipe: Path, fault: str, said: list[str]) -> None:
    folder = recipe.parent
    (folder / "fault").write_text(fault)
    ended = fgrl_here("run", "odd.yaml", cwd=folder)
    assert ended.returncode == 7, ended.stderr
    for words in [*said, "odd.py:"]:
        assert words in ended.stderr
    assert "Traceback" not in ended.stderr
    (folder / "fault").write_text("")
    for runs in ("runs", "other"):
        ended = fgrl_here("run", "odd.yaml", "--runs", runs, cwd=folder)
        assert ended.returncode == 0, ended.stderr
    products = [next((folder / runs / "stages").glob("policy-*/out")) for runs in ("runs", "other")]
    assert tiny_recipe.weights(products[0]) == tiny_recipe.weights(products[1])

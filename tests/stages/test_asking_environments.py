"""Environments that ask a model: its answers in conversations, budgets, plans, failures, kills, two processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
from fault_server import FaultServer
from forks import forked
from pipeline_helpers import fgrl
from scratch_registry import scratch_imports

from fgrl.experiments import recipe
from fgrl.experiments.pipeline import estimates, execute, plan
from fgrl.experiments.pipeline.log import read_log
from fgrl.experiments.pipeline.planning import Options
from fgrl.experiments.pipeline.run import scratch_run
from fgrl.feedback.llm.store import CompletionStore
from fgrl.registry import Problems

pytestmark = pytest.mark.usefixtures("warm")

USER = Path(__file__).resolve().parents[2] / "examples" / "simulated_user.py"
WORDS = ("lamp", "river", "bread", "mill")
RECIPE = """
about: "Words to find by asking."
seed: 3
imports: [simulated_user.py]
stages:
  policy:
    name: rl
    prompts: {{name: jsonl, path: words.jsonl}}
    model: {{base: {base}, lora: {{r: 4, alpha: 8}}}}
    reward: {{name: function, path: "letters.py:score", completions: text}}
    algorithm: grpo
    stored_rollouts: 100
    rollout:
      batch_size: 8
      per_prompt: 2
      environment: {{name: simulated_user, max_turns: 3, max_turn_tokens: 6, client: {client}}}
      sampling: {{max_new_tokens: 200, max_prompt_tokens: 96, batch_size: 8}}
    train: {{lr: 1e-2, iterations: 2, batch_size: 8, micro_batch_size: 8, accelerator: cpu, warmup: 0.0}}
  sampled:
    name: sample
    prompts: {{name: jsonl, path: words.jsonl}}
    model: {{base: {base}}}
    per_prompt: 2
    environment: {{name: simulated_user, max_turns: 3, max_turn_tokens: 6, client: {client}}}
    sampling: {{max_new_tokens: 200, max_prompt_tokens: 96, batch_size: 8}}
  evaluate:
    name: evaluate
    prompts: {{name: jsonl, path: words.jsonl}}
    models: {{one: {{base: {base}}}, two: {{base: {base}}}}}
    baseline: one
    metrics: [environment]
    environment: {{name: simulated_user, max_turns: 3, max_turn_tokens: 6, client: {client}}}
    sampling: {{max_new_tokens: 200, max_prompt_tokens: 96, batch_size: 8}}
"""
POLICY = "stages.policy.rollout.environment"


def write(folder: Path, base: Path, client: dict[str, Any]) -> Path:
    shutil.copy(USER, folder / "simulated_user.py")
    (folder / "letters.py").write_text(
        "def score(completions, **kwargs):\n    return [float(len(set(text))) for text in completions]\n"
    )
    rows = [{"id": f"w{number}", "prompt": "?", "reference": word} for number, word in enumerate(WORDS)]
    (folder / "words.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "asking.yaml"
    path.write_text(RECIPE.format(base=json.dumps(str(base)), client=json.dumps(client)))
    return path


def test_on_several_nodes_it_is_refused(tmp_path: Path, tiny_model_dir: Path) -> None:
    file = write(
        tmp_path,
        tiny_model_dir,
        {"name": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m", "api_key_env": None},
    )
    with (
        pytest.raises(Problems, match="environment simulated_user: every process would store the answers"),
        scratch_imports(),
    ):
        recipe.load(file, ["stages.policy.train.nodes=2"])


def endpoint(server: FaultServer, **fields: Any) -> dict[str, Any]:
    return {"name": "openai", "model": "user", "base_url": server.url, "api_key_env": None, "max_retries": 0, **fields}


def user(prompt: str, body: dict[str, Any]) -> str:
    """The word as the request has it, and how many messages and letters the request has."""
    word = body["messages"][0]["content"].split('"')[1]
    return f"{word[0]} {len(body['messages'])} {len(prompt)}"


def policy(path: Path, runs: Path, *changes: str) -> Any:
    """The summary of the training alone, and its folder."""
    with scratch_imports():
        loaded = recipe.load(path, list(changes))
        summary = execute(loaded, runs, Options(only=["policy"]))
        return summary, next(stage for stage in plan(loaded, runs).stages if stage.name == "policy").dir


def stored(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out" / "rollouts.jsonl").read_text().split("\n") if line]


def ledger(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]


@dataclass
class Whole:
    """An undisturbed training."""

    path: Path
    server: FaultServer
    folder: Path
    needed: int
    """Calls that it made."""

    def same_as(self, folder: Path) -> bool:
        return tiny_recipe.weights(folder / "out") == tiny_recipe.weights(self.folder / "out") and stored(
            folder
        ) == stored(self.folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Iterator[Whole]:
    place = tmp_path_factory.mktemp("asking")
    with FaultServer(answer=user, latency=0.1) as server:
        path = write(place, tiny_model_dir, endpoint(server, concurrency=3))
        summary, folder = policy(path, place / "runs")
        assert summary.exit == 0, summary.error
        yield Whole(path, server, folder, len(server.seen))


def test_a_model_answers_and_is_asked_within_its_limits(whole: Whole) -> None:
    assert 1 < whole.server.most_flying <= 3
    bound = estimate(whole.path)["policy"]["calls"]
    assert 0 < whole.needed <= bound["calls"] == 2 * 8 * 3
    talks = stored(whole.folder)
    assert len(talks) == 16
    for talk in talks:
        word = WORDS[int(talk["sample"]["id"][1:])]
        said = [turn["observation"].split()[:2] for turn in talk["turns"]]
        assert said == [[word[0], str(2 * number)] for number in range(1, 4)]
    keys = [line["key"] for line in ledger(whole.folder)]
    assert len(keys) == whole.needed
    longest = max(sum(len(m["content"]) for m in each["body"]["messages"]) for each in whole.server.seen)
    assert longest < bound["prompt tokens"] / bound["calls"] * 4


def test_the_same_training_again_asks_nobody(whole: Whole, tmp_path: Path) -> None:
    shutil.copytree(whole.folder.parents[1] / "cache", tmp_path / "cache")
    before = len(whole.server.seen)
    _summary, again = policy(whole.path, tmp_path)
    assert len(whole.server.seen) == before
    assert whole.same_as(again)


def estimate(path: Path, *changes: str) -> dict[str, Any]:
    with scratch_imports():
        return estimates(plan(recipe.load(path, list(changes)), path.parent / "planned"), None)


def test_a_plan_bounds_what_environments_ask(tiny_model_dir: Path, tmp_path: Path) -> None:
    client = {"name": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key_env": None,
              "prices": {"prompt": 1.0, "completion": 2.0}}  # fmt: skip
    path = write(tmp_path, tiny_model_dir, client)
    held_out = ("stages.policy.evaluate={every: 1, sets: {held_out: {prompts: {name: jsonl, path: PATH}, metrics: [length], "
                f"environment: {{name: simulated_user, max_turns: 2, client: {json.dumps(client)}}}, sampling: {{max_new_tokens: 50}}}}}}}}")  # fmt: skip
    held_out = held_out.replace("PATH", str(tmp_path / "words.jsonl"))
    found = {name: one["calls"] for name, one in estimate(path).items()}
    turns = {"policy": 2 * 8 * 3, "sampled": 4 * 2 * 3, "evaluate": 2 * 4 * 3}
    assert {name: calls["calls"] for name, calls in found.items()} == turns
    for name, calls in found.items():
        assert calls["completion tokens"] == turns[name] * 40
        assert calls["prompt tokens"] > turns[name] * (200 + 3 * 40)
        assert calls["usd"] == pytest.approx((calls["prompt tokens"] + 2 * calls["completion tokens"]) / 1e6)
    more = estimate(path, held_out)["policy"]["calls"]
    assert more["calls"] == 2 * 8 * 3 + 3 * 4 * 2
    silent = tmp_path / "simulated_user.py"
    silent.write_text(silent.read_text().replace("def asks(", "def never("))
    assert "simulated_user has no `asks`" in estimate(path)["sampled"]["calls"]["unknown"]


def test_an_endpoint_that_fails_is_missing_and_counted(tiny_model_dir: Path, tmp_path: Path) -> None:
    def fails(prompt: str, attempt: int) -> str:
        return "500" if server.seen[-1]["body"]["messages"][0]["content"].count('"mill"') else "ok"

    with FaultServer(fails, answer=user) as server:
        summary, folder = policy(write(tmp_path, tiny_model_dir, endpoint(server)), tmp_path / "runs")
    assert summary.exit == 0, summary.error
    for row in read_log(folder / "log.jsonl"):
        assert row["environment_failed"] == row["missing"] == 0.25
    lost = [talk for talk in stored(folder) if talk.get("lost")]
    assert {talk["sample"]["id"] for talk in lost} == {"w3"}
    assert all(
        talk["lost"].startswith("ConnectionError: the model that the environment asks: error: ") for talk in lost
    )


def test_a_spent_budget_stops_training_and_loses_nothing(whole: Whole, tmp_path: Path) -> None:
    limit = whole.needed // 3
    summary, short = policy(whole.path, tmp_path, f"{POLICY}.client.max_calls={limit}")
    assert summary.exit == 4
    assert f"over budget: {limit} of {limit} calls are made" in summary.error
    assert len(ledger(short)) == limit
    summary, done = policy(whole.path, tmp_path)
    assert done == short
    assert summary.exit == 0, summary.error
    assert len(ledger(done)) == whole.needed
    assert whole.same_as(done)


def test_two_processes_share_a_budget_and_converse_as_one(whole: Whole, tmp_path: Path) -> None:
    """Each asks for itself, with half of the limit."""
    two = whole.path.with_name("two.yaml")
    two.write_text(whole.path.read_text().replace("iterations: 2", "iterations: 2, devices: 2, strategy: ddp"))
    short = whole.path.with_name("short.yaml")
    short.write_text(two.read_text().replace('"concurrency": 3', '"concurrency": 3, "max_calls": 11'))
    ended = fgrl("run", short, "--only", "policy", "--runs", tmp_path, cwd=tmp_path)
    assert ended.returncode == 4, ended.stderr
    assert "5 of 5 calls are made" in ended.stderr
    assert "one of 2 processes, which share max_calls evenly" in ended.stderr
    folder = next((tmp_path / "stages").glob("policy-*"))
    assert 5 <= len(ledger(folder)) <= 10
    ended = fgrl("run", two, "--only", "policy", "--runs", tmp_path, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert len(ledger(folder)) == whole.needed
    parts = ("sample", "turns", "turn", "response", "lost")
    assert [[line.get(part) for part in parts] for line in stored(folder)] == [
        [line.get(part) for part in parts] for line in stored(whole.folder)
    ]


def test_an_unknown_model_ends_the_run_with_its_message(tiny_model_dir: Path, tmp_path: Path) -> None:
    with FaultServer(lambda prompt, attempt: "404") as server:
        summary, _folder = policy(write(tmp_path, tiny_model_dir, endpoint(server)), tmp_path / "runs")
    assert summary.exit == 2
    assert "404" in summary.error


def test_answers_of_a_file_and_of_a_model_in_this_process(tiny_model_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_text(
        '{"contains": "mill", "answer": "It grinds."}\n{"any": true, "answer": "No."}\n'
    )
    path = write(tmp_path, tiny_model_dir, {"name": "replay", "answers": str(tmp_path / "answers.jsonl")})
    summary, folder = policy(path, tmp_path / "runs")
    assert summary.exit == 0, summary.error
    said = {(talk["sample"]["id"], turn["observation"]) for talk in stored(folder) for turn in talk["turns"]}
    assert said == {("w3", "It grinds."), *((f"w{number}", "No.") for number in range(3))}
    local = {"name": "local", "model": str(tiny_model_dir), "max_tokens": 4, "temperature": 1.0}
    summary, folder = policy(write(tmp_path, tiny_model_dir, local), tmp_path / "local")
    assert summary.exit == 0, summary.error
    calls = [line["key"] for line in ledger(folder)]
    assert len(calls) == len(set(calls)) > 8
    assert all(row["environment_failed"] == 0 for row in read_log(folder / "log.jsonl"))


def test_a_killed_run_asks_nothing_twice(whole: Whole, tmp_path: Path) -> None:
    def killed() -> None:
        put, stored = CompletionStore.put, iter(range(10_000))

        def last(self: CompletionStore, *answer: Any) -> Any:
            kept = put(self, *answer)
            if next(stored) == 17:
                os.kill(os.getpid(), signal.SIGKILL)
            return kept

        CompletionStore.put = last  # type: ignore[method-assign]
        policy(whole.path, tmp_path, f"{POLICY}.client.concurrency=1")

    before = len(whole.server.seen)
    assert os.waitpid(forked(killed), 0)[1] == signal.SIGKILL
    summary, done = policy(whole.path, tmp_path)
    assert summary.exit == 0, summary.error
    assert len(whole.server.seen) == before + whole.needed
    assert whole.same_as(done)
    assert (done / "out" / "rollouts.jsonl").read_bytes() == (whole.folder / "out" / "rollouts.jsonl").read_bytes()


def test_samples_are_shown_with_the_prompt_of_the_environment(tiny_model_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_text('{"any": true, "answer": "No."}\n')
    path = write(tmp_path, tiny_model_dir, {"name": "replay", "answers": str(tmp_path / "answers.jsonl")})
    with scratch_imports(), scratch_run("sampled") as run:
        stage: Any = recipe.load(path).stages["sampled"]
        first, _second = stage.inspect(run, 2)
    assert "".join(first.tokens).startswith("<s><|user|>\nI think of a word.")
    assert first.note == "reference: lamp"

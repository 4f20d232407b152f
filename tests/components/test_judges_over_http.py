"""Judged metrics through the real client, against a judge on loopback that follows a rule; and through `replay`."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fgrl import registry
from fgrl.commands.checking import estimate_lines
from fgrl.experiments.pipeline.estimating import Peek
from fgrl.experiments.pipeline.run import Run
from fgrl.experiments.recipe import know_components
from fgrl.kinds import Stage

PROMPTS = Path(__file__).resolve().parents[2] / "prompts"
Rule = Callable[[str, str], Any]


@contextmanager
def judge(rule: Rule) -> Iterator[tuple[str, list[Any]]]:
    """An endpoint whose answer to a pairwise prompt is `rule(first, second)`: text, an HTTP status, or a whole choice."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append(body)
            text = "\n".join(message["content"] for message in body["messages"][:2])
            shown = [re.search(rf"<answer_{n}>\n(.*?)\n</answer_{n}>", text, re.DOTALL) for n in (1, 2)]
            said = rule(*(found[1] if found else "" for found in shown))
            status, answer = 200, said
            if isinstance(said, int):
                status, answer = said, None
            elif isinstance(said, str):
                answer = {"message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
            found = {"error": {"message": "no"}} if answer is None else completion(answer)
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def completion(choice: dict[str, Any]) -> dict[str, Any]:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return {
        "id": "1", "object": "chat.completion", "created": 1, "model": "rule", "usage": usage,
        "choices": [{"index": 0, **choice}],
    }  # fmt: skip


def client(address: str) -> dict[str, Any]:
    return {
        "name": "openai", "model": "rule", "base_url": address, "api_key_env": None, "max_retries": 0,
        "max_calls": 200, "max_tokens": 64, "prices": {"prompt": 1.0, "completion": 2.0},
    }  # fmt: skip


def stage(folder: Path, judge: dict[str, Any], ours: list[str], theirs: list[str], **fields: Any) -> Any:
    know_components()

    def lines(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return {"name": "jsonl", "path": str(path)}

    def answers(name: str, texts: list[str]) -> dict[str, Any]:
        return lines(
            name, [{"id": str(n), "prompt": "", "responses": [{"text": text}]} for n, text in enumerate(texts)]
        )

    metric = {"name": "win_rate", "client": judge, "prompt": str(PROMPTS / "judge_pairwise.txt"), **fields}
    node = {
        "name": "evaluate", "baseline": "theirs", "metrics": [metric],
        "prompts": lines("prompts", [{"id": str(n), "prompt": f"Question {n}?"} for n in range(len(ours))]),
        "given": {"ours": answers("ours", ours), "theirs": answers("theirs", theirs)},
    }  # fmt: skip
    return registry.build(Stage, node)


def numbers(made: Any, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What one run of the stage measured, and what its summary says."""
    run = Run("evaluate", folder / "stage", cache=folder / "cache")
    run.out.mkdir(parents=True, exist_ok=True)
    run.cache.mkdir(exist_ok=True)
    summary = made.run(run)
    return json.loads((run.out / "metrics.json").read_text())["metrics"]["win_rate"]["ours"], summary


LONG, SHORT = [f"a long answer {n}" for n in range(6)], [f"short {n}" for n in range(6)]


def test_a_judge_that_always_takes_the_first_gives_half_and_a_bias_of_one(tmp_path: Path) -> None:
    with judge(lambda first, second: "[[1]]") as (address, asked):
        found, summary = numbers(stage(tmp_path, client(address), LONG, SHORT), tmp_path)
    assert (found["win_rate"]["mean"], found["position_bias"]["mean"]) == (0.5, 1.0)
    assert len(asked) == 12
    assert summary["win_rate: questions"] == 12


def test_the_longer_one_wins_and_a_second_run_asks_nothing(tmp_path: Path) -> None:
    with judge(lambda first, second: f"[[{1 if len(first) > len(second) else 2}]]") as (address, asked):
        made = stage(tmp_path, client(address), LONG, SHORT)
        first, _ = numbers(made, tmp_path)
        again, summary = numbers(stage(tmp_path, client(address), LONG, SHORT), tmp_path)
    assert first == again
    assert (first["win_rate"]["mean"], first["position_bias"]["mean"], first["failed"]["mean"]) == (1.0, 0.0, 0.0)
    assert len(asked) == 12
    assert summary["win_rate: cached"] == 12


def test_ties_refusals_garbage_and_broken_endpoints_are_counted_apart(tmp_path: Path) -> None:
    ours = ["tie", "refuse", "decline", "garbage", "broken", "win"]
    said = {
        "tie": "Equal. [[tie]]", "refuse": "I'm sorry, but I cannot compare these.", "garbage": "[[1]][[2]]", "broken": 500,
        "decline": {"message": {"role": "assistant", "content": None, "refusal": "No."}, "finish_reason": "stop"},
    }  # fmt: skip

    def rule(first: str, second: str) -> Any:
        mine = first if first in ours else second
        return said.get(mine, f"[[{1 if mine == first else 2}]]")

    with judge(rule) as (address, asked):
        found, summary = numbers(stage(tmp_path, client(address), ours, SHORT), tmp_path)
    shares = {name: round(found[name]["mean"] * 12) for name in ("refused", "unparsed", "failed")}
    assert shares == {"refused": 4, "unparsed": 2, "failed": 2}
    assert (found["win_rate"]["mean"], found["win_rate"]["n"]) == (0.75, 2)
    assert (found["ties"]["mean"], found["ties"]["n"]) == (0.5, 4)
    assert found["position_bias"]["mean"] == 0.0
    assert summary["win_rate: failed"] == 8
    assert (
        len(asked) == 12 + 2 + 2
    )  # what says nothing that can be read is asked once more, and so is a refusal in words


def test_log_probabilities_are_used_where_the_endpoint_gives_them(tmp_path: Path) -> None:
    def rule(first: str, second: str) -> Any:
        top = [{"token": "1", "logprob": -0.1053605}, {"token": "2", "logprob": -2.3025851}]  # 0.9 and 0.1
        content = [{"token": "1", "logprob": -0.1053605, "top_logprobs": top}]
        return {
            "message": {"role": "assistant", "content": "1"}, "finish_reason": "length",
            "logprobs": {"content": content} if "0" not in first + second else None,
        }  # fmt: skip

    fields = {"weighting": "logprob", "prompt": str(PROMPTS / "judge_choice.txt")}
    with judge(rule) as (address, asked):
        found, _ = numbers(stage(tmp_path, client(address), LONG, SHORT, **fields), tmp_path)
    assert all(body["logprobs"] and body["max_tokens"] == 1 for body in asked)
    assert found["win_rate"]["mean"] == pytest.approx(0.5)
    assert found["position_bias"]["mean"] == 1.0
    assert found["hard"]["mean"] == pytest.approx(1 / 6)


def test_replay_judges_from_a_file(tmp_path: Path) -> None:
    lines = [
        {"contains": "<answer_1>\na long", "answer": "[[1]]"},
        {"contains": "<answer_2>\na long answer 0", "answer": "[[1]]"},
        {"any": True, "answer": "[[2]]"},
    ]
    (tmp_path / "judge.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = stage(tmp_path, {"name": "replay", "answers": str(tmp_path / "judge.jsonl")}, LONG, SHORT)
    found, _ = numbers(made, tmp_path)
    assert found["win_rate"]["mean"] == pytest.approx(5.5 / 6)
    assert found["inconsistent"]["mean"] == pytest.approx(1 / 6)


def test_a_plan_says_how_many_questions_and_what_they_cost_at_most(tmp_path: Path) -> None:
    with judge(lambda first, second: "[[1]]") as (address, asked):
        made = stage(tmp_path, client(address), LONG, SHORT)
        estimate = made.estimate(Peek(tmp_path / "cache", None, {}))
        assert asked == []
        numbers(made, tmp_path)
    calls = estimate["calls"]
    assert calls["calls"] == len(asked) == 12
    assert calls["completion tokens"] == 12 * 64
    assert calls["usd"] == pytest.approx((calls["prompt tokens"] + 2 * 12 * 64) / 1e6)
    (line,) = [line for line in estimate_lines(estimate) if line.startswith("calls")]
    assert line.startswith("calls: 12 to make, ")
    again = made.estimate(Peek(tmp_path / "cache", None, {}))["calls"]
    assert (again["calls"], again["cached"]) == (0, 12)
    assert made.estimate(Peek(tmp_path / "empty", 2, {}))["calls"]["calls"] == 4


def test_a_plan_bounds_what_models_are_still_to_say(tmp_path: Path) -> None:
    """Two models against one that is given, two turns: calls are exact, tokens at most."""
    know_components()
    rows = [{"id": str(n), "prompt": "Why?", "meta": {"follow_ups": ["And?"]}} for n in range(5)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asks = {"client": client("http://127.0.0.1:9/v1")}
    node = {
        "name": "evaluate", "prompts": {"name": "jsonl", "path": str(tmp_path / "p.jsonl")}, "baseline": "rival",
        "models": {"a": "nobody/nothing", "b": "nobody/nothing"}, "per_prompt": 2,
        "given": {"rival": {"name": "jsonl", "path": str(tmp_path / "p.jsonl")}},
        "sampling": {"max_new_tokens": 100, "max_prompt_tokens": 50},
        "metrics": [{"name": "win_rate", "prompt": str(PROMPTS / "judge_pairwise.txt"), **asks},
                    {"name": "rating", "prompt": str(PROMPTS / "judge_rating.txt"), **asks}],
    }  # fmt: skip
    made: Any = registry.build(Stage, node)
    calls = made.estimate(Peek(tmp_path, None, {}))["calls"]
    assert calls["calls"] == 2 * 2 * 5 * 2 + 3 * 5 * 2 * 2
    assert calls["completion tokens"] == calls["calls"] * 64
    assert calls["prompt tokens"] >= 40 * (50 + 2 * 2 * 100) + 60 * (50 + 2 * 100)
    assert estimate_lines({"calls": calls})[0].startswith("calls: 100 to make, at most ")

"""An endpoint whose every odd answer stays with its own request: nothing else is lost, and all that was charged is known."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from client_helpers import a_client, a_run, request
from fault_server import FaultServer

from fgrl.components.judges.llm import LLMJudge
from fgrl.experiments.pipeline import execute
from fgrl.experiments.recipe import load
from fgrl.feedback.llm.prices import Price
from fgrl.feedback.llm.reading import odds
from fgrl.types import Criterion, Sample, write_jsonl

GOOD = 2_000
CENT = Price(prompt=1000, completion=1000)
"""10 + 5 tokens cost 0.015 USD."""
NESTED = b"[" * 200_000


def completion(**changes: Any) -> dict[str, Any]:
    """A chat completion with the text "YES"; `content`, `message`, `choice` and `usage` replace parts of it."""
    message = {"role": "assistant", "content": changes.get("content", "YES"), **changes.get("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": "stop", **changes.get("choice", {})}
    usage = changes.get("usage", {"prompt_tokens": 10, "completion_tokens": 5})
    return {"choices": [choice], "usage": usage, **changes.get("body", {})}


def likely(*tokens: Any) -> dict[str, Any]:
    return {"logprobs": {"content": [{"top_logprobs": list(tokens)}]}}


PART = {"type": "text", "text": "Y"}
READ: dict[str, dict[str, Any]] = {
    "parts": completion(content=[PART, {"type": "text", "text": "ES"}]),
    "parts-with-thoughts": completion(
        content=[{"type": "thinking", "thinking": [PART]}, {"type": "text", "text": "YES"}]
    ),
    "logprobs-nan": completion(choice={"logprobs": math.nan}),
    "logprobs-text": completion(choice={"logprobs": "none"}),
    "logprobs-deep": completion(choice={"logprobs": {"content": {"0": 1}}}),
    "top-nan": completion(choice=likely({"token": "YES", "logprob": math.nan})),
    "top-huge": completion(choice=likely({"token": "YES", "logprob": 1e308})),
    "top-integer": completion(choice=likely({"token": "YES", "logprob": 10**4000})),
    "top-without-token": completion(choice=likely({"logprob": -1.0})),
    "top-of-nothing": completion(choice=likely({"token": 1, "logprob": -1.0}, {"token": "1", "logprob": None}, 7)),
    "tokens-4000-digits": completion(usage={"prompt_tokens": 10**4000, "completion_tokens": 5}),
    "tokens-huge": completion(usage={"prompt_tokens": 10, "completion_tokens": 10**30}),
    "tokens-nan": completion(usage={"prompt_tokens": math.nan, "completion_tokens": 5}),
    "tokens-infinite": completion(usage={"prompt_tokens": math.inf, "completion_tokens": math.inf}),
    "usage-nan": completion(usage=math.nan),
    "usage-list": completion(usage=[10, 5]),
    "finish-half-a-character": completion(choice={"finish_reason": "\ud83d"}),
    "details-huge": completion(
        usage={"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 10**4000}}
    ),
}
"""Answers whose text can be read."""

FAILED: dict[str, Any] = {
    "nested": NESTED,
    "nested-in-an-answer": json.dumps(completion()).encode()[:-1] + b', "more": ' + NESTED,
    "nested-objects": b'{"choices":' * 200_000,
    "integer-5000-digits": b'{"choices": ' + b"9" * 5_000 + b"}",
    "nothing": b"",
    "not-utf-8": b'{"choices": "\xff\xfe"}',
    "number": completion(content=5),
    "parts-of-numbers": completion(content=[1, 2]),
    "parts-without-text": completion(content=[{"type": "image_url", "image_url": "x"}]),
    "message-list": completion(body={"choices": [{"message": []}]}),
    "finish-list": completion(choice={"finish_reason": ["stop"]}),
    "refusal-list": completion(content=None, message={"refusal": [{"because": "no"}]}),
}
"""Answers without a text that can be read, as bytes or as the body; all of them may have been charged."""

SENT: dict[str, tuple[int, dict[str, str], bytes]] = {
    "not-gzip": (200, {"content-encoding": "gzip"}, json.dumps(completion()).encode()),
    "400-nested": (400, {}, NESTED),
    "400-half-a-character": (400, {}, b'{"error": {"message": "no \\ud83d", "code": {"a": 1}}}'),
    "400-list": (400, {}, b'["no", ["no"]]'),
    "400-charset": (400, {"content-type": "text/plain; charset=rot13"}, b'{"error": "no"}'),
    "500-pause": (500, {"retry-after": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"}, b"no"),
}
"""Status, headers and body of what cannot be read."""


class OddServer(FaultServer):
    """A prompt that begins with one of the names above gets that answer; any other one a good answer."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(answer=lambda prompt, body: "YES", **settings)
        self.charged: Counter[str] = Counter()
        """How often an answer was sent with status 200, by prompt."""

    async def _serve_one(
        self, headers: dict[str, str], body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        prompt = body["messages"][-1]["content"]
        status, more, content = self._odd(prompt.partition(" ")[0])
        self.charged[prompt] += status == 200
        if status == 0:
            self.charged[prompt] += 1
            return await super()._serve_one(headers, body, reader, writer)
        self.asked[prompt] += 1
        head = {"content-type": "application/json", "content-length": str(len(content)), **more}
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in head.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + content)
        await writer.drain()
        return True

    @staticmethod
    def _odd(name: str) -> tuple[int, dict[str, str], bytes]:
        if name in SENT:
            return SENT[name]
        body = READ.get(name, FAILED.get(name))
        if body is None:
            return 0, {}, b""
        return 200, {}, body if isinstance(body, bytes) else json.dumps(body).encode()


def ledger(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", [*READ, *FAILED, *SENT])
def test_an_odd_answer_is_its_own_requests_alone(tmp_path: Path, name: str) -> None:
    with OddServer() as server:
        run = a_run(tmp_path)
        client = a_client(server.url, run, prices=CENT, max_tokens=10, max_retries=0, budget_usd=1000)
        before, odd, after = client.complete([request(text, logprobs=2) for text in ("good a", f"{name} b", "good c")])
        assert (before.text, after.text) == ("YES", "YES")
        assert (odd.text, odd.error is None) == (("YES", True) if name in READ else ("", False)), odd
        assert len(ledger(run.dir)) == sum(server.charged.values()) == client.counts()["calls"]
        spent = client.counts()["usd"]
        assert 0.03 <= spent < 1
        assert odds(odd.logprobs, "YES", "NO") in (None, 1.0)
        again = a_client(server.url, a_run(tmp_path), prices=CENT, max_tokens=10, max_retries=0, budget_usd=1000)
        assert again.counts()["usd"] == spent
        assert again.complete([request("good d")])[0].text == "YES"  # nothing of it blocks the budget


def test_odd_answers_among_two_thousand_good_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through `fgrl run`: a stage of many questions, three of each odd kind."""
    monkeypatch.chdir(tmp_path)
    names = [*READ, *FAILED, *SENT]
    prompts = [f"good {number}" for number in range(GOOD)]
    prompts += [f"{name} {number}" for name in names for number in range(3)]
    random.Random(0).shuffle(prompts)
    (tmp_path / "ask.txt").write_text("{prompt}", encoding="utf-8")
    write_jsonl(tmp_path / "prompts.jsonl", (Sample(id=str(n), prompt=text) for n, text in enumerate(prompts)))
    with OddServer() as server:
        (tmp_path / "r.yaml").write_text(
            f"""
about: "Questions to an endpoint with odd answers."
stages:
  answered:
    name: annotate
    data: {{name: jsonl, path: prompts.jsonl}}
    annotator:
      name: answer
      prompt: ask.txt
      tries: 1
      client: {{name: openai, model: m, base_url: "{server.url}", api_key_env: null, max_retries: 1}}
""",
            encoding="utf-8",
        )
        ended = execute(load("r.yaml"), tmp_path / "runs")
        assert ended.exit == 0, ended.error
    summary = ended.stages["answered"].summary
    odd = 3 * (len(FAILED) + len(SENT))
    assert (summary["questions"], summary["failed"], summary["failed: error"]) == (len(prompts), odd, odd)
    (folder,) = (tmp_path / "runs").glob("stages/answered-*")
    kept = {
        json.loads(line)["prompt"]
        for line in next(folder.rglob("samples.jsonl")).read_text(encoding="utf-8").splitlines()
    }
    assert kept == {text for text in prompts if text.partition(" ")[0] not in {*FAILED, *SENT}}
    assert len(ledger(folder)) == sum(server.charged.values()) == summary["calls"]
    failures = [json.loads(line) for line in (folder / "failed.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(failures) == odd
    assert all(failure["reason"].isprintable() for failure in failures)


def test_a_failed_judgement_is_missing_and_counted_never_a_no(tmp_path: Path) -> None:
    (tmp_path / "judge.txt").write_text("{response} {criterion}", encoding="utf-8")
    responses = ["good", *READ, *FAILED, *SENT]
    with OddServer() as server:
        client = a_client(server.url, a_run(tmp_path), max_retries=0)
        judge = LLMJudge(client=client, prompt=str(tmp_path / "judge.txt"), tries=1)
        sample = Sample(id="s", prompt="p")
        verdicts = judge.decide([(sample, response, Criterion(text="is it so?")) for response in responses])
    assert dict(zip(responses, verdicts, strict=True)) == {
        name: None if name in {*FAILED, *SENT} else True for name in responses
    }
    counts = judge.counts()
    assert counts["questions"] == len(responses)
    assert counts["failed"] == len(FAILED) + len(SENT)

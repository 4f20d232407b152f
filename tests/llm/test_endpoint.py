"""The `openai` client against a misbehaving server on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from client_helpers import a_client, a_run, request, requests
from fault_server import FaultServer
from patience import HUNG

from fgrl import registry
from fgrl.base.console import Console
from fgrl.base.errors import OverBudget, Unavailable
from fgrl.feedback.llm.asking import Question, ask
from fgrl.feedback.llm.prices import Price
from fgrl.feedback.llm.reading import Refused
from fgrl.types import Completion, Request

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
CENT = Price(prompt=1000, completion=1000)
"""10 + 5 tokens cost 0.015 USD."""

# -- faults ------------------------------------------------------------------------------------------------------------

ONCE = ["429", "500", "503", "cut", "cut-body", "malformed", "no-body", "no-choices"]
"""What goes wrong at the first attempt only."""


def storm(prompt: str, attempt: int) -> str:
    """One request in ten meets something; a few never get an answer."""
    number = int(prompt[1:])
    if number % 100 == 7:
        return ("500", "cut", "malformed", "400", "empty")[number // 100]
    if number % 125 == 11:
        return "hang" if attempt == 0 else "ok"
    if number % 10 == 3:
        place = number // 10 % (len(ONCE) + 2)
        if place < len(ONCE):
            return ONCE[place] if attempt == 0 else "ok"
        return ("late:0.2", "truncated")[place - len(ONCE)]
    return "ok"


def test_five_hundred_requests_in_a_storm(tmp_path: Path) -> None:
    with FaultServer(storm) as server:
        client = a_client(server.url, a_run(tmp_path), timeout=10.0, max_retries=2)
        answers = client.complete(requests(500))
        lost = [number for number in range(500) if number % 100 == 7]
        for number, answer in enumerate(answers):
            if number in lost:
                assert answer.error, number
                assert answer.text == ""
            else:
                assert (answer.text, answer.error) == (f"echo: q{number}", None)
                assert answer.finish == ("length" if storm(f"q{number}", 0) == "truncated" else "stop")
        assert "HTTP 500: no:" in answers[7].error
        assert "no answer: " in answers[107].error
        assert "no chat completion" in answers[207].error
        assert "HTTP 400" in answers[307].error
        assert "the answer is empty" in answers[407].error
        assert set(server.answered.values()) == {1}
        assert len(server.answered) == 495
        assert server.most_flying <= 32
        assert server.asked["q307"] == server.asked["q407"] == 1
        assert server.asked["q7"] == 3
        first = sum(server.asked.values())
        again = client.complete(requests(500))
        assert [answer.text for answer in again] == [answer.text for answer in answers]
        assert all(answer.cached for answer in again if answer.error is None)
        assert sum(server.asked.values()) - first == 3 + 3 + 3 + 1 + 1
        assert client.counts()["failed"] == 10


def test_retry_after_is_honoured(tmp_path: Path) -> None:
    with FaultServer(lambda prompt, attempt: "429:1.2" if attempt == 0 else "ok") as server:
        (answer,) = a_client(server.url, a_run(tmp_path)).complete(requests(1))
        first, second = (seen["time"] for seen in server.seen)
    assert answer.text == "echo: q0"
    assert second - first >= 1.2


@pytest.mark.parametrize("how", ["hang", "drip"])
def test_an_attempt_that_takes_too_long_ends_in_time(tmp_path: Path, how: str) -> None:
    with FaultServer(lambda prompt, attempt: how) as server:
        client = a_client(server.url, a_run(tmp_path), timeout=0.3, max_retries=0)
        (answer,) = client.complete(requests(1))
    assert answer.error == "no answer: ReadTimeout: Request timed out."
    assert client.counts()["calls"] == 1, "it may have been charged"


def test_a_connection_that_is_not_accepted_in_time_costs_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, contextlib.ExitStack() as waiting:
        for _ in range(2):  # more are not let in until somebody accepts one
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        client = a_client(url, a_run(tmp_path), timeout=0.5, max_retries=0)
        with pytest.raises(Unavailable, match=r"ConnectTimeout.*is the server running"):
            client.complete(requests(1))
    assert client.counts()["calls"] == 0


def test_connections_are_used_again_until_the_stage_ends(tmp_path: Path) -> None:
    with FaultServer() as server, contextlib.closing(a_run(tmp_path)) as run:
        client = a_client(server.url, run, concurrency=4)
        answers = client.complete(requests(60))
        assert server.connections <= 4
        for number in range(5):  # as an environment asks: one question at a time
            client.complete_alone([request(f"turn {number}")])
        assert server.connections <= 4
        assert server.open > 0
        run.close()
        until = time.monotonic() + HUNG
        while server.open and time.monotonic() < until:
            time.sleep(0.01)
        assert not server.open
        client.complete([request("after it")])
    assert [answer.text for answer in answers] == [f"echo: q{number}" for number in range(60)]


def test_more_than_a_hundred_connections_are_kept(tmp_path: Path) -> None:
    with FaultServer(latency=0.2) as server, contextlib.closing(a_run(tmp_path)) as run:
        a_client(server.url, run, concurrency=150).complete(requests(450))
        assert server.connections <= 150


@pytest.mark.parametrize(
    ("plan", "settings", "message"),
    [
        ("401", {}, r"takes no request without a key \(HTTP 401"),
        ("403", {}, "HTTP 403"),
        ("404", {}, r"has no model m \(HTTP 404"),
        ("402", {}, r"quota is used up \(HTTP 402"),
        ("429:insufficient_quota", {"max_retries": 0}, "quota is used up"),
        ("429:3600", {}, r"asks for a pause of 3,600 s .*run the same command after it"),
    ],
)
def test_what_no_request_would_survive_stops_at_once(tmp_path: Path, plan: str, settings: dict, message: str) -> None:
    def only(prompt: str, attempt: int) -> str:
        return plan

    with FaultServer(only, retry_after=0.01) as server:
        client = a_client(server.url, a_run(tmp_path), **settings)
        with pytest.raises(Unavailable, match=message):
            client.complete(requests(500))
        assert sum(server.asked.values()) <= 64


def test_a_redirect_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "a-key-for-the-first-server")
    with FaultServer() as other:

        class Redirecting(FaultServer):
            redirect = f"http://ann:pw@127.0.0.1:{other.port}/v1/chat/completions?to=b"

        with Redirecting(lambda prompt, attempt: "307") as server:
            client = a_client(server.url, a_run(tmp_path), api_key_env="MY_KEY")
            wanted = rf"sends requests on to http://127.0.0.1:{other.port}/v1/chat/completions \(HTTP 307\).*write it as `base_url`"
            with pytest.raises(Unavailable, match=wanted):
                client.complete(requests(3))
        assert server.asked
        assert other.connections == 0, "neither the key nor a prompt went there"


def test_a_redirect_in_the_middle_is_a_passing_fault(tmp_path: Path) -> None:
    """The one that goes away is asked again, the one that stays fails alone; nothing goes where it leads."""

    def plan(prompt: str, attempt: int) -> str:
        return "307" if prompt == "q9" or (prompt == "q4" and attempt == 0) else "ok"

    with FaultServer() as other:

        class Redirecting(FaultServer):
            redirect = f"{other.url}/chat/completions"

        with Redirecting(plan) as server:
            answers = a_client(server.url, a_run(tmp_path), concurrency=1, max_retries=1).complete(requests(20))
            assert [number for number, answer in enumerate(answers) if answer.error] == [9]
            assert f"HTTP 307: {other.url}" in answers[9].error
            assert server.asked["q4"] == server.asked["q9"] == 2
        assert other.connections == 0


@pytest.mark.parametrize(
    ("given", "asked", "sent"),
    [({"max_tokens": 64}, 4096, 64), ({"max_tokens": 64}, 16, 16), ({"max_tokens": 64}, None, 64), ({}, 4096, 4096), ({}, None, 1024)],
)  # fmt: skip
def test_the_smaller_limit_of_an_answer_is_sent(
    given: dict[str, Any], asked: int | None, sent: int, tmp_path: Path
) -> None:
    with FaultServer() as server:
        client = a_client(server.url, a_run(tmp_path), **given)
        client.complete([request("q", max_tokens=asked)])
    assert server.seen[0]["body"]["max_tokens"] == sent
    assert ("max_tokens" in registry.dump(client, for_key=True)) == bool(given), "another result has another key"


def test_nobody_there(tmp_path: Path) -> None:
    with FaultServer() as server:
        url = server.url
    client = a_client(url, a_run(tmp_path), max_retries=1)
    with pytest.raises(Unavailable, match=f"no answer from {url} .*is the server running"):
        client.complete(requests(100))


def test_a_server_that_ends_stops_the_run_and_keeps_what_it_said(tmp_path: Path) -> None:
    with FaultServer() as server:
        client = a_client(server.url, a_run(tmp_path), concurrency=1, max_retries=0)
        client.complete(requests(20))
    with pytest.raises(
        Unavailable, match=f"no answer from {server.url} .*it did before; .*only what is missing is asked"
    ):
        client.complete(requests(40))
    with FaultServer(port=server.port) as again:
        assert all(answer.text for answer in a_client(server.url, a_run(tmp_path)).complete(requests(40)))
        assert set(again.asked) == {f"q{number}" for number in range(20, 40)}


def test_failures_are_listed_and_their_reasons_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def plan(prompt: str, attempt: int) -> str:
        return {"q3": "400", "q4": "empty", "q5": "400"}.get(prompt, "ok")

    with FaultServer(plan) as server:
        client = a_client(server.url, a_run(tmp_path, console=Console()))
        client.complete(requests(10))
    said = " ".join(capsys.readouterr().err.split())
    assert "3 of 10 requests to m got no answer: 2 x HTTP 400: no:" in said
    assert "; 1 x m: the answer is empty (each is in " in said
    lines = [json.loads(line) for line in (tmp_path / "stage" / "failed.jsonl").read_text().splitlines()]
    assert {line["key"] for line in lines} == {client.key(request(f"q{number}")) for number in (3, 4, 5)}
    assert sorted(line["reason"] for line in lines)[-1] == "m: the answer is empty"


def test_failures_name_their_sample_and_refused_answers_are_among_them(tmp_path: Path) -> None:
    def read(text: str) -> str:
        if "q2" in text:
            raise Refused("it declines")
        return text

    questions = [Question(request(f"q{n}").model_copy(update={"about": f"sample {n}"}), read) for n in range(5)]
    with FaultServer(lambda prompt, attempt: "400" if prompt == "q1" else "ok") as server:
        asked = ask(a_client(server.url, a_run(tmp_path)), questions, tries=1)
    assert [answer.failure for answer in asked] == [None, "error", "refused", None, None]
    lines = [json.loads(line) for line in (tmp_path / "stage" / "failed.jsonl").open(encoding="utf-8")]
    reasons = {line["about"]: line["reason"] for line in lines}
    assert reasons.keys() == {"sample 1", "sample 2"}
    assert reasons["sample 2"] == "refused: it declines"


def test_a_forbidden_request_among_others_is_a_failure(tmp_path: Path) -> None:
    with FaultServer(lambda prompt, attempt: "403" if prompt == "q5" else "ok") as server:
        answers = a_client(server.url, a_run(tmp_path), concurrency=1).complete(requests(10))
    assert [number for number, answer in enumerate(answers) if answer.error] == [5]


# -- what is sent and what comes back ----------------------------------------------------------------------------------


def test_what_is_sent(tmp_path: Path) -> None:
    with FaultServer(lambda prompt, attempt: "ok") as server:
        client = a_client(
            server.url, a_run(tmp_path), temperature=0.3, top_p=0.9, max_tokens=9, seed=5, stop=["\n"], concurrency=1
        )
        ask = [
            request("a", sample=2),
            request("b", temperature=0.0, max_tokens=3, logprobs=2),
            request("c", json_schema=SCHEMA),
        ]
        answers = client.complete(ask)
        sent = [seen["body"] for seen in server.seen]
    shared = {"model": "m", "top_p": 0.9, "stop": ["\n"]}
    assert sent[0] == shared | {
        "messages": [{"role": "user", "content": "a"}],
        "temperature": 0.3,
        "max_tokens": 9,
        "seed": 7,
    }
    assert sent[1] == shared | {
        "messages": [{"role": "user", "content": "b"}], "temperature": 0.0, "max_tokens": 3, "seed": 5,
        "logprobs": True, "top_logprobs": 2,
    }  # fmt: skip
    assert sent[2]["response_format"] == {
        "type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
    }  # fmt: skip
    assert answers[1].logprobs == {"A": -0.1, "B": -2.5}
    assert answers[0].logprobs is None


def test_null_leaves_out_and_the_limit_has_two_names(tmp_path: Path) -> None:
    with FaultServer() as server:
        client = a_client(server.url, a_run(tmp_path), temperature=None, max_tokens_name="max_completion_tokens")
        client.complete([request("a")])
        assert server.seen[0]["body"] == {
            "model": "m", "messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 1024,
        }  # fmt: skip


@pytest.mark.parametrize("refusal", ["refuse-schema", "refuse-schema:500"])
def test_schemas_fall_back_once_and_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str], refusal: str) -> None:
    with FaultServer(lambda prompt, attempt: refusal) as server:
        run = a_run(tmp_path, console=Console())
        client = a_client(server.url, run, concurrency=2)
        answers = client.complete([request(f"q{number}", json_schema=SCHEMA) for number in range(20)])
        assert all(answer.text for answer in answers)
        tried = [seen["body"].get("response_format", {}).get("type") for seen in server.seen]
    assert tried.count("json_schema") <= 2
    assert tried.count("json_object") <= 2
    assert tried.count(None) == 20
    said = capsys.readouterr().err
    assert said.count("the endpoint refuses `response_format` schema") == 1
    assert said.count("write `structured: none`") == 1


def test_without_auto_a_refused_schema_is_a_failure(tmp_path: Path) -> None:
    with FaultServer(lambda prompt, attempt: "refuse-schema") as server:
        client = a_client(server.url, a_run(tmp_path), structured="schema")
        (answer,) = client.complete([request("q", json_schema=SCHEMA)])
    assert "response_format is not supported" in answer.error


def test_identical_requests_are_asked_once_and_paid_once(tmp_path: Path) -> None:
    with FaultServer() as server:
        client = a_client(server.url, a_run(tmp_path), prices=CENT)
        answers = client.complete([request("a"), request("b"), request("a"), request("a", sample=1)])
        assert dict(server.asked) == {"a": 2, "b": 1}
    assert [answer.cached for answer in answers] == [False, False, True, False]
    assert [answer.usage.usd for answer in answers] == [0.015, 0.015, 0.0, 0.015]


def test_an_unknown_price_stays_unknown(tmp_path: Path) -> None:
    with FaultServer() as server:
        client = a_client(server.url, a_run(tmp_path))
        assert client.complete([request("a")])[0].usage.usd is None
        assert client.counts()["usd"] == "unknown"
    line = json.loads((tmp_path / "stage" / "calls.jsonl").read_text())
    assert (line["usd"], line["prompt_tokens"], line["status"]) == (None, 10, "answered")


def test_an_endpoint_that_counts_no_tokens_leaves_the_price_unknown(tmp_path: Path) -> None:
    with FaultServer(usage=None) as server:
        client = a_client(server.url, a_run(tmp_path), prices=CENT, max_tokens=10)
        (answer,) = client.complete([request("a")])
        assert answer.usage.usd is None
        assert client.counts()["usd"] > 10 * 1000 / 1e6  # it may have cost as much as its limit allows


class Odd(FaultServer):
    """Answers q1 with a completion that `spoil` has changed."""

    def __init__(self, spoil: Callable[[dict[str, Any]], object]) -> None:
        super().__init__()
        self.spoil = spoil

    def _completion(self, prompt: str, body: dict[str, Any], what: str) -> dict[str, Any]:
        reply = super()._completion(prompt, body, what)
        if prompt == "q1":
            self.spoil(reply)
        return reply


def most_likely(**token: Any) -> dict[str, Any]:
    return {"logprobs": {"content": [{"top_logprobs": [token]}]}}


@pytest.mark.parametrize(
    "choice",
    [
        {"finish_reason": 5},
        {"message": {"content": ["echo"]}},
        {"message": {"content": None, "refusal": {"because": "no"}}},
    ],
)
def test_an_answer_of_another_form_is_a_failure_that_is_paid_for(tmp_path: Path, choice: dict[str, Any]) -> None:
    with Odd(lambda reply: reply["choices"][0].update(choice)) as server:
        client = a_client(server.url, a_run(tmp_path), prices=CENT, max_calls=3)
        answers = client.complete([request(f"q{number}", logprobs=2) for number in range(3)])
        assert dict(server.asked) == {"q0": 1, "q1": 1, "q2": 1}
    assert [answer.error is None for answer in answers] == [True, False, True]
    assert answers[1].usage.usd == 0.015
    assert (client.counts()["calls"], client.counts()["usd"], client.counts()["failed"]) == (3, 0.045, 1)


@pytest.mark.parametrize(
    "choice",
    [
        most_likely(logprob=-1.0),
        most_likely(token="1", logprob=None),
        most_likely(token=1, logprob=-1.0),
        {"logprobs": "none"},
    ],
)
def test_log_probabilities_of_another_form_are_none_and_the_answer_stays(
    tmp_path: Path, choice: dict[str, Any]
) -> None:
    with Odd(lambda reply: reply["choices"][0].update(choice)) as server:
        client = a_client(server.url, a_run(tmp_path), prices=CENT, max_calls=3)
        answers = client.complete([request(f"q{number}", logprobs=2) for number in range(3)])
        assert dict(server.asked) == {"q0": 1, "q1": 1, "q2": 1}
    assert [answer.text for answer in answers] == ["echo: q0", "echo: q1", "echo: q2"]
    assert [answer.logprobs is None for answer in answers] == [False, True, False]
    assert (client.counts()["calls"], client.counts()["usd"], client.counts()["failed"]) == (3, 0.045, 0)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10, "completion_tokens": "5"},
        {"prompt_tokens": -10, "completion_tokens": 5},
        {"prompt_tokens": 10},
        {"prompt_tokens": 10.5, "completion_tokens": 5},
        "free",
    ],
)
def test_counts_that_are_none_leave_the_price_unknown(tmp_path: Path, usage: Any) -> None:
    with Odd(lambda reply: reply.update(usage=usage)) as server:
        client = a_client(server.url, a_run(tmp_path), prices=CENT, max_tokens=10)
        answers = client.complete(requests(2))
        assert [answer.text for answer in answers] == ["echo: q0", "echo: q1"]
        assert [answer.usage.usd for answer in answers] == [0.015, None]
        assert client.counts()["usd"] > 0.015 + 10 * 1000 / 1e6


@pytest.mark.parametrize("details", [[], "none", {"cached_tokens": None}, {"cached_tokens": "4"}])
def test_details_that_say_nothing_are_no_discount(tmp_path: Path, details: Any) -> None:
    with Odd(lambda reply: reply["usage"].update(prompt_tokens_details=details)) as server:
        answers = a_client(server.url, a_run(tmp_path), prices=CENT).complete(requests(2))
    assert [answer.usage.usd for answer in answers] == [0.015, 0.015]


def test_whatever_is_stored_can_be_read_again(tmp_path: Path) -> None:
    """Half a surrogate pair and infinite log-probabilities are JSON to Python, and nothing that a file can hold."""
    tokens = [{"token": "a\ud83d", "logprob": -0.5}, {"token": "b", "logprob": float("-inf")}]

    def spoil(reply: dict[str, Any]) -> None:
        reply["choices"][0]["message"]["content"] = "\ufeffone \ud83d two \U0001f600"
        reply["choices"][0]["logprobs"] = {"content": [{"top_logprobs": tokens}]}

    ask = [request("q1", logprobs=2)]
    with Odd(spoil) as server:
        (first,) = a_client(server.url, a_run(tmp_path)).complete(ask)
        (again,) = a_client(server.url, a_run(tmp_path)).complete(ask)
        assert dict(server.asked) == {"q1": 1}
    assert first.text == again.text == "\ufeffone \ufffd two \U0001f600"
    assert first.logprobs == again.logprobs == {"a\ufffd": -0.5}
    assert again.cached


def test_a_running_loop_is_no_obstacle(tmp_path: Path) -> None:
    with FaultServer() as server:
        client = a_client(server.url, a_run(tmp_path))

        async def notebook() -> list[Completion]:
            return client.complete(requests(5))

        assert [answer.text for answer in asyncio.run(notebook())] == [f"echo: q{number}" for number in range(5)]


# -- limits ------------------------------------------------------------------------------------------------------------


def test_max_calls_stops_exactly_and_more_money_asks_only_for_the_rest(tmp_path: Path) -> None:
    with FaultServer(latency=0.002) as server:
        client = a_client(server.url, a_run(tmp_path), max_calls=37)
        with pytest.raises(OverBudget, match=r"37 of 37 calls .*; 63 of 100 requests .* raise max_calls"):
            client.complete(requests(100))
        assert sum(server.asked.values()) == 37
        with pytest.raises(OverBudget):
            client.complete(requests(100))
        assert sum(server.asked.values()) == 37
        answers = a_client(server.url, a_run(tmp_path), max_calls=100).complete(requests(100))
        assert all(answer.text for answer in answers)
        assert sum(answer.cached for answer in answers) == 37
        assert set(server.asked.values()) == {1}


def test_refused_calls_do_not_count_and_lost_ones_do(tmp_path: Path) -> None:
    def plan(prompt: str, attempt: int) -> str:
        return {"q0": "429", "q1": "cut", "q2": "malformed"}.get(prompt, "ok") if attempt == 0 else "ok"

    with FaultServer(plan) as server:
        client = a_client(server.url, a_run(tmp_path), max_calls=6, concurrency=1)
        client.complete(requests(4))
        assert sum(server.asked.values()) == 7
        assert client.counts()["calls"] == 6
        with pytest.raises(OverBudget):
            client.complete(requests(5))
        assert sum(server.asked.values()) == 7


@pytest.mark.parametrize("fault", ["429", "400"])
def test_a_refused_call_makes_room_for_another(tmp_path: Path, fault: str) -> None:
    """Also for one that was not let go before."""

    def plan(prompt: str, attempt: int) -> str:
        return {"q0": "late:0.4", "q1": fault if attempt == 0 else "ok"}.get(prompt, "ok")

    with FaultServer(plan, latency=0.1) as server:
        client = a_client(server.url, a_run(tmp_path), max_calls=3, concurrency=4)
        with pytest.raises(OverBudget, match=r"3 of 3 calls are made"):
            client.complete(requests(8))
        assert sum(server.asked.values()) == 4
        assert sum(server.answered.values()) == client.counts()["calls"] == 3


def test_a_refused_call_that_fits_is_not_over_budget(tmp_path: Path) -> None:
    def plan(prompt: str, attempt: int) -> str:
        return {"q0": "late:0.3", "q1": "400"}.get(prompt, "ok")

    with FaultServer(plan, latency=0.1) as server:
        answers = a_client(server.url, a_run(tmp_path), max_calls=2, concurrency=3).complete(requests(3))
    assert [answer.error is None for answer in answers] == [True, False, True]


@pytest.mark.parametrize("concurrency", [1, 16])
def test_a_budget_is_exceeded_by_the_calls_in_flight_at_most(tmp_path: Path, concurrency: int) -> None:
    with FaultServer(latency=0.002) as server:
        settings = {"prices": CENT, "max_tokens": 20, "concurrency": concurrency}
        client = a_client(server.url, a_run(tmp_path), budget_usd=1.0, **settings)
        with pytest.raises(OverBudget, match=r"of 1 USD are spent in \d+ calls; .* raise budget_usd"):
            client.complete(requests(200))
        spent = client.counts()["usd"]
        assert spent == pytest.approx(0.015 * sum(server.asked.values()))
        assert 1.0 <= spent < 1.0 + 0.015 * concurrency
        with pytest.raises(OverBudget):
            a_client(server.url, a_run(tmp_path), budget_usd=1.0, **settings).complete(requests(200))
        assert client.counts()["usd"] == spent, "what earlier runs spent counts"
        answers = a_client(server.url, a_run(tmp_path), budget_usd=10.0, **settings).complete(requests(200))
        assert all(answer.text for answer in answers)
        assert set(server.asked.values()) == {1}


def test_nothing_is_asked_without_money_and_cached_answers_are_free(tmp_path: Path) -> None:
    with FaultServer() as server:
        a_client(server.url, a_run(tmp_path, "one")).complete(requests(3))
        broke = a_client(server.url, a_run(tmp_path, "two"), max_calls=0)
        assert [answer.cached for answer in broke.complete(requests(3))] == [True] * 3
        with pytest.raises(OverBudget):
            broke.complete(requests(4))
        assert sum(server.asked.values()) == 3


def test_rates_are_kept(tmp_path: Path) -> None:
    """By the asker's own clock: a busy server may see the first of them late."""
    with FaultServer() as server:
        began = time.monotonic()
        a_client(server.url, a_run(tmp_path, "one"), requests_per_minute=1200).complete(requests(11))
        assert time.monotonic() - began >= 10 * 60 / 1200 * 0.95
        quick = a_client(server.url, a_run(tmp_path, "two"), tokens_per_minute=60_000, max_tokens=494, model="n")
        began = time.monotonic()
        quick.complete(requests(14))  # 500 tokens each; a tenth of a minute may go at once
        assert time.monotonic() - began >= (14 - 13) * 0.5 * 0.95


# -- kills, Ctrl-C, secrets --------------------------------------------------------------------------------------------

CHILD = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
from client_helpers import a_client, a_run, requests
client = a_client({url!r}, a_run(Path({folder!r})), concurrency=8)
print("ready", flush=True)
answers = client.complete(requests(300))
print(sum(answer.error is None for answer in answers), sum(answer.cached for answer in answers))
"""


def child(url: str, folder: Path) -> subprocess.Popen[str]:
    paths = [str(Path(__file__).parents[1] / "support")]
    code = CHILD.format(paths=paths, url=url, folder=str(folder))
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_a_kill_loses_at_most_what_is_in_flight(tmp_path: Path) -> None:
    with FaultServer(lambda prompt, attempt: "ok" if int(prompt[1:]) < 200 else "hang", latency=0.02) as server:
        first = child(server.url, tmp_path)
        deadline = time.monotonic() + HUNG
        while sum(server.answered.values()) < 100 and time.monotonic() < deadline:
            time.sleep(0.005)
        first.send_signal(signal.SIGKILL)
        first.wait(HUNG)
        time.sleep(0.1)
        before = sum(server.asked.values())
        assert 100 <= before < 300
        server.plan = lambda prompt, attempt: "ok"
        second = child(server.url, tmp_path)
        told, _ = second.communicate(timeout=HUNG)
        answered, cached = map(int, told.split()[1:])
        assert answered == 300
        assert before - 8 <= cached <= before
        assert sum(server.asked.values()) - before == 300 - cached
        assert sum(count - 1 for count in server.asked.values()) <= 8
    lines = (tmp_path / "stage" / "calls.jsonl").read_text().splitlines()
    assert len(lines) >= 300


def test_ctrl_c_keeps_what_is_in_flight(tmp_path: Path) -> None:
    pressed = threading.Event()

    def plan(prompt: str, attempt: int) -> str:
        if prompt == "q20":
            pressed.set()
        return "ok" if int(prompt[1:]) < 60 else "late:1"

    with FaultServer(plan, latency=0.05) as server:
        client = a_client(server.url, a_run(tmp_path, interrupted=pressed.is_set), concurrency=4)
        with pytest.raises(KeyboardInterrupt):
            client.complete(requests(400))
        asked = sum(server.asked.values())
        assert 20 < asked < 200
        server.plan = lambda prompt, attempt: "ok"
        answers = a_client(server.url, a_run(tmp_path), concurrency=32).complete(requests(400))
        assert sum(answer.cached for answer in answers) == asked
        assert set(server.asked.values()) == {1}


@pytest.mark.parametrize("how", ["once", "twice"])
def test_ctrl_c_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Once: what still hangs after the grace is given up. Twice: at once. Either way the books are kept."""
    monkeypatch.setattr("fgrl.feedback.llm.endpoint.GRACE", 0.5)
    hanging = threading.Event()

    def plan(prompt: str, attempt: int) -> str:
        if prompt == "q3":
            hanging.set()
        return "hang" if prompt in ("q2", "q3") else "ok"

    def interrupted() -> bool:
        if hanging.is_set() and how == "twice":
            raise KeyboardInterrupt("aborted")
        return hanging.is_set()

    with FaultServer(plan) as server:
        client = a_client(server.url, a_run(tmp_path, interrupted=interrupted), concurrency=2, timeout=300.0)
        with pytest.raises(KeyboardInterrupt):
            client.complete(requests(50))
        assert dict(server.asked) == {"q0": 1, "q1": 1, "q2": 1, "q3": 1}
    lines = (tmp_path / "stage" / "calls.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["status"] for line in lines) == ["answered", "answered", "lost", "lost"]


def test_a_key_is_in_no_file_log_or_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    key = "sk-planted-0123456789abcdef"
    monkeypatch.setenv("PLANTED", key)
    caplog.set_level(logging.DEBUG)

    def plan(prompt: str, attempt: int) -> str:
        number = int(prompt[1:])
        return ("ok", "500", "400", "cut", "429")[number % 5] if attempt == 0 or number % 5 == 2 else "ok"

    def echo(prompt: str, body: dict) -> str:
        return f"your header was {server.seen[-1]['headers']['authorization']}"

    errors = []
    with FaultServer(plan, answer=echo) as server:
        run = a_run(tmp_path, console=Console(verbose=True))
        client = a_client(server.url, run, api_key_env="PLANTED", max_retries=1)
        answers = client.complete(requests(50))
        assert server.seen[0]["headers"]["authorization"] == f"Bearer {key}"
        errors += [answer.error or answer.text for answer in answers]
        server.plan = lambda prompt, attempt: "401"
        with pytest.raises(Unavailable) as caught:
            client.complete([request("new")])
        import traceback

        errors += traceback.format_exception(caught.value)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"calls.jsonl", "completions.sqlite"} <= {path.name for path in written}
    for path in written:
        assert key.encode() not in path.read_bytes(), path
    streams = capfd.readouterr()
    for text in (*errors, caplog.text, streams.out, streams.err, repr(client), str(client.model_dump())):
        assert key not in text
    assert any("<key>" in text for text in errors)


def test_setup_comes_first() -> None:
    from fgrl.components.clients.openai import OpenAI

    with pytest.raises(RuntimeError, match="call setup"):
        OpenAI(model="m").complete([Request(messages=[])])

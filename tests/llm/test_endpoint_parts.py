"""The parts of asking an endpoint, each without an endpoint: schemas, answers, errors, pacing."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx2
import openai
import pytest
from patience import HUNG

from fgrl.base.errors import Unavailable
from fgrl.base.sanitizing import Scrubber
from fgrl.components.clients.openai import OpenAI
from fgrl.feedback.llm import background, chat_answer
from fgrl.feedback.llm.endpoint import RateLimits
from fgrl.feedback.llm.endpoint_errors import EndpointErrors, requested_pause
from fgrl.feedback.llm.prices import Price
from fgrl.feedback.llm.structured_output import Mode, response_format, weaker
from fgrl.types import Completion, Usage

KEY = "sk-planted-0123456789"

# -- schemas -----------------------------------------------------------------------------------------------------------

CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        ({**CLOSED, "additionalProperties": True}, False),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "properties": {"a": {"anyOf": [CLOSED, {"type": "object"}]}}}, False),
        ({"type": "array", "items": CLOSED}, True),
    ],
)
def test_a_schema_is_strict_only_if_all_its_objects_are_closed(schema: dict[str, Any], strict: bool) -> None:
    assert response_format(schema, "schema")["json_schema"]["strict"] is strict


def test_a_schema_is_named_by_its_title_in_letters_that_endpoints_accept() -> None:
    assert response_format({"title": "Größe & Maß"}, "schema")["json_schema"]["name"] == "Gr__e___Ma_"
    assert response_format({"title": ""}, "schema")["json_schema"]["name"] == "answer"
    assert len(response_format({"title": "x" * 100}, "schema")["json_schema"]["name"]) == 64
    assert response_format(CLOSED, "json_object") == {"type": "json_object"}


@pytest.mark.parametrize(
    ("sent", "status", "message", "instead"),
    [
        ("schema", 400, "unknown field response_format", "json_object"),
        ("json_object", 422, "unknown field response_format", "none"),
        ("schema", 400, "the prompt is too long", None),
        ("schema", 500, "response_format", None),
        ("none", 400, "response_format", None),
    ],
)
def test_a_refused_mode_has_a_weaker_one(sent: Mode, status: int, message: str, instead: Mode | None) -> None:
    assert weaker(sent, status, message) == instead


# -- answers -----------------------------------------------------------------------------------------------------------


def answer(content: Any, finish: Any = "stop", **message: Any) -> Completion:
    body = {"choices": [{"message": {"content": content, **message}, "finish_reason": finish}]}
    return chat_answer.read(body, Usage(), "m", Scrubber(KEY))


def test_answers_are_read() -> None:
    assert answer("yes").text == "yes"
    assert answer(None, refusal="I will not").model_dump(include={"text", "finish"}) == {
        "text": "I will not",
        "finish": "refusal",
    }
    assert answer(" \n").error == "m: the answer is empty"
    assert (answer("", "length").error, answer(None, "content_filter").error) == (None, None)
    assert answer(f"the key is {KEY}").text == "the key is <key>"
    assert "m: the answer has not the form of a chat completion" in str(answer("yes", finish=5).error)


def test_usage_is_priced_with_what_the_cache_read_and_stored() -> None:
    price = Price(prompt=10, cached=1, cache_write=20, completion=100)
    details = {"cached_tokens": 40, "cache_write_tokens": 30}
    body = {"usage": {"prompt_tokens": 100, "completion_tokens": 2, "prompt_tokens_details": details}}
    assert chat_answer.read_usage(body, price).usd == pytest.approx((30 * 10 + 40 * 1 + 30 * 20 + 2 * 100) / 1e6)


# -- errors ------------------------------------------------------------------------------------------------------------


def refusal(status: int, message: str = "no", code: str | None = None, **headers: str) -> openai.APIStatusError:
    response = httpx2.Response(status, headers=headers, request=httpx2.Request("POST", "http://h/v1"))
    return openai.APIStatusError(message, response=response, body={"message": message, "code": code})


ERRORS = EndpointErrors("http://h/v1", "m", "MY_KEY", Scrubber(KEY))


@pytest.mark.parametrize(
    ("error", "reached", "message"),
    [
        (refusal(401), True, "refuses the key in MY_KEY"),
        (refusal(403), False, "refuses the key in MY_KEY"),
        (refusal(404), True, "has no model m"),
        (refusal(402), True, "quota is used up"),
        (refusal(429, code="insufficient_quota"), True, "quota is used up"),
        (refusal(429, **{"retry-after": "121"}), True, "asks for a pause of 121 s"),
    ],
)
def test_an_error_that_all_requests_would_meet_ends_the_stage(
    error: openai.APIStatusError, reached: bool, message: str
) -> None:
    with pytest.raises(Unavailable, match=message):
        ERRORS.status(error, reached=reached)


@pytest.mark.parametrize(
    "error", [refusal(403), refusal(400), refusal(500), refusal(429, **{"retry-after": "119"})], ids=str
)
def test_other_errors_are_one_requests_own(error: openai.APIStatusError) -> None:
    assert ERRORS.status(error, reached=True) == f"HTTP {error.status_code}: no"


def test_a_message_is_one_short_line_without_secrets() -> None:
    long = refusal(400, f"your key\n\n{KEY} is\twrong " + "x" * 1000)
    reason = ERRORS.status(long, reached=True)
    assert reason.startswith("HTTP 400: your key <key> is wrong x")
    assert len(reason) == len("HTTP 400: ") + 400


def test_where_a_redirect_leads_is_short_and_without_secrets() -> None:
    error = refusal(307)
    error.response.next_request = httpx2.Request("POST", f"http://ann:pw@h/{KEY}/{'x' * 1000}?to={KEY}")
    assert ERRORS.message(error) == f"http://h/<key>/{'x' * 1000}"[:400]


def test_a_server_that_is_not_there_ends_the_stage_and_a_broken_connection_does_not() -> None:
    error = openai.APIConnectionError(request=httpx2.Request("POST", "http://h/v1"))
    error.__cause__ = httpx2.ReadError("cut")
    assert ERRORS.connection(error, reached=False) == "no answer: ReadError: cut"
    error.__cause__ = httpx2.ConnectError("refused")
    with pytest.raises(Unavailable, match="is the server running"):
        ERRORS.connection(error, reached=False)
    with pytest.raises(Unavailable, match="it did before"):
        ERRORS.connection(error, reached=True)


def test_pauses_are_read_from_either_header() -> None:
    assert requested_pause({"retry-after-ms": "1500", "retry-after": "9"}) == 1.5
    assert requested_pause({"retry-after": "9"}) == 9
    assert requested_pause({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}) == 0


# -- pacing ------------------------------------------------------------------------------------------------


def test_tokens_are_counted_only_if_they_are_limited_and_may_exceed_a_burst() -> None:
    counted = []

    def tokens(number: int) -> int:
        counted.append(number)
        return number

    async def pace() -> float:
        await RateLimits(None, None).acquire(lambda: tokens(1))
        await RateLimits(60_000, None).acquire(lambda: tokens(2))
        started = time.perf_counter()
        await RateLimits(None, 60_000).acquire(lambda: tokens(6_200))  # a burst is 6,000; 1,000 more per second
        return time.perf_counter() - started

    assert asyncio.run(pace()) >= 0.2 * 0.95
    assert counted == [6_200]


# -- connections -------------------------------------------------------------------------------------------------------


def test_connections_are_shared_until_they_are_closed_and_belong_to_one_loop() -> None:
    endpoint = OpenAI(model="m", api_key_env=None).endpoint("http://127.0.0.1:9/v1")

    async def connected() -> Any:
        return endpoint._connected()

    first = background.start(connected()).result(HUNG)
    assert background.start(connected()).result(HUNG) is first
    assert not first.is_closed()
    endpoint.close()
    assert first.is_closed()
    endpoint.close()
    again = background.start(connected()).result(HUNG)
    assert not again.is_closed()
    assert asyncio.run(connected()) is not again, "another loop, as in a process that was forked"

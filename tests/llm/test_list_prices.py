"""Providers' list prices, as the installed genai-prices package has them."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import genai_prices
import pytest
from patience import HUNG

from fgrl.feedback.llm import price_tables

OPENAI_API = "https://api.openai.com/v1"

READ_IN_JUNE_2026 = {  # model: prompt, cached, completion; https://developers.openai.com/api/docs/pricing, standard tier
    "gpt-4o": (2.5, 1.25, 10.0),
    "gpt-4o-2024-05-13": (5.0, None, 15.0),
    "gpt-4o-2024-08-06": (2.5, 1.25, 10.0),
    "gpt-4o-2024-11-20": (2.5, 1.25, 10.0),
    "gpt-4o-mini": (0.15, 0.075, 0.6),
    "gpt-4o-mini-2024-07-18": (0.15, 0.075, 0.6),
    "gpt-4.1": (2.0, 0.5, 8.0),
    "gpt-4.1-2025-04-14": (2.0, 0.5, 8.0),
    "gpt-4.1-mini": (0.4, 0.1, 1.6),
    "gpt-4.1-mini-2025-04-14": (0.4, 0.1, 1.6),
    "gpt-4.1-nano": (0.1, 0.025, 0.4),
    "gpt-4.1-nano-2025-04-14": (0.1, 0.025, 0.4),
    "gpt-4-turbo": (10.0, None, 30.0),
    "gpt-4-turbo-2024-04-09": (10.0, None, 30.0),
    "gpt-4-turbo-preview": (10.0, None, 30.0),
    "gpt-4-1106-preview": (10.0, None, 30.0),
    "gpt-4": (30.0, None, 60.0),
    "gpt-4-0613": (30.0, None, 60.0),
    "gpt-3.5-turbo": (0.5, None, 1.5),
    "gpt-3.5-turbo-0125": (0.5, None, 1.5),
    "gpt-5": (1.25, 0.125, 10.0),
    "gpt-5-mini": (0.25, 0.025, 2.0),
    "gpt-5-nano": (0.05, 0.005, 0.4),
    "o3": (2.0, 0.5, 8.0),
    "o4-mini": (1.1, 0.275, 4.4),
}


@pytest.mark.parametrize("model", READ_IN_JUNE_2026)
def test_prices_agree_with_the_providers_page(model: str) -> None:
    prompt, cached, completion = READ_IN_JUNE_2026[model]
    price = price_tables.list_price(model, OPENAI_API)
    assert price is not None
    assert (price.prompt, price.completion) == (prompt, completion)
    assert price.of(1_000_000, 0, 1_000_000) == pytest.approx(prompt if cached is None else cached)


def test_a_long_prompt_costs_its_tier_and_cache_writes_are_counted() -> None:
    price = price_tables.list_price("gpt-6-sol", OPENAI_API)
    assert price is not None
    assert (price.prompt, price.completion) == (2.0, 10.0)
    assert price.of(1000, 100) == pytest.approx((1000 * 2 + 100 * 10) / 1e6)
    assert price.of(1000, 100, 400, 200) == pytest.approx((400 * 2 + 400 * 0.2 + 200 * 2.5 + 100 * 10) / 1e6)
    assert price.of(272_000, 100) == pytest.approx((272_000 * 2 + 100 * 10) / 1e6)
    assert price.of(272_001, 100) == pytest.approx((272_001 * 4 + 100 * 15) / 1e6)
    assert price.at_most(1000, 100) == pytest.approx((1000 * 2.5 + 100 * 10) / 1e6)
    assert price.at_most(300_000, 100) == pytest.approx((300_000 * 5 + 100 * 15) / 1e6)


CALLS = [(1000, 100, 0, 0), (1000, 100, 400, 200), (200_000, 7, 0, 9), (400_000, 50, 399_000, 1000)]


@pytest.mark.parametrize(
    ("model", "endpoint"),
    [
        ("gpt-4o", OPENAI_API),
        ("gpt-4", OPENAI_API),
        ("gpt-6-sol", OPENAI_API),
        ("gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta/openai"),
        ("claude-sonnet-4-5", "https://api.anthropic.com/v1"),
        ("mistral-small-latest", "https://api.mistral.ai/v1"),
    ],
)
def test_a_call_costs_what_the_package_computes_and_no_more_than_the_bound(model: str, endpoint: str) -> None:
    price = price_tables.list_price(model, endpoint)
    for prompt, completion, cached, written in CALLS:
        usage = genai_prices.Usage(
            input_tokens=prompt, output_tokens=completion, cache_read_tokens=cached, cache_write_tokens=written
        )
        expected = float(genai_prices.calc_price(usage, model, provider_api_url=endpoint).total_price)
        assert price.of(prompt, completion, cached, written) == pytest.approx(expected)
        assert price.at_most(prompt, completion) >= expected - 1e-12


@pytest.mark.parametrize(
    ("model", "endpoint"),
    [
        ("gpt-17", OPENAI_API),
        ("gpt-4o-2030-01-01", OPENAI_API),
        ("gpt-4o", "http://127.0.0.1:8000/v1"),
        ("gpt-4o", "https://gateway.example.org/v1"),
        ("gpt-4o", "here"),
        ("sonar", "https://api.perplexity.ai"),  # also charges for each request
        ("whisper-1", OPENAI_API),  # charges for audio
    ],
)
def test_what_is_not_known_for_certain_is_unknown(model: str, endpoint: str) -> None:
    assert price_tables.list_price(model, endpoint) is None


def test_looking_a_price_up_uses_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a price was looked up on the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    before = threading.active_count()
    found = price_tables.find("o3", OPENAI_API)
    assert found is not None
    assert (found.prompt, found.completion) == (2.0, 8.0)
    assert price_tables.find("gpt-17", OPENAI_API) is None
    assert threading.active_count() == before
    assert not any(thread.name.startswith("genai_prices") for thread in threading.enumerate())
    assert "genai_prices" in sys.modules


def test_a_self_hosted_endpoint_does_not_load_the_package() -> None:
    code = """
import sys
from fgrl.components.clients.openai import OpenAI
assert OpenAI(model="m", base_url="http://127.0.0.1:8000/v1").price() is None
assert "genai_prices" not in sys.modules
assert OpenAI(model="gpt-4o").price() == (2.5, 10.0)
assert "genai_prices" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HUNG)

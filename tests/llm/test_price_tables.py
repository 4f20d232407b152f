"""Prices: the user's own tables first, then the provider's list prices."""

from __future__ import annotations

from pathlib import Path

import pytest
from client_helpers import a_run

from fgrl import registry
from fgrl.base.errors import DataError, Unavailable
from fgrl.components.clients.openai import OpenAI
from fgrl.feedback.llm import price_tables
from fgrl.feedback.llm.prices import Price
from fgrl.kinds import Client


def test_prices_by_hand() -> None:
    gpt = price_tables.find("gpt-4o", "https://api.openai.com/v1")
    assert gpt is not None
    assert (gpt.prompt, gpt.completion, gpt.of(1_000_000, 0)) == (2.5, 10, 2.5)
    assert gpt.of(1000, 100, cached_tokens=400) == pytest.approx((600 * 2.5 + 400 * 1.25 + 100 * 10) / 1e6)
    assert gpt.at_most(1000, 100) == pytest.approx((1000 * 2.5 + 100 * 10) / 1e6)


def test_an_unknown_model_or_host_costs_unknown_and_never_nothing() -> None:
    assert OpenAI(model="gpt-17").price() is None
    assert OpenAI(model="gpt-4o", base_url="http://127.0.0.1:1/v1").price() is None
    assert OpenAI(model="gpt-4o").price() == (2.5, 10.0)
    assert OpenAI(model="x", base_url="http://127.0.0.1:1/v1", prices=Price(prompt=0, completion=0)).price() == (0, 0)


def test_a_users_file_comes_first(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("as_of: 2027-01\nmodels:\n  gpt-4o: {prompt: 1, completion: 2}\n")
    assert OpenAI(model="gpt-4o", prices=str(tmp_path / "p.yaml")).price() == (1, 2)
    assert OpenAI(model="gpt-4o-mini", prices=str(tmp_path / "p.yaml")).price() == (0.15, 0.6)


@pytest.mark.parametrize(
    "text", ["models: 3", "models: {m: {prompt: -1, completion: 2}}", "a: [", "models: {m: {prompt: 1}}"]
)
def test_a_file_that_holds_no_prices_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(DataError, match=r"p\.yaml: not a table of prices"):
        price_tables.read_tables(tmp_path / "p.yaml")


def test_a_recipe_builds_the_client_with_a_price_or_a_file(tmp_path: Path) -> None:
    node = {"name": "openai", "model": "m", "prices": {"prompt": 0, "completion": 0}}
    assert registry.build(Client, node).price() == (0, 0)
    (tmp_path / "p.json").write_text('{"models": {"m": {"prompt": 1.0, "completion": 2.0}}}')
    built = registry.build(Client, {"name": "openai", "model": "m", "prices": str(tmp_path / "p.json")})
    assert built.price() == (1, 2)
    assert "prices" not in registry.dump(built)


def test_a_budget_wants_a_price(tmp_path: Path) -> None:
    client = OpenAI(model="gpt-17", api_key_env=None, budget_usd=1.0)
    with pytest.raises(
        Unavailable, match=r"price of gpt-17 .* is unknown: write `prices: \{prompt: USD, completion: USD\}`"
    ):
        client.setup(a_run(tmp_path))


def test_a_table_of_one_host_holds_for_that_host_alone(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "- host: gateway.example.org\n  models: {m: {prompt: 1, completion: 2}}\n"
        "- models: {n: {prompt: 3, cached: 1, cache_write: 4, completion: 5}}\n"
    )
    path = tmp_path / "p.yaml"
    assert price_tables.find("m", "https://gateway.example.org/v1", path) == Price(prompt=1, completion=2)
    assert price_tables.find("m", "https://other.example.org/v1", path) is None
    price = price_tables.find("n", "https://other.example.org/v1", path)
    assert price == Price(prompt=3, cached=1, cache_write=4, completion=5)
    assert price.at_most(100, 10) == pytest.approx((100 * 4 + 10 * 5) / 1e6)

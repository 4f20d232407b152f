"""Models of endpoints: until when they answer, and how many tokens they read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from fgrl.components.clients.openai import OPENAI
from fgrl.experiments.pipeline import estimating, plan
from fgrl.experiments.recipe import load
from fgrl.feedback.llm.endpoint_models import SOON, context_length, tables, warning

ROOT = Path(__file__).parents[2]
GOOGLE = "https://generativelanguage.googleapis.com/v1beta/openai/"
END = date(2026, 10, 23)


def test_a_model_is_warned_of_from_ninety_days_before_its_end_on() -> None:
    assert warning("gpt-4-0613", OPENAI, END - SOON - timedelta(days=1)) is None
    soon = warning("gpt-4-0613", OPENAI, END - timedelta(days=1))
    assert soon is not None
    assert soon.startswith("gpt-4-0613 ends on 2026-10-23 (announced, https://")
    assert soon.endswith("`model: gpt-5.6-sol` is its provider's replacement")
    assert (warning("gpt-4-0613", OPENAI, END) or "").startswith("gpt-4-0613 has ended on 2026-10-23 (announced, ")
    assert "presumed, " in (warning("gemini-pro", GOOGLE, END) or "")


@pytest.mark.parametrize(
    ("model", "endpoint"),
    [("gpt-5.2", OPENAI), ("gpt-4-0613", "http://127.0.0.1:8000/v1"), ("gpt-4-0613", "https://gateway.example.org/v1"),
     ("gpt-4-0613", "loopback"), ("gemini-3.1-pro-preview", GOOGLE)],
)  # fmt: skip
def test_what_is_not_known_for_certain_is_no_warning(model: str, endpoint: str) -> None:
    assert warning(model, endpoint, date(2030, 1, 1)) is None


def test_what_genai_prices_lists_as_deprecated_is_a_warning() -> None:
    assert "kimi-k2-0905-preview as deprecated" in (
        warning("kimi-k2-0905-preview", "https://api.moonshot.ai/v1", END) or ""
    )


@pytest.mark.parametrize(
    ("model", "endpoint", "tokens"),
    [("gpt-4-0613", OPENAI, 8192), ("gpt-3.5-turbo", OPENAI, 16385), ("gpt-3.5-turbo", "http://127.0.0.1:8000/v1", None),
     ("gemini-3.1-pro-preview", GOOGLE, 1048576), ("gpt-17", OPENAI, None)],
)  # fmt: skip
def test_context_lengths_are_those_of_genai_prices_or_of_the_table(
    model: str, endpoint: str, tokens: int | None
) -> None:
    assert context_length(model, endpoint) == tokens


def test_a_plan_names_the_replacement_of_a_model_that_has_ended(tmp_path: Path) -> None:
    recipe = load(ROOT / "recipes" / "rla_llama3.yaml::rlaif", ["vars.judge.model=gpt-4-0613"])
    found = estimating.estimates(plan(recipe, tmp_path))["preferences"]["warning"]
    assert ["gpt-4-0613 has ended" in text and "gpt-5.6-sol" in text for text in found] == [True]


def named_models(value: Any) -> Iterator[tuple[str, str]]:
    """(model, endpoint) of every client of a recipe's YAML."""
    if isinstance(value, dict):
        if value.get("name") == "openai":
            yield value["model"], value.get("base_url") or OPENAI
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        yield from named_models(part)


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_no_recipe_names_a_model_that_has_ended(path: Path) -> None:
    """As of the day on which the table was read."""
    for model, endpoint in named_models(yaml.safe_load(path.read_text(encoding="utf-8"))):
        table = tables()[urlsplit(endpoint).hostname or ""]
        known = table.models.get(model)
        assert known is None or known.ends is None or known.ends > table.as_of, model

"""What endpoints charge: a dated table that ships with the package, and the user's own.

Prices change. The shipped table says as of when it was read and where; a recipe may name another file or state one price.
A model that no table knows costs "unknown" (None), never 0.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from fgrl.errors import DataError
from fgrl.registry import Settings

SHIPPED = Path(__file__).with_name("prices.json")
MILLION = 1_000_000


class Price(Settings):
    """USD for a million tokens."""

    prompt: float = Field(ge=0)
    """Of the prompt."""
    completion: float = Field(ge=0)
    """Of the answer; hidden reasoning counts as answer."""
    cached: float | None = Field(None, ge=0)
    """Of that part of the prompt which the endpoint says it had seen before. null: as the rest of the prompt."""

    def of(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> float:
        """USD of a call; `cached_tokens` are among `prompt_tokens`."""
        seen = min(max(cached_tokens, 0), prompt_tokens)
        cached = self.prompt if self.cached is None else self.cached
        total = (prompt_tokens - seen) * self.prompt + seen * cached + completion_tokens * self.completion
        return total / MILLION

    def at_most(self, prompt_tokens: int, completion_tokens: int) -> float:
        """USD that a call of at most so many tokens can cost."""
        return (prompt_tokens * max(self.prompt, self.cached or 0.0) + completion_tokens * self.completion) / MILLION


class PriceTable(Settings):
    """Prices of models by name. A file holds one table or a list of them."""

    models: dict[str, Price]
    """Price by the model's name as the endpoint knows it."""
    host: str | None = None
    """The endpoint's host that these prices hold for; null: any."""
    as_of: str | None = None
    """When they were read."""
    source: str | None = None
    """Where they were read."""


_TABLES = TypeAdapter(list[PriceTable] | PriceTable)


def read_tables(path: str | Path) -> list[PriceTable]:
    """The tables of a JSON or YAML file. Raises `DataError` when it does not hold any."""
    text = Path(path).read_text(encoding="utf-8")
    try:
        data = json.loads(text) if str(path).endswith(".json") else yaml.safe_load(text)
        tables = _TABLES.validate_python(data, strict=False)
    except (ValidationError, ValueError, yaml.YAMLError) as error:
        raise DataError(
            f"{path}: not a table of prices: {_first(error)}\n"
            "  wanted: models: {NAME: {prompt: USD, completion: USD, cached: USD}}, for a million tokens each"
        ) from None
    return tables if isinstance(tables, list) else [tables]


def find(model: str, host: str | None, path: str | Path | None = None) -> Price | None:
    """The price of `model` at `host` by the file at `path`, else by the shipped table; None when neither knows it.

    Names are compared whole: a new snapshot of a known model may cost something else.
    """
    tables = ([] if path is None else read_tables(path)) + _shipped()
    for table in tables:
        if table.host in (None, host) and model in table.models:
            return table.models[model]
    return None


@lru_cache(maxsize=1)
def _shipped() -> list[PriceTable]:
    return read_tables(SHIPPED)


def _first(error: Exception) -> str:
    if isinstance(error, ValidationError):
        what = error.errors()[-1]
        return f"{'.'.join(str(part) for part in what['loc'])}: {what['msg']}"
    return str(error).splitlines()[0]

"""Which price holds for a model: the user's own table, else the provider's list price.

A model that neither knows costs "unknown" (None), never 0.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from pydantic import TypeAdapter, ValidationError

from fgrl.errors import DataError
from fgrl.llm import list_prices
from fgrl.llm.prices import Price, TieredPrice
from fgrl.registry import Settings


class PriceTable(Settings):
    """Prices of models by name. A file holds one table or a list of them."""

    models: dict[str, Price]
    """Price by the model's name at the endpoint."""
    host: str | None = None
    """The endpoint's host that these prices apply to; null: any."""
    as_of: str | None = None
    """When they were read."""
    source: str | None = None
    """Where they were read."""


_TABLES = TypeAdapter(list[PriceTable] | PriceTable)


def find(model: str, endpoint: str, path: str | Path | None = None) -> Price | TieredPrice | None:
    """The price of `model` at the URL `endpoint`, from the file at `path`, else from the provider's list prices.

    Names in a file are compared whole: a new snapshot of a known model may have another price.
    """
    for table in [] if path is None else read_tables(path):
        if table.host in (None, urlsplit(endpoint).hostname) and model in table.models:
            return table.models[model]
    return list_prices.find(model, endpoint)


def read_tables(path: str | Path) -> list[PriceTable]:
    """The tables of a JSON or YAML file. Raises `DataError` when it does not hold any."""
    text = Path(path).read_text(encoding="utf-8")
    try:
        data = json.loads(text) if str(path).endswith(".json") else yaml.safe_load(text)
        tables = _TABLES.validate_python(data, strict=False)
    except (ValidationError, ValueError, yaml.YAMLError) as error:
        raise DataError(
            f"{path}: not a table of prices: {_first_mistake(error)}\n"
            "  expected: models: {NAME: {prompt: USD, completion: USD, cached: USD}}, per million tokens each"
        ) from None
    return tables if isinstance(tables, list) else [tables]


def _first_mistake(error: Exception) -> str:
    if isinstance(error, ValidationError):
        mistake = error.errors()[-1]
        return f"{'.'.join(str(part) for part in mistake['loc'])}: {mistake['msg']}"
    return str(error).splitlines()[0]

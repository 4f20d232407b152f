"""Choice of the price of a model: the user's own table, else the provider's list price.

The cost of a model without a price is "unknown" (None), never 0. The package genai-prices has list prices in its own
tables, which it could update over the network (`UpdatePrices`); fgrl never starts this update, so a price changes only
with the package's version.
"""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import yaml
from pydantic import TypeAdapter, ValidationError

from fgrl.base import lazy
from fgrl.base.errors import DataError
from fgrl.feedback.llm.prices import ListPrice, Price
from fgrl.registry import Settings

if TYPE_CHECKING:
    import genai_prices
    from genai_prices import types
else:
    genai_prices = lazy.load("genai_prices")

COUNTED = {"input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok"}
"""Charges for tokens that endpoints count in their answers, by their names in the package."""
_UNUSED_BY_TEXT = re.compile(r"audio|image|video|document|searches|cache_write_1h")
"""Charges that a chat completion of plain text, without tools, never causes."""


class PriceTable(Settings):
    """Prices of models by name. A file holds one table or a list of them."""

    models: dict[str, Price]
    """Price by the model's name at the endpoint."""
    host: str | None = None
    """Host of the endpoint that these prices apply to; null: any host."""
    as_of: str | None = None
    """Day on which the prices were read."""
    source: str | None = None
    """Address where the prices were read."""


_TABLES = TypeAdapter(list[PriceTable] | PriceTable)


def find(model: str, endpoint: str, path: str | Path | None = None) -> Price | ListPrice | None:
    """Return the price of `model` at the URL `endpoint`, from the file at `path`, else from the provider's list prices.

    Names in a file are compared whole: a new snapshot of a known model may have another price.
    """
    for table in [] if path is None else read_tables(path):
        if table.host in (None, urlsplit(endpoint).hostname) and model in table.models:
            return table.models[model]
    return list_price(model, endpoint)


def read_tables(path: str | Path) -> list[PriceTable]:
    """Return the tables of a JSON or YAML file. Raises `DataError` when it does not hold any."""
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


def listed(model: str, endpoint: str) -> types.PriceCalculation | None:
    """Return the entry of genai-prices for `model` at the provider whose API is at the URL `endpoint`; None if it has
    none.
    """
    if not endpoint.startswith("https://"):  # no provider's; saves loading the package (about 0.7 s)
        return None
    if find_spec("genai_prices") is None:  # it comes with the client, which then says that it cannot ask
        return None
    try:
        return genai_prices.calc_price(genai_prices.Usage(), model, provider_api_url=endpoint)
    except LookupError:
        return None


def list_price(model: str, endpoint: str) -> Price | ListPrice | None:
    """Return the list price of `model` at the provider whose API is at the URL `endpoint`.

    None if the package does not know the provider or its model, and if the provider also charges for something other
    than these tokens (a fee per request, separate reasoning tokens).
    """
    found = listed(model, endpoint)
    if found is None:
        return None
    charges = {name for name, rate in vars(found.model_price).items() if rate is not None}
    other = [name for name in charges - COUNTED if not _UNUSED_BY_TEXT.search(name)]
    return None if other or not {"input_mtok", "output_mtok"} <= charges else ListPrice(found.model_price)

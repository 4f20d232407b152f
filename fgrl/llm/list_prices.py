"""Providers' list prices, from the tables inside the installed `genai-prices` package. Nothing is downloaded.

The package can update its tables over the network (`UpdatePrices`); fgrl never starts that, so a price changes only when
another version of the package is installed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fgrl import lazy
from fgrl.llm.prices import Price, TieredPrice

if TYPE_CHECKING:
    import genai_prices
    from genai_prices import types
else:
    genai_prices = lazy.load("genai_prices")
    types = lazy.load("genai_prices.types")

FIELDS = {
    "prompt": "input_mtok",
    "completion": "output_mtok",
    "cached": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
}
"""Fields of `Price` and their names in the package; USD per million tokens in both."""
_UNUSED_BY_TEXT = re.compile(r"audio|image|video|document|searches|cache_write_1h")
"""Charges that a chat completion of plain text, without tools, never causes."""


def find(model: str, endpoint: str) -> Price | TieredPrice | None:
    """The list price of `model` at the provider whose API is at the URL `endpoint`.

    None when the package does not know the provider or its model, and when the provider also charges for something else
    than these tokens (a fee per request, reasoning tokens apart).
    """
    if not endpoint.startswith("https://"):  # no provider's; saves loading the package (about 0.7 s)
        return None
    try:
        rates = genai_prices.calc_price(genai_prices.Usage(), model, provider_api_url=endpoint).model_price
    except LookupError:
        return None
    charges = {name: rate for name, rate in vars(rates).items() if rate is not None}
    other = [name for name in charges if name not in FIELDS.values() and not _UNUSED_BY_TEXT.search(name)]
    if other or not {"input_mtok", "output_mtok"} <= set(charges):
        return None
    thresholds = {
        tier.start for rate in charges.values() if isinstance(rate, types.TieredPrices) for tier in rate.tiers
    }
    tiers = tuple((threshold, _price(charges, threshold)) for threshold in sorted({-1, *thresholds}))
    return tiers[0][1] if len(tiers) == 1 else TieredPrice(tiers)


def _price(charges: dict[str, object], threshold: int) -> Price:
    """The price of calls whose prompts have more than `threshold` tokens, and no more than the next tier's."""
    return Price(**{field: _rate(charges[name], threshold) for field, name in FIELDS.items() if name in charges})


def _rate(rate: object, threshold: int) -> float:
    if isinstance(rate, types.TieredPrices):
        return float([rate.base, *(tier.price for tier in rate.tiers if tier.start <= threshold)][-1])
    return float(str(rate))

"""Cost of a call, by the tokens that the endpoint reports for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from fgrl.base import lazy
from fgrl.registry import Settings

if TYPE_CHECKING:
    from decimal import Decimal

    import genai_prices
    from genai_prices import types
else:
    genai_prices = lazy.load("genai_prices")

MILLION = 1_000_000


class Price(Settings):
    """Prices in USD per million tokens."""

    prompt: float = Field(ge=0)
    """Price of prompt tokens."""
    completion: float = Field(ge=0)
    """Price of the tokens of the answer, hidden reasoning included."""
    cached: float | None = Field(None, ge=0)
    """Price of prompt tokens that the endpoint reports as read from its cache. null: like other prompt tokens."""
    cache_write: float | None = Field(None, ge=0)
    """Price of prompt tokens that the endpoint reports as written to its cache. null: like other prompt tokens."""

    def of(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0, written_tokens: int = 0) -> float:
        """Return the USD of a call; `cached_tokens` and `written_tokens` are among `prompt_tokens`."""
        cached = self.prompt if self.cached is None else self.cached
        cache_write = self.prompt if self.cache_write is None else self.cache_write
        plain_tokens = prompt_tokens - cached_tokens - written_tokens
        prompt = plain_tokens * self.prompt + cached_tokens * cached + written_tokens * cache_write
        return (prompt + completion_tokens * self.completion) / MILLION

    def at_most(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the highest possible cost in USD of a call with at most this many tokens."""
        prompt = max(self.prompt, self.cached or 0.0, self.cache_write or 0.0)
        return (prompt_tokens * prompt + completion_tokens * self.completion) / MILLION


@dataclass(frozen=True)
class ListPrice:
    """A provider's list price, which may depend on the length of the prompt."""

    rates: types.ModelPrice

    @property
    def prompt(self) -> float:
        """Price in USD per million prompt tokens, for short prompts."""
        return float(self._usd(1, 0) * MILLION)

    @property
    def completion(self) -> float:
        """Price in USD per million tokens of the answer, after short prompts."""
        return float(self._usd(0, 1) * MILLION)

    def of(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0, written_tokens: int = 0) -> float:
        """Return the USD of a call; `cached_tokens` and `written_tokens` are among `prompt_tokens`."""
        return float(self._usd(prompt_tokens, completion_tokens, cached_tokens, written_tokens))

    def at_most(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the highest possible cost in USD of a call with at most this many tokens."""
        return max(self.of(prompt_tokens, completion_tokens, 0, written) for written in (0, prompt_tokens))

    def _usd(self, prompt: int, completion: int, cached: int = 0, written: int = 0) -> Decimal:
        usage = genai_prices.Usage(
            input_tokens=prompt, output_tokens=completion, cache_read_tokens=cached, cache_write_tokens=written
        )
        return self.rates.calc_price(usage)["total_price"]

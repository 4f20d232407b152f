"""Pacing of requests: at most so many requests, and so many tokens, per minute."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fgrl import lazy

if TYPE_CHECKING:
    import aiolimiter
else:
    aiolimiter = lazy.load("aiolimiter")

BURSTS_PER_MINUTE = 10
"""No more than the tokens of a tenth of a minute are spent at once."""


class RateLimits:
    """The rate limits of an endpoint; None: no limit. Requests are spaced evenly. Belongs to one event loop."""

    def __init__(self, requests_per_minute: float | None, tokens_per_minute: float | None) -> None:
        self._requests: aiolimiter.AsyncLimiter | None = None
        self._tokens: aiolimiter.AsyncLimiter | None = None
        if requests_per_minute is not None:
            self._requests = aiolimiter.AsyncLimiter(1, 60 / requests_per_minute)
        if tokens_per_minute is not None:
            burst = max(tokens_per_minute / BURSTS_PER_MINUTE, 1)
            self._tokens = aiolimiter.AsyncLimiter(burst, 60 * burst / tokens_per_minute)

    async def acquire(self, count_tokens: Callable[[], int]) -> None:
        """Wait until one more request may start. `count_tokens` is called only if tokens are limited."""
        if self._requests is not None:
            await self._requests.acquire()
        if self._tokens is not None:
            remaining = float(count_tokens())
            while remaining > 0:
                await self._tokens.acquire(min(remaining, self._tokens.max_rate))
                remaining -= self._tokens.max_rate

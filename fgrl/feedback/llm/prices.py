"""What a call costs, by the tokens that the endpoint reports for it."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from fgrl.registry import Settings

MILLION = 1_000_000


class Price(Settings):
    """USD per million tokens."""

    prompt: float = Field(ge=0)
    """Prompt tokens."""
    completion: float = Field(ge=0)
    """Tokens of the answer, hidden reasoning included."""
    cached: float | None = Field(None, ge=0)
    """Prompt tokens that the endpoint reports as read from its cache. null: like other prompt tokens."""
    cache_write: float | None = Field(None, ge=0)
    """Prompt tokens that the endpoint reports as written to its cache. null: like other prompt tokens."""

    def of(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0, written_tokens: int = 0) -> float:
        """USD of a call; `cached_tokens` and `written_tokens` are among `prompt_tokens`."""
        cached_tokens = min(max(cached_tokens, 0), prompt_tokens)
        written_tokens = min(max(written_tokens, 0), prompt_tokens - cached_tokens)
        cached = self.prompt if self.cached is None else self.cached
        cache_write = self.prompt if self.cache_write is None else self.cache_write
        plain_tokens = prompt_tokens - cached_tokens - written_tokens
        prompt = plain_tokens * self.prompt + cached_tokens * cached + written_tokens * cache_write
        return (prompt + completion_tokens * self.completion) / MILLION

    def at_most(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the highest USD of a call with at most so many tokens."""
        prompt = max(self.prompt, self.cached or 0.0, self.cache_write or 0.0)
        return (prompt_tokens * prompt + completion_tokens * self.completion) / MILLION


@dataclass(frozen=True)
class TieredPrice:
    """A price that depends on the length of the prompt. The tier of a call applies to all its tokens."""

    tiers: tuple[tuple[int, Price], ...]
    """(prompt tokens that a call must exceed, its price), in ascending order; the first is for every prompt (-1)."""

    @property
    def prompt(self) -> float:
        """USD per million prompt tokens, for short prompts."""
        return self.tiers[0][1].prompt

    @property
    def completion(self) -> float:
        """USD per million tokens of the answer, after short prompts."""
        return self.tiers[0][1].completion

    def of(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0, written_tokens: int = 0) -> float:
        """USD of a call."""
        return self._reached(prompt_tokens)[-1].of(prompt_tokens, completion_tokens, cached_tokens, written_tokens)

    def at_most(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the highest USD of a call with at most so many tokens."""
        return max(price.at_most(prompt_tokens, completion_tokens) for price in self._reached(prompt_tokens))

    def _reached(self, prompt_tokens: int) -> list[Price]:
        return [price for threshold, price in self.tiers if prompt_tokens > threshold]

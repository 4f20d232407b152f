"""Clients: who asks a language model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from fgrl.kinds.planning import Peek
from fgrl.registry import Component, kind
from fgrl.types import Completion, Request


@kind("client")
class Client(Component, ABC):
    """Asks a language model: an endpoint, a model in this process, answers from a file."""

    collective: ClassVar[bool] = False
    """In a stage of several processes every rank calls `complete`, with the same requests. False: `fgrl.llm.asking.ask`
    calls it on rank 0 alone and hands the answers on."""

    @abstractmethod
    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion per request, in their order; one that failed for good has the reason in `error`.

        Raises `OverBudget` when the recipe's limits on money or calls are reached; all answers until then are kept.
        """

    def look(self, peek: Peek) -> None:
        """Get what `count_tokens` needs, for a plan: called instead of `setup`, and loads no model."""

    def count_tokens(self, request: Request) -> int:
        """Tokens of the request's prompt as the model counts them, or the best estimate without asking."""
        return sum(len(message.content) for message in request.messages) // 4

    def price(self) -> tuple[float, float] | None:
        """USD per million prompt tokens and per million completion tokens; None when it is not known."""
        return None

    def counts(self) -> dict[str, Any]:
        """What was used in this stage so far: `calls`, `prompt_tokens`, `completion_tokens`, `usd`; empty for a client that
        does not count."""
        return {}

"""Clients of language models."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, ClassVar

from fgrl.kinds.planning import Peek
from fgrl.registry import Component, kind
from fgrl.types import Completion, Request

_ONE = threading.Lock()
"""Lock for the threads that ask clients which are not `concurrent`."""


@kind("client")
class Client(Component, ABC):
    """Client of a language model: an endpoint, a model in this process, or answers from a file."""

    collective: ClassVar[bool] = False
    """True if every rank of a stage with several processes calls `complete`, with the same requests. False:
    `fgrl.feedback.llm.asking.ask` calls it on rank 0 alone and sends the answers to the other ranks.
    """
    concurrent: ClassVar[bool] = False
    """True if several threads may ask at the same time. False: `complete_alone` lets only one thread ask at a time."""

    @abstractmethod
    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Return one completion per request, in their order. A completion that failed for good has the reason in
        `error`.

        Raises `OverBudget` if the recipe's limits on money or calls are reached; all answers until then are kept.
        """

    def complete_alone(self, requests: Sequence[Request]) -> list[Completion]:
        """Return the result of `complete` from a request of this process alone, whatever the other ranks do. Any thread
        may call it.
        """
        with nullcontext() if self.concurrent else _ONE:
            return self.completed_alone(requests)

    def completed_alone(self, requests: Sequence[Request]) -> list[Completion]:
        """Return the result of `complete_alone`. Override it if `complete` needs the other ranks."""
        return self.complete(requests)

    def reject(self, request: Request, reason: str) -> None:
        """Record that the answer to a request cannot be used: it was refused, cut off or unreadable."""

    def look(self, peek: Peek) -> None:
        """Prepare what `count_tokens` needs for a plan. It is called instead of `setup`, and loads no model."""

    def count_tokens(self, request: Request) -> int:
        """Return the number of tokens of the request's prompt as the model counts them, or the best estimate without
        asking.
        """
        return sum(len(message.content) for message in request.messages) // 4

    def price(self) -> tuple[float, float] | None:
        """Return USD per million prompt tokens and per million completion tokens; None if the price is unknown."""
        return None

    def counts(self) -> dict[str, Any]:
        """Return the use of this stage so far: `calls`, `prompt_tokens`, `completion_tokens`, `usd`; {} if the client
        does not count.
        """
        return {}

"""Clients: who asks a language model."""

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
"""Of the threads that ask clients which are not `concurrent`."""


@kind("client")
class Client(Component, ABC):
    """Asks a language model: an endpoint, a model in this process, answers from a file."""

    collective: ClassVar[bool] = False
    """True if in a stage of several processes every rank calls `complete`, with the same requests. False:
    `fgrl.feedback.llm.asking.ask` calls it on rank 0 alone and hands the answers on."""
    concurrent: ClassVar[bool] = False
    """True if several threads may ask at the same time. False: `complete_alone` lets one after the other ask."""

    @abstractmethod
    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Return one completion per request, in their order; one that failed for good has the reason in `error`.

        Raises `OverBudget` when the recipe's limits on money or calls are reached; all answers until then are kept.
        """

    def complete_alone(self, requests: Sequence[Request]) -> list[Completion]:
        """Return what `complete` returns, asked by this process alone, whatever the other ranks do. Any thread may call it."""
        with nullcontext() if self.concurrent else _ONE:
            return self.completed_alone(requests)

    def completed_alone(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer `complete_alone`. Override it where `complete` needs the other ranks."""
        return self.complete(requests)

    def reject(self, request: Request, reason: str) -> None:
        """Take note that the answer to a request cannot be used: it was refused, cut off or unreadable."""

    def look(self, peek: Peek) -> None:
        """Get what `count_tokens` needs for a plan: called instead of `setup`, and loads no model."""

    def count_tokens(self, request: Request) -> int:
        """Return the tokens of the request's prompt as the model counts them, or the best estimate without asking."""
        return sum(len(message.content) for message in request.messages) // 4

    def price(self) -> tuple[float, float] | None:
        """Return USD per million prompt tokens and per million completion tokens; None: unknown."""
        return None

    def counts(self) -> dict[str, Any]:
        """Return what this stage used so far: `calls`, `prompt_tokens`, `completion_tokens`, `usd`; {} if it does not
        count.
        """
        return {}

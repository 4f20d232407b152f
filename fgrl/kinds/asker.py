"""What may ask a language model."""

from __future__ import annotations

from typing import Any

from pydantic import PrivateAttr

from fgrl.kinds.client import Client
from fgrl.registry import Component, walk
from fgrl.types import Request


class Asker(Component):
    """What may ask a language model: annotators, judges, metrics and rewards.

    Its questions are stated here and nowhere else; plans count them (`fgrl.llm.estimating`), whatever the component is.
    """

    _counts: dict[str, Any] = PrivateAttr(default_factory=dict)

    def asked_client(self) -> Client | None:
        """Who gets the requests: the client that the component or a part of it holds; None when there is none."""
        return next((part for _path, part in walk(self) if isinstance(part, Client)), None)

    def asks(self, given: Any) -> list[Request]:
        """The requests about `given`, the input of the component's main method (of a reward: prompts with a response each),
        before any question is retried."""
        return []

    def counts(self) -> dict[str, Any]:
        """What the stage's summary and log report afterwards: failures by kind, ties, unmatched quotes."""
        return self._counts

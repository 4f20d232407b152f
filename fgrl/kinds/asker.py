"""What may ask a language model."""

from __future__ import annotations

from typing import Any

from pydantic import PrivateAttr

from fgrl.kinds.client import Client
from fgrl.registry import Component, walk
from fgrl.types import Request


class Asker(Component):
    """What may ask a language model: annotators, judges, metrics and rewards.

    Its questions are stated here and nowhere else; plans count them (`fgrl.feedback.llm.estimating`), whatever the
    component is.
    """

    _counted: dict[str, Any] = PrivateAttr(default_factory=dict)

    def asked_client(self) -> Client | None:
        """Return the client that gets the requests, which the component or a part of it holds; None: there is none."""
        return next((part for _path, part in walk(self) if isinstance(part, Client)), None)

    def asks(self, given: Any) -> list[Request]:
        """Return the requests about `given`, the input of the component's main method (of a reward: prompts with a
        response each), before any question is retried.
        """
        return []

    def counts(self) -> dict[str, Any]:
        """Return what the stage's summary and log report afterwards: failures by kind, ties, unmatched quotes."""
        return self._counted

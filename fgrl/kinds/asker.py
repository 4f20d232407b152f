"""Components that may ask a language model."""

from __future__ import annotations

from typing import Any

from pydantic import PrivateAttr

from fgrl.kinds.client import Client
from fgrl.registry import Component, walk
from fgrl.types import Request


class Asker(Component):
    """Component that may ask a language model: an annotator, judge, metric or reward. It defines its questions here and
    nowhere else, so plans can count them for any component (`fgrl.feedback.llm.estimating`).
    """

    _counted: dict[str, Any] = PrivateAttr(default_factory=dict)

    def asked_client(self) -> Client | None:
        """Return the client that receives the requests, held by the component or a part of it; None if there is
        none.
        """
        return next((part for _path, part in walk(self) if isinstance(part, Client)), None)

    def asks(self, given: Any) -> list[Request]:
        """Return the requests about `given`, the input of the component's main method (of a reward: prompts with a
        response each), before any question is retried.
        """
        return []

    def counts(self) -> dict[str, Any]:
        """Return the counts for the stage's summary and log, after the main method has run: failures by kind, ties,
        unmatched quotes.
        """
        return self._counted

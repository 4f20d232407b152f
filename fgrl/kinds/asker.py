"""What may ask a language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fgrl.kinds.client import Client
from fgrl.kinds.planning import AtMost
from fgrl.registry import Component, walk
from fgrl.types import Request


class Asker(Component):
    """What may ask a language model: annotators, judges, metrics and rewards.

    Its questions are stated here and nowhere else; plans count them (`fgrl.llm.estimating`), whatever the component is.
    """

    def asked_client(self) -> Client | None:
        """Who gets the requests: the client that the component or a part of it holds; None when there is none."""
        return next((part for _path, part in walk(self) if isinstance(part, Client)), None)

    def asks(self, given: Any) -> list[Request]:
        """The requests about `given`, the input of the component's main method (of a reward: prompts with a response each),
        before any question is retried."""
        return []

    def asks_at_most(self, expected: Any) -> Sequence[AtMost] | int | None:
        """A bound for input that does not exist yet: the requests, or only their number; None when it is not known.

        expected: `Expected` of an annotator, `ToDraw` of a metric or a reward.
        """
        return None

    def counts(self) -> dict[str, Any]:
        """What the stage's summary and log report afterwards: failures by kind, ties, unmatched quotes."""
        return {}

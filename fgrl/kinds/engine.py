"""Engines: they draw responses from a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from fgrl.registry import Component, build, kind
from fgrl.specs import Sampling

Ended = Callable[[Sequence[int]], bool]
"""Is a response of these token ids complete, although it has no end-of-sequence token?"""


@kind("engine")
class Engine(Component, ABC):
    """Draws responses from a model."""

    @abstractmethod
    def generate(
        self,
        model: Any,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        *,
        seed: int,
        rows: Sequence[int],
        ended: Ended | None = None,
    ) -> list[list[int]]:
        """Token ids of each response, with its end-of-sequence token. Row `i` is drawn from the random stream (`seed`,
        `rows[i]`), so neither the order nor the batching of rows changes the responses.

        ended: also end a response behind the first token with which this is true of all its ids; it is asked behind
        every token, and changes nothing before it. Passed only where it is needed.

        Each pass of `model` is a place where a run can stop; an engine that computes elsewhere calls
        `fgrl.stops.point()` between steps.
        """

    def copies_weights(self) -> bool:
        """Does it keep a second copy of the model's weights while sampling? `fgrl plan` counts it."""
        return False


def default_engine() -> Engine:
    """Transformers, in this process."""
    return build(Engine, "hf")

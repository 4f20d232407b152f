"""Relevances, which determine the tokens that a criterion's verdict depends on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from fgrl.kinds.needs import Needing
from fgrl.kinds.verifier import Checked
from fgrl.registry import kind
from fgrl.types import Rollout

if TYPE_CHECKING:
    from torch import Tensor


@kind("relevance")
class Relevance(Needing, ABC):
    """Relevance: it determines the tokens of a response that a criterion's verdict depends on."""

    def tokenizer(self) -> Any:
        """Return the tokenizer whose token ids it reads; None if it reads text. It is known after `setup`."""
        return None

    @abstractmethod
    def weigh(self, rollout: Rollout, checked: Sequence[Checked]) -> list[Tensor | None]:
        """Return for each criterion the weights, 0 to 1, of the real tokens of its response: float [length], on the
        CPU.

        The entry is None if there are no weights: that criterion then has no token reward in that response.
        """

    _counts: dict[str, float] = PrivateAttr(default_factory=dict)

    def counts(self) -> dict[str, float]:
        """Return counts of the last `weigh`, for the log."""
        return self._counts

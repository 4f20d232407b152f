"""What drawers have in common that draw from the very module that is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.kinds import Drawer, DrawRequest
from fgrl.types import DrawnResponse

if TYPE_CHECKING:
    import torch

    from fgrl import models
else:
    models = lazy.load("fgrl.models")
    torch = lazy.load("torch")


class InProcess(Drawer):
    """The model itself: its weights are there as soon as they change."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def take(self, weights: Any, version: int) -> None:
        if weights is not self.model:
            raise ValueError("this drawer draws from the model that it was opened with: open another one")
        super().take(weights, version)

    def draw(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        return self.drawing().all_of(requests)

    def check(self, requests: Sequence[DrawRequest]) -> None:
        """Raise `DataError` for a request that is longer than what the model reads."""
        longest = max((len(one.prompt) + one.sampling.max_new_tokens for one in requests), default=0)
        self.model.check_length(
            longest, "lower `max_prompt_tokens`, which cuts prompts at their beginning, or `max_new_tokens`"
        )

    @contextmanager
    def passes(self) -> Iterator[None]:
        """Inside, the model is read without gradients and dropout."""
        with torch.no_grad(), models.evaluating(self.model), self.model.low_precision():
            yield

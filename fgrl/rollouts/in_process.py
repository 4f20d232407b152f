"""Common parts of drawers that draw from the trained module itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.kinds import Drawer, DrawRequest
from fgrl.types import DrawnResponse, Prompt

if TYPE_CHECKING:
    import torch

    from fgrl import models
    from fgrl.kinds.specs import Sampling
    from fgrl.rollouts import padding
else:
    models = lazy.load("fgrl.models")
    padding = lazy.load("fgrl.rollouts.padding")
    torch = lazy.load("torch")


class InProcess(Drawer):
    """Drawer that uses the model itself, so that changed weights are used at once."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def take(self, weights: Any, version: int) -> None:
        if weights is not self.model:
            raise ValueError("this drawer draws from the model that it was opened with: open another one")
        super().take(weights, version)

    def draw(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        return self.drawing().all_of(requests)

    def check(self, requests: Sequence[DrawRequest]) -> None:
        """Raise `DataError` for a request that is longer than the model's positions."""
        longest = max((len(one.prompt) + one.sampling.max_new_tokens for one in requests), default=0)
        self.model.check_length(
            longest, "lower `max_prompt_tokens`, which cuts prompts at their beginning, or `max_new_tokens`"
        )

    def error_of_trial(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> float:
        """Draw responses to these prompts. Return the mean difference between the engine's log-probabilities of their
        tokens and the model's.
        """
        requests = [DrawRequest(Prompt(tuple(prompt)), sampling, 0, row) for row, prompt in enumerate(prompts)]
        drawn = self.draw(requests)
        tokens = padding.pad(prompts, drawn, self.model.pad_id, self.model.eos_ids).to(self.model.device)
        with self.passes():
            own = self.model.score(tokens).logp
        given = torch.tensor([value for each in drawn for value in each.token_logp or ()], device=own.device)
        return float((given - own[tokens.mask]).abs().mean())

    @contextmanager
    def passes(self) -> Iterator[None]:
        """Read the model without gradients and dropout inside the context."""
        with torch.no_grad(), models.evaluating(self.model), self.model.low_precision():
            yield


def prompt_ids(request: DrawRequest) -> list[int]:
    """Return the token ids of the prompt of a request."""
    return list(request.prompt.token_ids)

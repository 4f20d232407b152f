"""Drawing responses as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fgrl import lazy
from fgrl.specs import Sampling

if TYPE_CHECKING:
    import torch

    from fgrl.kinds import Engine
    from fgrl.models import LanguageModel
else:
    torch = lazy.load("torch")


def check_exact(sampling: Sampling) -> None:
    """Refuse settings under which the drawn tokens' probabilities are not the model's (at the temperature)."""
    inexact = sampling.inexact()
    if inexact:
        raise ValueError(
            f"sampling with {', '.join(inexact)} draws from another distribution than the one whose log-probabilities the "
            "policy gradient uses; sample with temperature above 0 and without these settings (temperature is exact), or allow "
            "top_p and top_k with `truncated: true`"
        )


def sample(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    engine: Engine,
    *,
    seed: int,
    rows: Sequence[int] | None = None,
) -> list[list[int]]:
    """Responses to encoded prompts; row i uses the random stream (seed, rows[i])."""
    streams = list(range(len(prompts))) if rows is None else list(rows)
    with torch.no_grad():
        return engine.generate(model, prompts, sampling, seed=seed, rows=streams)

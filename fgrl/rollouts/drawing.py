"""Prompts to decoded responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fgrl import rollouts
from fgrl.kinds import Engine
from fgrl.specs import Sampling
from fgrl.types import Response, Sample


@dataclass(frozen=True)
class Generated:
    """A drawn response and the token ids of it and of its prompt."""

    prompt_ids: list[int]
    ids: list[int]
    """With the end-of-sequence token, where there is one."""
    response: Response


def draw(
    model: Any, engine: Engine, prompts: Sequence[Sample], sampling: Sampling, per_prompt: int, *, seed: int, first: int = 0
) -> list[list[Generated]]:  # fmt: skip
    """`per_prompt` responses to each prompt. Prompt i draws from the random streams of row (first + i) * per_prompt."""
    encoded = [rollouts.encode_prompt(model.tokenizer, sample.prompt, sampling.max_prompt_tokens) for sample in prompts]
    repeated = [ids for ids in encoded for _ in range(per_prompt)]
    rows = [first * per_prompt + i for i in range(len(repeated))]
    responses = rollouts.sample(model, repeated, sampling, engine, seed=seed, rows=rows)
    drawn = [Generated(prompt, ids, decoded(model, ids)) for prompt, ids in zip(repeated, responses, strict=True)]
    return [drawn[i : i + per_prompt] for i in range(0, len(drawn), per_prompt)]


def decoded(model: Any, ids: Sequence[int]) -> Response:
    """Drawn token ids as a response. It is finished when it ends with an end-of-sequence token."""
    return Response(text=rollouts.decode(model.tokenizer, ids), finished=bool(ids) and ids[-1] in model.eos_ids)

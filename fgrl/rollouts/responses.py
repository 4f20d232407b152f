"""Conversion between responses as objects and rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from fgrl.base import lazy
from fgrl.rollouts.text import Ids, decode, ids_of, offsets, thoughts
from fgrl.types import DrawnResponse, Prompt, Rollout, Tokens

if TYPE_CHECKING:
    import torch
else:
    torch = lazy.load("torch")


def given(model: Any, prompt: Ids, ids: Sequence[int]) -> DrawnResponse:
    """Return a given response (token ids) in the form of a drawn response."""
    asked = prompt if isinstance(prompt, Prompt) else Prompt(tuple(ids_of(prompt)))
    finish: Literal["end", "length"] = "end" if len(ids) and ids[-1] in model.eos_ids else "length"
    return read(model.tokenizer, DrawnResponse(list(ids), finish), asked)


def read(tokenizer: Any, response: DrawnResponse, prompt: Prompt) -> DrawnResponse:
    """Return a response with its prompt and its texts."""
    text, thought = decode(tokenizer, response), thoughts(tokenizer, response.token_ids)
    return replace(response, prompt=prompt, text=text, thought=thought)


def as_rollout(
    model: Any, responses: Sequence[DrawnResponse], tokens: Tokens, needs: frozenset[str], *, first_row: int = 0,
    lent_policy: Any = None, **fields: Any,
) -> Rollout:  # fmt: skip
    """Return padded responses as a rollout. first_row: number of the first response. fields: further fields of
    `Rollout`.
    """
    return Rollout(
        **vars(tokens),
        texts=[each.text for each in responses],
        written=[_written(model, each) for each in responses],
        offsets=[offsets(model.tokenizer, each) for each in responses] if "offsets" in needs else None,
        row=torch.arange(len(responses)) + first_row if "policy" in needs else None,
        lent_policy=lent_policy if "policy" in needs else None,
        ends=frozenset(model.eos_ids),
        **_of_conversations(responses, tokens.mask),
        **fields,
    )


def _of_conversations(responses: Sequence[DrawnResponse], mask: torch.Tensor) -> dict[str, Any]:
    """Return the columns of the environment's outcomes; {} if there was no environment."""
    if not any(each.turns or each.lost for each in responses):
        return {}
    reward = torch.zeros(mask.shape)
    for row, each in enumerate(responses):
        for turn in each.turns:
            reward[row, turn.end - 1] = turn.reward
    return {
        "turns": [each.turns for each in responses],
        "turn_reward": reward,
        "terminated": torch.tensor([each.terminated for each in responses]),
        "lost": [each.lost for each in responses],
    }


def _written(model: Any, response: DrawnResponse) -> str:
    if response.turn is None:
        return response.text
    own = [token for token, turn in zip(response.token_ids, response.turn, strict=True) if turn >= 0]
    return decode(model.tokenizer, DrawnResponse(own, response.finish))

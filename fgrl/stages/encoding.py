"""Samples and pairs to rows of token ids."""

from __future__ import annotations

from itertools import islice
from typing import Any

from fgrl import rollouts
from fgrl.types import DataError, Message


def row(model: Any, prompt: str | list[Message], response: str, max_prompt: int, max_tokens: int) -> dict[str, Any]:
    """One prompt and its response. The prompt is cut on the left, the response on the right, closed by EOS."""
    prompt_ids = rollouts.encode_prompt(model.tokenizer, prompt, max_prompt)
    room = max(1, max_tokens - len(prompt_ids))
    response_ids = rollouts.encode_response(model.tokenizer, response, room, model.end_id)
    return {
        "prompt": prompt_ids,
        "response": response_ids,
        "finished": response_ids[-1] in model.eos_ids,
        "columns": {},
    }


def units(stage: Any, model: Any, limit: int | None = None) -> list[list[dict[str, Any]]]:
    """The stage's data as units: [chosen, rejected] for pairs, [row] for samples."""
    found = []
    if stage.algorithm.data == "pairs":
        for pair in islice(stage.data.pairs(), limit):
            found.append(
                [
                    row(model, pair.prompt, text, stage.max_prompt_tokens, stage.max_tokens)
                    for text in (pair.chosen, pair.rejected)
                ]
            )
        return found
    for sample in islice(stage.data.read(), limit):
        answer = sample.response if sample.response is not None else sample.reference
        answer = answer[0] if isinstance(answer, list) else answer
        if answer is None:
            raise DataError(f"sample {sample.id} has neither a response nor a reference to train on")
        found.append([row(model, sample.prompt, answer, stage.max_prompt_tokens, stage.max_tokens)])
    return found

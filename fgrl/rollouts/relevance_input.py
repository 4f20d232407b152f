"""Input of a relevance discriminator: a criterion and a response as plain text ("Rubrics to Tokens", appendix C.1).

Training (`token_bce`) and use (`discriminator`) encode with these functions, so that both read the same tokens.
"""

from __future__ import annotations

from typing import Any

from fgrl.base import lazy
from fgrl.base.errors import DataError
from fgrl.feedback.templates import Prompt, read_prompt

rollouts = lazy.load("fgrl.rollouts")


def relevance_prompt(path: str) -> Prompt:
    """Return the prompt in a file, with {criterion} and {response}. Raises `DataError` if it is not plain text that
    ends with {response}.
    """
    prompt = read_prompt(path, ("criterion", "response"), ("criterion", "response"))
    text = prompt.turns[0][1]
    if len(prompt.turns) > 1 or not text.endswith("{response}") or text.count("{response}") > 1:
        raise DataError(
            f"{path}: a discriminator reads plain text that ends with {{response}}: no turns, and nothing after it"
        )
    return prompt


def prompt_ids(tokenizer: Any, prompt: Prompt, criterion: str) -> list[int]:
    """Return the token ids of the text before the response, as plain text: no chat template, no end-of-sequence token."""
    ((_role, text),) = prompt.turns
    beginning = Prompt(prompt.path, (("user", text.removesuffix("{response}").rstrip(" ")),))
    ids = list(tokenizer(beginning.fill({"criterion": criterion})[0].content).input_ids)
    return ids[:-1] if ids and ids[-1] == tokenizer.eos_token_id else ids


def response_ids(model: Any, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the token ids of a response, closed by the end-of-sequence token, and the characters that each token
    covers (the last covers none).

    The response is encoded separately, so that its first token is known.
    """
    ids: list[int]
    ids, offsets = rollouts.encode_text(model.tokenizer, text)
    return [*ids, model.end_id], [*offsets, (len(text), len(text))]

"""Prompts and written responses as token ids, cut to a length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from fgrl.errors import DataError
from fgrl.types import Message

Cut = Literal["end", "drop"]


def encode_prompt(tokenizer: Any, prompt: str | Sequence[Message], max_tokens: int | None = None) -> list[int]:
    """Token ids of a prompt, ready for an answer to follow.

    With a chat template, a text is one user turn, and the template is rendered directly to ids, including the header of
    the assistant's turn; without one, the text is encoded as it is. A prompt longer than `max_tokens` loses its beginning,
    except for the beginning-of-sequence token. Raises `DataError` for two beginning-of-sequence tokens in a row (every later
    probability would be wrong), for a chat without a chat template, and for an empty prompt.
    """
    if isinstance(prompt, str) and not tokenizer.chat_template:
        ids = list(tokenizer(prompt).input_ids)
        if ids and ids[-1] == tokenizer.eos_token_id:  # some tokenizers append an end-of-sequence token
            ids.pop()
    else:
        if not tokenizer.chat_template:
            raise DataError("the prompt is a chat, but this tokenizer has no chat template; use a text prompt")
        turns = [Message(role="user", content=prompt)] if isinstance(prompt, str) else prompt
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        ids = list(
            tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
        )
    bos = tokenizer.bos_token_id
    if bos is not None:
        if ids[:2] == [bos, bos]:
            raise DataError(
                f"the prompt starts with two {tokenizer.bos_token!r}: the text or the chat template writes one and the "
                "tokenizer adds another; remove it from one of them"
            )
        if ids[:1] != [bos] and list(tokenizer("").input_ids[:1]) == [bos]:
            ids = [bos, *ids]
    if not ids:
        raise DataError(f"an empty prompt: {prompt!r}")
    return cut_prompt(ids, tokenizer, max_tokens)


def cut_prompt(ids: list[int], tokenizer: Any, max_tokens: int | None) -> list[int]:
    """A prompt without its beginning when it is longer than `max_tokens`; the beginning-of-sequence token stays."""
    if max_tokens is None or len(ids) <= max_tokens:
        return ids
    keep = ids[:1] if ids[0] == tokenizer.bos_token_id and max_tokens > 1 else []
    return keep + ids[len(ids) - max_tokens + len(keep) :]


def encode_response(tokenizer: Any, text: str, max_tokens: int | None, end_id: int, *, cut: Cut = "end") -> list[int]:
    """Token ids of a written response, followed by `end_id`.

    A response longer than `max_tokens` loses its end: with `cut="end"` its last kept token is overwritten by `end_id`
    (segment paper, Appendix D), with `cut="drop"` the kept tokens stay as they are.
    """
    return cut_response([*tokenizer(text, add_special_tokens=False).input_ids, end_id], max_tokens, end_id, cut=cut)


def cut_response(ids: list[int], max_tokens: int | None, end_id: int, *, cut: Cut = "end") -> list[int]:
    """A written response without its end when it is longer than `max_tokens`; see `encode_response`."""
    if max_tokens is None or len(ids) <= max_tokens:
        return ids
    ids = ids[:max_tokens]
    if cut == "end":
        ids[-1] = end_id
    return ids

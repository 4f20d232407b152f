"""Replies of an environment, as the token ids that follow the policy's turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fgrl.base.errors import DataError
from fgrl.rollouts.text import rendered
from fgrl.types import Message

CUT = " … (cut)"
CHARACTERS = 32
"""Maximum number of characters per token of the limit that are encoded, so that a huge reply takes no time."""


def reply_ids(tokenizer: Any, turns: Sequence[Message], reply: Message, last: int | None) -> list[int]:
    """Return the ids that follow the policy's turn: its end if it was not drawn, the reply, and the header of the next
    turn.

    turns: the prompt. last: the turn's last token. With a chat template, the ids are what the template writes after an
    assistant's turn, whatever it does to earlier turns; without one, the reply is a separate line.
    """
    if not tokenizer.chat_template:
        return list(tokenizer(f"\n{reply.content}\n", add_special_tokens=False).input_ids)
    before = [*turns, Message(role="assistant", content=_placeholder(turns))]
    text = rendered(tokenizer, [*before, reply])
    if reply.role != "user" and reply.content.strip() not in text:
        text = rendered(tokenizer, [*before, Message(role="user", content=reply.content)])
    _, found, behind = text.partition(before[-1].content)
    if not found:
        raise DataError(
            "the chat template does not write the assistant's turns as they are, so a conversation cannot go on in the tokens that "
            "were drawn: name another template as `chat_template` of the model"
        )
    ids = list(tokenizer(behind, add_special_tokens=False).input_ids)
    return ids[1:] if ids[:1] == [last] else ids


def rewritten(tokenizer: Any, turns: Sequence[Message], said: str, reply: Message) -> bool:
    """Return True if the chat template rewrites a drawn turn of the policy when a reply follows."""
    if not tokenizer.chat_template:
        return False
    return said.strip() not in rendered(tokenizer, [*turns, Message(role="assistant", content=said), reply])


def _placeholder(turns: Sequence[Message]) -> str:
    """Return a text that occurs in no turn."""
    text = "ANSWER"
    while any(text in turn.content for turn in turns):
        text += "ANSWER"
    return text


def shortened(tokenizer: Any, text: str, limit: int) -> str:
    """Return a text of at most about `limit` tokens: a longer text is cut at its end, with a mark."""
    part = text[: limit * CHARACTERS]
    encoded = tokenizer(part, add_special_tokens=False, return_offsets_mapping=True)
    if len(part) == len(text) and len(encoded.input_ids) <= limit:
        return text
    room = max(0, limit - len(tokenizer(CUT, add_special_tokens=False).input_ids))
    ends = [0, *(end for _start, end in encoded.offset_mapping)]
    return part[: ends[min(room, len(ends) - 1)]] + CUT

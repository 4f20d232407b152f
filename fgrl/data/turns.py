"""Prompts and conversations in data sets: a text, or a list of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fgrl.data.row import BadRow, short
from fgrl.types import Message

Turns = list[Message]
Prompt = str | Turns
ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant"}
"""Roles of a conversation by the names that some data sets have for them."""


def as_turns(value: Any, column: str) -> Turns:
    """Return messages {role, content}; further keys are not kept. Raises `BadRow`. column: the column of the value, for
    the message.
    """

    def fits(turn: Any) -> bool:
        return isinstance(turn, Mapping) and all(isinstance(turn.get(key), str) for key in ("role", "content"))

    if not isinstance(value, Sequence) or isinstance(value, str) or not value or not all(map(fits, value)):
        raise BadRow(f'"{column}" is {short(value)}: wants text or a list of messages {{role, content}}')
    for turn in value:
        if (meant := ROLES.get(turn["role"])) is not None:
            raise BadRow(f'"{column}" has the role "{turn["role"]}", which no chat template knows: write "{meant}"')
    return [Message(role=turn["role"], content=turn["content"]) for turn in value]


def as_text_or_turns(value: Any, column: str) -> Prompt:
    """Return a text that is not blank, or messages. Raises `BadRow`."""
    if isinstance(value, str):
        if not value.strip():
            raise BadRow(f'"{column}" is empty')
        return value
    return as_turns(value, column)


def as_prompt(value: Any, column: str) -> Prompt:
    """Return a text or messages without the answer at their end, if there is one. Raises `BadRow`."""
    prompt = as_text_or_turns(value, column)
    if isinstance(prompt, list) and len(prompt) > 1 and prompt[-1].role == "assistant":
        return prompt[:-1]
    return prompt


def as_one_text(prompt: Prompt) -> str:
    """Return the prompt as one text, with an empty line between its turns."""
    return prompt if isinstance(prompt, str) else "\n\n".join(turn.content for turn in prompt)

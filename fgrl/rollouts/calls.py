"""Tool calls in the text of a policy."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|<tool_call>|\Z)", re.DOTALL)
"""Format of a call in Hermes and Qwen."""
FENCE = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL)
PYTHON_TAG = "<|python_tag|>"
"""Tag that Llama writes before a call."""


class ToolCall(NamedTuple):
    """A tool and its arguments."""

    name: str
    arguments: Mapping[str, Any]


def tool_calls(tokenizer: Any, text: str, tools: Sequence[Mapping[str, Any]]) -> list[ToolCall]:
    """Return the calls in a turn; empty if the turn is an answer. Raises ValueError for a call that cannot be read.

    text: with its special tokens. The tokenizer's `response_template` defines the format of a call. Without it, a call
    is JSON with the keys `name` and `arguments` (or `parameters`), between `<tool_call>` tags, or as the whole turn.
    """
    if getattr(tokenizer, "response_template", None):
        said = tokenizer.parse_response(text, prefix="", tools=list(tools) or None)
        return [_call(each.get("function", each)) for each in said.get("tool_calls") or ()]
    if tagged := TAGGED.findall(text):
        return [call for part in tagged for call in _read(part)]
    python = PYTHON_TAG in text
    text = text.rpartition(PYTHON_TAG)[2]
    for token in getattr(tokenizer, "all_special_tokens", ()):
        text = text.replace(token, "")
    text = text.strip()
    fenced = FENCE.fullmatch(text)
    text = fenced[1].strip() if fenced else text
    return _read(text) if python or (text[:1] in ("{", "[") and '"name"' in text) else []


def _read(text: str) -> list[ToolCall]:
    """Return the calls of one or several JSON values in a row."""
    found: list[ToolCall] = []
    place = 0
    text = text.strip().rstrip("; \n")
    while place < len(text) or not found:
        try:
            value, place = json.JSONDecoder().raw_decode(text, place)
        except ValueError as error:
            raise ValueError(f"the call cannot be read as JSON: {error}") from None
        found += [_call(each) for each in (value if isinstance(value, list) else [value])]
        place += len(text[place:]) - len(text[place:].lstrip("; \n"))
    return found


def _call(value: Any) -> ToolCall:
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise ValueError('the call cannot be read: wants {"name": ..., "arguments": {...}}')
    arguments = value.get("arguments", value.get("parameters")) or {}
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(arguments, Mapping):
        raise ValueError(f"the arguments of {value['name']} are no JSON object")
    return ToolCall(value["name"], arguments)

"""Prompts as text files: sections of a conversation with `{placeholders}`.

    [system]
    You compare two answers to one question.
    [user]
    Question: {question}
    First answer: {first}

A line that is `[system]`, `[user]` or `[assistant]` alone begins a turn. A file without such a line is one user turn.
`{name}` in lower case is replaced; every other brace stays, so that JSON can be shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from fgrl.base.errors import DataError
from fgrl.base.files import kept
from fgrl.types import Message

NONE = "(none)"
"""Text that a prompt shows for an empty field."""
_TURN = re.compile(r"^\[(system|user|assistant)\]\s*$", re.MULTILINE)
_FIELD = re.compile(r"\{([a-z][a-z0-9_]*)\}")


@dataclass(frozen=True)
class Prompt:
    """A conversation with placeholders."""

    path: str
    turns: tuple[tuple[str, str], ...]
    """Role and text of each turn."""

    @property
    def fields(self) -> frozenset[str]:
        """Names of its placeholders."""
        return frozenset(name for _role, text in self.turns for name in _FIELD.findall(text))

    def fill(self, values: Mapping[str, str]) -> list[Message]:
        """Return the conversation with its placeholders replaced, in one pass: braces inside values stay as they
        are.
        """
        return [
            Message(role=role, content=_FIELD.sub(lambda match: values.get(match[1], match[0]), text))
            for role, text in self.turns
        ]


def read_prompt(path: str | Path, known: Collection[str], wanted: Collection[str] = ()) -> Prompt:
    """Return the prompt of a file. Raises `DataError` if it has a placeholder that is not among `known`, lacks a
    placeholder of `wanted`, or is empty.
    """
    text = kept(path).read_text(encoding="utf-8-sig").rstrip()
    parts = _TURN.split(text.strip())
    if parts[0].strip() and len(parts) > 1:
        raise DataError(f"{path}: there is text before the first [system], [user] or [assistant] line")
    turns = tuple(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True)) or (("user", text.strip()),)
    prompt = Prompt(str(path), turns)
    if not any(content for _role, content in turns):
        raise DataError(f"{path}: the prompt is empty")
    for name in sorted(prompt.fields - set(known)):
        near = "".join(f"did you mean {{{close}}}? " for close in get_close_matches(name, known, 1))
        place = f"{path}:{_line(text, f'{{{name}}}')}"
        raise DataError(f"{place}: unknown placeholder {{{name}}}; {near}a prompt may use: {', '.join(sorted(known))}")
    for name in sorted(set(wanted) - prompt.fields):
        if re.search(rf"\{{{name}(?![a-z0-9_}}])", text):
            raise DataError(f"{path}:{_line(text, f'{{{name}')}: {{{name} is not closed; write {{{name}}}")
        raise DataError(f"{path}: the prompt lacks the placeholder {{{name}}}: add it where its text belongs")
    return prompt


def _line(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def as_text(prompt: str | Sequence[Message]) -> str:
    """Return a prompt as text for another model: a text unchanged, a chat of several turns with its roles."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return prompt[0].content
    return "\n\n".join(f"[{turn.role}]\n{turn.content}" for turn in prompt)

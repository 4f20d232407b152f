"""Text of models and data as HTML: escaped, with visible line ends and hidden characters, cut if it is long."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from fgrl.base.visible import HIDDEN, mark
from fgrl.runs.results.text import name
from fgrl.types import Message

MOST_CHARACTERS = 4000
"""Upper bound on characters of a text."""


def turns(prompt: str | Sequence[Message]) -> list[tuple[str, Markup]]:
    """Return a prompt as (role, text): plain text has no role."""
    if isinstance(prompt, str):
        return [("", long(prompt))]
    return [(turn.role, long(turn.content)) for turn in prompt]


def long(text: str, most: int = MOST_CHARACTERS) -> Markup:
    """Return text as HTML, cut after `most` characters, with the number of left-out characters."""
    more = Markup(' <b class="hidden">{} characters more</b>').format(len(text) - most)
    return render(text[:most]) + (more if len(text) > most else "")


def render(text: str) -> Markup:
    """Return text as HTML: escaped, with line ends and hidden characters as marks."""
    parts: list[Markup] = []
    for piece in text.splitlines(keepends=True) if "\n" in text else [text]:
        body, end = (piece[:-1], True) if piece.endswith("\n") else (piece, False)
        position = 0
        for match in HIDDEN.finditer(body):
            parts.append(escape(body[position : match.start()]))
            parts.append(Markup('<b class="hidden" title="{}">{}</b>').format(name(match[0]), mark(match[0])))
            position = match.end()
        parts.append(escape(body[position:]))
        if end:
            parts.append(Markup('<b class="newline">↵</b>\n'))
    return Markup("").join(parts)

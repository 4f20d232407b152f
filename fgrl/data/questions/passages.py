"""Passages of a web search as one text, to be put into a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Passage:
    """A snippet and where it is from."""

    text: str
    url: str = ""
    selected: bool = False
    """It was marked as used for the answer."""


def render(passages: Sequence[Passage], words: int | None = None, urls: bool = True) -> str:
    """Numbered passages, one a line: `[1] (address) text`.

    Args:
        words: keep this many words of each; what was cut ends with `…`. None keeps all.
        urls: name the addresses, where they are known.
    """
    return "\n".join(_line(number, passage, words, urls) for number, passage in enumerate(passages, start=1))


def cut(text: str, words: int | None) -> str:
    """The first words of a text, with `…` where something is missing; None keeps the text as it is."""
    kept = text.split()
    return text if words is None or len(kept) <= words else " ".join(kept[:words]) + "…"


def _line(number: int, passage: Passage, words: int | None, urls: bool) -> str:
    address = f"({passage.url}) " if urls and passage.url else ""
    return f"[{number}] {address}{cut(' '.join(passage.text.split()), words)}"

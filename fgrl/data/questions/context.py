"""Passages for {context} of a prompt file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from fgrl.data.hub import Hub
from fgrl.data.questions.source import Source
from fgrl.data.row import BadRow, LeftOut, Row, short
from fgrl.registry import Settings


class ContextColumns(Settings):
    """Which column holds what; dots reach into nested ones (`passages.passage_text`)."""

    id: str | None = None
    """What identifies a row; null takes its number."""
    context: str | None = None
    """What a search found: a text, or a list of passages."""
    url: str | None = None
    """Where each passage is from, or what it is called."""
    selected: str | None = None
    """Whether a passage was used for the answer: 1 or true for each."""
    kind: str | None = None
    """What the question is counted under."""
    meta: list[str] = []
    """Columns to keep beside the sample, as they are."""


class ShowsPassages(Hub):
    """Rows whose passages can be shown in the prompt."""

    NO_PASSAGES: ClassVar[str] = ""
    """What to do when a row has no passages."""

    columns: ContextColumns = ContextColumns()
    """Which column holds what, where the usual names do not fit."""
    max_passages: int | None = Field(10, ge=1)
    """Show this many passages; null shows all."""
    passage_words: int | None = Field(None, ge=1)
    """Show this many words of each passage; null shows all."""
    selected_only: bool = False
    """Show only passages that were marked as used for the answer."""
    show_urls: bool = True
    """Show where each passage is from."""
    no_context: Literal["error", "drop", "empty"] = "error"
    """A row without passages where the prompt file has {context}: stop, leave it out and count it, or leave the place
    empty."""

    def context(self, source: Source, row: Row) -> tuple[str, list[str]]:
        """Return the text for {context}, and the names of its passages. Raises `LeftOut` and `BadRow`."""
        value = source.value(row, "context")
        if isinstance(value, str) and value.strip() and not self.selected_only:
            return cut(value.strip(), self.passage_words), []
        passages = self._passages(source, row, value)
        if passages:
            names = [passage.url or str(number) for number, passage in enumerate(passages, start=1)]
            return render(passages, self.passage_words, self.show_urls), names
        if self.no_context == "drop":
            raise LeftOut("without passages")
        if self.no_context == "error":
            hint = f" {self.NO_PASSAGES}" if self.NO_PASSAGES else ""
            raise BadRow(
                f"there are no passages for {{context}} of the prompt file.{hint} (`no_context: drop | empty` continues "
                "without)"
            )
        return "", []

    def _passages(self, source: Source, row: Row, value: Any) -> list[Passage]:
        texts = value if isinstance(value, list) else []
        if not all(text is None or isinstance(text, str) for text in texts):
            raise BadRow(f'"{source.columns["context"]}" is {short(texts)}: wants a text or a list of texts')
        urls, marks = (_one_each(source.value(row, role), len(texts)) for role in ("url", "selected"))
        passages = [
            Passage(text, str(url or ""))
            for text, url, mark in zip(texts, urls, marks, strict=True)
            if text and text.strip() and (mark or not self.selected_only)
        ]
        return passages[: self.max_passages]


def _one_each(values: Any, count: int) -> Sequence[Any]:
    """Return what belongs to each of `count` passages; None for each where the numbers differ."""
    return values if isinstance(values, list) and len(values) == count else [None] * count


@dataclass(frozen=True)
class Passage:
    """A snippet and where it is from."""

    text: str
    url: str = ""


def render(passages: Sequence[Passage], words: int | None = None, urls: bool = True) -> str:
    """Numbered passages, one a line: `[1] (address) text`.

    Args:
        words: keep this many words of each; what was cut ends with `…`. None keeps all.
        urls: name the addresses, where they are known.

    """
    return "\n".join(_line(number, passage, words, urls) for number, passage in enumerate(passages, start=1))


def cut(text: str, words: int | None) -> str:
    """Return the first words of a text, with `…` where something is missing; None keeps the text as it is."""
    kept = text.split()
    return text if words is None or len(kept) <= words else " ".join(kept[:words]) + "…"


def _line(number: int, passage: Passage, words: int | None, urls: bool) -> str:
    address = f"({passage.url}) " if urls and passage.url else ""
    return f"[{number}] {address}{cut(' '.join(passage.text.split()), words)}"

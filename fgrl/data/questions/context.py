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
    """Names of the columns; dots reach into nested columns (`passages.passage_text`)."""

    id: str | None = None
    """Column with the identifier of a row; null takes the row's number."""
    context: str | None = None
    """Column with the results of a search: a text, or a list of passages."""
    url: str | None = None
    """Column with the address or the title of each passage."""
    selected: str | None = None
    """Column that tells for each passage whether it was used for the answer: 1 or true."""
    kind: str | None = None
    """Column with the kind of the question, by which answers are counted."""
    meta: list[str] = []
    """Columns that are kept unchanged in `meta`."""


class ShowsPassages(Hub):
    """Reader of rows whose passages can be shown in the prompt."""

    NO_PASSAGES: ClassVar[str] = ""
    """Advice for a row that has no passages."""

    columns: ContextColumns = ContextColumns()
    """Names of the columns, if they are not the usual names."""
    max_passages: int | None = Field(10, ge=1)
    """Maximum number of passages that are shown; null shows all."""
    passage_words: int | None = Field(None, ge=1)
    """Number of words of each passage that are shown; null shows all."""
    selected_only: bool = False
    """Show only passages that were marked as used for the answer."""
    show_urls: bool = True
    """Show the address of each passage."""
    no_context: Literal["error", "drop", "empty"] = "error"
    """Action for a row without passages if the prompt file has {context}: stop, leave the row out and count it, or
    leave the place empty.
    """

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
    """Return one value for each of `count` passages; None for each if the numbers differ."""
    return values if isinstance(values, list) and len(values) == count else [None] * count


@dataclass(frozen=True)
class Passage:
    """A snippet and its source."""

    text: str
    url: str = ""


def render(passages: Sequence[Passage], words: int | None = None, urls: bool = True) -> str:
    """Return numbered passages, one per line: `[1] (address) text`.

    Args:
        words: keep this many words of each; a shortened passage ends with `…`. None keeps all.
        urls: show the addresses, if they are known.

    """
    return "\n".join(_line(number, passage, words, urls) for number, passage in enumerate(passages, start=1))


def cut(text: str, words: int | None) -> str:
    """Return the first words of a text, with `…` if the rest was cut; None returns the whole text."""
    kept = text.split()
    return text if words is None or len(kept) <= words else " ".join(kept[:words]) + "…"


def _line(number: int, passage: Passage, words: int | None, urls: bool) -> str:
    address = f"({passage.url}) " if urls and passage.url else ""
    return f"[{number}] {address}{cut(' '.join(passage.text.split()), words)}"

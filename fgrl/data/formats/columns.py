"""Names of the columns of a data set."""

from __future__ import annotations

from typing import Literal

from fgrl.base import foreign
from fgrl.base.errors import DataError
from fgrl.data.row import Row, preview
from fgrl.registry import Settings, did_you_mean

Format = Literal["preference", "prompts", "sft"]


class Columns(Settings):
    """Column names by the role of the column; null tries the usual names."""

    id: str | None = None
    """Column with the identifier of a row (usual: `id`, `prompt_id`; without either, the number of the row)."""
    prompt: str | None = None
    """Column with the prompt, text or messages (usual: `prompt`, `instruction`)."""
    response: str | None = None
    """Column with the answer to learn from, text or messages (usual: `response`, `completion`)."""
    messages: str | None = None
    """Column with a whole conversation (usual: `messages`)."""
    chosen: str | None = None
    """Column with the preferred answer, text or messages (usual: `chosen`)."""
    rejected: str | None = None
    """Column with the other answer, text or messages (usual: `rejected`)."""
    reference: str | None = None
    """Column with a model answer, text or a list of texts; read only if it is named here."""
    rubric: str | None = None
    """Column with the demands on a response, a list of texts or of `{text, check}`; read only if it is named here."""
    marks: str | None = None
    """Column with the marked passages of the response: a list of `[start, end, label]`, `{start, end, label}` or
    `{text, label}` (its first place in the response counts). A label above 0 is good, below 0 poor. Read only if it is
    named here.
    """
    meta: list[str] = []
    """Columns that are kept unchanged in `meta`."""


USUAL = {
    "id": ("id", "prompt_id"),
    "prompt": ("prompt", "instruction"),
    "response": ("response", "completion"),
    "messages": ("messages",),
    "chosen": ("chosen",),
    "rejected": ("rejected",),
    "reference": (),
    "rubric": (),
    "marks": (),
}


ROLES: dict[Format, tuple[str, ...]] = {
    "preference": ("prompt", "chosen", "rejected"),
    "prompts": ("prompt",),
    "sft": ("prompt", "response"),
}
"""Roles that each format needs."""


class ColumnFinder:
    """Finder of the column of a role (`prompt`, `chosen`, ...): the column that the recipe names, else one of the usual
    names.

    Args:
        where: name of the data in messages.
        form: the format, for messages.
        columns: the names in the recipe.
        first: the first row, which is shown if a column is missing.

    """

    def __init__(self, where: str, form: Format, columns: Columns, first: Row) -> None:
        self._where, self._form, self._columns, self._first = where, form, columns, first

    def find(self, role: str) -> str | None:
        """Return the column of a role; None if the data has no column with one of its usual names. Raises `DataError`
        if the recipe names a column that does not exist.
        """
        named = getattr(self._columns, role)
        if named is None:
            return next((name for name in USUAL[role] if name in self._first), None)
        if named not in self._first:
            raise self._missing(
                f'no column "{named}"{did_you_mean(named, self._first)}', f"columns.{role}", f"the column of the {role}"
            )
        return named

    def need(self, role: str) -> str:
        """Return the column of a role. Raises `DataError` if there is none."""
        column = self.find(role)
        if column is None:
            names = " or ".join(f'"{name}"' for name in USUAL[role])
            raise self._missing(f"no column {names}", f"columns.{role}", f"the column of the {role}")
        return column

    def check_meta(self) -> None:
        """Raise `DataError` if a column to keep does not exist."""
        for name in self._columns.meta:
            if name not in self._first:
                raise self._missing(
                    f'no column "{name}"{did_you_mean(name, self._first)}', "columns.meta", "the column to keep"
                )

    def _missing(self, what: str, key: str, meaning: str) -> DataError:
        guesses = ", ".join(f"{role}: {column}" for role in ROLES[self._form] if (column := self._guess(role)))
        example = f", for example `columns: {{{guesses}}}`" if guesses and key != "columns.meta" else ""
        return DataError(
            f"{self._where}: {what}, which `format: {self._form}` needs. Set `{key}` to {meaning}{example}, or another "
            f"`format`.\nIts first row:\n{preview(self._first)}"
        )

    def _guess(self, role: str) -> str | None:
        """Return the column that probably has a role, if no column has a usual name."""
        if any(name in self._first for name in USUAL[role]):
            return None
        known = {other: foreign.columns(other) for other in ("prompt", "messages", "response", "chosen", "rejected")}
        others = [name for names in known.values() for name in names]
        texts = [name for name, value in self._first.items() if isinstance(value, str) and name not in others]
        return next(
            (name for name in known[role] if name in self._first), next(iter(texts), None) if role == "prompt" else None
        )

"""Tables in plain text."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: the first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(len(rows[0]))]
    return ["  ".join(f"{cell:<{w}}" if not i else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(row, widths, strict=False)))
            for row in rows]  # fmt: skip

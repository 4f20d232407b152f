"""Choose the kind of training by what is known about good answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fgrl.base.errors import DataError, UsageError
from fgrl.exchange.starting.columns import Kind, detect
from fgrl.exchange.starting.rows import Table, read_table

KNOWN: dict[Kind, str] = {
    "rtt": "the rows have demands on the answers",
    "chains": "the rows have answers with marked passages",
    "dpo": "the rows have preferred and rejected answers",
    "sft": "the rows have answers",
}
"""Kinds that learn from rows, and the reason to choose each. The first that fits is chosen: the kinds with the most
detailed knowledge about an answer come first.
"""


def choose(data: Path, columns: Mapping[str, str], *, reward: bool, tools: bool) -> tuple[Kind, str]:
    """Return the kind to train, and why. Raises `UsageError` if only prompts are known. reward: a reward function is
    named. tools: the functions of an agent are named.
    """
    table = read_table(data)
    fitting = [kind for kind in KNOWN if _fits(kind, table, str(data), columns)]
    if tools or reward:
        kind: Kind = "agent" if tools else "grpo"
        named = "tools are" if tools else "a reward function is"
        more = "; to learn from the rows' answers first: fgrl init sft, then its product as --model" if fitting else ""
        return kind, f"{kind}, because {named} named{more}"
    if not fitting:
        raise UsageError(
            f"{data}: its rows have prompts alone. What is known about a good answer? Name a function that judges one (--reward FILE.py:FUNCTION), "
            "or a KIND: critic asks a language model, grpo writes a placeholder of a reward"
        )
    first, *others = fitting
    also = f" (these rows would do for {', '.join(others)}, too)" if others else ""
    return first, f"{first}, because {KNOWN[first]}{also}"


def _fits(kind: Kind, table: Table, where: str, columns: Mapping[str, str]) -> bool:
    """Return True if the rows have the columns of a kind."""
    try:
        detect(kind, table.rows, where, columns)
    except DataError:
        return False
    return True

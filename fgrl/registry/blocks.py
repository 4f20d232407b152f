"""Blocks of settings: the groups of fields that recipes nest in components, as `rl.train`, `model.lora` or
`sampling`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fgrl.registry.annotations import full
from fgrl.registry.describing import fields, nested
from fgrl.registry.docstrings import source
from fgrl.registry.names import get, kinds, names
from fgrl.registry.settings import Settings


@dataclass(frozen=True)
class Place:
    """A field that a recipe can set."""

    path: str
    """`rl.train.lr`: the component's name, then the fields down to this one."""
    owner: type[Settings]
    """Component or block that has the field."""
    field: str
    blocks: tuple[type[Settings], ...]
    """Blocks of settings that the field takes; empty for a plain value and for a component."""


def places() -> Iterator[Place]:
    """Yield every field of every registered component and of the blocks inside."""
    for kind in kinds():
        for name in names(kind):
            yield from _below(get(kind, name), name, ())


def blocks() -> dict[type[Settings], list[str]]:
    """Return every block with the places that take it, sorted by the name of its class."""
    known: dict[type[Settings], list[str]] = {}
    for place in places():
        for block in place.blocks:
            known.setdefault(block, []).append(place.path)
    return dict(sorted(known.items(), key=lambda item: (item[0].__name__, item[0].__module__)))


def lookup(word: str) -> list[Place]:
    """Return the places that a word names: the end of their path (`train`, `rl.train`, `model.lora`) or the name of a
    block's class.

    If any of these places takes a block, only such places are returned: `kl` is then the alarm and not a field of some
    algorithm.
    """
    matching = [
        place
        for place in places()
        if f".{place.path}".endswith(f".{word}") or word in {block.__name__ for block in place.blocks}
    ]
    return [place for place in matching if place.blocks] or matching


def describe_block(cls: type[Settings], used: Sequence[str]) -> dict[str, Any]:
    """Return a block as JSON-ready data: `block`, `doc`, `source`, `used` (the places that take it), `fields` as in
    `describe`.
    """
    return {
        "block": cls.__name__,
        "doc": inspect.cleandoc(cls.__doc__ or ""),
        "source": source(cls),
        "used": list(used),
        "fields": fields(cls, (cls,)),
    }


def describe_field(place: Place) -> dict[str, Any]:
    """Return a single field as JSON-ready data: `place`, and the entries that `describe` has for a field."""
    own = next(each for each in fields(place.owner) if each["name"] == place.field)
    return {"place": place.path, **own}


def _below(cls: type[Settings], path: str, outer: tuple[type[Settings], ...]) -> Iterator[Place]:
    for name, field in cls.model_fields.items():
        taken = tuple(dict.fromkeys(nested(full(field))))
        yield Place(f"{path}.{name}", cls, name, taken)
        for block in taken:
            if block not in outer:
                yield from _below(block, f"{path}.{name}", (*outer, block))

"""Keys that can be set in a recipe below a path: `stages.policy.algorithm.` has `kl_coef`, `clip`, ..."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fgrl import registry
from fgrl.experiments.recipe.files import Address, read
from fgrl.experiments.recipe.loading import DTYPE, know_components
from fgrl.kinds import Stage
from fgrl.registry.annotations import full, inside, is_component, is_settings, members, value_type
from fgrl.registry.building import BARE
from fgrl.registry.describing import default
from fgrl.registry.docstrings import field_help, first_sentence
from fgrl.registry.problems import Key
from fgrl.registry.settings import Component, Settings
from fgrl.registry.tree import Tree


@dataclass(frozen=True)
class Settable:
    """A key of a recipe."""

    help: str = ""
    """The first line of its help."""
    has_keys: bool = False
    """True if its value is a mapping with its own keys."""


def keys_below(address: Path | str, path: Key) -> dict[str, Settable]:
    """Return the keys that a value at `path` of a recipe may have; none where the recipe cannot be read or there is
    nothing to set.
    """
    tree, _layers, _problems = read(Address.parse(address))
    if tree is None:
        return {}
    if not path:
        return {
            "seed": Settable("Of everything random."),
            "dtype": Settable(DTYPE),
            "stages": Settable("The steps by name.", has_keys=True),
            "vars": Settable("Values for ${vars.name}.", has_keys=True),
        }
    if path[0] == "vars":
        return dict.fromkeys(_children(tree, path), Settable())
    if path[0] != "stages":
        return {}
    if len(path) == 1:
        stages = _entries(tree.get("stages"))
        return {name: Settable(f"stage {_name_of(stage)}", has_keys=True) for name, stage in stages.items()}
    know_components()
    return _keys(Stage, tree.get("stages"), [str(part) for part in path[1:]])


def _keys(annotation: Any, tree: Tree | None, path: list[str]) -> dict[str, Settable]:
    """Return the keys below `annotation`, which describes the items of `tree`."""
    part, *rest = path
    inner = None if tree is None else tree.get(int(part) if part.isdigit() else part)
    cls = _class(annotation, inner)
    if cls is None:
        item = inside(annotation)
        if item is None:
            return {}
        entries = dict.fromkeys(_entries(inner), Settable(has_keys=_has_keys(item)))
        return _keys(item, inner, rest) if rest else entries
    if not rest:
        return _fields(cls)
    field = cls.model_fields.get(rest[0])
    if field is None:
        return {}
    if inner is None or inner.get(rest[0]) is None:
        value = None if field.is_required() else default(field)
        if isinstance(value, Settings):
            return _below_default(value, rest)
    return _keys(full(field), inner, rest)


def _fields(cls: type[Settings]) -> dict[str, Settable]:
    own = {"name": Settable("Which component.")} if issubclass(cls, Component) else {}
    return own | {
        name: Settable(first_sentence(field_help(cls, name)), has_keys=_has_keys(full(field)))
        for name, field in cls.model_fields.items()
    }


def _has_keys(annotation: Any) -> bool:
    return any(is_settings(option) or value_type(option) is not None for option, _ in members(annotation))


def _below_default(value: Settings, path: list[str]) -> dict[str, Settable]:
    """Return the keys below a field that the recipe leaves at its default: path[0] is the field's name."""
    for part in path[1:]:
        inner = getattr(value, part, None)
        if not isinstance(inner, Settings):
            return {}
        value = inner
    return _fields(type(value))


def _class(annotation: Any, tree: Tree | None) -> type[Settings] | None:
    """Return the class of the settings that a value of the recipe becomes; None where it becomes none, or none is
    named.
    """
    for option, _ in members(annotation):
        if is_component(option):
            kind, name = registry.kind_of(option), _name_of(tree)
            if kind is not None and name in registry.names(kind):
                return registry.get(kind, name)
        elif is_settings(option):
            return option
    return None


def _name_of(tree: Tree | None) -> str:
    if tree is None:
        return ""
    named = tree if isinstance(tree.value, str) else tree.get("name") or tree.get(BARE)
    return named.value if named is not None and isinstance(named.value, str) else ""


def _entries(tree: Tree | None) -> dict[str, Tree]:
    return {} if tree is None else {name: inner for name, inner in tree.children.items() if not inner.dropped}


def _children(tree: Tree, path: Key) -> Iterable[str]:
    inner, rest = tree.at(path)
    return () if rest else inner.children

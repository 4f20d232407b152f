"""Keys that can be set in a recipe below a path: `stages.policy.algorithm.` has `kl_coef`, `clip`, ..."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fgrl import registry
from fgrl.experiments.recipe.files import Address, read
from fgrl.experiments.recipe.loading import know_components
from fgrl.experiments.recipe.top import Top
from fgrl.registry.annotations import contents, full, is_component, is_settings, members, value_type
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
    """First line of its help."""
    has_keys: bool = False
    """True if its value is a mapping with its own keys."""


def keys_below(address: Path | str, path: Key) -> dict[str, Settable]:
    """Return the keys that a value at `path` of a recipe may have; empty if the recipe cannot be read or there is
    nothing to set.
    """
    tree, _layers, _problems = read(Address.parse(address))
    if tree is None:
        return {}
    know_components()
    keys = _keys(tree, path)
    return keys if path else {key: keys[key] for key in ("seed", "dtype", "stages", "vars")}


def _keys(node: Tree | None, path: Key) -> dict[str, Settable]:
    """Return the keys below a path into a recipe."""
    annotation, value = cast(Any, Top), cast(Any, None)
    for part in path:
        cls = _class(annotation, node, value)
        node = None if node is None else node.get(int(part) if str(part).isdigit() else part)
        if cls is None:
            annotation, value = contents(annotation) or Any, None
        elif (field := cls.model_fields.get(str(part))) is not None:
            annotation = full(field)
            value = getattr(value, str(part)) if isinstance(value, cls) else default(field)
        else:
            return {}
    cls = _class(annotation, node, value)
    if cls is not None:
        own = {"name": Settable("Which component.")} if issubclass(cls, Component) else {}
        return own | {
            name: Settable(first_sentence(field_help(cls, name)), has_keys=_has_keys(full(field)))
            for name, field in cls.model_fields.items()
        }
    has_keys = _has_keys(contents(annotation) or Any)
    return {name: Settable(_name_of(inner), has_keys) for name, inner in _entries(node).items()}


def _has_keys(annotation: Any) -> bool:
    return any(is_settings(option) or value_type(option) is not None for option, _ in members(annotation))


def _class(annotation: Any, tree: Tree | None, value: Any) -> type[Settings] | None:
    """Return the class of the settings that a value of the recipe becomes, or the class of its default `value`; None if
    it becomes no settings, or if no component is named.
    """
    if tree is None and isinstance(value, Settings):
        return type(value)
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

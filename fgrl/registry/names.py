"""Kinds and the names of their components.

@kind("segmenter")
class Segmenter(Component, ABC): ...

@register("ngram")
class NGram(Segmenter): ...
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from fgrl.base.errors import WRONG_REQUEST, FgrlError
from fgrl.registry.docstrings import source, source_file, summary, undocumented
from fgrl.registry.problems import alternatives
from fgrl.registry.settings import Component

C = TypeVar("C", bound=type[Component])

_kinds: dict[str, type[Component]] = {}
_components: dict[str, dict[str, type[Component]]] = {}
_names: dict[type[Component], tuple[str, str]] = {}
_announced: dict[str, dict[str, tuple[str, str]]] = {}
"""Module that registers a component, and its summary, by kind and name."""


class NotRegistered(FgrlError, LookupError):
    """Error for an unknown kind, an unknown component, or a class that was never registered."""

    exit_code = WRONG_REQUEST


def kind(name: str) -> Callable[[C], C]:
    """Declare an abstract class as a kind of component."""

    def declare(cls: C) -> C:
        other = _kinds.get(name)
        if other is not None and not _same_definition(other, cls):
            raise ValueError(f'kind "{name}" is taken by {_where(other)}')
        _kinds[name] = cls
        _components.setdefault(name, {})
        return cls

    return declare


def register(name: str) -> Callable[[C], C]:
    """Give a component its name in recipes.

    Raises TypeError if the class is not finished (no kind or two kinds, an abstract method or a class variable left
    open, a field or the class without a docstring), ValueError if the name is not usable or is taken.
    """

    def declare(cls: C) -> C:
        if not isinstance(cls, type) or not issubclass(cls, Component):
            raise TypeError(f'@register("{name}"): {cls!r} is not a component; derive it from a kind: {_list(_kinds)}')
        roots = [key for key, root in _kinds.items() if issubclass(cls, root)]
        if len(roots) != 1:
            derived_from = _list(roots) or "none"
            raise TypeError(
                f"{_where(cls)} must derive from exactly one kind, found {derived_from}; kinds: {_list(_kinds)}"
            )
        _check_finished(cls, _kinds[roots[0]])
        if not re.fullmatch(r"\w[\w:.-]*", name):
            raise ValueError(f'{_where(cls)}: "{name}" cannot be a name; use letters, digits and _ - . :')
        other = _components[roots[0]].get(name)
        module, _summary = _announced.get(roots[0], {}).get(name, (None, ""))
        if other is None and module not in (None, cls.__module__):
            other = get(roots[0], name)
        if other is not None and not _same_definition(other, cls):
            raise ValueError(f'{_where(cls)}: the name "{name}" of kind {roots[0]} is taken by {_where(other)}')
        _components[roots[0]][name] = cls
        _names[cls] = (roots[0], name)
        return cls

    return declare


def announce(index: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
    """Make components known that are imported at their first use: the module and the summary, by kind and name."""
    for kind, entries in index.items():
        _announced.setdefault(kind, {}).update({name: (module, about) for name, (module, about) in entries.items()})


def kinds() -> dict[str, type[Component]]:
    """Return the kinds by name, in order of declaration."""
    return dict(_kinds)


def names(kind: str) -> list[str]:
    """Return the names of a kind's components, sorted."""
    return sorted(_of_kind(kind).keys() | _announced.get(kind, {}).keys())


def about(kind: str, name: str) -> str:
    """Return the first sentence of a component's description."""
    cls = _of_kind(kind).get(name)
    return _announced[kind][name][1] if cls is None else summary(cls)


def get(kind: str, name: str) -> type[Component]:
    """Return the class behind a name. Raises `NotRegistered` with the nearest name and the choices."""
    module, _summary = _announced.get(kind, {}).get(name, (None, ""))
    if module is not None and name not in _of_kind(kind):
        importlib.import_module(module)
    cls = _of_kind(kind).get(name)
    if cls is None:
        raise NotRegistered(
            f'unknown {kind} "{name}"{alternatives(name, names(kind), f"fgrl list {kind}", before="; ")}'
        )
    return cls


def name_of(component: Component | type[Component]) -> tuple[str, str]:
    """Return (kind, name) of a component or its class. Raises `NotRegistered` for a class without a name."""
    cls = component if isinstance(component, type) else type(component)
    if cls not in _names:
        raise NotRegistered(f"{_where(cls)} has no name; put @register(...) above it")
    return _names[cls]


def has_name(cls: type[Component]) -> bool:
    """Return True if a class was registered."""
    return cls in _names


def kind_of(cls: type) -> str | None:
    """Return the kind that a class is or derives from; None for anything else."""
    return next((name for name, root in _kinds.items() if issubclass(cls, root)), None)


def forget(module: str) -> None:
    """Remove every name that a module registered (`name_of` still knows its classes)."""
    for components in _components.values():
        for name in [name for name, cls in components.items() if cls.__module__ == module]:
            del components[name]


def _of_kind(kind: str) -> dict[str, type[Component]]:
    if kind not in _components:
        raise NotRegistered(f'unknown kind "{kind}"{alternatives(kind, list(_kinds), "fgrl list", before="; ")}')
    return _components[kind]


def _check_finished(cls: type[Component], root: type[Component]) -> None:
    abstract = sorted(getattr(cls, "__abstractmethods__", ()))
    if abstract:
        raise TypeError(f"{_where(cls)} leaves abstract: {_list(abstract)}, see {_where(root)}")
    unset = sorted(name for name in cls.__class_vars__ if not hasattr(cls, name))
    if unset:
        raise TypeError(f"{_where(cls)} does not set the class variable {_list(unset)}, see {_where(root)}")
    if not (cls.__doc__ or "").strip() or cls.__doc__ == root.__doc__:
        raise TypeError(f"{_where(cls)} has no docstring; it is what `fgrl show` prints")
    taken = sorted({"name", "version"} & set(cls.model_fields))
    if taken:
        raise TypeError(f'{_where(cls)}: a field cannot be called "{taken[0]}", that key picks the component')
    if contradiction := cls.contradiction():
        raise TypeError(f"{_where(cls)}: {contradiction}")
    if cls.__module__.startswith("fgrl."):
        return  # building validators and reading sources costs time at every start; a test does it for fgrl's own
    cls.model_rebuild()
    silent = undocumented(cls)
    if silent:
        raise TypeError(f"{_where(cls)}: write a docstring under the field {_list(silent)}; it is the field's help")


def _where(cls: type) -> str:
    return f"{cls.__name__} ({source(cls)})"


def _same_definition(cls: type, other: type) -> bool:
    """Return True if `other` is the same class, defined again by running its file again (a notebook's cell, a reload)."""
    return cls.__qualname__ == other.__qualname__ and source_file(cls) == source_file(other)


def _list(words: Iterable[str]) -> str:
    return ", ".join(words)

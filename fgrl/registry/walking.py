"""Walk through a built component: its references, the files that it reads, and its settings as plain data."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from fgrl.base.references import Ref
from fgrl.registry.annotations import contents, full, marker, marker_of
from fgrl.registry.names import name_of
from fgrl.registry.problems import Key
from fgrl.registry.settings import Component, File, Settings, Unkeyed

PLAIN = (int, float, type(None))
"""Types without contents. They are checked first: most values have one of these types, and the check for `Settings` is
slow.
"""


def walk(component: Settings) -> Iterator[tuple[Key, Any]]:
    """Yield the contents of a component, each with its path in `dump(component)`: nested `Settings` (before their own
    contents), `Ref`s, and each `File` field as a `Path`. Contents of `Unkeyed` fields are left out.
    """
    for name, annotation in _keyed(type(component)).items():
        yield from _within((name,), getattr(component, name), annotation)


@functools.cache
def _keyed(cls: type[Settings]) -> dict[str, Any]:
    """Return the annotations of a class's fields by name, without `Unkeyed` ones."""
    return {name: full(field) for name, field in cls.model_fields.items() if marker(field.metadata, Unkeyed) is None}


def _within(path: Key, value: Any, annotation: Any) -> Iterator[tuple[Key, Any]]:
    if isinstance(value, PLAIN):
        return
    if isinstance(value, Settings):
        yield path, value
        yield from (((*path, *rest), inner) for rest, inner in walk(value))
    elif isinstance(value, Ref):
        yield path, value
    elif isinstance(value, str):
        if (file := marker_of(annotation, File)) is not None:
            yield path, Path(file.parts(value)[0])
    elif isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _within((*path, key), item, contents(annotation) or Any)


def dump(component: Settings, *, for_key: bool = False, given: bool = False) -> dict[str, Any]:
    """Return a component's settings as JSON-ready data that `build` takes back: `name` and `version`, then every field,
    including fields with their default. References are `${out:stage}` texts. `Unkeyed` fields are left out.

    for_key: leave out fields that have their default, here and in all nested settings, whether it was set or not; a
    default component counts only if its version was raised. With `Settings.behind`. given: leave out fields that were
    not set, here and in all nested settings.
    """
    data: dict[str, Any] = {}
    if isinstance(component, Component):
        data = {"name": name_of(component)[1], "version": component.version}
    if for_key and (behind := component.behind()):
        data["behind"] = behind
    for name in _keyed(type(component)):
        left_out = _is_default(component, name) if for_key else given and name not in component.model_fields_set
        if not left_out:
            data[name] = plain(getattr(component, name), for_key=for_key, given=given)
    return data


def _is_default(component: Settings, name: str) -> bool:
    """Return True if a field has its default, and the default contains no component of a raised version."""
    defaults, value = _defaults(type(component)), getattr(component, name)
    if (
        name not in defaults
        or (now := plain(value)) != defaults[name]
        or isinstance(now, bool) != isinstance(defaults[name], bool)
    ):
        return False
    return not any(isinstance(part, Component) and part.version > 1 for _, part in _within((), value, Any))


@functools.cache
def _defaults(cls: type[Settings]) -> dict[str, Any]:
    """Return the defaults of a class's fields as JSON-ready data."""
    fields = {name: field for name, field in cls.model_fields.items() if not field.is_required()}
    return {name: plain(field.get_default(call_default_factory=True)) for name, field in fields.items()}


def plain(value: Any, **how: bool) -> Any:
    """Return any field's value as JSON-ready data. how: options of `dump`."""
    if isinstance(value, Settings):
        return dump(value, **how)
    if isinstance(value, Ref):
        return repr(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, **how) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(item, **how) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item, **how) for item in value]
    return to_jsonable_python(value)

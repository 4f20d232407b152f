"""Descriptions of components for `fgrl show` and for editors."""

from __future__ import annotations

import inspect
import json
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from fgrl.registry.annotations import (
    SIGNS,
    full,
    is_component,
    is_ref,
    is_settings,
    item_type,
    marker,
    members,
    parts,
    value_type,
    wanted,
)
from fgrl.registry.docstrings import field_help, source
from fgrl.registry.names import get, name_of
from fgrl.registry.settings import Component, Settings, Unkeyed
from fgrl.registry.walking import plain


def describe(kind: str, name: str) -> dict[str, Any]:
    """Return a component as JSON-ready data: `kind`, `name`, `version`, `doc`, `source` (file:line), `fields`,
    `example`.

    Each field has `name`, `type`, `required`, `default` (as YAML text, None when required), `bounds`, `help`, `keyed`
    (does it count for cache keys?) and, when settings are nested in it, their `fields`. Raises `NotRegistered`.
    """
    cls = get(kind, name)
    return {
        "kind": kind,
        "name": name,
        "version": cls.version,
        "doc": inspect.cleandoc(cls.__doc__ or ""),
        "source": source(cls),
        "fields": fields(cls),
        "example": _example(cls, kind, name),
    }


def fields(cls: type[Settings], outer: tuple[type, ...] = ()) -> list[dict[str, Any]]:
    """Return the fields of a class of settings."""
    described = []
    for name, field in cls.model_fields.items():
        about = {
            "name": name,
            "type": wanted(full(field)),
            "required": field.is_required(),
            "default": None if field.is_required() else compact(default(field)),
            "bounds": bounds(field),
            "help": field_help(cls, name),
            "keyed": marker(field.metadata, Unkeyed) is None,
        }
        inside = [inner for inner in nested(full(field)) if inner not in outer]
        if inside:
            about["fields"] = fields(inside[0], (*outer, cls, inside[0]))
        described.append(about)
    return described


def default(field: FieldInfo) -> Any:
    """Return a field's default as a component gets it."""
    value = field.get_default(call_default_factory=True, validated_data={})
    return None if value is PydanticUndefined else value


def compact(value: Any) -> str:
    """Return the value as one line of YAML; for components and settings only the fields that differ from their
    defaults.
    """
    return _yaml(_short(value))


def _short(value: Any) -> Any:
    if isinstance(value, Settings):
        changed = {
            name: _short(getattr(value, name))
            for name, field in type(value).model_fields.items()
            if field.is_required() or getattr(value, name) != default(field)
        }
        if not isinstance(value, Component):
            return changed
        name = name_of(value)[1]
        return {"name": name, **changed} if changed else name
    if isinstance(value, list | tuple):
        return [_short(item) for item in value]
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return plain(value)


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    if isinstance(value, str) and value and all(letter.isalnum() or letter in "_-./" for letter in value):
        return value
    return json.dumps(value, ensure_ascii=False)


def limits(field: FieldInfo) -> dict[str, Any]:
    """Return the bounds of a field as a mapping: `{"ge": 0, "lt": 1}`."""
    return {key: getattr(item, key) for item in field.metadata for key in SIGNS if hasattr(item, key)}


def bounds(field: FieldInfo) -> str:
    """Return the bounds of a field in words: `>= 0, < 1`; empty if there are none."""
    return ", ".join(f"{SIGNS[key]} {limit}" for key, limit in limits(field).items())


def nested(annotation: Any) -> list[type[Settings]]:
    """Return the settings that an annotation takes, alone, in a list or in a mapping. Components are left out."""
    return [inner for inner, _ in parts(annotation) if is_settings(inner) and not is_component(inner)]


def _example(cls: type[Component], kind: str, name: str) -> str:
    """Return the shortest way to write a component: its name and its required fields."""
    needed = {key: field for key, field in cls.model_fields.items() if field.is_required()}
    lines = [f"{key}: {_placeholder(full(field))}" for key, field in needed.items()]
    if kind == "stage":
        return "\n".join(["stages:", f"  my_{name}:", f"    name: {name}", *(f"    {line}" for line in lines)])
    return f"{kind}: " + ("{" + ", ".join([f"name: {name}", *lines]) + "}" if lines else name)


def _placeholder(annotation: Any) -> str:
    if any(is_ref(inner) for inner, _ in members(annotation)):
        return '"${out:stage}"'
    if any(item_type(inner) is not None for inner, _ in members(annotation)):
        return "[...]"
    return "{...}" if any(is_settings(inner) or value_type(inner) for inner, _ in members(annotation)) else "..."

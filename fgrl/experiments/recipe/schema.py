"""JSON Schema of a recipe, for completion and help in editors. `fgrl validate` knows more: the schema accepts
everything that could be right after `extends` and `${...}`, so it requires only `about`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from fgrl import registry
from fgrl.experiments.recipe.top import Top
from fgrl.registry import Settings
from fgrl.registry.annotations import full, is_component, is_ref, is_settings, item_type, members, value_type
from fgrl.registry.building import accepts_bare
from fgrl.registry.describing import default, limits
from fgrl.registry.docstrings import field_help
from fgrl.registry.walking import plain

Schema = dict[str, Any]

_INTERPOLATED = {"type": "string", "pattern": r"\$\{"}
_NULL = {"type": "null"}
_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
_NUMBER = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
}
_LENGTH = {"min_length": "minItems", "max_length": "maxItems"}


def schema() -> Schema:
    """Return the JSON Schema (2020-12) of a recipe for everything that is registered now."""
    from fgrl.experiments.recipe.loading import know_components

    know_components()
    definitions: Schema = {}
    for kind in registry.kinds():
        _define_kind(kind, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fgrl recipe",
        **_object(Top, definitions, {}),
        "required": ["about"],
        "$defs": definitions,
    }


def _define_kind(kind: str, definitions: Schema) -> None:
    """Define `#/$defs/<kind>`: a name, or a mapping whose keys depend on its `name`."""
    names = registry.names(kind)
    chosen = []
    for name in names:
        cls = registry.get(kind, name)
        key = f"{kind}.{name}"
        own = {"name": {"const": name}, "version": {"type": "integer"}}
        definitions[key] = _object(cls, definitions, own)
        named = {"properties": {"name": {"const": name}}, "required": ["name"]}
        chosen.append({"if": named, "then": {"$ref": f"#/$defs/{key}"}})
    definitions[kind] = {
        "description": " ".join((registry.kinds()[kind].__doc__ or "").split("\n\n")[0].split()),
        "anyOf": [
            {"enum": names},
            _INTERPOLATED,
            {"type": "object", "properties": {"name": {"anyOf": [{"enum": names}, _INTERPOLATED]}}, "allOf": chosen},
        ],
    }


def _object(cls: type[Settings], definitions: Schema, own: Schema) -> Schema:
    properties = {**own, **{name: _field(cls, name, field, definitions) for name, field in cls.model_fields.items()}}
    mapping: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    about = (cls.__doc__ or "").strip().split("\n\n")[0]
    return {"description": " ".join(about.split()), **mapping} if about else mapping


def _field(cls: type[Settings], name: str, field: FieldInfo, definitions: Schema) -> Schema:
    entry: Schema = {"anyOf": _options(full(field), definitions, limits(field))}
    if _NULL not in entry["anyOf"]:
        entry["anyOf"].append(_NULL)  # drops what a parent has
    if not any(option.get("type") == "string" and "pattern" not in option for option in entry["anyOf"]):
        entry["anyOf"].append(_INTERPOLATED)
    text = field_help(cls, name)
    if text:
        entry["description"] = text
    if not field.is_required():
        entry["default"] = plain(default(field))
    return entry


def _options(annotation: Any, definitions: Schema, bounded: Schema) -> list[Schema]:
    options: list[Schema] = []
    for inner, _ in members(annotation):
        options += [option for option in _schemas_of(inner, definitions, bounded) if option not in options]
    return options


def _schemas_of(annotation: Any, definitions: Schema, bounded: Schema) -> Sequence[Schema]:
    if annotation in _TYPES:
        keys = _NUMBER if annotation in (int, float) else {"min_length": "minLength", "max_length": "maxLength"}
        return [{"type": _TYPES[annotation], **{keys[key]: limit for key, limit in bounded.items() if key in keys}}]
    if get_origin(annotation) is Literal:
        return [{"enum": list(get_args(annotation))}]
    if is_ref(annotation):
        return [{"type": "string", "pattern": r"^\$\{"}]
    if is_component(annotation):
        return [{"$ref": f"#/$defs/{registry.kind_of(annotation)}"}]
    if is_settings(annotation):
        return _settings(annotation, definitions)
    size = {_LENGTH[key]: limit for key, limit in bounded.items() if key in _LENGTH}
    if (item := item_type(annotation)) is not None:
        inside = _options(item, definitions, {})
        return [{"type": "array", "items": {"anyOf": [*inside, _INTERPOLATED]}, **size}]
    if (value := value_type(annotation)) is not None:
        inside = _options(value, definitions, {})
        return [{"type": "object", "additionalProperties": {"anyOf": [*inside, _INTERPOLATED, _NULL]}}]
    return [{}]


def _settings(cls: type[Settings], definitions: Schema) -> list[Schema]:
    key = f"{cls.__module__}.{cls.__name__}"
    if key not in definitions:
        definitions[key] = {}  # settings may hold themselves
        definitions[key] = _object(cls, definitions, {})
    bare = [{"type": "string"}] if accepts_bare(cls) else []
    return [{"$ref": f"#/$defs/{key}"}, *bare]

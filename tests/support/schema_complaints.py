"""JSON Schema, as far as `fgrl schema` uses it."""

from __future__ import annotations

import re
from typing import Any


def complaints(value: Any, rule: dict[str, Any], root: dict[str, Any], path: str = "") -> list[str]:
    """What JSON Schema's keywords, as far as `schema` uses them, have against a value."""
    unknown = set(rule) - {
        "$ref", "anyOf", "allOf", "if", "then", "type", "enum", "const", "pattern", "properties", "additionalProperties",
        "required", "items", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems",
        "maxItems", "minLength", "maxLength", "description", "default", "title", "$schema", "$defs",
    }  # fmt: skip
    assert not unknown, f"the test does not know {unknown}"
    found: list[str] = []
    if "$ref" in rule:
        found += complaints(value, root["$defs"][rule["$ref"].removeprefix("#/$defs/")], root, path)
    if "anyOf" in rule:
        tries = [complaints(value, option, root, path) for option in rule["anyOf"]]
        found += [] if any(not one for one in tries) else max(tries, key=len)
    for option in rule.get("allOf", []):
        found += complaints(value, option, root, path)
    if "if" in rule and not complaints(value, rule["if"], root, path):
        found += complaints(value, rule["then"], root, path)
    types = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    names = rule.get("type", [])
    names = [names] if isinstance(names, str) else names
    if names and not any(
        isinstance(value, types[name]) and (not isinstance(value, bool) or name == "boolean") for name in names
    ):
        return [*found, f"{path}: {value!r} is no {names}"]
    if "enum" in rule and value not in rule["enum"]:
        found.append(f"{path}: {value!r} not in {rule['enum']}")
    if "const" in rule and value != rule["const"]:
        found.append(f"{path}: {value!r} != {rule['const']}")
    if isinstance(value, str) and not re.search(rule.get("pattern", ""), value):
        found.append(f"{path}: {value!r} is not like {rule['pattern']}")
    if isinstance(value, int | float) and not (
        rule.get("minimum", value) <= value <= rule.get("maximum", value)
        and rule.get("exclusiveMinimum", value - 1) < value < rule.get("exclusiveMaximum", value + 1)
    ):
        found.append(f"{path}: {value} is out of bounds")
    if isinstance(value, list):
        if not rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", len(value)):
            found.append(f"{path}: {len(value)} items")
        for index, item in enumerate(value):
            found += complaints(item, rule.get("items", {}), root, f"{path}[{index}]")
    if isinstance(value, dict):
        found += [f"{path}: {key} is missing" for key in rule.get("required", []) if key not in value]
        for key, item in value.items():
            inner = rule.get("properties", {}).get(key, rule.get("additionalProperties", {}))
            found += [f"{path}: unknown {key}"] if inner is False else complaints(item, inner, root, f"{path}.{key}")
    return found

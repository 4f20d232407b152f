"""Conversion of pydantic's errors into the terms of a recipe."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fgrl.base import foreign
from fgrl.registry.annotations import SIGNS, contents, described, full, is_component, members, shown, wanted
from fgrl.registry.context import FAILED, Context
from fgrl.registry.docstrings import field_help, first_sentence
from fgrl.registry.names import get, kind_of, kinds, name_of, names
from fgrl.registry.problems import Key, alternatives, nearest
from fgrl.registry.settings import Component, Settings

_OF_TYPES = ("_type", "_parsing", "_from_float", "none_required", "is_instance_of", "literal_error")
"""Endings of the names of errors about types."""
_LENGTHS = {"min_length": "at least", "max_length": "at most"}


def unknown_keys(cls: type[Settings], fields: Mapping[str, Any], path: Key, context: Context) -> set[str]:
    """Report keys that the settings do not have. Return the fields that were probably meant, which are then not
    reported as missing.
    """
    known = list(cls.model_fields)
    owner = ' {} "{}"'.format(*name_of(cls)) if is_component(cls) else f" {cls.__name__}"
    meant: set[str] = set()
    for key in fields:
        if key in cls.model_fields:
            continue
        if (stuck := re.fullmatch(r"(\w+):(\S+)", key)) and stuck[1] in known:
            meant.add(stuck[1])
            wrong = f'unknown key "{key}": no space after the colon'
            context.problem((*path, key), wrong, f"write {stuck[1]}: {stuck[2]}")
            continue
        elsewhere = foreign.elsewhere(key)
        guess = foreign.among(key, cls.model_fields) or (None if elsewhere else nearest(key, known))
        if guess:
            meant.add(guess)
        before = f"{elsewhere}  " if elsewhere and not guess else ""
        hint = alternatives(guess, known, command(cls, path, context), before)
        hint += f'; "{guess}" is set already' if guess in fields else ""
        context.problem((*path, key), f'unknown key "{key}" of{owner}', hint)
    return meant


def explain(
    cls: type[Settings],
    error: ValidationError,
    fields: Mapping[str, Any],
    path: Key,
    context: Context,
    known: set[str],
) -> None:
    """Report each field that pydantic refused, once; `known` fields are already reported."""
    by_field: dict[str, list[ErrorDetails]] = {}
    for details in error.errors(include_url=False):
        if details["loc"]:
            by_field.setdefault(str(details["loc"][0]), []).append(details)
        else:
            _crossing(cls, _plain_message(details), fields, path, context)
    for name, errors_of_field in by_field.items():
        if name in known or name not in cls.model_fields or holds(fields.get(name), FAILED):
            continue
        if errors_of_field[0]["type"] == "missing" and len(errors_of_field[0]["loc"]) == 1:
            _missing(cls, name, path, context)
        else:
            _refused(cls, name, errors_of_field, fields.get(name), (*path, name), context)


def _crossing(cls: type[Settings], message: str, fields: Mapping[str, Any], path: Key, context: Context) -> None:
    """Report the refusal of a validator over several fields at the field that its message begins with: `lr 2 is ...`,
    `lr: ...`.
    """
    name = message.partition(" ")[0].removesuffix(":")
    first, *inner = name.split(".")
    if first in cls.model_fields and first in fields:
        path = (*path, first, *(int(part) if part.isdigit() else part for part in inner))
        message = message.removeprefix(f"{name}: ")
    context.problem(path, message)


def _missing(cls: type[Settings], name: str, path: Key, context: Context) -> None:
    annotation = full(cls.model_fields[name])
    slot = next((inner for inner, _ in members(annotation) if is_component(inner)), None)
    words = wanted(annotation) if slot is None else f"{a(wanted(annotation))}: {{name: ...}}"
    hint = _help(cls, name, path, context) if slot is None else choices(None, slot)
    context.problem((*path, name), f"missing; wants {words}", hint)


def _help(cls: type[Settings], name: str, path: Key, context: Context) -> str:
    shows = command(cls, path, context)
    return first_sentence(field_help(cls, name)) + (f"  ({shows})" if shows else "")


def _refused(
    cls: type[Settings], name: str, errors: list[ErrorDetails], value: Any, path: Key, context: Context
) -> None:
    """Report a problem for each deepest place inside a value that pydantic complains about."""
    placed: dict[Key, list[ErrorDetails]] = {}
    for error in errors:
        placed.setdefault(_inside(value, error["loc"][1:]), []).append(error)
    deepest = max(map(len, placed))
    first, *others = (inside for inside in placed if len(inside) == deepest)
    # what one member of a union refuses, another may take: of those places the first is enough
    others = [other for other in others if any(len(error["loc"]) == len(other) + 1 for error in placed[other])]
    for inside in (first, *sorted(others, key=str)):
        annotation, refused = full(cls.model_fields[name]), value
        for part in inside:
            annotation, refused = contents(annotation) or Any, refused[part]
        error = next((error for error in placed[inside] if not _is_type(error)), placed[inside][0])
        message, hint = _message(error, refused, wanted(annotation))
        hint = "\n".join(filter(None, (hint, _help(cls, name, path[:-1], context))))
        context.problem((*path, *inside), message, hint)


def _inside(value: Any, location: tuple[int | str, ...]) -> Key:
    """Return the part of pydantic's location that is in the data; the other parts name members of unions."""
    inside: list[int | str] = []
    part: Any
    for part in location:
        if (isinstance(value, Mapping) and part in value) or (
            isinstance(value, list | tuple) and isinstance(part, int) and part < len(value)
        ):
            value = value[part]
            inside.append(part)
    return tuple(inside)


def _is_type(error: ErrorDetails) -> bool:
    return error["type"].endswith(_OF_TYPES)


def _message(error: ErrorDetails, value: Any, words: str) -> tuple[str, str | None]:
    """Return the message and the hint of an error; `words` say which value is wanted."""
    kind, given = error["type"], error.get("ctx", {})
    limit = next((key for key in SIGNS if key in given), None)
    if kind == "literal_error":
        options = re.findall(r"'([^']*)'", str(given["expected"]))
        guess = nearest(value, options) if isinstance(value, str) else None
        return f"wants {words}, got {shown(value)}", f'did you mean "{guess}"?' if guess else None
    if _is_type(error):
        return f"wants {words}, got {described(value)}", quoted(value, words)
    if limit in _LENGTHS:
        unit = ("character" if isinstance(value, str) else "item") + "s" * (given[limit] != 1)
        return f"wants {_LENGTHS[limit]} {given[limit]} {unit}, got {len(value)}", None
    if limit is not None:
        bound = f"{'' if limit == 'multiple_of' else 'a number '}{SIGNS[limit]} {given[limit]:.10g}"
        percent = f"in percent? {value}% is {value / 100:g}" if bound == "a number <= 1" and value <= 100 else None
        return f"wants {bound}, got {shown(value)}", percent
    if kind == "finite_number":
        return f"wants a finite number, got {shown(value)}", None
    if kind == "string_pattern_mismatch":
        return f"wants text like {given['pattern']}, got {shown(value)}", None
    return _plain_message(error), None


def _plain_message(error: ErrorDetails) -> str:
    """Return the text of a ValueError that a validator raised, or pydantic's own text."""
    raised = error.get("ctx", {}).get("error")
    if isinstance(raised, Exception):
        return str(raised) or type(raised).__name__
    return error["msg"][:1].lower() + error["msg"][1:]


def quoted(value: Any, words: str) -> str | None:
    """Return the next step if a value is text and something else is wanted, or if text is written like another type."""
    kinds = set(words.split(" or "))
    if all(kind == "null" or kind.startswith("list of") for kind in kinds) and not isinstance(value, list):
        return "write a list: - before each item" if isinstance(value, dict) else f"write [{value}]"
    if any(kind.startswith("mapping of") for kind in kinds) and isinstance(value, list):
        return "write entries, name: value, without the dashes or brackets of a list"
    if isinstance(value, dict) and value and not any(value.values()) and "str" in kinds:
        return f'write "{{{", ".join(map(str, value))}}}": text that begins with {{ needs quotes'
    if not isinstance(value, str):
        return None
    if "bool" in kinds and value.lower() in ("yes", "no", "on", "off", "y", "n", "true", "false"):
        return "write true" if value.lower() in ("yes", "on", "y", "true") else "write false"
    number = value.replace("_", "").replace(",", "" if re.search(r",\d{3}(?!\d)", value) else ".")
    if kinds & {"int", "float"} and re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", number):
        return f"write {number}, without quotes, commas or underscores"
    return None


def command(cls: type[Settings], path: Key, context: Context) -> str | None:
    """Return the command that explains a component, or a block of settings in it."""
    if is_component(cls):
        return "fgrl show {} {}".format(*name_of(cls))
    outer, name = context.component
    inside = path[len(outer) :]
    return f"fgrl show {name}.{inside[0]}" if name and len(inside) == 1 else None


def choices(word: str | None, slot: type[Component]) -> str:
    """Return the components that fit a slot, in the order of their similarity to a word."""
    kind = kind_of(slot) or slot.__name__
    fitting = [name for name in names(kind) if slot is kinds()[kind] or issubclass(get(kind, name), slot)]
    return alternatives(word, fitting, f"fgrl list {kind}")


def stages_with(kind: str) -> list[str]:
    """Return the stages that have a component of a kind among their fields."""
    return [
        name
        for name in (names("stage") if "stage" in kinds() else [])
        for field in get("stage", name).model_fields.values()
        if any(is_component(inner) and kind_of(inner) == kind for inner, _ in members(full(field)))
    ]


def a(words: str) -> str:
    """Return words with their indefinite article."""
    return f"{'an' if words[:1] in 'aeiou' else 'a'} {words}"


def nearby(path: Path) -> str:
    """Return a path relative to the current directory."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def leaves(node: Any, path: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Yield every value inside plain data, and every empty list or mapping, with its path."""
    items = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    if not items or not node:
        yield path, node
        return
    for key, item in items:
        yield from leaves(item, (*path, key))


def holds(node: Any, value: Any) -> bool:
    """Return True if this very object is somewhere inside plain data."""
    return any(leaf is value for _, leaf in leaves(node))

"""The page of the reference on Python: what `import fgrl` and the code of components use, from signatures and docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
import types
from collections.abc import Iterator
from functools import cache
from typing import Any

from fgrl.registry import docstrings

HEAD = """# Python

What `import fgrl` gives, and what the code of a component can use. [Python](../how-to/python.md) and
[write a component](../how-to/write-a-component.md) have examples.
"""
ROOMS: dict[str, tuple[str, ...]] = {
    "fgrl": (),
    "fgrl.registry": ("Component", "Settings", "register"),
    "fgrl.kinds": (),
    "fgrl.types": (),
    "fgrl.base.ops": (),
    "fgrl.rollouts": (),
    "fgrl.models": ("LanguageModel", "ActorCritic", "evaluating"),
    "fgrl.training.group_relative": ("GroupRelative",),
    "fgrl.training.policy_gradient": ("PolicyGradient",),
    "fgrl.training.references": ("ReferencedAlgorithm",),
}
"""Packages, and which of their names; empty: all that they export."""
ON_DISK = "fgrl.runs."
"""Package of the classes that read and write the files of runs."""


def page() -> str:
    """Return the text of the page."""
    return "\n".join([HEAD, *(line for room, names in ROOMS.items() for line in _room(room, names))]) + "\n"


def _room(room: str, names: tuple[str, ...]) -> Iterator[str]:
    module = importlib.import_module(room)
    yield from (f"## {room}", "", _text(module.__doc__), "")
    for name in names or _exported(module):
        thing = getattr(module, name)
        if inspect.isclass(thing):
            yield from _class(name, thing)
        elif inspect.isfunction(thing):
            yield from (f"### {name}", "", *_signature(name, thing), _text(thing.__doc__), "")


def _exported(module: types.ModuleType) -> list[str]:
    names = getattr(module, "__all__", None) or vars(module)
    return sorted(name for name in names if not name.startswith("_") and _is_ours(getattr(module, name)))


def _is_ours(thing: Any) -> bool:
    return getattr(thing, "__module__", "").startswith("fgrl.") and (
        inspect.isclass(thing) or inspect.isfunction(thing)
    )


def _class(name: str, cls: type) -> Iterator[str]:
    yield from (f"### {name}", "", _text(cls.__doc__), "")
    yield from _fields(cls)
    for method, function in _methods(cls):
        yield from _signature(f"{name}.{method}", function)
        if about := _text(function.__doc__):
            yield from (about, "")


def _owners(cls: type) -> list[type]:
    """Return the class and its bases in fgrl that have no section here, the bases first."""
    shown = {getattr(importlib.import_module(room), name) for room in ROOMS for name in ROOMS[room] or _listed(room)}
    return [base for base in reversed(cls.__mro__) if base is cls or (_is_ours(base) and base not in shown)]


def _properties(cls: type) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield what can be read of a run or a stage: its class is shown, the one on disk below it is not."""
    for base in _owners(cls):
        for name, thing in vars(base).items() if base.__module__.startswith(ON_DISK) else ():
            read = getattr(thing, "fget", None) or getattr(thing, "func", None)
            if read is not None and read.__doc__ and not name.startswith("_"):
                yield name, (str(read.__annotations__["return"]), " ".join(read.__doc__.split()))


@cache
def _listed(room: str) -> tuple[str, ...]:
    return tuple(_exported(importlib.import_module(room)))


def _fields(cls: type) -> Iterator[str]:
    fields = {
        field: (annotation, docstrings.class_docs(base).get(field, ""))
        for base in _owners(cls)
        for field, annotation in base.__dict__.get("__annotations__", {}).items()
        if not field.startswith("_") and field != "model_config"
    }
    fields |= dict(_properties(cls))
    if fields:
        yield from ("| field | type | what it is |", "|---|---|---|")
        yield from (f"| `{field}` | {_cell(f'`{kind}`')} | {_cell(help)} |" for field, (kind, help) in fields.items())
        yield ""


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    owners = [base for base in _owners(cls) if not base.__module__.startswith(ON_DISK)]
    found = {name: thing for base in owners for name, thing in vars(base).items() if not name.startswith("_")}
    for name, thing in found.items():
        function = getattr(thing, "__func__", thing)
        if inspect.isfunction(function) and function.__module__.startswith("fgrl."):
            yield name, function


def _signature(name: str, function: Any) -> Iterator[str]:
    signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(function)))
    signature = re.sub(r"frozenset\(\{[^}]*\}\)", "...", signature)  # in no order
    yield from ("```text", f"{name}{signature}", "```", "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _text(doc: str | None) -> str:
    return re.sub(r"<(?=[A-Za-z/])", "&lt;", inspect.cleandoc(doc or ""))

"""Help of fields: the docstring under a field. It is read from the source at its first use, not at import.

pydantic's `use_attribute_docstrings` does the same when a class is created. Every start would pay for this, and it uses
`inspect.getmodule`, which touches every module in `sys.modules` and so loads lazy modules.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import cast

from fgrl.registry.settings import Settings


def summary(cls: type) -> str:
    """Return the first sentence of a class's docstring, without its full stop."""
    return first_sentence(cls.__doc__ or "").rstrip(".")


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, on one line."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[\w)\"`]\.)\s+(?=[A-Z`])", paragraph)[0]


def field_help(cls: type[Settings], name: str) -> str:
    """Return the help of a field, or of the base's field that it redefines; empty if there is no help (or no source to
    read it from).
    """
    described = cls.model_fields[name].description
    if described:
        return described
    for base in cls.__mro__:
        if name in base.__dict__.get("__annotations__", {}) and (help := class_docs(base).get(name)):
            return help
    return ""


def undocumented(cls: type[Settings]) -> list[str]:
    """Return the fields without help, as far as the source can be read."""
    return [
        name for name in cls.model_fields if not field_help(cls, name) and source_file(_owner(cls, name)) is not None
    ]


def source_file(cls: type) -> Path | None:
    """Return the file that defines a class."""
    try:
        file = inspect.getsourcefile(cls)
    except (TypeError, OSError):
        return None
    return Path(file) if file else None


def source(cls: type) -> str:
    """Return `file:line` of a class, relative to the current directory; its module if it has no file."""
    file = source_file(cls)
    if file is None:
        return cls.__module__
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return f"{shown}:{_definition(cls)[1]}"


def _owner(cls: type[Settings], name: str) -> type:
    return next(base for base in cls.__mro__ if name in base.__dict__.get("__annotations__", {}))


@lru_cache(maxsize=1024)
def class_docs(cls: type) -> dict[str, str]:
    """Return the docstrings below the fields that a class itself defines."""
    text, _line = _definition(cls)
    docs: dict[str, str] = {}
    for definition in ast.parse(text).body:
        for field, below in pairwise(cast(ast.ClassDef, definition).body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(help))):
                    # one line a paragraph; lists and indented lines stay
                    docs[name] = re.sub(r"(?<!\n)\n(?!\n|\s|[-*] |\d+\. )", " ", inspect.cleandoc(help))
    return docs


def _definition(cls: type) -> tuple[str, int]:
    """Return the source of a class and the line on which it begins, its decorators included; "" and 0 if it is unknown."""
    try:
        lines, line = inspect.getsourcelines(cls)
    except (OSError, TypeError):
        return "", 0
    return textwrap.dedent("".join(lines)), line

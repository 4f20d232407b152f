"""The docstring under a field is its help. Read from the source when it is asked for, not at import.

pydantic's `use_attribute_docstrings` does the same at the creation of every class, which every start would pay for, and
through `inspect.getmodule`, which touches every module in `sys.modules` and so wakes up lazy ones.
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import lru_cache
from pathlib import Path

from fgrl.registry.settings import Settings


def summary(cls: type) -> str:
    """Return the first sentence of a class's docstring, without its full stop."""
    return first_sentence(cls.__doc__ or "").rstrip(".")


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, on one line."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[\w)\"`]\.)\s+(?=[A-Z`])", paragraph)[0]


def field_help(cls: type[Settings], name: str) -> str:
    """Return the help of a field, or else of the base's field that it redefines; empty when there is none (or no source
    to read it from).
    """
    described = cls.model_fields[name].description
    if described:
        return described
    for base in cls.__mro__:
        if name in base.__dict__.get("__annotations__", {}) and (help := class_docs(base).get(name)):
            return help
    return ""


def undocumented(cls: type[Settings]) -> list[str]:
    """Fields without help, as far as the source can be read."""
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


def source_line(cls: type) -> int:
    """Return the line on which a class begins, its decorators included; 0 when unknown."""
    file = source_file(cls)
    node = _find(cls, file) if file else None
    if node is None:
        return 0
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def source(cls: type) -> str:
    """`file:line` of a class, as seen from the current directory; its module when it has no file."""
    file = source_file(cls)
    if file is None:
        return cls.__module__
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return f"{shown}:{source_line(cls)}"


def _owner(cls: type[Settings], name: str) -> type:
    return next(base for base in cls.__mro__ if name in base.__dict__.get("__annotations__", {}))


def class_docs(cls: type) -> dict[str, str]:
    """Return the docstrings below the fields that a class itself defines."""
    file = source_file(cls)
    node = _find(cls, file) if file else None
    docs: dict[str, str] = {}
    if node is not None:
        for statement, below in zip(node.body, node.body[1:], strict=False):
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
            if (name := _field_name(statement)) is not None and isinstance(text, str):
                docs[name] = _unwrapped(inspect.cleandoc(text))
    return docs


def _unwrapped(text: str) -> str:
    """Return a text with one line per paragraph; lists and indented lines stay."""
    return re.sub(r"(?<!\n)\n(?!\n|\s|[-*] |\d+\. )", " ", text)


def _find(cls: type, file: Path) -> ast.ClassDef | None:
    """Return the class in its file's syntax tree; of several that have its name, the one with its fields."""
    nodes = _classes(file, file.stat().st_mtime_ns).get(cls.__qualname__, [])
    own = set(cls.__dict__.get("__annotations__", {}))
    same = [node for node in nodes if {name for item in node.body if (name := _field_name(item)) is not None} == own]
    return next(iter([*same, *nodes]), None)


def _field_name(statement: ast.stmt) -> str | None:
    target = statement.target if isinstance(statement, ast.AnnAssign) else None
    return target.id if isinstance(target, ast.Name) else None


@lru_cache(maxsize=512)
def _classes(file: Path, _version: int) -> dict[str, list[ast.ClassDef]]:
    """Every class of a file by qualified name."""
    classes: dict[str, list[ast.ClassDef]] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inside = prefix
            if isinstance(child, ast.ClassDef):
                classes.setdefault(prefix + child.name, []).append(child)
                inside = f"{prefix}{child.name}."
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = f"{prefix}{child.name}.<locals>."
            visit(child, inside)

    visit(ast.parse(file.read_text(encoding="utf-8")), "")
    return classes

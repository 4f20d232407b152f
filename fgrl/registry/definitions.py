"""The source of components that no recipe names a file of: defined in a notebook's cell, in a script, or in a module that one
of these imports.

Of a cell or a script only what a component uses counts, so that another line of it changes nothing: the statement that defines
the class, and the functions, classes and values that it reads, and what those read. Of any other module the whole file counts.
Modules of Python and of installed packages do not count.
"""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import json
import linecache
import logging
import re
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from fgrl.errors import UsageError
from fgrl.registry import outside

INTERACTIVE = "__main__"
"""The module of a notebook's cells and of a script."""
INSTALLED = ("site-packages", "dist-packages")
PLAIN = (bool, int, float, str, bytes, types.NoneType, re.Pattern, Path, range)
"""Values whose text is all that they are."""
NAMED = (logging.Logger, types.BuiltinFunctionType, types.MethodDescriptorType)
"""Values that are what their names say, in any process."""
HINT = "create it in `setup`, make it a field, or put the component into a file and name the file under `imports` of the recipe"


def digests(classes: Iterable[type]) -> dict[str, str]:
    """sha256 of the source of these classes and of their bases, by `module` or `__main__.Class`; without those of fgrl, of
    installed packages and of files that recipes import.

    Raises `UsageError` for a component that reads a value which cannot be compared between processes, such as a loaded model, and
    for one whose source is not known.
    """
    result: dict[str, str] = {}
    for cls in dict.fromkeys(base for given in classes for base in given.__mro__):
        if cls.__module__ == INTERACTIVE:
            result[f"{INTERACTIVE}.{cls.__qualname__}"] = _sha256(json.dumps(_Reading(cls).texts, sort_keys=True))
        elif (file := _own_file(sys.modules.get(cls.__module__))) is not None:
            result[cls.__module__] = _sha256(file.read_text(encoding="utf-8"))
    return result


def outside_of_recipes(cls: type) -> bool:
    """Is the class defined where a process of its own would not find it?"""
    return cls.__module__ == INTERACTIVE or _own_file(sys.modules.get(cls.__module__)) is not None


def files_of(cls: Any) -> set[Path]:
    """The files, or the cells of a notebook under the names that tracebacks give them, in which the methods of a class are defined."""
    return {Path(function.__code__.co_filename) for function in _functions(cls)} if isinstance(cls, type) else set()


def _own_file(module: Any) -> Path | None:
    """The file of a module that the user wrote; None for modules of Python, of fgrl, of installed packages, and for files that
    recipes import."""
    file = getattr(module, "__file__", None)
    if file is None or not str(file).endswith(".py"):
        return None
    root = module.__name__.partition(".")[0]
    known = (*sys.stdlib_module_names, *outside.packages(), "fgrl", outside.PACKAGE)
    return None if root in known or set(INSTALLED) & set(Path(file).parts) else Path(file)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _Reading:
    """A class of a cell or a script, and everything of its module that it reads."""

    def __init__(self, cls: type) -> None:
        self.component = cls.__qualname__
        self.texts: dict[str, str] = {}
        """By name."""
        self._add(cls.__qualname__, cls)

    def _add(self, name: str, value: Any) -> None:
        if name in self.texts:
            return
        self.texts[name] = ""  # what reads itself ends here
        if isinstance(value, type | types.FunctionType):
            self.texts[name] = self._definition(name, value)
        else:
            self.texts[name] = self._value(name, value)

    def _definition(self, name: str, value: Any) -> str:
        """The statement that defines a class or a function; what it reads is added, too."""
        if value.__module__ != INTERACTIVE:
            return self._of_module(sys.modules.get(value.__module__), f"{value.__module__}.{value.__qualname__}")
        functions = list(_functions(value))
        if not functions:
            return self._without_functions(name, value)
        sources = ((function, _statement(function.__code__)) for function in functions)
        function, statement = next((pair for pair in sources if pair[1] is not None), (None, None))
        if function is None or statement is None:
            raise UsageError(
                f"{self.component}: the source of {name} is not known, so the cache could not tell versions of it apart: put the "
                "component into a file and name the file under `imports` of the recipe"
            )
        module = ast.Module([statement], [])
        for read in sorted(_global_names(compile(module, "<statement>", "exec", dont_inherit=True))):
            if read in function.__globals__ and not read.startswith("__"):
                self._add(read, function.__globals__[read])
        return ast.unparse(statement)

    def _without_functions(self, name: str, value: type) -> str:
        """A class that holds values alone: a base with other defaults, an enumeration, an exception."""
        bases = [base.__qualname__ for base in value.__bases__]
        if issubclass(value, Enum):
            return f"{bases} {list(value)!r}"
        held = {key: item for key, item in vars(value).items() if isinstance(item, PLAIN) and not key.startswith("__")}
        return f"{bases} {self._value(name, held)}"

    def _of_module(self, module: Any, name: str) -> str:
        file = _own_file(module)
        return name if file is None else f"{name} {_sha256(file.read_text(encoding='utf-8'))}"

    def _value(self, name: str, value: Any) -> str:
        if isinstance(value, (*PLAIN, Enum)):
            return repr(value)
        if isinstance(value, types.ModuleType):
            return self._of_module(value, value.__name__)
        if isinstance(value, list | tuple):
            return repr([self._value(name, item) for item in value])
        if isinstance(value, set | frozenset):
            return repr(sorted(self._value(name, item) for item in value))
        if isinstance(value, Mapping):
            return repr(sorted((self._value(name, key), self._value(name, item)) for key, item in value.items()))
        if isinstance(value, functools.partial):
            return self._value(name, (value.func, value.args, value.keywords))
        if isinstance(value, type | types.FunctionType):
            return self._definition(value.__qualname__, value)
        if isinstance(value, NAMED):
            return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', getattr(value, 'name', ''))}"
        if type(value).__module__ in ("typing", "types") or isinstance(value, typing.TypeVar):
            return repr(value)
        raise UsageError(
            f"{self.component} reads the variable {name}, a {type(value).__qualname__}, whose content cannot be part of the stage's "
            f"cache key: {HINT}"
        )


def _functions(value: Any) -> Iterator[types.FunctionType]:
    """A function itself; those that a class defines, under whatever decorator."""
    if isinstance(value, types.FunctionType):
        yield value
        return
    held = [item for name, item in vars(value).items() if not name.startswith("__pydantic")]
    for item in held:
        inner = getattr(item, "wrapped", item)  # pydantic's validators
        inner = getattr(inner, "fget", None) or getattr(inner, "__func__", inner)
        if isinstance(inner, types.FunctionType) and inner.__module__ == value.__module__:
            yield inner


def _statement(code: types.CodeType) -> ast.stmt | None:
    """The top-level statement of a file, or of a cell, in which a function is defined."""
    text = "".join(linecache.getlines(code.co_filename))
    try:
        statements = ast.parse(text).body
    except SyntaxError:
        return None
    for statement in statements:
        first = min([statement.lineno, *(item.lineno for item in getattr(statement, "decorator_list", []))])
        if first <= code.co_firstlineno <= (statement.end_lineno or first):
            return statement
    return None


def _global_names(code: types.CodeType) -> set[str]:
    """Names that code reads from its module, inner functions and classes included."""
    steps = list(dis.get_instructions(code))
    stored = {step.argval for step in steps if step.opname in ("STORE_NAME", "STORE_GLOBAL")}
    names = {step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")} - stored
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names

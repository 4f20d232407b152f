"""Arguments of a user's function, and the promise of its return annotation."""

from __future__ import annotations

import ast
import collections.abc
import functools
import inspect
import numbers
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from fgrl.kinds.functions.loading import Code
from fgrl.registry.explaining import nearby
from fgrl.types import Span

Returns = Literal["numbers", "tokens", "spans", "named"]
"""Result of a function for each text: a number, a number per token, scored spans, or several numbers by name."""
IN_WORDS: dict[Returns, str] = {
    "numbers": "list[float]",
    "tokens": "list[list[float]]",
    "spans": "list[list[tuple[int, int, float]]]",
    "named": "dict[str, list[float]]",
}
_LISTS = (list, tuple, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Iterator,
          collections.abc.Generator, collections.abc.Collection)  # fmt: skip
_AWAITED = (collections.abc.Awaitable, collections.abc.Coroutine)


@dataclass(frozen=True)
class Function:
    """A user's function and the file that a recipe names it in."""

    code: Code
    name: str
    """Its name in the file."""
    call: Callable[..., Any]
    line: int
    """Line that defines it, from 1."""
    parameters: Mapping[str, inspect.Parameter]
    returns: Any
    """Its return annotation; `inspect.Signature.empty` without one."""

    @property
    def file(self) -> Path:
        return self.code.file

    @property
    def place(self) -> str:
        """`rewards.py:score`, as messages call it."""
        return f"{nearby(self.file)}:{self.name}"

    @property
    def takes_any(self) -> bool:
        """True if it takes any keyword argument (`**kwargs`)."""
        return any(each.kind is inspect.Parameter.VAR_KEYWORD for each in self.parameters.values())

    @property
    def is_async(self) -> bool:
        """True if it is to be awaited."""
        call = _without_partial(self.call)
        return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)

    def takes(self, name: str) -> bool:
        """May it be given this keyword argument?"""
        return self.takes_any or name in self.parameters

    def requires(self) -> list[str]:
        """Return the keyword arguments that it cannot do without."""
        collected = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        return [
            name
            for name, each in self.parameters.items()
            if each.default is inspect.Parameter.empty and each.kind not in collected
        ]

    def kind(self) -> Returns | None:
        """Form that its return annotation promises; None for one that promises something else."""
        return kind_of(self.returns)

    def return_line(self) -> int:
        """Return the line of its only `return`; the line of its definition where it has none or several."""
        node = definition(self.file, self.name)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return self.line
        lines = [each.lineno for each in _own_nodes(node) if isinstance(each, ast.Return)]
        return lines[0] if len(lines) == 1 else self.line


class Unusable(Exception):
    """Why a name of a file cannot be used as a function. `line`: where in the file; `hint`: the next step."""

    def __init__(self, message: str, line: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.line, self.hint = line, hint


def read(code: Code, name: str) -> Function:
    """Return the function of this name. Raises `Unusable`."""
    if not hasattr(code.module, name):
        names = functions_in(code.file)
        known = f"its functions: {', '.join(names)}" if names else "it defines no function"
        raise Unusable(f"has no function {name!r}", hint=known)
    call, line = getattr(code.module, name), _line(code.file, name)
    if not callable(call) or isinstance(call, type):
        what = "a class" if isinstance(call, type) else f"a value of type {type(call).__name__}"
        raise Unusable(f"{name} is {what}, not a function", line, f"define it: def {name}(completions, **kwargs)")
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        raise Unusable(f"the parameters of {name} are not known", line, "wrap it in your own function") from None
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise Unusable(
                f"{name} takes {parameter.name!r} by position only, and arguments are passed by name",
                line, "remove the / from its parameters",
            )  # fmt: skip
    return Function(
        code, name, call, line, signature.parameters, _resolved(signature.return_annotation, call, name, line)
    )


def _resolved(annotation: Any, call: Any, name: str, line: int) -> Any:
    """Return the return annotation as an object: with `from __future__ import annotations` it is text."""
    if not isinstance(annotation, str):
        return annotation
    call = inspect.unwrap(_without_partial(call))
    function = call if inspect.isroutine(call) else type(call).__call__
    try:
        return eval(annotation, dict(getattr(function, "__globals__", {})))
    except Exception as error:
        raise Unusable(
            f"the return annotation {annotation!r} of {name} cannot be read ({type(error).__name__}: {error})", line,
            "import the names that it uses, outside of `if TYPE_CHECKING:`",
        ) from None  # fmt: skip


def _without_partial(call: Any) -> Any:
    while isinstance(call, functools.partial):
        call = call.func
    return call


def kind_of(annotation: Any) -> Returns | None:
    """Return the form that a return annotation promises; None for one that promises something else. Without one it is
    TRL's list of numbers.
    """
    annotation = _bare(annotation)
    if annotation is inspect.Signature.empty or annotation is Any:
        return "numbers"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in _AWAITED:
        return kind_of(arguments[-1])
    if annotation in _LISTS or _is_array(annotation):
        return "numbers"
    if origin in (dict, collections.abc.Mapping):
        return "named" if kind_of(arguments[-1]) == "numbers" else None
    return _kind_of_items(_bare(arguments[0])) if origin in _LISTS else None


def _kind_of_items(item: Any) -> Returns | None:
    if _is_number(item):
        return "numbers"
    if item in _LISTS or _is_array(item):
        return "tokens"
    if get_origin(item) not in _LISTS or not get_args(item):
        return None
    inside = _bare(get_args(item)[0])
    if _is_number(inside):
        return "tokens"
    span = inside is Span or (get_origin(inside) or inside) in (tuple, dict, collections.abc.Mapping)
    return "spans" if span else None


def _bare(annotation: Any) -> Any:
    """Return an annotation without `Annotated` and without the None of `X | None`."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        others = [each for each in get_args(annotation) if each is not NoneType]
        if all(_is_number(each) for each in others):
            return float
        return _bare(others[0]) if len(others) == 1 else annotation
    if isinstance(annotation, typing.TypeVar | str):
        return Any
    return annotation


def _is_number(annotation: Any) -> bool:
    if annotation is Any:
        return True
    return isinstance(annotation, type) and (
        issubclass(annotation, numbers.Number)
        or (annotation.__module__ == "numpy" and annotation.__name__ != "ndarray")
    )


def _is_array(annotation: Any) -> bool:
    """Return a tensor of torch, an array of NumPy."""
    name = getattr(get_origin(annotation) or annotation, "__name__", "")
    return name in ("Tensor", "ndarray")


def functions_in(file: Path) -> list[str]:
    """Return the names of the functions that a file defines at its top."""
    tree = ast.parse(file.read_bytes())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    ]


def definition(file: Path, name: str) -> ast.stmt | None:
    """Return the last statement at the top of a file that gives a name its value."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # it has changed since it was imported
        return None
    return next((node for node in reversed(tree.body) if name in _bound(node)), None)


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [node.target.id] if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else []


def _line(file: Path, name: str) -> int:
    node = definition(file, name)
    return node.lineno if node is not None else 1


def _own_nodes(node: ast.AST) -> typing.Iterator[ast.AST]:
    """Yield the nodes of a function, except those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield child
            yield from _own_nodes(child)

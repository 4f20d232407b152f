"""Arguments of a user's function, and the type of its return annotation."""

from __future__ import annotations

import ast
import collections.abc
import inspect
import numbers
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from fgrl.registry.explaining import nearby
from fgrl.registry.outside import FIRST
from fgrl.registry.problems import Place, Problem, Problems, nearest
from fgrl.types import Span

Returns = Literal["numbers", "tokens", "spans", "named"]
"""Result of a function for each text: a number, a number per token, scored spans, or several numbers by name."""
IN_WORDS: dict[Returns, str] = {
    "numbers": "list[float]",
    "tokens": "list[list[float]]",
    "spans": "list[list[tuple[int, int, float]]]",
    "named": "dict[str, list[float]]",
}
_FORMS: dict[str, Returns] = {
    "[n]": "numbers", "[[n]]": "tokens", "[[s]]": "spans", "[[[n]]]": "spans", "{[n]}": "named"
}  # fmt: skip
_LISTS = (list, tuple, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Iterator,
          collections.abc.Generator, collections.abc.Collection)  # fmt: skip
_AWAITED = (collections.abc.Awaitable, collections.abc.Coroutine)
_Defined = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Function:
    """A user's function and the file in which a recipe names it."""

    file: Path
    name: str
    """Name of the function in the file."""
    call: Callable[..., Any]
    line: int
    """Line of the definition, from 1."""
    parameters: Mapping[str, inspect.Parameter]
    returns: Any
    """Return annotation of the function; `inspect.Signature.empty` without one."""

    @property
    def place(self) -> str:
        """Return `rewards.py:score`, the name of the function in messages."""
        return f"{nearby(self.file)}:{self.name}"

    def takes(self, name: str) -> bool:
        """Return True if the function accepts this keyword argument."""
        collects = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in self.parameters.values())
        return collects or name in self.parameters

    def requires(self) -> list[str]:
        """Return the required keyword arguments."""
        collected = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        return [
            name
            for name, each in self.parameters.items()
            if each.default is inspect.Parameter.empty and each.kind not in collected
        ]

    def kind(self) -> Returns | None:
        """Form of the result by the return annotation; None for any other annotation. Without an annotation it is TRL's
        list of numbers.
        """
        return "numbers" if self.returns in (Any, inspect.Signature.empty) else _FORMS.get(_form(self.returns))

    def return_line(self) -> int:
        """Return the line of its only `return`; the line of its definition if it has none or several."""
        node = _definition(self.file, self.name)
        lines = [each.lineno for each in _own_nodes(node) if isinstance(each, ast.Return)] if node else []
        return lines[0] if len(lines) == 1 else self.line


def read(file: Path, module: ModuleType, name: str, *, factory: bool = False) -> Function:
    """Return the function of this name. factory: the name may be a class. Raises `Problems`."""
    if not hasattr(module, name):
        names = functions_in(file)
        known = f"its functions: {', '.join(names)}" if names else "it defines no function"
        guess = f'did you mean "{near}"?  ' if (near := nearest(name, names)) else ""
        raise Problems([Problem((), f"{nearby(file)} has no function {name!r}", f"{guess}{known}")])
    call, node = getattr(module, name), _definition(file, name)
    line = node.lineno if node is not None else 1

    def unusable(message: str, hint: str) -> Problems:
        text = (file.read_text(encoding="utf-8", errors="replace").splitlines() or [""])[line - 1]
        place = Place(nearby(file), line, len(text) - len(text.lstrip()) + 1, text, file, FIRST)
        return Problems([Problem((), message, hint, place)])

    if not callable(call) or (isinstance(call, type) and not factory):
        what = "a class" if isinstance(call, type) else f"a value of type {type(call).__name__}"
        raise unusable(f"{name} is {what}, not a function", f"define it: def {name}(completions, **kwargs)")
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        raise unusable(f"the parameters of {name} are not known", "wrap it in your own function") from None
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            message = f"{name} takes {parameter.name!r} by position only, and arguments are passed by name"
            raise unusable(message, "remove the / from its parameters")
    returns = signature.return_annotation
    if isinstance(returns, str):  # with `from __future__ import annotations`
        try:
            returns = eval(returns, dict(getattr(inspect.unwrap(call), "__globals__", vars(module))))
        except Exception as error:
            message = f"the return annotation {returns!r} of {name} cannot be read ({type(error).__name__}: {error})"
            raise unusable(message, "import the names that it uses, outside of `if TYPE_CHECKING:`") from None
    return Function(file, name, call, line, signature.parameters, returns)


def _form(annotation: Any) -> str:
    """Return an annotation in short: `n` a number (or anything), `s` a span, `[n]` a list of numbers, `{[n]}` lists of
    numbers by name; "" for something else.
    """
    if annotation is Any or isinstance(annotation, TypeVar | str):
        return "n"
    origin = get_origin(annotation) or annotation
    inside = [each for each in get_args(annotation) if each is not NoneType]
    if origin in (Union, UnionType):
        forms = {_form(each) for each in inside}
        return forms.pop() if len(forms) == 1 else ""
    if origin is Annotated or origin in _AWAITED:
        return _form(inside[0 if origin is Annotated else -1])
    if origin in (dict, collections.abc.Mapping):
        return "{[n]}" if inside and _form(inside[-1]) == "[n]" else "s"
    if origin is Span or (origin is tuple and inside and Ellipsis not in inside):
        return "s"
    if origin in _LISTS:
        return f"[{_form(inside[0]) if inside else 'n'}]"
    if getattr(origin, "__name__", "") in ("Tensor", "ndarray"):
        return "[n]"
    is_number = isinstance(origin, type) and (issubclass(origin, numbers.Number) or origin.__module__ == "numpy")
    return "n" if is_number else ""


def functions_in(file: Path) -> list[str]:
    """Return the names of the functions that a file defines at its top level; an empty list for a file that is no
    Python.
    """
    return [
        node.name for node in _statements(file) if isinstance(node, _Defined) and not node.name.startswith("_")
    ]  # fmt: skip


def _definition(file: Path, name: str) -> ast.stmt | None:
    """Return the last statement at the top level of a file that assigns a name."""
    return next((node for node in reversed(_statements(file)) if name in _bound(node)), None)


def _statements(file: Path) -> list[ast.stmt]:
    try:
        return ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):  # no Python, or changed since it was imported
        return []


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, _Defined | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, except those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _Defined | ast.Lambda | ast.ClassDef):
            yield child
            yield from _own_nodes(child)

"""A lent model as components hold it: it can be used while it is lent, and a component that keeps it cannot use it
afterwards.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy

if TYPE_CHECKING:
    from torch import nn
else:
    nn = lazy.load("torch.nn")

Check = Callable[[], object]
"""Raises `PolicyNotLent` when the model is not lent."""


class LentModule:
    """A module of a lent model (the `LanguageModel`, a layer of it). It has what the module has: attributes, methods,
    calls.

    Each access asks first whether the model is still lent, and raises `PolicyNotLent` where it is not. That holds for
    its methods and for all modules that are reached from it (`model.transformer`, `model.modules()`), too. Tensors,
    settings and the tokenizer are the model's own. It cannot be copied or pickled (TypeError).
    """

    __slots__ = ("_check", "_module")

    def __init__(self, module: nn.Module, check: Check) -> None:
        object.__setattr__(self, "_module", module)
        object.__setattr__(self, "_check", check)

    def __getattr__(self, name: str) -> Any:
        self._check()
        return lent(getattr(self._module, name), self._check)

    def __setattr__(self, name: str, value: object) -> None:
        self._check()
        setattr(self._module, name, value)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self._check()
        return lent(self._module(*arguments, **options), self._check)

    def __getitem__(self, index: Any) -> Any:
        self._check()
        module: Any = self._module
        return lent(module[index], self._check)

    def __iter__(self) -> Iterator[Any]:
        self._check()
        module: Any = self._module
        return (lent(part, self._check) for part in module)

    def __len__(self) -> int:
        self._check()
        module: Any = self._module
        return len(module)

    def __bool__(self) -> bool:
        return True  # a module without parts is no false value

    def __dir__(self) -> list[str]:
        return dir(self._module)

    def __repr__(self) -> str:
        return f"<lent {self._module!r}>"

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError("a lent model cannot be copied or pickled: it is lent for the responses at hand")


def lent(value: Any, check: Check) -> Any:
    """`value`, which a lent module returned, where modules and methods ask `check` before each use."""
    if isinstance(value, nn.Module):
        return LentModule(value, check)
    if inspect.isroutine(value) or isinstance(value, functools.partial):

        @functools.wraps(value)
        def call(*arguments: Any, **options: Any) -> Any:
            check()
            return lent(value(*arguments, **options), check)

        return call
    if inspect.isgenerator(value):  # of `modules()`, `named_parameters()`
        return (lent(item, check) for item in value)
    if type(value) is tuple:
        return tuple(lent(item, check) for item in value)
    return value

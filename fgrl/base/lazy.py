"""Modules that are imported when they are first used.

`torch = lazy.load("torch")` at the head of a file costs nothing until `torch.something` is asked for. Unlike the
placeholders of `importlib.util.LazyLoader` (and the lazy-loader package, which builds on it), these are not in
`sys.modules`: whoever walks `sys.modules` (the `inspect` module does, and torch calls it while it is imported) would
load every placeholder there.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """Stands for a module of the same name."""

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self.__name__), attribute)


def load(name: str) -> Any:
    """Return the module `name`, imported at the first use of an attribute. A missing module raises ImportError
    there.
    """
    return LazyModule(name)


def attributes(
    package: str, submodules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for the `__init__.py` of `package`: a name is imported from its submodule at first
    use.
    """
    origin = {name: submodule for submodule, names in submodules.items() for name in names}

    def get(name: str) -> Any:
        if name not in origin:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{origin[name]}"), name)

    return get, lambda: sorted(origin)


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no garbage while modules are imported and components are built: they stay, and looking takes a tenth of
    the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()

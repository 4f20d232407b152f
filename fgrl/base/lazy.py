"""Modules that are imported when they are first used.

`torch = lazy.load("torch")` at the head of a file costs nothing until `torch.something` is accessed. Unlike the
placeholders of `importlib.util.LazyLoader` (and the lazy-loader package, which builds on it), these are not in
`sys.modules`: code that iterates over `sys.modules` (such as the `inspect` module, which torch calls during its import)
would load every placeholder.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """Placeholder for a module of the same name."""

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self.__name__), attribute)


def load(name: str) -> Any:
    """Return the module `name`, which is imported when an attribute is first used. A missing module raises ImportError
    at that point.
    """
    return LazyModule(name)


def attributes(
    package: str, submodules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for the `__init__.py` of `package`. Each name is imported from its submodule
    when it is first used.
    """
    origin = {name: submodule for submodule, names in submodules.items() for name in names}

    def get(name: str) -> Any:
        if name not in origin:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{origin[name]}"), name)

    return get, lambda: sorted(origin)


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection while modules are imported and components are built. These objects stay in memory, and
    collection takes a tenth of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()

"""Modules that are imported when they are first used.

`torch = lazy.load("torch")` at the head of a file costs nothing until `torch.something` is asked for. Unlike the placeholders
of `importlib.util.LazyLoader` (and the lazy-loader package, which builds on it), these are not in `sys.modules`: whoever walks
`sys.modules` (the `inspect` module does, and torch calls it while it is imported) would load every placeholder there.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """Stands for a module of the same name."""

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self.__name__), attribute)


def load(name: str) -> Any:
    """The module `name`, imported at the first use of an attribute. A missing module raises ImportError there."""
    return LazyModule(name)

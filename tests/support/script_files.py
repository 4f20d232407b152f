"""Files of code that stand outside of any package, such as those of tools/."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from fgrl.registry.outside import forget_file, import_file


def loaded(file: Path) -> ModuleType:
    """Return a file as a new module."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def imported(file: Path) -> ModuleType:
    """Return a file of a user's components, whose names no other test of the process knows."""
    try:
        return import_file(file)
    finally:
        forget_file(file)

"""A user's file as a module, with the files beside it that it imports.

A file may import others of its folder (`import helpers`), as when Python runs it. These siblings are found without
running anything, so that their content counts for cache keys. Modules of the standard library keep their names. While
no function of the file runs, the siblings cannot be imported by anybody else, so two folders may have a `helpers.py`
each.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from fgrl.base.files import sha256_of_code, sha256_of_file
from fgrl.registry.outside import forget_file, import_file, imported, imports_in, note_user_files

_checked: dict[Path, tuple[list[str], Code]] = {}


class Code:
    """A user's file, executed, and the siblings that it imports."""

    def __init__(self, file: Path, executed: set[Path] | None = None) -> None:
        """Execute the file and its siblings anew, so that no value of an earlier execution is left.

        executed: files that were executed for the same purpose and are not executed again; this object's files are
        added. Raises `Problems` when a file cannot be imported.
        """
        self.file = file
        self.siblings = siblings(file)
        self._finder = _Siblings(file.parent, self.siblings)
        self._modules: dict[str, ModuleType] = {}
        executed = set() if executed is None else executed
        named = [file, *(each for files in self.siblings.values() for each in files)]
        note_user_files(named)
        own = [each.resolve() for each in named]
        before = imported()
        for each in own:
            if each not in executed:
                forget_file(each)
        executed.update(own)
        with self.importable():
            self.module = import_file(file)
            # what a sibling registers stays known, also when the file imports it later, inside a function
            for each in own:
                if each in before and each not in imported():
                    import_file(each)

    @contextmanager
    def importable(self) -> Iterator[None]:
        """While the block runs, the siblings can be imported by their names."""
        if not self.siblings:
            yield
            return
        before = self._taken()
        sys.modules.update(self._modules)
        sys.meta_path.insert(0, self._finder)
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.meta_path.remove(self._finder)
            self._modules = self._taken()
            sys.modules.update(before)

    def _taken(self) -> dict[str, ModuleType]:
        """Return the loaded modules that have a sibling's name, taken out of `sys.modules`."""
        names = [name for name in sys.modules if name.partition(".")[0] in self.siblings]
        return {name: sys.modules.pop(name) for name in names}


class _Siblings:
    """Finds the siblings of a file, and nothing else."""

    def __init__(self, folder: Path, names: dict[str, list[Path]]) -> None:
        self.folder, self.names = folder, names

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """As `importlib.abc.MetaPathFinder` describes it."""
        return PathFinder.find_spec(name, [str(self.folder)]) if path is None and name in self.names else None


def siblings(file: Path) -> dict[str, list[Path]]:
    """Return the files beside `file` that it imports, directly or through one another, by the name of their module or
    package.
    """
    known: dict[str, list[Path]] = {}
    waiting = [file]
    while waiting:
        for name in sorted({module.partition(".")[0] for module in imports_in(waiting.pop())}):
            if name not in known and name not in sys.stdlib_module_names and (own := _beside(file.parent, name)):
                known[name] = own
                waiting += own
    return known


def digests(file: Path) -> list[str]:
    """Hashes of the code of a file's siblings, for cache keys; empty without siblings."""
    files = sorted(each for own in siblings(file).values() for each in own)
    return [f"{each.relative_to(file.parent).as_posix()} {sha256_of_code(each.read_bytes())}" for each in files]


def checked(file: Path) -> Code:
    """Return the file's code to look at, executed once as long as it and its siblings do not change. Raises
    `Problems`.
    """
    now = [sha256_of_file(each) for each in (file, *(each for own in siblings(file).values() for each in own))]
    if file not in _checked or _checked[file][0] != now:
        _checked[file] = now, Code(file)
    return _checked[file][1]


def _beside(folder: Path, name: str) -> list[Path]:
    """Return the file of a module of this folder, or all files of a package."""
    if (folder / f"{name}.py").is_file():
        return [folder / f"{name}.py"]
    return sorted((folder / name).rglob("*.py")) if (folder / name / "__init__.py").is_file() else []

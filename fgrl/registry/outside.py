"""Components from outside fgrl: a user's file, or an installed package with an entry point in `fgrl.components`."""

from __future__ import annotations

import ast
import builtins
import hashlib
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import metadata
from importlib.machinery import FileFinder, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from fgrl.base.errors import UsageError
from fgrl.base.files import sha256_of_code, sha256_of_file
from fgrl.registry.docstrings import source
from fgrl.registry.explaining import nearby
from fgrl.registry.names import forget, has_name
from fgrl.registry.problems import Place, Problem, Problems, nearest
from fgrl.registry.settings import Component
from fgrl.registry.shielding import shielded

PACKAGE = "fgrl_imported"
FIRST = -1
"""Rank of places in imported files: an error in a file is the cause of "unknown" components in the recipe."""
INTERACTIVE = "__main__"
"""Name of the module of a notebook's cells and of a script."""
INSTALLED = {"site-packages", "dist-packages"}
_imported: dict[Path, str] = {}
_code: dict[Path, str] = {}
"""Digest of the code of each imported file, as it was executed."""
_used: dict[Path, set[Path]] = {}
"""Files beside an imported file that it imported while it was executed, including files that were removed since."""
_built_on: dict[Path, dict[Path, str]] = {}
"""Files that an imported file or package imports, directly or through other files, with the sha256 that they had when
it was executed. Files of packages are included.
"""
_running: dict[Path, ModuleType] = {}
"""Files that are being imported: two files may import each other."""
_loaded: set[tuple[str, str]] = set()
_packages: dict[str, tuple[str, str]] = {}
_user_files: set[str] = set()


def import_file(path: Path) -> ModuleType:
    """Import a user's Python file, once as long as its content is the same. Its components are then known.

    It may import the files and the packages beside it by their names (`from helpers import spread`, `import
    helpers.words`). They are imported in the same way, and count as the recipe's own. Names of Python's library always
    mean the library.

    Raises `Problems` if the file does not exist, cannot be read, or raises an error; in the last case with the line
    that raised it.
    """
    file = path.expanduser().resolve()
    try:
        source = file.read_bytes()
    except OSError as error:
        message = (
            "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror or error}"
        )
        raise Problems([Problem((), f"{nearby(file)}: {message}")]) from None
    digest = _sha256(source)
    # the same in every process, so that what is pickled in one can be read in another
    name = f"{PACKAGE}.{file.stem}_{_sha256(str(file).encode())[:8]}"
    if file in _running:
        return _running[file]
    if _imported.get(file) == digest and name in sys.modules and _built_on.get(file) == _digests(used_by(file)):
        return sys.modules[name]
    forget(name)
    note_user_files([file])
    package = sys.modules.setdefault(PACKAGE, ModuleType(PACKAGE, "The files that recipes import."))
    package.__path__ = []  # a package, so that what is pickled here can be read in another process
    module = ModuleType(name)
    module.__file__ = str(file)
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _importer(file)}
    sys.modules[name] = module
    _running[file], _used[file] = module, set()
    try:
        with shielded(nearby(file)):
            exec(compile(source, str(file), "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:  # whatever it raises is reported as the file's
        del sys.modules[name]
        forget(name)
        if isinstance(error, Problems):  # of a file that it imports
            raise
        raise Problems([_raised(file, source.decode("utf-8", errors="replace"), error)]) from error
    finally:
        del _running[file]
    _imported[file], _code[file], _built_on[file] = digest, sha256_of_code(source), _digests(used_by(file))
    return module


def _importer(file: Path) -> Callable[..., Any]:
    """Return the `__import__` of a user's file, or of the modules of a package. For it, files beside the importing file
    come before an installed package of the same name.
    """

    def import_beside(name: str, namespace: Any = None, local: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        beside = _beside(file, name) if level == 0 else None
        if beside is None:
            return builtins.__import__(name, namespace, local, fromlist, level)
        if file in _running:
            _used[file].update(_files_of(beside))
        return _import_packaged(beside, name, fromlist) if beside.is_dir() else import_file(beside)

    return import_beside


def _import_packaged(folder: Path, name: str, fromlist: Any) -> Any:
    """Import a module of a package beside a user's file, as `__import__` does. Each folder has separate packages, which
    are forgotten when one of their files has changed.
    """
    around = f"{PACKAGE}.beside_{_sha256(str(folder.parent).encode())[:8]}"
    sys.modules.setdefault(around, ModuleType(around)).__path__ = [str(folder.parent)]
    top = f"{around}.{folder.name}"
    now = _digests(used_by(folder))
    if _built_on.get(folder) != now:
        for known in [each for each in sys.modules if f"{each}.".startswith(f"{top}.")]:
            del sys.modules[known]
        _built_on[folder] = now
    module = builtins.__import__(f"{around}.{name}", fromlist=fromlist or ("__name__",))
    return module if fromlist else sys.modules[top]


class _Packaged(SourceFileLoader):
    """Loader that executes a module of a package beside a user's file as the user's code."""

    def path_stats(self, path: str) -> Any:
        """Disable bytecode by raising OSError: bytecode does not notice an edit within a second."""
        raise OSError

    def exec_module(self, module: ModuleType) -> None:
        note_user_files([Path(self.path)])
        forget(module.__name__)
        _, around, top, *_ = module.__name__.split(".")
        (folder,) = sys.modules[f"{PACKAGE}.{around}"].__path__
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _importer(Path(folder) / top)}
        super().exec_module(module)


class _Packages:
    """Finder for the modules of packages beside users' files."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, _target: Any = None) -> ModuleSpec | None:
        """Implement `importlib.abc.MetaPathFinder.find_spec`."""
        if not path or not name.startswith(f"{PACKAGE}."):
            return None
        return FileFinder(path[0], (_Packaged, [".py"])).find_spec(name)


sys.meta_path.insert(0, _Packages)


def _beside(file: Path, name: str) -> Path | None:
    """Return the file, or the folder of a package, beside a file that it means by the name of a module; None for
    modules of Python, of fgrl and of installed packages. A folder without `__init__.py` comes after these, as in
    Python.
    """
    top, _, inside = name.partition(".")
    module, folder = file.parent / f"{top}.py", file.parent / top
    if not top or top in sys.stdlib_module_names or top == "fgrl":
        return None
    if not inside and module != file and module.is_file():
        return module.resolve()
    if (folder / "__init__.py").is_file():
        return folder
    if not folder.is_dir() or not _files_of(folder):
        return None
    installed = PathFinder.find_spec(top)
    return folder if installed is None or installed.origin is None else None


def _files_of(beside: Path) -> list[Path]:
    return sorted(beside.rglob("*.py")) if beside.is_dir() else [beside]


def used_by(file: Path) -> set[Path]:
    """Return the files beside a file that it imports: modules, all files of packages, and the files that these import.
    For the folder of a package, its own files are included.

    Imports anywhere in them count, also in functions that were not called yet: the result is the same before and after
    they run.
    """
    waiting = _files_of(file)
    used = set(waiting) - {file}
    while waiting:
        user = waiting.pop()
        besides = [beside for name in imports_in(user) if (beside := _beside(file, name)) is not None]
        more = _used.get(user, set()).union(*map(_files_of, besides)) - used - {file}
        used |= more
        waiting += more
    return used


def imports_in(file: Path) -> frozenset[str]:
    """Return the modules that a file imports anywhere, also inside functions; empty if it is not a regular file or
    cannot be parsed, which importing it reports.
    """
    if not file.is_file():  # a device would be read without end
        return frozenset()
    try:
        return _imports_of(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return frozenset()


@lru_cache(maxsize=256)
def _imports_of(source: bytes) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return frozenset(names)


def _digests(files: Iterable[Path]) -> dict[Path, str]:
    """Return the sha256 of the content of each file that exists."""
    return {file: sha256_of_file(file) for file in files if file.is_file()}


def imported() -> dict[Path, str]:
    """Return the user files imported so far, with the digest of their code as it was executed."""
    return {file: _code[file] for file in _imported}


def installed_imports() -> set[str]:
    """Return the top-level modules of installed packages that the user files imported so far, and the files beside them
    that these import, import anywhere, also inside functions that were not called yet.
    """
    named = {(file, name) for file in _imported for each in {file} | used_by(file) for name in imports_in(each)}
    names = {name.partition(".")[0] for file, name in named if _beside(file, name) is None}
    return {name for name in names - {"fgrl", "__future__"} if name not in sys.stdlib_module_names}


def note_user_files(files: Iterable[Path]) -> None:
    """Remember files whose code was written by the user; errors that come from it are reported as such."""
    _user_files.update(str(file) for file in files)


def is_user_file(name: str) -> bool:
    """Return True if code of this file (an absolute path, as tracebacks have it) was imported as the user's code."""
    return name in _user_files


def is_defined_outside(cls: type) -> bool:
    """Return True if a class is defined where no other process finds it: in a notebook, a script, or a module that
    these import.
    """
    root, _, _ = cls.__module__.partition(".")
    file = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
    known = root in {*sys.stdlib_module_names, *_packages, "fgrl", PACKAGE} or set(Path(file).parts) & INSTALLED
    return root == INTERACTIVE or (file.endswith(".py") and not known and root not in distributions(state_of_path()))


@lru_cache(maxsize=1)
def distributions(_folders: tuple[tuple[str, int | None], ...]) -> Mapping[str, list[str]]:
    """Return the distributions that each top-level module came with, also distributions in a separate folder (`pip
    install --target`). Listing the files of all packages takes a second: it is done again only when `state_of_path`
    changes.
    """
    return metadata.packages_distributions()


def digests(classes: Iterable[type]) -> dict[str, str]:
    """Return the sha256 of the cell or the file for each of these classes and their bases that is defined outside, by
    `module` or `__main__.Class`.

    Raises `UsageError` for a class whose source is not known.
    """
    found: dict[str, str] = {}
    for cls in dict.fromkeys(base for given in classes for base in given.__mro__ if is_defined_outside(base)):
        interactive = cls.__module__ == INTERACTIVE
        files = files_of(cls) if interactive else {str(sys.modules[cls.__module__].__file__)}
        linecache.checkcache()
        text = "".join(line for file in sorted(files) for line in linecache.getlines(file))
        if not text:
            raise UsageError(
                f"the source of {cls.__qualname__} is not known, so the cache could not tell versions of it apart: "
                "put the component into a file and name the file under `imports` of the recipe"
            )
        found[f"{INTERACTIVE}.{cls.__qualname__}" if interactive else cls.__module__] = sha256_of_code(text.encode())
    return found


def files_of(cls: Any) -> set[str]:
    """Return the files that define the methods of a class, or the cells of a notebook under the names that tracebacks
    give.
    """
    held = [item for name, item in vars(cls).items() if not name.startswith("__pydantic")]
    functions = [getattr(item, "fget", None) or getattr(item, "__func__", item) for item in held]
    return {
        function.__code__.co_filename
        for function in functions
        if isinstance(function, FunctionType) and function.__module__ == cls.__module__
    }


def packages() -> dict[str, tuple[str, str]]:
    """Return the top-level modules that came by an entry point, with the name and the version of their distribution."""
    return dict(_packages)


def unnamed(root: type[Component], name: str) -> str | None:
    """Return the class of an imported file that has no name in recipes and a Python name similar to `name`, with its
    place; None if there is none.
    """
    modules = [module for key, module in sys.modules.items() if key.startswith(f"{PACKAGE}.")]
    classes = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    own = [cls for cls in classes if cls.__module__.startswith(f"{PACKAGE}.") and issubclass(cls, root)]
    meant = next((cls for cls in own if nearest(name, [cls.__name__]) and not has_name(cls)), None)
    return None if meant is None else f"{meant.__name__} ({source(meant)})"


def forget_file(file: Path) -> None:
    """Remove everything that a user's file registered. Files that import it are executed again at their next import."""
    _imported.pop(file, None)
    for user in [user for user, parts in _built_on.items() if file in parts]:
        del _built_on[user]
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{PACKAGE}.") and getattr(module, "__file__", None) == str(file):
            forget(name)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def load_entry_points() -> None:
    """Import the components that installed packages offer in the entry-point group `fgrl.components`.

    Raises `Problems` if one of them cannot be imported, with the package to repair or remove.
    """
    problems = []
    for point in _entry_points(state_of_path()):
        if (point.name, point.value) in _loaded:
            continue
        try:
            point.load()
            _loaded.add((point.name, point.value))
            if point.dist is not None:
                _packages[point.module.partition(".")[0]] = (point.dist.name, point.dist.version)
        except Exception as error:
            package = point.dist.name if point.dist is not None else "a package"
            message = (
                f'{package}: its entry point "{point.name} = {point.value}" raised {type(error).__name__}: {error}'
            )
            problems.append(Problem((), message, f"repair it, or pip uninstall {package}", Place("installed packages")))
    if problems:
        raise Problems(problems)


@lru_cache(maxsize=1)
def _entry_points(_folders: tuple[tuple[str, int | None], ...]) -> tuple[metadata.EntryPoint, ...]:
    """Return the entry points of the installed packages, read again when `state_of_path` changes."""
    return tuple(metadata.entry_points(group="fgrl.components"))


def state_of_path() -> tuple[tuple[str, int | None], ...]:
    """Return a value that changes if a package is installed, replaced or removed: see `_folder_state`."""
    return tuple(map(_folder_state, sys.path))


def _folder_state(folder: str) -> tuple[str, int | None]:
    """Return a folder of `sys.path`, and the time when an entry was last added to it or removed (None if the folder
    does not exist).
    """
    try:
        return folder, Path(folder or ".").stat().st_mtime_ns
    except OSError:
        return folder, None


def _raised(file: Path, source: str, error: BaseException) -> Problem:
    """Return the problem of a user's file that raised, at the last of its own lines that was running."""
    line, column, hint = 0, 1, None
    if isinstance(error, SyntaxError) and error.filename == str(file):
        line, column = error.lineno or 1, error.offset or 1
        what = f"{type(error).__name__}: {error.msg}"
    else:
        what = f"{type(error).__name__}: {error}"
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == str(file):
                line, column, hint = frame.lineno or 1, (frame.colno or 0) + 1, None
            elif is_user_file(frame.filename):
                hint = f"raised at {nearby(Path(frame.filename))}:{frame.lineno}"
    lines = source.splitlines()
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        hint = f"is the name right? then install it, for example: pip install {error.name.partition('.')[0]}"
    return Problem((), f"cannot be imported: {what}", hint, Place(nearby(file), line, column, text, file, FIRST))

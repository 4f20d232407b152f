"""Type of a recipe's field that names a function of the user: `path: Annotated[str, FunctionFile]`.

A file may import the files beside it by their names, as the files under `imports` of a recipe may: their contents count
for cache keys, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from fgrl.base.files import sha256_of_code
from fgrl.kinds.functions.signatures import Function, functions_in, read
from fgrl.registry.explaining import nearby
from fgrl.registry.outside import forget_file, import_file, imported, used_by
from fgrl.registry.problems import Problem, Problems
from fgrl.registry.settings import File

loaded: dict[Path, str] = {}
"""Digest of the code of each file, at the time when a stage executed it."""


class FunctionFile(File):
    """Mark of a field whose value is `file.py:function`. The file is relative to the recipe that names it, and its
    content counts for cache keys. A component with such a field returns `key_of` from `behind`.
    """

    word: ClassVar[str] = "function of a file, as in rewards.py:score"
    factory: ClassVar[bool] = False
    """True if the name may also be a class."""

    @classmethod
    def parts(cls, value: str) -> tuple[str, str]:
        """Return `rewards.py` and `:score` of `rewards.py:score`."""
        file, colon, name = value.rpartition(":")
        return (file, f":{name}") if colon and file.endswith(".py") else (value, "")

    @classmethod
    def problems(cls, value: str) -> Sequence[Problem]:
        """Return the reasons why the function cannot be used, with their places in the user's file."""
        file, name = _named(value)
        if not name:
            known = functions_in(file)
            example = f"write {file.name}:{known[0]}" if known else "write file.py:function, as in rewards.py:score"
            return [Problem((), f"names the file {nearby(file)}, but no function in it", example)]
        try:
            look(value, factory=cls.factory)
        except Problems as raised:
            return raised.problems
        return []


class FactoryFile(FunctionFile):
    """Mark of a field whose value is `file.py:Class`, or a function that returns an object. Both are called without
    arguments.
    """

    word: ClassVar[str] = "class of a file, as in env.py:WordEnv"
    factory: ClassVar[bool] = True


def load(values: Sequence[str], factories: Sequence[str] = ()) -> list[Function]:
    """Return the functions that checked fields name. Their files, and the files beside them that they import, are
    executed anew, each once, even if several of its functions are named. factories: further fields, which may name
    classes. Raises `Problems` if a file has changed and can no longer be used.
    """
    named = [*values, *factories]
    files = {_named(value)[0].resolve() for value in named}
    own, before = files.union(*map(used_by, files)), imported()
    for file in own:
        forget_file(file)
    functions = [look(value) for value in values] + [look(value, factory=True) for value in factories]
    for file in own & before.keys():  # what it registers stays known, also when it is imported later, inside a function
        import_file(file)
    loaded.update({_named(value)[0]: imported()[_named(value)[0].resolve()] for value in named})
    return functions


def look(value: str, *, factory: bool = False) -> Function:
    """Return the function that a field names. Its file is executed once, until it or a file beside it that it imports
    changes. factory: the name may be a class. Raises `Problems`.
    """
    file, name = _named(value)
    return read(file, import_file(file), name, factory=factory)


def key_of(values: Sequence[str]) -> list[str]:
    """Return the values that count for cache keys besides the contents of the files themselves: the functions' names,
    and the files that these files import.
    """
    keys = []
    for file, name in map(_named, values):
        folder = file.resolve().parent
        beside = {
            each.relative_to(folder).as_posix() if each.is_relative_to(folder) else each.name: each
            for each in sorted(used_by(file.resolve()))
            if each.is_file()
        }
        keys.append(", ".join([name, *(f"{each} {sha256_of_code(at.read_bytes())}" for each, at in beside.items())]))
    return keys


def _named(value: str) -> tuple[Path, str]:
    file, name = FunctionFile.parts(value)
    return Path(file), name.removeprefix(":")

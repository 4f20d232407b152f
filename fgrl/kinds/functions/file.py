"""The field of a recipe that names a function of the user: `path: Annotated[str, FunctionFile]`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from fgrl.kinds.functions import loading, signatures
from fgrl.kinds.functions.signatures import Function, Unusable
from fgrl.registry.explaining import nearby
from fgrl.registry.outside import FIRST, imported
from fgrl.registry.problems import Place, Problem, Problems, nearest
from fgrl.registry.settings import File

loaded: dict[Path, str] = {}
"""The digest of the code of each file, as it was when a stage executed it."""


class FunctionFile(File):
    """Marks `file.py:function`. The file is relative to the recipe that names it, and its content counts for cache
    keys; a component with such a field returns `key_of` from `behind`.
    """

    word: ClassVar[str] = "function of a file, as in rewards.py:score"

    @classmethod
    def parts(cls, value: str) -> tuple[str, str]:
        """`rewards.py` and `:score`."""
        file, colon, name = value.rpartition(":")
        return (file, f":{name}") if colon and file.endswith(".py") else (value, "")

    @classmethod
    def problems(cls, value: str) -> Sequence[Problem]:
        """Why the function cannot be used, with its place in the user's file."""
        file, name = Path(cls.parts(value)[0]), cls.parts(value)[1].removeprefix(":")
        if not name:
            return [_without_name(file)]
        try:
            code = loading.checked(file)
            signatures.read(code, name)
        except Problems as raised:
            return [_with_sibling(problem, raised) for problem in raised.problems]
        except Unusable as why:
            hint = why.hint
            if guess := nearest(name, signatures.functions_in(file)) if not why.line else None:
                hint = f'did you mean "{guess}"?  {hint}'
            at = _place(file, why.line) if why.line else None
            return [Problem((), str(why) if at else f"{nearby(file)} {why}", hint, at)]
        return []


def load(values: Sequence[str]) -> list[Function]:
    """Return the functions that checked fields name, of their files executed anew: each file once, however many of its
    functions are named. Raises `Problems` when a file has changed and can no longer be used.
    """
    executed: set[Path] = set()
    codes: dict[str, loading.Code] = {}
    functions = []
    for value in values:
        file, name = FunctionFile.parts(value)
        if file not in codes:
            codes[file] = loading.Code(Path(file), executed)
            loaded[Path(file)] = imported()[Path(file).resolve()]
        try:
            functions.append(signatures.read(codes[file], name.removeprefix(":")))
        except Unusable as why:
            raise Problems([Problem((), str(why), why.hint, _place(codes[file].file, why.line))]) from None
    return functions


def look(value: str) -> Function:
    """Return the function that a checked field names, to read its signature."""
    file, name = FunctionFile.parts(value)
    return signatures.read(loading.checked(Path(file)), name.removeprefix(":"))


def key_of(values: Sequence[str]) -> list[str]:
    """Return what counts for cache keys beside the contents of the files themselves: the functions' names, and the
    files that these files import.
    """
    return [
        ", ".join(
            [FunctionFile.parts(value)[1].removeprefix(":"), *loading.digests(Path(FunctionFile.parts(value)[0]))]
        )
        for value in values
    ]


def _without_name(file: Path) -> Problem:
    if file.suffix != ".py":
        return Problem((), f"{nearby(file)} is not a Python file", "write file.py:function, as in rewards.py:score")
    code_names = signatures.functions_in(file) if _parses(file) else []
    example = f"write {file.name}:{code_names[0]}" if code_names else "write file.py:function, as in rewards.py:score"
    return Problem((), f"names the file {nearby(file)}, but no function in it", example)


def _parses(file: Path) -> bool:
    try:
        compile(file.read_bytes(), str(file), "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _place(file: Path, line: int) -> Place:
    if not line:
        return Place(nearby(file), file=file, rank=FIRST)
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    text = lines[line - 1] if line <= len(lines) else ""
    return Place(nearby(file), line, len(text) - len(text.lstrip()) + 1, text, file, FIRST)


def _with_sibling(problem: Problem, raised: Problems) -> Problem:
    """Add the line of an imported sibling that raised."""
    trace = raised.__cause__.__traceback__ if raised.__cause__ is not None else None
    line = None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if problem.place is not None and Path(file).parent == getattr(problem.place.file, "parent", None):
            line = f"{nearby(Path(file))}:{trace.tb_lineno}" if Path(file) != problem.place.file else None
        trace = trace.tb_next
    if line is not None:
        problem.hint = "\n".join(filter(None, (problem.hint, f"raised at {line}")))
    return problem

"""Reading YAML files of users: of any size and kind, in bounded time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from fgrl.base import files
from fgrl.registry.annotations import described
from fgrl.registry.context import FAILED
from fgrl.registry.explaining import nearby
from fgrl.registry.problems import Place, Problem
from fgrl.registry.tree import TOO_LONG, Text, Tree, parse

OURS = {"stages": ("a recipe", "run"), "parameters": ("a sweep", "sweep"), "columns": ("a table", "table")}
"""Kind of fgrl's own files and the command that takes them, by a required key at the top of the file."""
_OTHERS = {
    ".py": ("Python code", "`fgrl check {0}` tries its rewards; a recipe names one as {0}:FUNCTION"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".txt"),
                    ("a file of rows", "fgrl init KIND --data {0} --model MODEL writes a recipe for them")),
    **dict.fromkeys((".safetensors", ".bin", ".pt", ".pth"), ("a file of weights", "a model is named by its folder: {1}")),
    **dict.fromkeys((".gz", ".zip", ".zst", ".xz", ".bz2"), ("a packed file", "unpack it first")),
}  # fmt: skip
"""Kind of other files and the next step for them, by the end of the file's name."""


class Unreadable(Exception):
    """Error for a file that cannot be used: message, hint, and the place in it (None if there is no place)."""

    def __init__(self, message: str, hint: str | None = None, place: Place | None = None) -> None:
        super().__init__(message, hint, place)


def read_text(file: Path, rank: int, what: str) -> Text:
    """Return the text of a file. Raises `Unreadable`, and FileNotFoundError. what: the expected kind of file, as in "a
    recipe".
    """
    try:
        if files.exists(file) and not files.is_file(file):
            kind = "a folder" if files.is_folder(file) else "a device or a pipe"
            raise Unreadable(f"is {kind}; {what} is a YAML file")
        with file.open("rb") as stream:
            content = stream.read(TOO_LONG + 1)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise Unreadable(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > TOO_LONG:
        raise Unreadable(f"is larger than {TOO_LONG:,} bytes; is it {what}?")
    try:
        return Text(content.decode("utf-8-sig"), nearby(file), file.resolve(), rank)
    except UnicodeDecodeError as error:
        before = content[: error.start].rsplit(b"\n", 1)[-1]
        shown = Text(content.decode("utf-8", errors="replace"), nearby(file), file.resolve(), rank)
        place = shown.place(content[: error.start].count(b"\n"), len(before.decode("utf-8", errors="replace")))
        raise Unreadable(f"not UTF-8: byte {content[error.start]:#04x}", "save the file as UTF-8", place) from None


def read_tree(
    file: Path,
    rank: int,
    what: str,
    wants: str,
    named: Place | None,
    similar: Callable[[Path], str | None],
    empty: str = "",
) -> tuple[Tree | None, list[Problem]]:
    """Return the mapping in a YAML file with the problems in it; None if it has no mapping.

    `named` is the place where `extends` of another file names it. `similar` gives the hint for a file that does not
    exist, and `empty` says what is missing in a file without content.
    """
    try:
        tree, problems = parse(read_text(file, rank, what))
        if tree is not None and tree.value is None and empty:
            raise Unreadable(f"is empty; {empty}", None, tree.place)
        if tree is not None and (not isinstance(tree.value, dict) or tree.value is FAILED):
            raise Unreadable(f"wants {wants}, got {described(tree.plain())}", None, tree.place)
        refused = _other(file, what, [] if tree is None else tree.children)
        if refused is None:
            return tree, problems
    except FileNotFoundError:
        refused = Unreadable("no such file", similar(file))
    except Unreadable as error:
        refused = _other(file, what, []) or error
    message, hint, place = refused.args
    if place is None and named is not None:
        return None, [Problem(("extends",), f"{nearby(file)}: {message}", hint, named)]
    return None, [Problem((), message, hint, place or Place(nearby(file), rank=rank))]


def _other(file: Path, what: str, keys: Collection[str]) -> Unreadable | None:
    """Return the error for a file that is not `what` by its keys, with its kind and the next step; None if it may be
    `what`.
    """
    ours = {key: (kind, f"fgrl {command} {{0}}") for key, (kind, command) in OURS.items() if key in keys}
    kinds = [kind for kind, _ in ours.values()]
    kind, step = _OTHERS.get(file.suffix.lower(), ("", ""))
    if ours and what in dict(OURS.values()) and what not in kinds:
        kind, step = next(iter(ours.values()))
    elif not kind or (keys and file.suffix.lower() in (".json", ".txt")):
        return None
    return Unreadable(f"is {kind}, and {what} is wanted", step.format(nearby(file), nearby(file.parent)))

"""Files that are either complete or absent, and digests of files and folders."""

from __future__ import annotations

import ast
import io
import json
import math
import os
import re
import shutil
import time
import tokenize
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from fgrl.base import lazy
from fgrl.base.errors import DataError, UsageError

hashlib = lazy.load("hashlib")
sqlite3 = lazy.load("sqlite3")

MACHINE = os.uname().nodename.partition(".")[0]
"""Name of this machine, used in the names of incomplete files."""


@contextmanager
def atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` for writing a file or a folder. When the block ends without an error, its
    content is flushed to the disk and replaces `path` by a rename.

    A reader therefore sees either the old or the new content, never a part. After an error `path` is unchanged and the
    temporary path is removed; after a kill the temporary path (`.<name>.<machine>.<process>.partial`) may remain.
    """
    if path.is_symlink() and path.is_dir():
        raise LinkRefused(path)
    partial = path.with_name(f".{path.name}.{MACHINE}.{os.getpid()}.partial")
    remove(partial)
    try:
        yield partial
        sync(partial)
        if path.is_dir():  # a folder with content cannot be replaced by a rename
            shutil.rmtree(path)
        partial.replace(path)
    except BaseException:
        remove(partial)
        raise


def write_text(path: Path, text: str, *, errors: str = "strict") -> None:
    """Write text as UTF-8 and keep its line ends; `errors` as in `str.encode`."""
    with atomically(path) as partial:
        partial.write_bytes(text.encode("utf-8", errors))


def write_json(path: Path, value: Any, *, indent: int | None = 1, default: Callable[[Any], Any] | None = None) -> None:
    """Write JSON with a final newline; `default` converts unsupported types, as in `json.dumps`. Numbers that are not
    finite become null, because JSON cannot represent them.
    """
    write_text(path, _json(value, indent=indent, default=default) + "\n")


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write one line per item, as the items arrive. Return the number of lines."""
    count = 0
    with atomically(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            file.write(line + "\n")
            count += 1
    return count


def write_json_lines(path: Path, values: Iterable[Any]) -> int:
    """Write one line of JSON per item, as in `write_json`. Return the number of lines."""
    return write_lines(path, map(_json, values))


def expanded(path: str | Path) -> Path:
    """Expand `~` to a home folder, and `PACKAGE:FILE` to a file of an installed package. Return the path unchanged if
    there is no such home or package.
    """
    package, colon, inside = str(path).partition(":")
    spec = find_spec(package) if colon and package.isidentifier() else None
    if spec is not None and spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0], inside)
    return Path(os.path.expanduser(path))  # noqa: PTH111  (Path.expanduser raises there)


def is_file(path: str | Path) -> bool:
    """Return True if the path is a regular file. False also for an invalid name (too long, or with a NUL), for which
    `Path.is_file` raises.
    """
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: str | Path) -> bool:
    """Return True if the path is a folder. False also for an invalid name."""
    return os.path.isdir(path)  # noqa: PTH112


def exists(path: str | Path) -> bool:
    """Return True if the path exists. False also for an invalid name."""
    return os.path.exists(path)  # noqa: PTH110


def names_in(folder: Path) -> list[str]:
    """Return the sorted names of the entries of a folder; an empty list if it cannot be read."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except (OSError, ValueError):
        return []


def sync(path: Path) -> None:
    """Flush a file, or every file in a folder, to the disk."""
    for file in [path] if path.is_file() else [inside for inside in path.rglob("*") if inside.is_file()]:
        with file.open("rb") as stream:
            os.fsync(stream.fileno())


class LinkRefused(UsageError):
    """Error for a symbolic link in a place where fgrl writes, renames and deletes files: the target does not belong to
    fgrl.
    """

    def __init__(self, link: Path) -> None:
        super().__init__(
            f"{link} is a symbolic link to {link.readlink()}, and fgrl writes and deletes only what it made: remove the link, "
            "or name the folder itself (--runs)"
        )


def refuse_links(folder: Path, root: Path | None = None) -> None:
    """Raise `LinkRefused` if `folder` is a link or contains one, or if there is a link between it and its ancestor
    `root`. `root` itself may be a link.
    """
    above = [folder, *(each for each in folder.parents if root is not None and root in each.parents)]
    inside = (
        Path(place) / name for place, folders, names in os.walk(folder) for name in (*folders, *names)
    )  # follows no link
    for path in (*above, *inside):
        if path.is_symlink():
            raise LinkRefused(path)


PARTIAL = re.compile(r"\..+\.([^.]+)\.(\d+)\.partial")
"""Name that `atomically` gives to a file or folder until it is complete, with the machine and the process number of its
writer.
"""


IDLE = 3600.0
"""Seconds without a change after which an incomplete file of another machine counts as abandoned. Processes of other
machines cannot be checked.
"""


def leftovers(folder: Path, *, idle: float = IDLE) -> list[Path]:
    """Return the files that `atomically` left in a folder and its subfolders when its process was killed: the process
    has ended, and nothing has changed for `idle` seconds. Links are not followed.
    """
    found = []
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            partial = PARTIAL.fullmatch(name)
            if partial is not None and not _runs(*partial.groups()):
                path = Path(place) / name
                with suppress(FileNotFoundError):
                    if time.time() - path.lstat().st_mtime >= idle:
                        found.append(path)
    return found


def leftovers_of(path: Path) -> list[Path]:
    """Return the files that `atomically(path)` left beside `path` when its process was killed."""
    found = [(name, PARTIAL.fullmatch(name)) for name in names_in(path.parent) if name.startswith(f".{path.name}.")]
    return [
        path.with_name(name)
        for name, partial in found
        if partial is not None
        and name == f".{path.name}.{partial[1]}.{partial[2]}.partial"
        and not _runs(*partial.groups())
    ]


def _runs(machine: str, process: str) -> bool:
    """Return True if the machine is this one and it has a process with this number."""
    if machine != MACHINE:
        return False
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def damage_reported(database: Path) -> Iterator[None]:
    """Convert a damaged page of an SQLite cache file into a `DataError` while the block runs. The content of such a
    file can be computed again.
    """
    try:
        yield
    except sqlite3.OperationalError:  # locked, full, not writable
        raise
    except sqlite3.DatabaseError as error:
        raise DataError(
            f"{database}: {error}: move the file away; what it held is asked for or computed again"
        ) from None


def sha256_of_file(path: Path) -> str:
    """Return the hex digest of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_of_file(file: Path) -> str:
    """Return the sha256 of a file. The file is read again only if its size or one of its times has changed."""
    status = file.stat()
    return _digest(str(file), status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@lru_cache(maxsize=4096)
def _digest(file: str, size: int, modified: int, changed: int) -> str:
    return sha256_of_file(Path(file))


def sha256_of_code(content: bytes) -> str:
    """Return the hex digest of a Python file without comments and blank lines. If the file is not UTF-8 or cannot be
    parsed, the digest covers all of its bytes.
    """
    try:
        ast.parse(content)
        tokens = list(tokenize.tokenize(io.BytesIO(content).readline))
        lines = content.decode("utf-8-sig").split("\n")
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return hashlib.sha256(content).hexdigest()
    inside = {
        row for token in tokens for row in range(token.start[0] + 1, token.end[0] + 1)
    }  # of a text of several lines
    for token in tokens:
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    kept = [line for row, line in enumerate(lines, start=1) if row in inside or line.strip()]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()


KEPT = "FGRL_KEPT"
"""Environment variable of the stages and their processes: JSON that maps the path of each data file to the path of its
copy.
"""
COPIES = "inputs"
"""Folder of these copies, in the cache of a folder of runs."""


def kept(path: str | Path) -> Path:
    """Return the path of the copy of a data file as it was when the run began; the file itself if there is no copy."""
    return Path(json.loads(os.environ.get(KEPT, "{}")).get(str(Path(path).absolute()), path))


def sha256_of_folder(folder: Path, entry: Callable[[str, Path], bytes]) -> str:
    """Return the hex digest over `entry(relative path with slashes, file)` of every file in a folder, in the order of
    their paths.

    `entry` returns the bytes that represent a file; b"" leaves the file out. Raises `DataError` for a file that cannot
    be read or has disappeared.
    """
    digest = hashlib.sha256()
    for file in sorted(inside for inside in folder.rglob("*") if inside.is_file()):
        try:
            digest.update(entry(file.relative_to(folder).as_posix(), file))
        except OSError as error:
            raise DataError(f"{file}: {error.strerror}: every file of {folder} is hashed for the stage's key") from None
    return digest.hexdigest()


def has_more_files(folder: Path, limit: int) -> bool:
    """Return True if a folder, including its subfolders, has more than `limit` entries. Counting stops as soon as this is
    known.
    """
    entries = (name for _folder, folders, files in os.walk(folder) for name in (*folders, *files))
    return next(islice(entries, limit, None), None) is not None


def _json(value: Any, **options: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, **options)
    except ValueError:
        value = finite(value)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, **options)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, as some servers send them: written as an escape
        text = json.dumps(value, allow_nan=False, **options)
    return text


def finite(value: Any) -> Any:
    """Replace every number that is not finite by None, so that the data can be written as JSON."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all of its content. Does nothing if the path does not exist."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

"""Folders that cannot be used, and disks that are full: one message, and a documented exit code."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from patience import HUNG
from pipeline_helpers import environment, fgrl, recipe_file

from fgrl.base.errors import DataError, DiskError, disk_error
from fgrl.base.files import damage_reported
from fgrl.feedback.llm.store import CompletionStore
from fgrl.types import Completion, Usage

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
from fgrl.cli import main
main(sys.argv[2:])
"""


def with_files_up_to(size: int, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`fgrl ...` in a process none of whose files may grow beyond `size` bytes, as on a full disk."""
    return subprocess.run(
        [sys.executable, "-c", LIMITED, str(size), *map(str, words)],
        cwd=cwd, env=environment(), capture_output=True, text=True, timeout=HUNG, check=False,
    )  # fmt: skip


def one_message(said: str) -> str:
    """The message that the command ends with, which stands there once."""
    assert "Traceback" not in said
    assert "Logging error" not in said
    (message,) = re.findall(r"(?:fgrl: |^)disk: .*", said, re.MULTILINE)
    return message


@pytest.mark.parametrize("size", [0, 100, 900, 3000])
def test_a_full_disk_is_one_message_wherever_it_hits(tmp_path: Path, size: int) -> None:
    """In the records of the invocation, in a stage, in its product."""
    recipe = recipe_file(tmp_path, "{first: {name: counting, steps: 400}, second: {name: counting, steps: 900}}")
    done = with_files_up_to(size, "run", recipe, cwd=tmp_path)
    assert done.returncode == DiskError.exit_code == 6, done.stderr
    assert "the disk is full, or a file has reached the size that is allowed" in one_message(done.stderr)
    again = fgrl("run", recipe, cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_the_runs_folder_is_a_file(tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, "{first: {name: counting}}")
    (tmp_path / "file").write_text("a file")
    for command in ("run", "plan", "table", "inspect"):
        for runs in ("file", "file/below"):
            done = fgrl(command, recipe, "--runs", runs, cwd=tmp_path)
            assert done.returncode == 2
            assert f"fgrl: --runs {runs}: " in done.stderr
            assert "is a file, and runs are kept in a folder" in done.stderr
            assert "Traceback" not in done.stderr


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, "{first: {name: counting}}")
    runs = tmp_path / "runs"
    runs.mkdir()
    runs.chmod(0o500)
    if os.access(runs, os.W_OK):  # root may write everywhere but there
        runs = Path("/sys/fgrl")
    done = fgrl("run", recipe, "--runs", runs, cwd=tmp_path)
    assert done.returncode == DiskError.exit_code, done.stderr
    assert str(runs) in one_message(done.stderr)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.EFBIG, "File too large"), "the disk is full"),
        (RuntimeError("[enforce fail at inline_container.cc:858] . PytorchStreamWriter failed writing file data/0"), "is full"),
        (sqlite3.OperationalError("database or disk is full"), "the disk is full"),
        (sqlite3.OperationalError("attempt to write a readonly database"), "change the rights"),
        (OSError(errno.EROFS, "Read-only file system", "runs/x"), "runs/x: Read-only file system"),
        (PermissionError(errno.EACCES, "Permission denied", "words.txt"), "words.txt: Permission denied"),
        (OSError(errno.EACCES, "no file is named"), None),
        (ConnectionResetError(errno.ECONNRESET, "reset"), None),
        (ValueError("a bug"), None),
    ],
)  # fmt: skip
def test_what_counts_as_an_error_of_the_disk(error: Exception, words: str | None) -> None:
    disk = disk_error(error)
    assert (disk is None) == (words is None)
    assert disk is None or str(words) in str(disk)


# -- databases ---------------------------------------------------------------------------------------------------------


def damage_pages(path: Path) -> None:
    """Write over every page but the first, which opening the file reads."""
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)


def test_a_damaged_page_of_the_answers_database_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "completions.sqlite"
    store = CompletionStore(path)
    answer = Completion(text="x" * 500, finish="stop", usage=Usage(prompt_tokens=1, completion_tokens=1))
    keys = [f"{number:04d}" for number in range(200)]
    for key in keys:
        store.put(key, "{}", answer)
    store.close()
    damage_pages(path)
    store = CompletionStore(path)
    for act in (lambda: store.get(keys), lambda: store.put("0100", "{}", answer)):
        with pytest.raises(DataError, match="move the file away"):
            act()
    store.close()


def test_a_database_that_is_only_locked_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(path, timeout=0)) as other:
        one.execute("CREATE TABLE t (x)")
        one.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError), damage_reported(path):
            other.execute("INSERT INTO t VALUES (1)")

"""All answers of language models so far, in one SQLite file that several processes share.

A row has the key of a request (a hash of everything that can change its answer), the request, and its answer. The first
answer to a key stays: every later request with this key, in any process, gets this answer.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from fgrl.base import lazy
from fgrl.base.errors import DataError
from fgrl.base.files import damage_reported
from fgrl.types import Completion

if TYPE_CHECKING:
    import sqlite3

    import filelock
else:
    filelock, sqlite3 = lazy.load("filelock"), lazy.load("sqlite3")

FILE = "completions.sqlite"
_TABLE = """
CREATE TABLE IF NOT EXISTS completions (
    key TEXT PRIMARY KEY, question TEXT NOT NULL, answer TEXT NOT NULL, made REAL NOT NULL
) WITHOUT ROWID
"""


class CompletionStore:
    """The file `completions.sqlite`. It is safe with several processes and threads, and an answer that `put` has
    returned survives a kill.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(str(path) + ".lock"):  # switching to WAL does not wait for other processes
            self._database = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
            try:
                with damage_reported(path):
                    self._database.execute("PRAGMA journal_mode=WAL")
                    self._database.execute("PRAGMA synchronous=NORMAL")
                    self._database.execute(_TABLE)
            except BaseException:
                self._database.close()
                raise

    def get(self, keys: Sequence[str]) -> dict[str, Completion]:
        """Return the stored answers, by key, marked as cached and free of charge."""
        query = "SELECT key, answer FROM completions WHERE key IN (SELECT value FROM json_each(?))"
        with self._lock, damage_reported(self.path):
            rows = self._database.execute(query, [json.dumps(list(keys))]).fetchall()
        return {key: free(self._read(key, answer)) for key, answer in rows}

    def put(self, key: str, question: str, answer: Completion) -> Completion:
        """Store an answer. Returns the answer that the file now has for the key: the first, which another process may
        have stored, with the cost of this one.
        """
        row = (key, question, answer.model_dump_json(exclude_defaults=True), time.time())
        with self._lock, damage_reported(self.path):
            is_new = self._database.execute("INSERT OR IGNORE INTO completions VALUES (?, ?, ?, ?)", row).rowcount
        return answer if is_new else self.get([key])[key].model_copy(update={"usage": answer.usage, "cached": False})

    def _read(self, key: str, answer: str) -> Completion:
        try:
            return Completion.model_validate_json(answer)
        except ValidationError:
            raise DataError(
                f"{self.path}: the answer stored under {key} cannot be read by this version: delete that row (DELETE FROM "
                "completions WHERE key = ...) or move the file away; missing answers will be asked for again"
            ) from None

    def close(self) -> None:
        with self._lock:
            self._database.close()


def free(completion: Completion) -> Completion:
    """Return a copy for a caller that did not pay for it."""
    usage = completion.usage.model_copy(update={"usd": 0.0})
    return completion.model_copy(update={"cached": True, "usage": usage})

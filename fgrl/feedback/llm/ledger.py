"""`calls.jsonl`: one line for each call that the endpoint charges for, or may charge for. Only ever appended to.

    {"time": ..., "client": "openai gpt-4o https://api.openai.com/v1", "key": ..., "status": "answered",
     "prompt_tokens": 312, "completion_tokens": 1, "usd": 0.00079, "at_most": null, "seconds": 0.8}

`status`: "answered", "empty" (an answer without text), or "lost": the connection was cut, timed out or returned
garbage, so that it is not known whether the call was charged; `at_most` is then what it can have cost. A line is
written before the answer is stored: a kill between the two loses an answer but hides no money.

`failed.jsonl` in the same folder: one line for each request that ended without an answer that can be used (none came, it
was refused, cut off or unreadable): its key, the sample that it is `about`, and the reason.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fgrl.base.errors import DataError
from fgrl.types import Usage

FILE = "calls.jsonl"
FAILED = "failed.jsonl"


@dataclass
class Totals:
    """What the calls of a client in a stage came to, over all runs of the stage."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    """Of the calls whose price is known; lost calls count as much as they can have cost."""
    unknown: int = 0
    """Calls whose price is not known."""

    def add(self, line: dict[str, Any]) -> None:
        self.calls += 1
        self.prompt_tokens += line["prompt_tokens"]
        self.completion_tokens += line["completion_tokens"]
        amounts = [line[name] for name in ("usd", "at_most") if line[name] is not None and math.isfinite(line[name])]
        self.usd += amounts[0] if amounts else 0.0
        self.unknown += not amounts


class Ledger:
    """The ledger of a stage; its clients share it (`ledger.open_at`). One process writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._totals: dict[str, Totals] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._recover()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        weakref.finalize(self, os.close, self._file)

    def totals(self, client: str) -> Totals:
        """Return the totals of one client (kind, model and endpoint); they grow with its calls."""
        with self._lock:
            return self._totals.setdefault(client, Totals())

    def add(self, client: str, key: str, status: str, usage: Usage, *, at_most: float | None, seconds: float) -> None:
        """Append a call. `at_most`: what it can have cost, where `usage.usd` is not known."""
        line = {
            "time": round(time.time(), 3),
            "client": client,
            "key": key,
            "status": status,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "usd": usage.usd,
            "at_most": at_most if usage.usd is None else None,
            "seconds": round(seconds, 4),
        }
        with self._lock:
            self._append((json.dumps(line) + "\n").encode())
            self._totals.setdefault(client, Totals()).add(line)

    def fail(self, client: str, key: str, about: str, reason: str) -> None:
        """Note a request that ended without an answer that can be used. What its attempts cost is noted by `add`."""
        line = {"time": round(time.time(), 3), "client": client, "key": key, "about": about, "reason": reason}
        with self._lock, self.path.with_name(FAILED).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _append(self, data: bytes) -> None:
        """Write all of `data` (`os.write` may write only a part), or leave the file as it was and raise OSError. A line
        that an interrupt finds complete stays: it is a paid call.
        """
        size = os.fstat(self._file).st_size
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except BaseException:  # also an interrupt, which may come when the whole line is already there
            if os.fstat(self._file).st_size < size + len(data):
                os.ftruncate(self._file, size)  # the next line would be appended to a part of this one
            raise

    def _recover(self) -> None:
        """Add up the existing lines. An incomplete last line, left by a kill, is removed."""
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            with self.path.open("r+b") as file:
                file.truncate(whole)
        for number, line in enumerate(data[:whole].splitlines(), start=1):
            try:
                entry = json.loads(line)
                self._totals.setdefault(entry["client"], Totals()).add(entry)
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{self.path}:{number}: not a line of the ledger ({error!r})") from None


_open: weakref.WeakValueDictionary[Path, Ledger] = weakref.WeakValueDictionary()


def open_at(folder: Path) -> Ledger:
    """Return the ledger of a stage's folder; all callers share one object."""
    path = (folder / FILE).resolve()
    book = _open.get(path)
    if book is None or not path.exists():
        book = _open[path] = Ledger(path)
    return book

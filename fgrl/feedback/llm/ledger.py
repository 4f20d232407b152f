"""`calls.jsonl`: one line for each call that the endpoint charges for, or may charge for. Lines are only appended.

    {"time": ..., "client": "openai gpt-4o https://api.openai.com/v1", "key": ..., "status": "answered",
     "prompt_tokens": 312, "completion_tokens": 1, "usd": 0.00079, "at_most": null, "seconds": 0.8}

`status`: "answered", "empty" (an answer without text), or "lost": the connection was cut, timed out or returned
garbage, so that it is not known whether the call was charged; `at_most` is then what it can have cost. A line is
written before the answer is stored: a kill between the two loses an answer but hides no money.

`failed.jsonl` in the same folder: one line for each request that ended without an answer that can be used (none came, it
was refused, cut off or unreadable): its key, the sample that it is `about`, and the reason.
"""

from __future__ import annotations

import errno
import json
import math
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fgrl.base.errors import DataError
from fgrl.types import Usage

FILE = "calls.jsonl"
FAILED = "failed.jsonl"
GRACE = 10.0
"""Seconds that the calls of threads may take to end when a stage ends."""


@dataclass
class Account:
    """Total of the calls of a client (kind, model and endpoint) in a stage, over all runs of the stage."""

    ledger: Ledger
    client: str
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    """Cost of the calls whose price is known; lost calls count with their highest possible cost."""
    unknown: int = 0
    """Number of calls whose price is not known."""
    flying: int = 0
    """Number of calls in flight."""

    def charge(self, key: str, status: str, usage: Usage, *, at_most: float | None, seconds: float) -> None:
        """Record a call. `at_most`: its highest possible cost, if `usage.usd` is not known."""
        known = usage.model_dump() | {"at_most": at_most, "seconds": round(seconds, 4)}
        self.add(self.ledger.append(FILE, client=self.client, key=key, status=status, **known))

    def fail(self, key: str, about: str, reason: str) -> None:
        """Record a request that ended without an answer that can be used. The cost of its attempts is recorded by
        `charge`.
        """
        self.ledger.append(FAILED, client=self.client, key=key, about=about, reason=reason)

    def add(self, line: dict[str, Any]) -> None:
        """Count a line of the ledger."""
        self.calls += 1
        self.prompt_tokens += line["prompt_tokens"]
        self.completion_tokens += line["completion_tokens"]
        amounts = [line[name] for name in ("usd", "at_most") if line[name] is not None and math.isfinite(line[name])]
        self.usd += amounts[0] if amounts else 0.0
        self.unknown += not amounts


class Ledger:
    """The ledger in a stage's folder, which its clients share. Each process appends whole lines. It knows its own lines
    and the lines that were there when it began.
    """

    def __init__(self, folder: Path, rank: int = 0) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._accounts: dict[str, Account] = {}
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        path.touch()
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if rank == 0:  # which opens it before any other one writes
            os.truncate(path, len(whole))  # a kill may leave a part of a line
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry = json.loads(line)
                self.account(entry["client"]).add(entry)
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path}:{number}: not a line of the ledger ({error!r})") from None

    def account(self, client: str) -> Account:
        """Return the account of a client; it grows with the client's calls."""
        return self._accounts.setdefault(client, Account(self, client))

    def append(self, name: str, **entry: Any) -> dict[str, Any]:
        """Write a line that begins with the time, whole or not at all, and return it."""
        line = {"time": round(time.time(), 3), **entry}
        data = (json.dumps(line) + "\n").encode()
        with self._lock, (self.folder / name).open("ab", buffering=0) as file:
            before = file.tell()
            try:
                if file.write(data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder / name))
            finally:  # also after an interrupt, which may come when the whole line is already there
                if file.tell() < before + len(data):
                    file.truncate(before)  # the next line would be appended to a part of this one
        return line

    def close(self) -> None:
        """Wait for the calls that threads have in flight, so that their cost is recorded."""
        deadline = time.monotonic() + GRACE
        while any(account.flying for account in self._accounts.values()) and time.monotonic() < deadline:
            time.sleep(0.05)

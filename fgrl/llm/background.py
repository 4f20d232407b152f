"""An event loop in a thread of its own, for asynchronous work in a synchronous program.

It also works where `asyncio.run` does not (a notebook already runs a loop), keeps connections and rate limits from one call to the
next, and leaves the main thread free to receive Ctrl-C.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_process = 0


def loop() -> asyncio.AbstractEventLoop:
    """The loop, started at first use; a forked child process gets its own."""
    global _loop, _process
    with _lock:
        if _loop is None or _process != os.getpid():
            _loop, _process = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=_loop.run_forever, name="fgrl-clients", daemon=True).start()
        return _loop


def start(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Start a coroutine in that loop. Cancelling the future cancels it."""
    return asyncio.run_coroutine_threadsafe(work, loop())

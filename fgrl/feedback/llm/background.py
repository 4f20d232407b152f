"""One event loop in a separate thread, for work that waits for servers."""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from fgrl.base import lazy

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy.load("asyncio")

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_process = 0


def start(work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Start a coroutine in the event loop. Cancelling the future cancels it.

    This works where `asyncio.run` does not (a notebook already runs a loop), keeps objects that belong to the loop from
    one call to the next, and leaves the main thread free to receive Ctrl-C. The loop is started at first use; a forked
    child process gets its own.
    """
    global _loop, _process
    with _lock:
        if _loop is None or _process != os.getpid():
            _loop, _process = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=_loop.run_forever, name="fgrl-clients", daemon=True).start()
    return asyncio.run_coroutine_threadsafe(work, _loop)

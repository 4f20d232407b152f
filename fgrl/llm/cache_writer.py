"""Stores answers in the cache from one thread, as many in a transaction as arrived while it was busy."""

from __future__ import annotations

import asyncio

from fgrl.llm.desk import Call
from fgrl.llm.store import CompletionStore
from fgrl.types import Completion


class CacheWriter:
    """Writes to a store without blocking the event loop that it belongs to."""

    def __init__(self, store: CompletionStore) -> None:
        self.store = store
        self._waiting: list[tuple[Call, Completion, asyncio.Future[Completion]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def put(self, call: Call, completion: Completion) -> Completion:
        """Store an answer. Returns, once it is on the disk, the answer that the cache has for the call."""
        stored: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, completion, stored))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return await stored

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            rows = [(call.key, call.question, completion) for call, completion, _ in batch]
            try:
                completions = await asyncio.get_running_loop().run_in_executor(None, self.store.put, rows)
            except Exception as error:
                for _, _, stored in batch:
                    if not stored.done():
                        stored.set_exception(error)
                continue
            for (_, _, stored), completion in zip(batch, completions, strict=True):
                if not stored.done():
                    stored.set_result(completion)
        self._writing = None

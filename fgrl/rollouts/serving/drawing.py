"""Requests that servers of vLLM share: each is sent again until a server has answered it from the right weights."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from fgrl.base import console
from fgrl.base.errors import EngineFailed
from fgrl.feedback.llm import background
from fgrl.kinds import Drawing, DrawRequest
from fgrl.rollouts.serving.completions import BadAnswer
from fgrl.rollouts.serving.connection import ServerGone, ServerRefused
from fgrl.rollouts.serving.early import complete
from fgrl.types import DrawnResponse

if TYPE_CHECKING:
    from fgrl.rollouts.serving.servers import Slot

TRIES = 4
"""Maximum number of times that a request is sent before the run stops."""
IDLE = 0.01
"""Seconds between two checks for another request."""


@dataclass
class Round:
    """Requests that are sent to all servers together until all are answered or no server is left."""

    queue: deque[int]
    running: int = 0
    """Number of requests that servers are working on."""
    finished: deque[tuple[int, Slot, DrawnResponse]] = field(default_factory=deque)
    """Responses with the number of the request and the server that drew them."""
    lost: dict[int, tuple[Slot, str]] = field(default_factory=dict)
    """Servers that gave no answer, or that draw from other weights, with the reason, by number."""
    stale: set[int] = field(default_factory=set)
    """Numbers of the servers with other weights."""
    problem: Exception | None = None
    """Error of a request that is not answered after `TRIES` attempts."""

    def goes_on(self, slot: Slot) -> bool:
        """Return True if more requests may be sent to the server."""
        return slot.number not in self.lost and self.problem is None and bool(self.queue or self.running)


class FromServers(Drawing):
    """Responses of servers. They are given only after the server is known to have drawn them from the right weights."""

    drawer: Any
    """The `Served` drawer that sends the requests and knows the servers' weights."""

    def __init__(self, drawer: Any) -> None:
        super().__init__(drawer)
        self._tries: Counter[int] = Counter()
        self._round = Round(deque())
        self._complete = cache(lambda early: complete(early, drawer.model.tokenizer))

    def submit(self, requests: Sequence[DrawRequest]) -> range:
        self.drawer.check(requests)
        numbers = super().submit(requests)
        self._round.queue.extend(numbers)
        return numbers

    def __iter__(self) -> Iterator[tuple[int, DrawnResponse]]:
        return self._responses(whole=False)

    def rest(self) -> dict[int, DrawnResponse]:
        return dict(self._responses(whole=True))

    def _responses(self, *, whole: bool) -> Iterator[tuple[int, DrawnResponse]]:
        """Yield responses. whole: yield them at the end of a round, so that each server is asked for its weights once."""
        if not self.waiting:
            return
        barren = 0
        with self.drawer.with_weights() as servers:
            while self.waiting:
                work = self._round = Round(deque(self.waiting))
                before = len(self.waiting)
                asking = background.start(self._ask_all(servers.slots(), work))
                for _ in self.drawer.ticks(asking):
                    answered = self.submitted - len(self.waiting)
                    console.drawn((answered + len(work.finished)) / self.submitted, self.submitted)
                    if not whole or asking.done():
                        yield from self._checked(work)
                if work.problem is not None:
                    raise work.problem
                barren = barren + 1 if len(self.waiting) == before else 0
                self.drawer.renew(servers, work.lost, barren)

    def _checked(self, work: Round) -> Iterator[tuple[int, DrawnResponse]]:
        """Yield the finished responses, without those drawn from other weights."""
        finished = [work.finished.popleft() for _ in range(len(work.finished))]
        for slot in {slot.number: slot for _, slot, _ in finished}.values():
            if slot.number not in work.lost and (why := self.drawer.changed(slot)):
                work.lost[slot.number] = slot, why
                work.stale.add(slot.number)
        for number, slot, response in finished:
            if slot.number not in work.stale:
                del self.waiting[number]
                yield number, response

    async def _ask_all(self, slots: Sequence[Slot], work: Round) -> None:
        async with asyncio.TaskGroup() as copies:
            for slot in slots:
                copies.create_task(self._share_of(slot, work))

    async def _share_of(self, slot: Slot, work: Round) -> None:
        limits = self.drawer.limits
        room = asyncio.Semaphore(limits.concurrency)
        async with slot.connection.open(limits.draw, limits.concurrency) as client, asyncio.TaskGroup() as asked:
            while work.goes_on(slot):
                await room.acquire()
                if work.queue and work.goes_on(slot):
                    asked.create_task(self._ask(slot, client, work.queue.popleft(), work, room))
                    work.running += 1
                    await asyncio.sleep(0)  # the next one may be another server's
                else:
                    room.release()
                    await asyncio.sleep(IDLE)

    async def _ask(self, slot: Slot, client: Any, number: int, work: Round, room: asyncio.Semaphore) -> None:
        request, limit = self.waiting[number], self.drawer.limits.draw
        early = request.complete_at
        ended = None if early is None else self._complete(early)
        self._tries[number] += 1
        try:
            async with asyncio.timeout(limit):
                response = await self.drawer.ask(client, request, ended, first=self._tries[number] == 1)
        except (BadAnswer, ServerRefused) as problem:
            work.queue.append(number)
            if self._tries[number] >= TRIES:
                work.problem = EngineFailed(
                    f"server {slot.number} of vLLM gives no response to a request, {TRIES} times: {problem}"
                )
        except (ServerGone, TimeoutError) as problem:
            work.queue.append(number)
            self._tries[number] -= 1
            work.lost[slot.number] = slot, str(problem) or f"no answer within draw_timeout, {limit:g} s"
        else:
            work.finished.append((number, slot, response))
        finally:
            work.running -= 1
            room.release()

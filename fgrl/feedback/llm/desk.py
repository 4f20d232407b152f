"""Which calls may start, and what becomes of them: limits, ledger, cache and progress of one `complete`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from fgrl.base import lazy
from fgrl.feedback.llm.ledger import Ledger, Totals
from fgrl.feedback.llm.prices import Price, TieredPrice
from fgrl.feedback.llm.store import CompletionStore
from fgrl.kinds import Run, Ticker
from fgrl.types import Completion, Request, Usage

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy.load("asyncio")

DUST = 1e-12
"""USD that rounding of sums may add; that is not overspending."""


@dataclass(frozen=True)
class Call:
    """A request without a cached answer."""

    key: str
    question: str
    """What `key` is a hash of."""
    request: Request
    at_most: float | None
    """USD that it can cost; None: unknown."""


@dataclass
class Allowance:
    """The limits of one client in one stage on calls and money, exact with any number of calls in flight.

    A call that starts is reserved at the most that it can cost. It may start only when

        calls counted + calls in flight + 1 <= max_calls, and
        spent + the most that calls in flight can cost + the most that it can cost <= budget_usd.

    A call that does not fit while others are in flight waits for them: they may turn out cheaper. When nothing is in
    flight and it still does not fit, the limit is reached. So neither limit is ever exceeded, and the run stops with
    less money left than one call can cost. Refused calls (429, 5xx, connection refused) cost nothing and are not
    counted; a call whose result never arrived counts in full. `totals` counts what was spent, by earlier runs of the
    stage too.
    """

    totals: Totals
    max_calls: int | None = None
    budget_usd: float | None = None
    flying: int = 0
    reserved: float = 0.0

    def ask(self, at_most: float | None) -> Literal["go", "wait", "stop"]:
        """May a call start that costs `at_most` USD (None: unknown, allowed only without a budget)? "go" reserves
        it.
        """
        if self._fits(at_most):
            self.flying += 1
            self.reserved += at_most or 0.0
            return "go"
        return "wait" if self.flying else "stop"

    def settle(self, at_most: float | None) -> None:
        """End a reserved call; if it counts, the ledger (and so `totals`) contains it already."""
        self.flying -= 1
        self.reserved = self.reserved - (at_most or 0.0) if self.flying else 0.0

    def which(self) -> str:
        """Name of the limit that is reached."""
        calls = self.max_calls is not None and self.totals.calls >= self.max_calls
        return "max_calls" if calls else "budget_usd"

    def _fits(self, at_most: float | None) -> bool:
        if self.max_calls is not None and self.totals.calls + self.flying >= self.max_calls:
            return False
        if self.budget_usd is None:
            return True
        if at_most is None:
            return False
        return self.totals.usd + self.reserved + at_most <= self.budget_usd + DUST


@dataclass
class Books:
    """Where the answers and the money of one client in a running stage are written down, on rank 0."""

    run: Run
    store: CompletionStore
    ledger: Ledger
    name: str
    """The client's name in the ledger."""
    tariff: Price | TieredPrice | None
    """What a call costs; None: unknown."""

    @property
    def totals(self) -> Totals:
        """Of this client's calls, by earlier runs of the stage too."""
        return self.ledger.totals(self.name)


@dataclass
class Desk:
    """The bookkeeping of one `complete`. Every call that may start must be ended by exactly one of `answer`, `charge`,
    `refuse`.
    """

    calls: Sequence[Call]
    cached: int
    """How many further requests the cache has answered."""
    books: Books
    allowance: Allowance
    ticker: Ticker
    outcomes: dict[str, Completion] = field(default_factory=dict)
    """By key: answered, or failed for good."""
    answered: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Why calls failed for good, with their numbers."""
    problem: BaseException | None = None
    """The exception that ends the run; raised when the calls in flight have ended."""
    over: bool = False
    """A limit is reached."""
    refused_at: float = 0.0
    """USD that the call which did not fit could have cost."""
    interrupted: bool = False
    _reported: int = 0

    @property
    def failed(self) -> int:
        """How many calls failed for good."""
        return self.reasons.total()

    @property
    def closing(self) -> bool:
        """No further call may start."""
        return self.over or self.interrupted or self.problem is not None

    def may_start(self, call: Call) -> Literal["go", "wait", "stop"]:
        """Return "go": make the call now. "wait": ask again when another call has ended. "stop": do not make it."""
        if self.closing:
            return "stop"
        verdict = self.allowance.ask(call.at_most)
        if verdict == "stop":
            self.over, self.refused_at = True, call.at_most or 0.0
        return verdict

    def refuse(self, call: Call) -> None:
        """End a call that never reached the model: it costs nothing and is not counted."""
        self.allowance.settle(call.at_most)

    def charge(self, call: Call, status: Literal["answered", "empty", "lost"], usage: Usage, seconds: float) -> None:
        """End a call that was charged, or may have been: record it in the ledger."""
        self.books.ledger.add(self.books.name, call.key, status, usage, at_most=call.at_most, seconds=seconds)
        self.allowance.settle(call.at_most)

    def answer(self, call: Call, completion: Completion, seconds: float) -> None:
        """End a call with its answer: record it in the ledger and in the cache, and keep it as an outcome."""
        self.charge(call, "answered", completion.usage, seconds)
        (kept,) = self.books.store.put([(call.key, call.question, completion)])
        self.keep(call, kept)

    def keep(self, call: Call, completion: Completion) -> None:
        """Take an answer that the ledger and the cache contain already as the outcome of its call."""
        self.outcomes[call.key] = completion
        self.answered += 1

    def fail(self, call: Call, reason: str, usage: Usage | None = None) -> None:
        """Record that a call has no answer for good. It is listed as failed and not cached, so that it is asked again
        next time.
        """
        self.outcomes[call.key] = Completion(error=reason, usage=usage or Usage(usd=0.0))
        self.reasons[reason] += 1
        self.books.ledger.fail(self.books.name, call.key, call.request.about, reason)

    def halt(self, problem: BaseException) -> None:
        """Start no further call, and raise this exception when those in flight have ended; only the first one is
        kept.
        """
        self.problem = self.problem or problem

    def listen(self) -> bool:
        """Was Ctrl-C pressed? Then no further call starts."""
        self.interrupted = self.interrupted or self.books.run.interrupted
        return self.interrupted

    def tick(self) -> None:
        """Update the progress line; to be called from the thread that runs the stage."""
        done, totals = self.answered + self.failed, self.books.totals
        cost = "unknown" if totals.unknown or (self.books.tariff is None and totals.calls) else f"${totals.usd:.4f}"
        self.ticker.advance(
            done - self._reported, answered=self.answered, cached=self.cached, failed=self.failed, cost=cost
        )
        self._reported = done


class CacheWriter:
    """Stores answers from one thread, as many in a transaction as arrived while it was busy, without blocking its event
    loop.
    """

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

"""Bookkeeping of calls: which calls may start, and their limits, ledger, cache and progress in one `complete`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from fgrl.feedback.llm import tokens
from fgrl.feedback.llm.ledger import Account
from fgrl.feedback.llm.prices import ListPrice, Price
from fgrl.feedback.llm.store import CompletionStore
from fgrl.kinds import Run, Ticker
from fgrl.types import Completion, Request, Usage


@dataclass(frozen=True)
class Call:
    """A request without a cached answer."""

    key: str
    question: str
    """Everything that can change the answer; `key` is its hash."""
    request: Request
    longest: int | None
    """Maximum number of tokens of its answer; None: not limited."""


@dataclass
class Desk:
    """The bookkeeping of one `complete`, on rank 0. Every call that may start must be ended by exactly one of `answer`,
    `charge`, `refuse`.

    `max_calls` is never exceeded. `budget_usd` stops new calls once this much is spent: the cost of the calls that are
    then in flight comes on top. Refused calls (429, 5xx, connection refused) cost nothing and are not counted; a call
    whose result never arrived counts with its highest possible cost. Costs of earlier runs of the stage count too.
    """

    run: Run
    account: Account
    store: CompletionStore
    tariff: Price | ListPrice | None
    """Price of a call; None if it is unknown."""
    max_calls: int | None
    budget_usd: float | None
    calls: Sequence[Call]
    cached: int
    """Number of further requests that the cache has answered."""
    ticker: Ticker
    outcomes: dict[str, Completion] = field(default_factory=dict)
    """Outcomes by key: answered, or failed for good."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Reasons why calls failed for good, with their numbers."""
    problem: BaseException | None = None
    """The exception that ends the run; raised when the calls in flight have ended."""
    interrupted: bool = False
    _reported: int = 0

    @property
    def failed(self) -> int:
        """Number of calls that failed for good."""
        return self.reasons.total()

    @property
    def limit(self) -> Literal["max_calls", "budget_usd"] | None:
        """The limit that lets no call start now; a call in flight that is refused makes room for another."""
        if self.max_calls is not None and self.account.calls + self.account.flying >= self.max_calls:
            return "max_calls"
        if self.budget_usd is None or self.account.usd < self.budget_usd:
            return None
        free = self.tariff is not None and self.tariff.at_most(1, 1) == 0
        return None if free else "budget_usd"

    @property
    def closing(self) -> bool:
        """True if no further call may start, unless a call in flight is refused."""
        return self.interrupted or self.limit is not None or self.problem is not None

    def may_start(self) -> bool:
        """Return True if a call is to be made now; it is then in flight."""
        if self.closing:
            return False
        self.account.flying += 1
        return True

    def most(self, call: Call) -> float | None:
        """Return the highest possible cost of the call in USD; None if it is unknown."""
        if self.tariff is None or call.longest is None:
            return None
        return self.tariff.at_most(tokens.at_most(call.request), call.longest)

    def refuse(self) -> None:
        """End a call that never reached the model: it costs nothing and is not counted."""
        self.account.flying -= 1

    def charge(self, call: Call, status: Literal["answered", "empty", "lost"], usage: Usage, seconds: float) -> None:
        """End a call that was charged, or may have been: record it in the ledger."""
        at_most = self.most(call) if usage.usd is None else None
        self.account.charge(call.key, status, usage, at_most=at_most, seconds=seconds)
        self.account.flying -= 1

    def answer(self, call: Call, completion: Completion, seconds: float) -> None:
        """End a call with its answer: record it in the ledger and in the cache, and keep it as an outcome. An answer
        without text is recorded as failed.
        """
        self.account.flying += 1  # until the answer is stored: `Ledger.close` waits for it
        try:
            self.charge(call, "answered" if completion.error is None else "empty", completion.usage, seconds)
            if completion.error is not None:
                self.fail(call, completion.error, completion.usage)
            else:
                self.outcomes[call.key] = self.store.put(call.key, call.question, completion)
        finally:
            self.account.flying -= 1

    def fail(self, call: Call, reason: str, usage: Usage | None = None) -> None:
        """Record that a call has no answer for good. It is listed as failed and not cached, so that it is asked again
        next time.
        """
        self.outcomes[call.key] = Completion(error=reason, usage=usage or Usage())
        self.reasons[reason] += 1
        self.account.fail(call.key, call.request.about, reason)

    def halt(self, problem: BaseException) -> None:
        """Start no further call, and raise this exception when those in flight have ended; only the first one is
        kept.
        """
        self.problem = self.problem or problem

    def listen(self) -> bool:
        """Return True if Ctrl-C was pressed; then no further call starts."""
        self.interrupted = self.interrupted or self.run.interrupted
        return self.interrupted

    def tick(self) -> None:
        """Update the progress line; to be called from the thread that runs the stage."""
        done, account = len(self.outcomes), self.account
        cost = "unknown" if account.unknown or (self.tariff is None and account.calls) else f"${account.usd:.4f}"
        answered = done - self.failed
        self.ticker.advance(done - self._reported, answered=answered, cached=self.cached, failed=self.failed, cost=cost)
        self._reported = done

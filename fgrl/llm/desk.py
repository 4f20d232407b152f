"""Which calls may start, and what becomes of them: limits, ledger, cache and progress of one `complete`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fgrl.kinds import Run, Ticker
from fgrl.llm.allowance import Allowance
from fgrl.llm.ledger import Ledger
from fgrl.llm.prices import Price, TieredPrice
from fgrl.llm.store import CompletionStore
from fgrl.types import Completion, Request, Usage


@dataclass(frozen=True)
class Call:
    """A request without a cached answer."""

    key: str
    question: str
    """What `key` is a hash of."""
    request: Request
    at_most: float | None
    """USD that it can cost; None: unknown."""


class Desk:
    """The bookkeeping of one `complete`. Every call that may start must be ended by exactly one of `answer`, `charge`, `refuse`."""

    def __init__(
        self,
        calls: Sequence[Call],
        *,
        run: Run,
        store: CompletionStore,
        book: Ledger,
        ledger_name: str,
        tariff: Price | TieredPrice | None,
        max_calls: int | None,
        budget_usd: float | None,
        cached: int,
    ) -> None:
        self.calls, self.run, self.store, self.tariff, self.cached = calls, run, store, tariff, cached
        self.book, self.ledger_name = book, ledger_name
        self.allowance = Allowance(book.totals(ledger_name), max_calls, budget_usd)
        self.outcomes: dict[str, Completion] = {}
        """By key: answered, or failed for good."""
        self.answered = 0
        self.failed = 0
        self.reasons: Counter[str] = Counter()
        """Why calls failed for good, with their numbers."""
        self.problem: BaseException | None = None
        """The exception that ends the run; raised when the calls in flight have ended."""
        self.over = False
        """A limit is reached."""
        self.refused_at = 0.0
        """USD that the call which did not fit could have cost."""
        self.interrupted = False
        self.ticker: Ticker | None = None
        self._reported = 0

    @property
    def closing(self) -> bool:
        """No further call may start."""
        return self.over or self.interrupted or self.problem is not None

    def may_start(self, call: Call) -> Literal["go", "wait", "stop"]:
        """ "go": make the call now. "wait": ask again when another call has ended. "stop": do not make it."""
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
        self.book.add(self.ledger_name, call.key, status, usage, at_most=call.at_most, seconds=seconds)
        self.allowance.settle(call.at_most)

    def usage(
        self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0, written_tokens: int = 0
    ) -> Usage:
        """Tokens with their price; `usd` is None when that is unknown. See `Price.of`."""
        usd = None
        if self.tariff is not None:
            usd = self.tariff.of(prompt_tokens, completion_tokens, cached_tokens, written_tokens)
        return Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, usd=usd)

    def answer(self, call: Call, completion: Completion, seconds: float) -> None:
        """End a call with its answer: record it in the ledger and in the cache, and keep it as an outcome."""
        self.charge(call, "answered", completion.usage, seconds)
        (kept,) = self.store.put([(call.key, call.question, completion)])
        self.keep(call, kept)

    def keep(self, call: Call, completion: Completion) -> None:
        """Take an answer that the ledger and the cache contain already as the outcome of its call."""
        self.outcomes[call.key] = completion
        self.answered += 1

    def fail(self, call: Call, reason: str, usage: Usage | None = None) -> None:
        """Record that a call has no answer for good. It is listed as failed and not cached, so that it is asked again next time."""
        self.outcomes[call.key] = Completion(error=reason, usage=usage or Usage(usd=0.0))
        self.failed += 1
        self.reasons[reason] += 1
        self.book.fail(self.ledger_name, call.key, reason)

    def halt(self, problem: BaseException) -> None:
        """Start no further call, and raise this exception when those in flight have ended; only the first one is kept."""
        self.problem = self.problem or problem

    def listen(self) -> bool:
        """Was Ctrl-C pressed? Then no further call starts."""
        self.interrupted = self.interrupted or self.run.interrupted
        return self.interrupted

    def tick(self) -> None:
        """Update the progress line; to be called from the thread that runs the stage."""
        if self.ticker is None:
            return
        done = self.answered + self.failed
        totals = self.allowance.totals
        cost = "unknown" if totals.unknown or (self.tariff is None and totals.calls) else f"${totals.usd:.4f}"
        self.ticker.advance(
            done - self._reported, answered=self.answered, cached=self.cached, failed=self.failed, cost=cost
        )
        self._reported = done

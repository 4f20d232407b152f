"""Where calls are handed out and their outcomes handed in: limits, ledger, cache and progress of one `complete`."""

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
    """A request that no cached answer fits."""

    key: str
    question: str
    """What `key` is a hash of."""
    request: Request
    at_most: float | None
    """USD that it can cost; None: unknown."""


class Desk:
    """The books of one `complete`. A call that may start must be ended by exactly one of `answer`, `charge`, `refuse`."""

    def __init__(
        self,
        calls: Sequence[Call],
        *,
        run: Run,
        store: CompletionStore,
        book: Ledger,
        who: str,
        tariff: Price | TieredPrice | None,
        max_calls: int | None,
        budget_usd: float | None,
        cached: int,
    ) -> None:
        self.calls, self.run, self.store, self.who, self.tariff, self.cached = calls, run, store, who, tariff, cached
        self.book = book
        self.allowance = Allowance(book.totals(who), max_calls, budget_usd)
        self.outcomes: dict[str, Completion] = {}
        """By key: answered, or failed for good."""
        self.answered = 0
        self.failed = 0
        self.reasons: Counter[str] = Counter()
        """Why calls failed for good, and how many for each reason."""
        self.problem: BaseException | None = None
        """What ends the whole run; raised when the calls in flight have ended."""
        self.over = False
        """A limit is reached."""
        self.refused_at = 0.0
        """What the call that did not fit could have cost, USD."""
        self.interrupted = False
        self.ticker: Ticker | None = None
        self._told = 0

    @property
    def closing(self) -> bool:
        """Start nothing more."""
        return self.over or self.interrupted or self.problem is not None

    def may_start(self, call: Call) -> Literal["go", "wait", "stop"]:
        """ "go": make the call now. "wait": ask again when another one has ended. "stop": leave it."""
        if self.closing:
            return "stop"
        verdict = self.allowance.ask(call.at_most)
        if verdict == "stop":
            self.over, self.refused_at = True, call.at_most or 0.0
        return verdict

    def refuse(self, call: Call) -> None:
        """The call never reached the model: it costs nothing and is not counted."""
        self.allowance.settle(call.at_most)

    def charge(self, call: Call, status: Literal["answered", "empty", "lost"], usage: Usage, seconds: float) -> None:
        """The call is paid for, or may have been: into the ledger."""
        self.book.add(self.who, call.key, status, usage, at_most=call.at_most, seconds=seconds)
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
        """The model answered: into the ledger, into the cache, out to whoever asked."""
        self.charge(call, "answered", completion.usage, seconds)
        (kept,) = self.store.put([(call.key, call.question, completion)])
        self.keep(call, kept)

    def keep(self, call: Call, completion: Completion) -> None:
        """An answer that is in the ledger and in the cache."""
        self.outcomes[call.key] = completion
        self.answered += 1

    def fail(self, call: Call, reason: str, usage: Usage | None = None) -> None:
        """No answer, for good: listed as failed and not cached, so that whoever asks again puts it again."""
        self.outcomes[call.key] = Completion(error=reason, usage=usage or Usage(usd=0.0))
        self.failed += 1
        self.reasons[reason] += 1
        self.book.fail(self.who, call.key, reason)

    def halt(self, problem: BaseException) -> None:
        """Start nothing more, and raise this when the calls in flight have ended; the first problem counts."""
        self.problem = self.problem or problem

    def listen(self) -> bool:
        """Was Ctrl-C pressed? Then nothing more starts."""
        self.interrupted = self.interrupted or self.run.interrupted
        return self.interrupted

    def tick(self) -> None:
        """Bring the progress line up to date; from the thread that runs the stage."""
        if self.ticker is None:
            return
        done = self.answered + self.failed
        totals = self.allowance.totals
        cost = "unknown" if totals.unknown or (self.tariff is None and totals.calls) else f"${totals.usd:.4f}"
        self.ticker.advance(
            done - self._told, answered=self.answered, cached=self.cached, failed=self.failed, cost=cost
        )
        self._told = done

"""Shared part of all clients that keep their answers: the cache, the ledger, the limits, the progress line.

1. each request gets a key: a hash of the client's kind, model and endpoint, the messages, every parameter, the schema and
   the sample's index
2. answers that the cache contains are taken from there; identical requests are sent once
3. the rest is sent (`put`); each answer is in the ledger and in the cache before anything else can fail
4. a limit, a Ctrl-C or an error stops new calls; those in flight end and are stored; then it is raised

If several processes work together, rank 0 does all of this and hands the answers on. A process that asks alone
(`Client.complete_alone`, and everything inside `ranks.apart`) does all of it itself; each process then has an equal
part of the limits.
"""

from __future__ import annotations

import hashlib
import json
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PrivateAttr

from fgrl.base import lazy, ranks
from fgrl.base.console import Ticking
from fgrl.base.errors import OverBudget, Unavailable
from fgrl.feedback.llm.desk import Call, Desk
from fgrl.feedback.llm.ledger import FAILED, Account, Ledger
from fgrl.feedback.llm.prices import ListPrice, Price
from fgrl.feedback.llm.store import FILE, CompletionStore, free
from fgrl.kinds import Client, Run
from fgrl.registry import File, Unkeyed
from fgrl.types import Completion, Request

if TYPE_CHECKING:
    from fgrl.feedback.llm import endpoint_models, price_tables, together
else:
    endpoint_models, price_tables = (
        lazy.load("fgrl.feedback.llm.endpoint_models"),
        lazy.load("fgrl.feedback.llm.price_tables"),
    )
    together = lazy.load("fgrl.feedback.llm.together")

REASONS = 3
"""Number of reasons of failures that are reported; the others are only counted."""
OPENING = threading.Lock()
"""Lock for threads that open or count something of a client."""


class Cached(Client, ABC):
    """A client whose answers are kept. A subclass defines the model that is asked (`identity`), the parameters that are
    sent (`parameters`), and the sending (`put`).

    In a stage of several processes rank 0 looks answers up, asks, counts and stores; the other ranks get its answers. A
    model that lives in every process (`answer_share`) answers on every rank.
    """

    collective = True

    max_calls: Annotated[int | None, Unkeyed] = Field(None, ge=0)
    """Maximum number of calls in a stage, over all its runs; answers from the cache are free, and refused calls (429,
    5xx) are not counted. A hard limit: the stage stops with exit code 4. null: no limit.
    """
    budget_usd: Annotated[float | None, Unkeyed] = Field(None, ge=0)
    """USD that a stage may spend, over all its runs, before no further call starts: the calls in flight end, and their
    cost comes on top. The stage stops with exit code 4. null: no limit.
    """
    prices: Annotated[Annotated[str, File] | Price | None, Unkeyed] = None
    """Price of the model: {prompt: USD, completion: USD, cached: USD} per million tokens, or a JSON or YAML file of
    such prices by model. null: the provider's list price (package genai-prices). {prompt: 0, completion: 0}:
    self-hosted, free.
    """

    _account: Account | None = PrivateAttr(None)
    """Account of this process: on rank 0, and on other ranks once they ask alone. Without it a process neither reads
    nor writes answers and costs.
    """
    _before: tuple[int, float] = PrivateAttr((0, 0.0))
    """Calls and USD of the account when it was opened."""
    _since_start: Counter[str] = PrivateAttr(default_factory=Counter)
    """Numbers of `cached` answers and of `failed` requests since the start, on rank 0."""
    _counts: dict[str, Any] = PrivateAttr(default_factory=dict)
    _share: Callable[[list[Any]], list[Any]] | None = PrivateAttr(None)

    # -- what a subclass defines ---------------------------------------------------------------------------------------

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return the identity of the model that is asked: "client" (its kind), "model" and "endpoint", JSON-ready,
        without secrets.
        """

    @abstractmethod
    def parameters(self, request: Request) -> dict[str, Any]:
        """Return every parameter that can change the answer to the request, JSON-ready; "max_tokens" bounds the cost of
        the answer.
        """

    @abstractmethod
    def put(self, calls: Sequence[Call], desk: Desk) -> None:
        """Ask, on rank 0. For each call: `desk.may_start()`; then report how it ended (`desk.answer`, `desk.fail`,
        ...).

        Returns early when `desk.closing`; calls without an outcome are then left for another run. Work for all ranks
        goes through `share`.
        """

    def answer_share(self, work: list[Any]) -> list[Any]:
        """Do this rank's part of the work that `put` shares out, on every rank."""
        raise NotImplementedError(f"{type(self).__name__} is asked by rank 0 alone")

    # -- what it inherits -----------------------------------------------------------------------------------------------

    def check_machine(self) -> None:
        super().check_machine()
        if self.budget_usd is not None and self.tariff() is None:
            model = self.identity()["model"]
            raise Unavailable(
                f"budget_usd is set, but the price of {model} at {self.identity()['endpoint']} is unknown: write "
                "`prices: {prompt: USD, completion: USD}` (per million tokens) beside it, name a file of prices there, "
                "or limit `max_calls` instead"
            )

    def setup(self, run: Run) -> None:
        self.check_machine()
        self._run, self._account = run, None
        if run.rank == 0:
            self._open()

    def _open(self) -> None:
        """Open the account of this process, unless it is open already."""
        with OPENING:
            if self._account is None:
                run, name = self._run, " ".join(map(str, self.identity().values()))
                self._store()  # closed after the ledger, which waits for answers
                account = run.shared("ledger", lambda: Ledger(run.dir, run.rank)).account(name)
                self._account, self._before = account, (account.calls, account.usd)

    def _store(self) -> CompletionStore:
        """Return the store of answers, which all clients share."""
        return self._run.shared("answers", lambda: CompletionStore(self._run.cache / FILE))

    def tariff(self) -> Price | ListPrice | None:
        """Return the price of a call; None if it is unknown."""
        if isinstance(self.prices, Price):
            return self.prices
        identity = self.identity()
        return price_tables.find(str(identity["model"]), str(identity["endpoint"]), self.prices)

    def price(self) -> tuple[float, float] | None:
        tariff = self.tariff()
        return None if tariff is None else (tariff.prompt, tariff.completion)

    def context_length(self) -> int | None:
        """Return the number of tokens that a prompt and its answer may have together; None if it is not known."""
        identity = self.identity()
        return endpoint_models.context_length(str(identity["model"]), str(identity["endpoint"]))

    def warning(self, today: date) -> str | None:
        """Return the warning of a plan, for example about a model that is no longer offered; None if there is no
        warning.
        """
        identity = self.identity()
        return endpoint_models.warning(str(identity["model"]), str(identity["endpoint"]), today)

    def budget_note(self) -> str | None:
        """Return the remark of a plan on a budget: it does not stop the calls in flight. None without a budget."""
        if self.budget_usd is None:
            return None
        model, budget = self.identity()["model"], f"{self.budget_usd:g} USD"
        return f"no call to {model} starts once {budget} are spent; what the calls then in flight cost comes on top"

    def question(self, request: Request) -> str:
        """Return everything that can change the answer, as canonical JSON: the cache key is the hash of this text."""
        whole = {
            **self.identity(),
            "version": self.version,
            "messages": [[message.role, message.content] for message in request.messages],
            "parameters": self.parameters(request),
            "schema": request.json_schema,
            "sample": request.sample,
        }
        return json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    def key(self, request: Request) -> str:
        """Return the cache key of the answer to a request: sha256, in hex."""
        return hashlib.sha256(self.question(request).encode()).hexdigest()

    def reject(self, request: Request, reason: str) -> None:
        if self._account is not None:
            self._account.fail(self.key(request), request.about, reason)

    def counts(self) -> dict[str, Any]:
        """Return the numbers of this stage for its summary: calls and money over all its runs, the other numbers since
        it started. They are the same on every rank, as of the last `complete`.
        """
        self._check_setup()
        if (account := self._account) is not None:
            self._counts = {
                "calls": account.calls,
                "prompt_tokens": account.prompt_tokens,
                "completion_tokens": account.completion_tokens,
                "usd": "unknown" if account.unknown else round(account.usd, 6),
                "cached": self._since_start["cached"],
                "failed": self._since_start["failed"],
            }
        return self._counts

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Implement `Client.complete`. In a stage of several processes every rank has to make the same calls in the
        same order, and gets the same answers; `RuntimeError` is raised on all ranks if their requests differ.
        """
        self._check_setup()
        together.same_requests(requests)

        def direct(share: together.Share[Any, Any]) -> tuple[list[Completion], dict[str, Any]]:
            self._share = share
            self._open()  # rank 0 has opened them; another one works apart from the others
            return self._completed(requests), self.counts()

        answers, self._counts = together.lead(direct, self.answer_share)
        return answers

    def completed_alone(self, requests: Sequence[Request]) -> list[Completion]:
        self._check_setup()
        self._open()
        return self._completed(requests, alone=True)

    def share(self, work: list[Any]) -> list[Any]:
        """Return the results of work that is split over all ranks (`answer_share`), in order; to be called from `put`."""
        return (self._share or self.answer_share)(work)

    def _completed(self, requests: Sequence[Request], *, alone: bool = False) -> list[Completion]:
        calls = [self._call(request) for request in requests]
        distinct = {call.key: call for call in calls}
        known = self._store().get(list(distinct))
        missing = [call for call in distinct.values() if call.key not in known]
        with OPENING:
            self._since_start["cached"] += len(known)
        known |= self._asked(missing, cached=len(known), alone=alone) if missing else {}
        paid: set[str] = set()
        answers: list[Completion] = []
        for call in calls:
            answer = known[call.key]
            answers.append(free(answer) if call.key in paid and answer.error is None else answer)
            paid.add(call.key)
        return answers

    def _limits(self, world: int) -> tuple[int | None, float | None]:
        """Return `max_calls` and `budget_usd`; for one of several processes, its part of what was left when it began."""
        (calls, usd), most, budget = self._before, self.max_calls, self.budget_usd
        if world == 1:
            return most, budget
        return (
            None if most is None else calls + max(0, most - calls) // world,
            None if budget is None else usd + max(0.0, budget - usd) / world,
        )

    def _asked(self, missing: list[Call], *, cached: int, alone: bool) -> dict[str, Completion]:
        """Return the outcomes of new calls, by key. The calls of a thread show no progress line."""
        run, account = self._run, self._account
        world = ranks.world() if alone or ranks.connected() == 1 else 1  # of the processes that share the limits
        assert account is not None
        shown = run.progress(f"asking {self.identity()['model']}", cached + len(missing), cached) if not alone else None
        with shown or nullcontext(Ticking("", 0, 0, lambda _ticker: None)) as ticker:
            limits = (self.tariff(), *self._limits(world))
            desk = Desk(run, account, self._store(), *limits, missing, cached, ticker)
            try:
                self.put(missing, desk)
            finally:
                with OPENING:
                    self._since_start["failed"] += desk.failed
                desk.tick()
        if desk.failed and not alone:
            run.say(self._why(desk))
        if desk.problem is not None:
            raise desk.problem
        if desk.interrupted:
            raise KeyboardInterrupt
        if len(desk.outcomes) < len(missing):
            raise OverBudget(self._over(desk, world))
        return desk.outcomes

    def _why(self, desk: Desk) -> str:
        """Return the number of failed requests and the most frequent reasons, in words."""
        reasons = [f"{count:,} x {reason}" for reason, count in desk.reasons.most_common(REASONS)]
        more = len(desk.reasons) - len(reasons)
        reasons += [f"and {more:,} other reasons"] if more else []
        return (
            f"{desk.failed:,} of {len(desk.calls) + desk.cached:,} requests to {self.identity()['model']} got no answer: "
            f"{'; '.join(reasons)} (each is in {desk.run.dir / FAILED})"
        )

    def _over(self, desk: Desk, world: int) -> str:
        account, left, limit = desk.account, len(desk.calls) - len(desk.outcomes), desk.limit or "max_calls"
        money = "unknown cost" if desk.tariff is None else f"{account.usd:.6g} USD"
        if limit == "max_calls":
            reached = f"{account.calls + account.flying:,} of {desk.max_calls:,} calls are made ({money})"
        else:
            reached = f"{account.usd:.6g} of {desk.budget_usd:.6g} USD are spent in {account.calls:,} calls"
        reached += f" by this one of {world} processes, which share {limit} evenly" if world > 1 else ""
        return (
            f"{reached}; {left:,} of {len(desk.calls) + desk.cached:,} requests to {self.identity()['model']} are still to ask. "
            f"Every answer is kept: raise {limit} of the client and run the same command, and only what is missing is asked"
        )

    def _call(self, request: Request) -> Call:
        question = self.question(request)
        key = hashlib.sha256(question.encode()).hexdigest()
        return Call(key, question, request, self.parameters(request).get("max_tokens"))

    def _check_setup(self) -> None:
        if self._run is None:
            raise RuntimeError(f"{type(self).__name__}: call setup(run) before complete()")

"""May the next call start? Hard limits on calls and money, exact with any number of calls in flight.

The rule. A call that starts is reserved at the most that it can cost. It may start only when

    calls counted + calls in flight + 1 <= max_calls, and
    spent + the most that calls in flight can cost + the most that it can cost <= budget_usd.

A call that does not fit while others are in flight waits for them: they may turn out cheaper. When nothing is in flight and it
still does not fit, the limit is reached. So neither limit is ever exceeded, and the run stops with less money left than one
call can cost. Refused calls (429, 5xx, connection refused) cost nothing and are not counted; a call whose result never arrived
counts in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fgrl.llm.ledger import Totals

DUST = 1e-12
"""USD that rounding of sums may add; that is not overspending."""


@dataclass
class Allowance:
    """The limits of one client in one stage. `totals` counts what was spent, by earlier runs of the stage too."""

    totals: Totals
    max_calls: int | None = None
    budget_usd: float | None = None
    flying: int = 0
    reserved: float = 0.0

    def ask(self, at_most: float | None) -> Literal["go", "wait", "stop"]:
        """May a call start that costs `at_most` USD (None: unknown, allowed only without a budget)? "go" reserves it."""
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

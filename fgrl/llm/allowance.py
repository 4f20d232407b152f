"""May the next call start? Hard limits on calls and money, exact with any number of calls in flight.

The rule. A call that starts is reserved at the most that it can cost. It may start only when

    calls counted + calls in flight + 1 <= max_calls, and
    spent + the most that calls in flight can cost + the most that it can cost <= budget_usd.

If it does not fit while others are in flight it waits for them: they may turn out cheaper. If it does not fit when nothing is
in flight, that is the end. So neither limit is ever exceeded, and the run stops with less than one call's worth of money left.
Refused calls (429, 5xx, connection refused) cost nothing and are not counted; a call whose end nobody saw counts in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fgrl.llm.ledger import Totals

DUST = 1e-12
"""USD; rounding of sums is not overspending."""


@dataclass
class Allowance:
    """The limits of one client in one stage. `totals` has what was spent, also by earlier runs."""

    totals: Totals
    max_calls: int | None = None
    budget_usd: float | None = None
    flying: int = 0
    reserved: float = 0.0

    def ask(self, at_most: float | None) -> Literal["go", "wait", "stop"]:
        """ "go" reserves a call that costs at most so many USD (None: unknown, allowed only without a budget)."""
        if self._fits(at_most):
            self.flying += 1
            self.reserved += at_most or 0.0
            return "go"
        return "wait" if self.flying else "stop"

    def settle(self, at_most: float | None) -> None:
        """The call has ended; if it counts, the ledger (and so `totals`) has it already."""
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

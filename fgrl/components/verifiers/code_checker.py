"""Checkers from data sets as Python source code. They run only in the sandbox."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from fgrl.base.errors import Undecided
from fgrl.feedback.rules.rule import Rule
from fgrl.feedback.sandbox import Call, SandboxSpec, shared
from fgrl.registry import register
from fgrl.types import Span

RESPONSE = "response"
"""Name of the response among the arguments."""
REMEMBERED = 10_000


@register("code:checker")
class CodeChecker(Rule):
    """A function from the data decides: `check(response)`, or a function as specified by `function` and `order`.

    The function runs only in the sandbox. If it raises, takes too long, prints too much or returns anything but true or
    false, the rule is undecided: the verdict is missing and counted, never "violated". An empty answer violates it, as
    it violates every rule, and is not passed to it. The rule applies to the whole response, because the function
    returns only yes or no.
    """

    source: str = Field(min_length=1)
    """Python source code that defines the function. It can import the standard library, and the `packages` of
    `sandbox`.
    """
    function: str = "check"
    """Name of the function that decides."""
    order: list[str] = Field([RESPONSE], min_length=1)
    """Positional arguments, in order: `response`, and names from `arguments`. The other arguments are passed by name.
    """
    arguments: dict[str, Any] = {}
    """Arguments besides the response, as JSON."""
    returns: Literal["bool", "truth"] = "bool"
    """Interpretation of the return value. `bool`: true, false, 1 or 0; anything else is undecided. `truth`: the truth
    value in Python's `if`, as in the authors' code (a match is true, and a forgotten `return` is false).
    """
    label: str = ""
    """Name in tables; empty: the function's name and a part of the source's hash."""
    sandbox: SandboxSpec = Field(default_factory=SandboxSpec)
    """Sandbox in which the function runs."""

    _seen: dict[str, bool | str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _given(self) -> CodeChecker:
        if RESPONSE not in self.order or RESPONSE in self.arguments:
            raise ValueError(f"`order` has to name {RESPONSE!r}, and `arguments` must not")
        missing = [name for name in self.order if name not in (RESPONSE, *self.arguments)]
        if missing:
            raise ValueError(f"`order` names {missing[0]!r}, which is not in `arguments`")
        return self

    def check_machine(self) -> None:
        """Raise `Unavailable` if this machine's sandbox is weaker than the recipe requires, or lacks its packages."""
        shared(self.sandbox)

    def title(self) -> str:
        if self.label:
            return self.label
        digest = hashlib.sha256(f"{self.source} {self.arguments}".encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self.function} {digest[:8]}"

    def may_be_undecided(self) -> bool:
        return True

    def keeps(self, response: str) -> bool:
        """Return the verdict. Raise `Undecided` if there is none, and `Unavailable` if the sandbox is too weak."""
        if response not in self._seen:
            if len(self._seen) >= REMEMBERED:
                self._seen.clear()
            self._seen[response] = self._decide(response)
        verdict = self._seen[response]
        if isinstance(verdict, str):
            raise Undecided(verdict)
        return verdict

    def breaking(self, response: str) -> list[Span] | None:
        """Return an empty list if the rule is satisfied; None if it is violated, because the place is unknown."""
        return [] if self.verdict(response) else None

    def _decide(self, response: str) -> bool | str:
        """Return the verdict, or the reason why there is none."""
        given = {**self.arguments, RESPONSE: response}
        call = Call(
            self.source,
            self.function,
            [given.pop(name) for name in self.order],
            given,
            truth=self.returns == "truth",
        )
        try:
            outcome = shared(self.sandbox).run(call)
        except (
            ValueError,
            RecursionError,
        ) as problem:  # what is no JSON, nested too deep or too large is not handed over
            return f"{self.title()}: request: {problem}"
        value = outcome.value
        if outcome.returned and (isinstance(value, bool) or (isinstance(value, int) and value in (0, 1))):
            return bool(value)
        if outcome.returned:
            return f"{self.title()}: it returned {type(outcome.value).__name__}, not true or false"
        return f"{self.title()}: {outcome.kind}: {outcome.detail}"

"""Checkers that come with data sets as Python source. They run in the sandbox and nowhere else."""

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
"""The response among the arguments."""
REMEMBERED = 10_000


@register("code:checker")
class CodeChecker(Rule):
    """A function that came with the data decides: `check(response)`, or as `function` and `order` specify.

    It runs in the sandbox alone. When it raises, takes too long, prints too much or returns something else than true or
    false, the rule is undecided: the verdict is missing and counted, never "broken". An empty answer breaks it, as it
    breaks every rule, and is not handed to it. It is about the whole response, since it returns only yes or no.
    """

    source: str = Field(min_length=1)
    """Python that defines the function. It has the standard library, and the `packages` of `sandbox`."""
    function: str = "check"
    """Which function of it decides."""
    order: list[str] = Field([RESPONSE], min_length=1)
    """What it is given, in order: `response`, and names from `arguments`. The other arguments are given by name."""
    arguments: dict[str, Any] = {}
    """What it is given besides the response, as JSON."""
    returns: Literal["bool", "truth"] = "bool"
    """`bool`: true, false, 1 or 0; anything else is undecided. `truth`: whatever Python's `if` takes for true, as the
    authors' code does (a match is true, and so a forgotten `return` is false).
    """
    label: str = ""
    """What tables call it; empty: the function's name and a piece of the source's hash."""
    sandbox: SandboxSpec = Field(default_factory=SandboxSpec)
    """Where it runs."""

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
        """Raise `Unavailable` when this machine's sandbox is weaker than the recipe wants, or lacks its packages."""
        shared(self.sandbox)

    def title(self) -> str:
        if self.label:
            return self.label
        digest = hashlib.sha256(f"{self.source} {self.arguments}".encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self.function} {digest[:8]}"

    def may_be_undecided(self) -> bool:
        return True

    def keeps(self, response: str) -> bool:
        """Raise `Undecided`; raises `Unavailable` when the sandbox is too weak."""
        if response not in self._seen:
            if len(self._seen) >= REMEMBERED:
                self._seen.clear()
            self._seen[response] = self._decide(response)
        verdict = self._seen[response]
        if isinstance(verdict, str):
            raise Undecided(verdict)
        return verdict

    def breaking(self, response: str) -> list[Span] | None:
        """Nothing when the rule is kept; where it is broken is unknown."""
        return [] if self.verdict(response) else None

    def _decide(self, response: str) -> bool | str:
        """Return the verdict, or why there is none."""
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

"""Calls into the sandbox and their outcomes. Everything in an outcome was written by untrusted code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["value", "error", "timeout", "memory", "output", "result", "files", "crash", "malformed"]
"""Outcome of a call. `value`: it returned. `error`: it raised, or returned something that is not JSON. `timeout`,
`memory`, `output`, `result`, `files`: it exceeded that limit. `crash`: its process ended without an answer.
`malformed`: its answer is unparseable.
"""

LONGEST_DETAIL = 1000


@dataclass(frozen=True)
class Call:
    """Python source, and the function in it to call with JSON arguments. Without a function, the source is only
    executed and the value is None.
    """

    source: str
    function: str | None = None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    truth: bool = False
    """Return `bool(value)`, for functions that return a match, a count or nothing."""

    def encoded(self) -> bytes:
        """Return the call as JSON. Raises ValueError for arguments that are not JSON."""
        call = {"source": self.source, "function": self.function, "args": list(self.args), "kwargs": dict(self.kwargs)}
        try:
            return json.dumps({**call, "truth": self.truth}, allow_nan=False).encode("ascii")
        except TypeError as error:
            raise ValueError(f"arguments go into the sandbox as JSON: {error}") from None


@dataclass(frozen=True)
class Outcome:
    """Outcome of a call. It contains a computed result only if `kind == "value"`."""

    kind: Kind
    value: Any = None
    detail: str = ""
    """Description of the error, if possible in the code's own words: one line of limited length, without control
    characters.
    """
    printed: str = ""
    """Output of the call (stdout and stderr); a failed call has it too."""
    seconds: float = 0.0
    lost: bool = False
    """True if the sandbox itself ended before the answer, twice: the code need not be the reason."""

    @property
    def returned(self) -> bool:
        return self.kind == "value"


def parse(text: str) -> tuple[Kind, Any, str]:
    """Return (kind, value, detail) of an answer from the sandbox.

    The format is strict: one object with `value`, or with `error`; no NaN, no duplicate key, no lone surrogates, no
    excessive nesting. Anything else is `malformed`.
    """
    try:
        answer = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_without_duplicates)
        json.dumps(answer, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        return "malformed", None, line(f"the answer cannot be read: {error}")
    if not isinstance(answer, dict) or set(answer) not in ({"value"}, {"error", "memory"}):
        return "malformed", None, "the answer is neither a value nor an error"
    if "value" in answer:
        return "value", answer["value"], ""
    if not isinstance(answer["error"], str) or not isinstance(answer["memory"], bool):
        return "malformed", None, "the answer is neither a value nor an error"
    return "memory" if answer["memory"] else "error", None, line(answer["error"])


def line(text: str) -> str:
    """Return untrusted text as one line of limited length: nothing in it can move a terminal's cursor."""
    shown = "".join(character if character.isprintable() else " " for character in text[: 4 * LONGEST_DETAIL])
    shown = " ".join(shown.split())
    return shown if len(shown) <= LONGEST_DETAIL else shown[: LONGEST_DETAIL - 4] + " ..."


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate key")
    return members

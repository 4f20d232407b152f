"""Return values of a user's function as numbers, or the problem with them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from fgrl.base.errors import UserCodeError
from fgrl.kinds.functions.reporting import report
from fgrl.kinds.functions.signatures import IN_WORDS, Function, Returns
from fgrl.types import Span

Scored = list[float | None]
LARGEST = 1e18
"""Maximum magnitude of a reward: the square of a larger number, which its spread needs, is infinite in float32."""
EXPECTED: dict[Returns, str] = {
    "numbers": "{} numbers, one per completion; None where the function does not apply",
    "tokens": "for each of {} completions, one number per token (len of its completion_ids)",
    "spans": "for each of {} completions, its spans as (start, end, value) or Span",
    "named": "by the name of each number, a list of {}, one per answer",
}
OF_LISTS = (
    f"for a number per token annotate the function with -> {IN_WORDS['tokens']}; for spans with -> {IN_WORDS['spans']}"
)
OF_SPANS = "offsets count characters (code points) of the completion's text"


@dataclass(frozen=True)
class Returned:
    """Checked return values of one function, for N texts. Only the fields of its `kind` are filled."""

    function: Function
    kind: Returns
    numbers: Scored = field(default_factory=list)
    """[N] numbers; None if the function does not apply to the text."""
    tokens: list[Scored | None] = field(default_factory=list)
    """[N][T] numbers; None for a token that gets no number."""
    spans: list[list[Span] | None] = field(default_factory=list)
    """[N] scored spans: the value of each span is its `label`."""
    named: dict[str, Scored] = field(default_factory=dict)
    """[N] numbers by name."""


class Mismatch(Exception):
    """An unexpected result, and the next step."""

    def __init__(self, problem: str, step: str = "") -> None:
        super().__init__(problem)
        self.step = step

    def of(self, function: Function, expected: str) -> UserCodeError:
        """Return the report, which points to the function's `return`."""
        what = f"{function.name} returned {self}"
        return UserCodeError(report(function.file, function.return_line(), what, f"expected {expected}", self.step))


def checked(
    function: Function, kind: Returns, value: Any, texts: Sequence[str], lengths: Sequence[int] | None
) -> Returned:
    """Return the return value for these texts, of `lengths` tokens each. Raises `UserCodeError` if it does not fit
    `kind`.
    """
    count = len(texts)
    try:
        if kind == "numbers":
            return Returned(function, kind, numbers=_numbers(value, count))
        if kind == "named":
            if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
                raise Mismatch(shape(value))
            return Returned(function, kind, named={name: _numbers(own, count) for name, own in value.items()})
        rows = enumerate(_rows(value, count))
        if kind == "tokens":
            return Returned(function, kind, tokens=[_tokens(own, place, lengths or ()) for place, own in rows])
        return Returned(function, kind, spans=[_spans(own, place, texts[place]) for place, own in rows])
    except Mismatch as wrong:
        raise wrong.of(function, f"{IN_WORDS[kind]}: {EXPECTED[kind].format(count)}") from None


def collected(value: Any) -> Any:
    """Return a function's return value, with generators (also inside of it) replaced by their items."""
    rows = list(value) if isinstance(value, Iterator) else value
    return [list(row) if isinstance(row, Iterator) else row for row in rows] if isinstance(rows, list) else rows


def boundaries(function: Function, value: Any, lengths: Sequence[int], unit: str) -> list[list[int]]:
    """Return the places in each text at which a segment starts, [N], from 0, below `lengths`. Raises
    `UserCodeError`.
    """
    result = []
    try:
        for number, own in enumerate(_rows(value, len(lengths))):
            items = _items(own)
            if items is None:
                raise Mismatch(f"{shape(own)} for text {number}")
            places = [_plain(item) for item in items]
            for place in places:
                if isinstance(place, bool) or not isinstance(place, int):
                    step = "return the places at which a mask is True" if isinstance(place, bool) else ""
                    raise Mismatch(f"{shape(place)} among the boundaries for text {number}", step)
                if not 0 <= place <= lengths[number]:
                    problem = f"the boundary {place} for text {number}, which has {lengths[number]} {unit}s"
                    raise Mismatch(problem, f"boundaries are {unit}s of the text, from 0 to its length")
            result.append(places)
    except Mismatch as wrong:
        expected = f"list[list[int]]: for each of {len(lengths)} texts, the {unit}s at which segments start"
        raise wrong.of(function, expected) from None
    return result


def _numbers(value: Any, count: int) -> Scored:
    return [_number(item, f"for completion {place}", OF_LISTS) for place, item in enumerate(_rows(value, count))]


def _tokens(own: Any, place: int, lengths: Sequence[int]) -> Scored | None:
    if own is None:
        return None
    row = _items(own)
    if row is None:
        step = "return a number for each token, or annotate it -> list[float] for one number per completion"
        raise Mismatch(f"{shape(own)} for completion {place}", step)
    if len(row) != lengths[place]:
        problem = f"{len(row)} numbers for completion {place}, which has {lengths[place]} tokens"
        raise Mismatch(problem, "the end-of-sequence token is one of completion_ids and needs a number, too")
    return [_number(item, f"for token {token} of completion {place}") for token, item in enumerate(row)]


def _spans(own: Any, place: int, text: str) -> list[Span] | None:
    items = None if own is None else _items(own)
    if items is None and own is not None:
        raise Mismatch(f"{shape(own)} for completion {place}", "return an empty list where nothing is marked")
    return None if items is None else [_span(item, f"of completion {place}", text) for item in items]


def _span(value: Any, at: str, text: str) -> Span:
    if isinstance(value, Span):
        fields = value.model_dump()
    elif isinstance(value, Mapping):
        fields = {("label" if name == "value" else name): item for name, item in value.items()}
    elif isinstance(value, tuple | list) and len(value) == 3:
        fields = dict(zip(("start", "end", "label"), value, strict=True))
    else:
        raise Mismatch(f"{shape(value)} as a span {at}")
    fields = {name: _plain(item) for name, item in fields.items()}
    of_span = f"as the value of the span {_short(value)} {at}"
    if fields.get("label") is not None:
        fields["label"] = _number(fields["label"], of_span)
    try:
        span = Span.model_validate(fields, strict=True)
    except ValidationError as error:
        what = error.errors()[0]
        why = f"{'.'.join(map(str, what['loc']))} {what['msg'].removeprefix('Value error, ')}".strip()
        step = "leave out a span without a value" if "label" in what["loc"] else OF_SPANS
        raise Mismatch(f"the span {_short(value)} {at}: {why}", step) from None
    number = _number(span.label * span.weight, of_span)
    if span.end > len(text):
        raise Mismatch(f"a span that ends at {span.end} {at}, whose text has {len(text)} characters", OF_SPANS)
    return span.model_copy(update={"label": number, "weight": 1.0})


def _rows(value: Any, count: int) -> list[Any]:
    """Return one item for each text."""
    if value is None:
        raise Mismatch("None", "end the function with `return` and its list")
    rows = _items(value)
    if rows is None:
        raise Mismatch(shape(value), "return a list with a value for each completion")
    if len(rows) != count:
        short = "every completion needs a value: do not filter, and return None for those without one"
        step = short if len(rows) < count else "end after one value per completion"
        raise Mismatch(f"{len(rows)} values for {count} completions", step)
    return rows


def _items(value: Any) -> list[Any] | None:
    """Return the items of a list, of an array or tensor with an axis; None for anything else."""
    try:
        return None if isinstance(value, str | bytes | Mapping | Set) else list(value)
    except TypeError:
        return None


def _plain(value: Any) -> Any:
    """Return a number of NumPy or torch as Python's; anything else as it is."""
    try:
        return value.item()
    except Exception:  # the value may be of any class
        return value


def _number(value: Any, at: str, of_lists: str = "") -> float | None:
    """Return a finite number, or None. Raises `Mismatch`. of_lists: the next step for a list."""
    if value is None:
        return None
    try:
        plain = value.detach() if hasattr(value, "detach") else value
        number = None if isinstance(value, str | bytes) else float(plain)
    except Exception:  # the value may be of any class
        number = None
    if number is None:
        raise Mismatch(f"{shape(value)} {at}", _step(value, of_lists))
    if not abs(number) <= LARGEST:
        step = "return None where there is no value" if math.isnan(number) else f"return a number up to {LARGEST:g}"
        raise Mismatch(f"{number} {at}", step)
    return number


def _step(value: Any, of_lists: str) -> str:
    """Return the next step for a value that is no number."""
    if isinstance(value, str):
        return "convert it: float(text)"
    if inspect.iscoroutine(value):
        return "define the function with `async def` and await the call inside, or call a function that is not async"
    extent = getattr(value, "shape", ())
    return of_lists if isinstance(value, list | tuple) or (isinstance(extent, tuple) and extent) else ""


def shape(value: Any) -> str:
    """Describe a value in words: `a list of 3 str`, `'yes' (str)`, `a Tensor [4, 2]`, `None`."""
    name, extent = type(value).__name__, getattr(value, "shape", None)
    if isinstance(extent, tuple):
        return f"a {name} {list(extent)}"
    if isinstance(value, list | tuple | Set):
        items = ", ".join(dict.fromkeys(type(item).__name__ for item in value))
        return f"a {name} of {len(value)} {items}" if value else f"an empty {name}"
    return "None" if value is None else f"{_short(value)} ({name})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:36]} ..."

"""Results of a user's function as numbers, or their problem."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from fgrl.base.errors import UserCodeError
from fgrl.kinds.functions.reporting import report
from fgrl.kinds.functions.signatures import IN_WORDS, Function, Returns
from fgrl.types import Span

Scored = list[float | None]
LARGEST = 1e18
"""Magnitude of a reward: the square of a larger one, which its spread is made of, is infinite in float32."""


@dataclass(frozen=True)
class Returned:
    """Checked return values of one function, for N texts. What `kind` is not is empty."""

    function: Function
    kind: Returns
    numbers: Scored = field(default_factory=list)
    """[N]; None: the function does not apply to this text."""
    tokens: list[Scored | None] = field(default_factory=list)
    """[N][T]; None for a token that gets no number."""
    spans: list[list[Span] | None] = field(default_factory=list)
    """[N]: the value of each span is its `label`."""
    named: dict[str, Scored] = field(default_factory=dict)
    """[N] by name."""


class Mismatch(Exception):
    """An unexpected result, and the next step."""

    def __init__(self, problem: str, expected: str, step: str = "") -> None:
        super().__init__(problem)
        self.expected, self.step = expected, step


def checked(
    function: Function, kind: Returns, value: Any, texts: Sequence[str], lengths: Sequence[int] | None
) -> Returned:
    """Return the return value for these texts, of `lengths` tokens each. Raises `UserCodeError` when it is not what
    `kind` promises.
    """
    try:
        if kind == "numbers":
            return Returned(function, kind, numbers=_numbers(value, len(texts), function))
        if kind == "tokens":
            return Returned(function, kind, tokens=_tokens(value, len(texts), lengths or ()))
        if kind == "spans":
            return Returned(function, kind, spans=_spans(value, texts))
        return Returned(function, kind, named=_named(value, len(texts), function))
    except Mismatch as wrong:
        raise mismatch(function, wrong) from None


def collected(value: Any) -> Any:
    """Return a function's return value, with the items of generators, also of those inside of it."""
    rows = _drawn(value)
    return [_drawn(row) for row in rows] if isinstance(rows, list) else rows


def _drawn(value: Any) -> Any:
    """Return the items of an iterator as a list; anything else as it is."""
    return list(value) if isinstance(value, Iterator) else value


def mismatch(function: Function, wrong: Mismatch) -> UserCodeError:
    """Return the report about a return value, at the function's `return`."""
    return UserCodeError(
        report(
            function.file, function.return_line(), f"{function.name} returned {wrong}",
            f"expected {wrong.expected}", wrong.step,
        )
    )  # fmt: skip


def boundaries(function: Function, value: Any, lengths: Sequence[int], unit: str) -> list[list[int]]:
    """[N] places in each text at which a segment starts, from 0, below `lengths`. Raises `UserCodeError`."""
    expected = f"list[list[int]]: for each of {len(lengths)} texts, the {unit}s at which segments start"
    try:
        result = []
        for number, (own, length) in enumerate(zip(_rows(value, len(lengths), expected), lengths, strict=True)):
            at = f"for text {number}"
            if not _is_list(own):
                raise Mismatch(f"{shape(own)} {at}", expected)
            for place in own:
                if not _is_int(place):
                    raise Mismatch(f"{shape(place)} among the boundaries {at}", expected)
                if not 0 <= int(place) <= length:
                    raise Mismatch(
                        f"the boundary {int(place)} {at}, which has {length} {unit}s", expected,
                        f"boundaries are {unit}s of the text, from 0 to its length",
                    )  # fmt: skip
            result.append([int(place) for place in own])
        return result
    except Mismatch as wrong:
        raise mismatch(function, wrong) from None


def _numbers(value: Any, count: int, function: Function) -> Scored:
    expected = f"{IN_WORDS['numbers']}: {count} numbers, one per completion; None where the function does not apply"
    result: Scored = []
    for place, item in enumerate(_rows(value, count, expected)):
        if _is_list(item) and not isinstance(item, tuple):
            raise Mismatch(
                f"{shape(item)} for completion {place}", expected,
                f"for a number per token annotate it: def {function.name}(...) -> {IN_WORDS['tokens']}; "
                f"for spans -> {IN_WORDS['spans']}",
            )  # fmt: skip
        result.append(_number(item, f"for completion {place}", expected))
    return result


def _tokens(value: Any, count: int, lengths: Sequence[int]) -> list[Scored | None]:
    expected = (
        f"{IN_WORDS['tokens']}: for each of {count} completions, one number per token (len of its completion_ids)"
    )
    result: list[Scored | None] = []
    for place, own in enumerate(_rows(value, count, expected)):
        if own is None:
            result.append(None)
            continue
        if not _is_list(own):
            raise Mismatch(
                f"{shape(own)} for completion {place}",
                expected,
                "return a number for each token, or annotate it -> list[float] for one number per completion",
            )
        row = _items(own, expected)
        if len(row) != lengths[place]:
            raise Mismatch(
                f"{len(row)} numbers for completion {place}, which has {lengths[place]} tokens", expected,
                "the end-of-sequence token is one of completion_ids and needs a number, too",
            )  # fmt: skip
        result.append([_number(item, f"for token {t} of completion {place}", expected) for t, item in enumerate(row)])
    return result


def _spans(value: Any, texts: Sequence[str]) -> list[list[Span] | None]:
    expected = f"{IN_WORDS['spans']}: for each of {len(texts)} completions, its spans as (start, end, value) or Span"
    return [
        None if own is None else [_span(span, f"of completion {place}", texts[place], expected) for span in _listed(own, place, expected)]
        for place, own in enumerate(_rows(value, len(texts), expected))
    ]  # fmt: skip


def _listed(own: Any, place: int, expected: str) -> Iterable[Any]:
    if not _is_list(own):
        raise Mismatch(f"{shape(own)} for completion {place}", expected, "return an empty list where nothing is marked")
    return _items(own, expected)


def _span(value: Any, at: str, text: str, expected: str) -> Span:
    step = "offsets count characters (code points) of the completion's text"
    if isinstance(value, Span):
        span = value.model_copy(update={"label": value.label * value.weight, "weight": 1.0})
    elif isinstance(value, Mapping):
        span = _from_mapping(value, at, expected)
    elif isinstance(value, tuple | list) and len(value) == 3:
        span = Span.model_construct(**dict(zip(("start", "end", "label"), value, strict=True)))
    else:
        raise Mismatch(f"{shape(value)} as a span {at}", expected)
    # what is constructed in Python may never have been checked
    start, end = span.start, span.end
    if not _is_int(start) or not _is_int(end):
        raise Mismatch(f"the span {_short(value)} {at}, whose start or end is not a whole number", expected, step)
    number = _number(span.label, f"as the value of the span {_short(value)} {at}", expected)
    if number is None:
        raise Mismatch(f"None as the value of the span {_short(value)} {at}", expected, "leave the span out")
    if not 0 <= int(start) <= int(end):
        raise Mismatch(f"the span {_short(value)} {at}, which does not end after its start", expected, step)
    span = span.model_copy(update={"start": int(start), "end": int(end), "label": number})
    if span.end > len(text):
        raise Mismatch(f"a span that ends at {span.end} {at}, whose text has {len(text)} characters", expected, step)
    return span


def _from_mapping(value: Mapping[str, Any], at: str, expected: str) -> Span:
    fields = {("label" if name == "value" else name): item for name, item in value.items()}
    try:
        return Span.model_validate(fields)
    except ValidationError as error:
        what = error.errors()[0]
        raise Mismatch(
            f"a span {at} whose {'.'.join(map(str, what['loc'])) or 'fields'}: {what['msg']}", expected
        ) from None


def _named(value: Any, count: int, function: Function) -> dict[str, Scored]:
    expected = f"{IN_WORDS['named']}: by the name of each number, a list of {count}, one per answer"
    if not isinstance(value, Mapping):
        raise Mismatch(shape(value), expected)
    for name in value:
        if not isinstance(name, str) or not name:
            raise Mismatch(f"{name!r} as the name of a number", expected)
    return {name: _numbers(own, count, function) for name, own in value.items()}


def _rows(value: Any, count: int, expected: str) -> list[Any]:
    """One item for each text."""
    if value is None:
        raise Mismatch("None", expected, "end the function with `return` and its list")
    _not_on_graph(value, expected)
    if not _is_list(value):
        raise Mismatch(shape(value), expected)
    rows = _items(value, expected)
    if len(rows) != count:
        raise Mismatch(
            f"{len(rows)} values for {count} completions", expected,
            "every completion needs a value: do not filter, and return None for those without one"
            if len(rows) < count else "end after one value per completion",
        )  # fmt: skip
    return rows


def _items(value: Any, expected: str) -> list[Any]:
    try:
        return list(value)
    except Exception as error:  # of a sparse tensor, of the user's own class
        raise Mismatch(f"{shape(value)} whose items cannot be read ({type(error).__name__})", expected) from None


def _number(value: Any, at: str, expected: str) -> float | None:
    """Return a finite number, or None. Raises `Mismatch`."""
    if value is None:
        return None
    _not_on_graph(value, expected)
    if isinstance(value, str | bytes | Mapping) or _size(value) != 1:
        raise Mismatch(f"{shape(value)} {at}", expected, _number_step(value))
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except Exception:  # the value may be of any class
        raise Mismatch(f"{shape(value)} {at}", expected, _number_step(value)) from None
    if math.isfinite(number) and abs(number) > LARGEST:
        raise Mismatch(f"{number} {at}, which is beyond {LARGEST:g}", expected, "return smaller numbers")
    if not math.isfinite(number):
        raise Mismatch(
            f"{number} {at}", expected,
            "return None where there is no value" if math.isnan(number) else "return a finite number",
        )  # fmt: skip
    return number


def _number_step(value: Any) -> str:
    if isinstance(value, str):
        return "convert it: float(text)"
    if type(value).__name__ == "coroutine":
        return "define the function with `async def` and await the call inside, or call a function that is not async"
    return ""


def _not_on_graph(value: Any, expected: str) -> None:
    if getattr(value, "requires_grad", False):
        raise Mismatch(f"{shape(value)} that is part of an autograd graph", expected, "return tensor.detach().tolist()")


def _is_list(value: Any) -> bool:
    """Something with items in an order: a list, an array or tensor with an axis, a generator."""
    if isinstance(value, str | bytes | Mapping | set | frozenset) or not isinstance(value, Iterable):
        return False
    axes = getattr(value, "ndim", 1)
    return not isinstance(axes, int) or axes > 0


def _size(value: Any) -> int:
    """1 of a number, also of a tensor or an array without an axis; 0 of anything else."""
    extent = getattr(value, "shape", None)
    if isinstance(extent, tuple):
        return 1 if len(extent) == 0 else 0
    return 0 if isinstance(value, Iterable) else 1


def _is_int(value: Any) -> bool:
    return not isinstance(value, bool) and hasattr(value, "__index__") and _size(value) == 1


def shape(value: Any) -> str:
    """Describe a value in words: `a list of 3 str`, `"yes" (str)`, `a Tensor [4, 2]`, `None`."""
    if value is None:
        return "None"
    name, extent = type(value).__name__, getattr(value, "shape", None)
    if isinstance(extent, tuple):
        return f"a {name} {list(extent)}"
    if isinstance(value, str | int | float):
        return f"{_short(value)} ({name})"
    if isinstance(value, Mapping):
        return f"a {name} with the keys {_short(list(value)[:5])}" if value else f"an empty {name}"
    if isinstance(value, list | tuple | set | frozenset):
        items = ", ".join(dict.fromkeys(type(item).__name__ for item in value))
        return f"a {name} of {len(value)} {items}" if value else f"an empty {name}"
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:  # of the user's own class; an int of more than 4,300 digits
        text = f"({type(value).__name__} whose repr raises {type(error).__name__})"
    return text if len(text) <= 40 else f"{text[:36]} ..."

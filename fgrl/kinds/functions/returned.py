"""Return values of a user's function as numbers, or the problem with them. Each form that an annotation may promise has a pydantic type."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from fgrl.base.errors import UserCodeError
from fgrl.kinds.functions.reporting import report
from fgrl.kinds.functions.signatures import IN_WORDS, Function, Returns
from fgrl.types import Span

LARGEST = 1e18
"""Maximum magnitude of a reward: the square of a larger number, which its spread needs, is infinite in float32."""
EXPECTED = {
    "numbers": "list[float]: {} numbers, one per completion; None where the function does not apply",
    "tokens": "list[list[float]]: for each of {} completions, one number per token (len of its completion_ids)",
    "spans": "list[list[tuple[int, int, float]]]: for each of {} completions, its spans as (start, end, value) or Span",
    "named": "dict[str, list[float]]: by the name of each number, a list of {}, one per answer",
    "boundaries": "list[list[int]]: for each of {} texts, the {unit}s at which segments start",
}
STEPS = {
    "numbers": f"for a number per token annotate the function with -> {IN_WORDS['tokens']}; for spans with -> {IN_WORDS['spans']}",
    "spans": "offsets count characters (code points) of the completion's text",
    "boundaries": "for a mask return the places at which it is True",
}
MISSING, TOO_LARGE = "return None where there is no value", f"return a number up to {LARGEST:g}"
UNITS = {
    "numbers": ("completion",),
    "tokens": ("completion", "token"),
    "spans": ("completion", "span", "field"),
    "named": ("number", "completion"),
    "boundaries": ("text", "boundary"),
}
"""The levels of each form, as messages call them."""


@dataclass(frozen=True)
class Returned:
    """Checked return values of one function, for N texts."""

    function: Function
    kind: Returns
    values: Any
    """numbers: [N], None where the function does not apply to a text. tokens: [N][T], None for a text or a token without a number.
    spans: [N], None or spans whose value is their `label`. named: [N] by name.
    """


def checked(
    function: Function, kind: Returns, value: Any, texts: Sequence[str], lengths: Sequence[int] | None
) -> Returned:
    """Return the return value for these texts, of `lengths` tokens each. Raises `UserCodeError` if it does not fit
    `kind`.
    """
    extents = {"tokens": lengths or (), "spans": [len(text) for text in texts]}.get(kind, ())
    return Returned(function, kind, _read(function, kind, value, len(texts), extents))


def boundaries(function: Function, value: Any, lengths: Sequence[int], unit: str) -> list[list[int]]:
    """Return the places in each text at which a segment starts, [N], from 0 to `lengths`. Raises `UserCodeError`."""
    read: list[list[int]] = _read(function, "boundaries", value, len(lengths), lengths, unit)
    return read


def collected(value: Any) -> Any:
    """Return a function's return value, with generators (also inside of it) replaced by their items."""
    rows = list(value) if isinstance(value, Iterator) else value
    return [list(row) if isinstance(row, Iterator) else row for row in rows] if isinstance(rows, list) else rows


def _read(function: Function, form: str, value: Any, count: int, extents: Sequence[int], unit: str = "") -> Any:
    """Return a value of this form, with a part for each of `count` texts; extents: tokens or characters of each text."""

    def wrong(problem: str, step: str = "") -> UserCodeError:
        expected, what = EXPECTED[form].format(count, unit=unit), f"{function.name} returned {problem}"
        return UserCodeError(report(function.file, function.return_line(), what, f"expected {expected}", step))

    try:
        read = _adapter(form).validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        levels = [f"{level} {at}" for level, at in zip(UNITS[form], first["loc"], strict=False)]
        where = " of ".join(reversed(levels)).replace("field label", "the value").replace("field ", "the ")
        own = first.get("ctx", {}).get("error")
        said = "" if isinstance(own, NoValue) else f": {first['msg'].removeprefix('Value error, ')}"
        step = (isinstance(own, NoValue) and str(own)) or STEPS.get(form, "")
        raise wrong(f"{shape(_plain(first['input']))}{' for ' * bool(where)}{where}{said}", step) from None
    for rows in read.values() if form == "named" else [read]:
        if len(rows) != count:
            step = "every completion needs one value: do not filter, and return None for those without one"
            raise wrong(f"{len(rows)} values for {count} completions", step)
    for place, (row, extent) in enumerate(zip(read, extents, strict=False)):
        if form == "tokens" and row is not None and len(row) != extent:
            step = "the end-of-sequence token is one of completion_ids and needs a number, too"
            raise wrong(f"{len(row)} numbers for completion {place}, which has {extent} tokens", step)
        ends = [span.end for span in row or ()] if form == "spans" else row if form == "boundaries" else ()
        if outside := [end for end in ends if not 0 <= end <= extent]:
            what = f"the boundary {outside[0]} for text" if unit else f"a span that ends at {outside[0]} of completion"
            step = f"boundaries are {unit}s of the text, from 0 to its length" if unit else STEPS["spans"]
            raise wrong(f"{what} {place}, which has {extent} {unit or 'character'}s", step)
    return read


# -- types -----------------------------------------------------------------------------------------------------------------


class NoValue(ValueError):
    """A value that is refused. The text is the next step; it may be empty."""


def _items(value: Any) -> list[Any]:
    """Return the items of a list, or of an array or tensor with an axis."""
    try:
        if not isinstance(value, str | bytes | Mapping | Set):
            return list(value)
    except TypeError:
        pass
    raise NoValue("end the function with `return` and its list" if value is None else "return a list in its place")


def _number(value: Any) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, str | bytes):
        raise NoValue("convert it: float(text)")
    try:
        number = None if value is None else float(value.detach() if hasattr(value, "detach") else value)
    except Exception:  # the value may be of any class
        raise NoValue from None
    if number is not None and not abs(number) <= LARGEST:
        raise NoValue(MISSING if math.isnan(number) else TOO_LARGE)
    return number


def _plain(value: Any) -> Any:
    """Return a number of NumPy or torch as Python's; anything else as it is."""
    try:
        return value.item()
    except Exception:  # the value may be of any class
        return value


class _Scored(Span):
    label: Annotated[float, BeforeValidator(_number)] = 1.0


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a span, of a mapping, or of (start, end, value)."""
    if isinstance(value, tuple | list) and len(value) == 3:
        value = dict(zip(("start", "end", "label"), value, strict=True))
    if not isinstance(value, Span | Mapping):
        raise NoValue
    return {("label" if name == "value" else name): _plain(item) for name, item in dict(value).items()}


def _weighted(span: Span) -> Span:
    return Span(**dict(span) | {"label": _number(span.label * span.weight), "weight": 1.0})


Row = Annotated[list[Annotated[float | None, BeforeValidator(_number)]], BeforeValidator(_items)]
Marked = Annotated[_Scored, BeforeValidator(_fields), AfterValidator(_weighted)]
Places = Annotated[list[Annotated[int, BeforeValidator(_plain)]], BeforeValidator(_items)]
TYPES: dict[str, Any] = {
    "numbers": Row,
    "tokens": Annotated[list[Row | None], BeforeValidator(_items)],
    "spans": Annotated[list[Annotated[list[Marked], BeforeValidator(_items)] | None], BeforeValidator(_items)],
    "named": dict[Annotated[str, Field(min_length=1)], Row],
    "boundaries": Annotated[list[Places], BeforeValidator(_items)],
}


@cache
def _adapter(form: str) -> TypeAdapter[Any]:
    return TypeAdapter(TYPES[form])


# -- words -----------------------------------------------------------------------------------------------------------------


def shape(value: Any) -> str:
    """Describe a value in words: `a list of 3 str`, `'yes' (str)`, `a Tensor [4, 2]`, `None`."""
    name, extent = type(value).__name__, getattr(value, "shape", None)
    if isinstance(extent, tuple):
        return f"a {name} {list(extent)}"
    if isinstance(value, list | tuple | Set):
        items = ", ".join(dict.fromkeys(type(item).__name__ for item in value))
        return f"a {name} of {len(value)} {items}" if value else f"an empty {name}"
    text = repr(value)
    return "None" if value is None else f"{text if len(text) <= 40 else f'{text[:36]} ...'} ({name})"

"""The harness: what it records of a program's calls, and that only Python's own data crosses."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import fractions
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgrl.feedback.rules.programs import harness

leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.complex_numbers(allow_nan=False)
    | st.decimals(allow_nan=False) | st.fractions() | st.dates() | st.datetimes() | st.timedeltas()
)  # fmt: skip
hashable = st.recursive(leaves, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5)
data = st.recursive(
    hashable,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(hashable, inner, max_size=4) | st.sets(hashable, max_size=3)
    ),
    max_leaves=12,
)


@given(data)
def test_data_come_back_as_they_were(value: Any) -> None:
    back = harness.decode(json.loads(json.dumps(harness.encode(value))))
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value) or isinstance(value, set | frozenset | dict | list | tuple)


@pytest.mark.parametrize(
    "value",
    [
        10**5000, -(2**1000), "\ud800", math.inf, -math.inf, collections.deque([1], 3), collections.Counter("aab"),
        collections.OrderedDict(a=1), collections.defaultdict(list, a=[1]), range(1, 9, 2), bytearray(b"x"), {1: 2}.keys(),
        array.array("i", [1, 2]), fractions.Fraction(1, 3), decimal.Decimal("0.10"), datetime.timedelta(1),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_less_usual_data(value: Any) -> None:
    encoded = harness.encode(value)
    assert json.dumps(encoded).isascii()
    back = harness.decode(json.loads(json.dumps(encoded)))
    assert back == value
    assert type(back) is type(value)


def test_nan_stays_nan() -> None:
    assert math.isnan(harness.decode(harness.encode(math.nan)))


class Always(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__

    def __int__(self) -> int:
        return 7

    def __str__(self) -> str:
        return "7"


class Text(str):
    def __str__(self) -> str:
        return "other"


def test_an_instance_of_a_subclass_becomes_the_data_that_it_is() -> None:
    assert harness.encode([Always(1), Text("a")]) == [1, "a"]
    assert type(harness.decode(harness.encode(Always(1)))) is int


@pytest.mark.parametrize("value", [object(), len, lambda: 1, [object()], {"a": object()}, iter([]), harness, int])
def test_anything_else_is_no_data(value: Any) -> None:
    with pytest.raises(harness.NotPlain):
        harness.encode(value)


def test_nesting_without_an_end_is_no_data() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(RecursionError):
        harness.encode(loop)


def recorded(**space: Any) -> harness.Recorded:
    return harness.Recorded(space)


def replayed(record: harness.Recorded) -> harness.Replayed:
    data = record.as_data(10_000)
    assert data is not None, record.why_not
    return harness.Replayed(json.loads(json.dumps(data)))


def test_calls_are_replayed_with_their_effects() -> None:
    def sort(items: list[int], *, reverse: bool = False) -> None:
        items.sort(reverse=reverse)

    def upto(n: int) -> Any:
        return (i for i in range(n))

    def fails(x: int) -> int:
        raise KeyError("no", x)

    def use(candidate: Any) -> list[Any]:
        items = [2, 3, 1]
        seen = [
            candidate.get("sort")(items, reverse=True),
            items,
            list(candidate.get("upto")(3)),
            candidate.get("limit"),
        ]
        with pytest.raises(KeyError) as error:
            candidate.get("fails")(1)
        return [*seen, error.value.args, candidate.get("maths").pi]

    first = recorded(sort=sort, upto=upto, fails=fails, limit=(1, 2), maths=math)
    expected = use(first)
    assert expected == [None, [3, 2, 1], [0, 1, 2], (1, 2), ("no", 1), math.pi]
    assert use(replayed(first)) == expected


def test_a_replay_notices_other_calls() -> None:
    first = recorded(f=lambda x: x)
    first.get("f")(1)
    with pytest.raises(harness.Diverged):
        replayed(first).get("f")(2)
    again = replayed(first).get("f")
    again(1)
    with pytest.raises(harness.Diverged):
        again(1)


def test_a_forged_exception_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    first = recorded(f=lambda x: x)
    first.get("f")(1)
    first.calls[0]["raises"] = ["exec", harness.encode(["print('the program ran')"])]
    with pytest.raises(harness.Diverged, match="exec is no exception"):
        replayed(first).get("f")(1)
    assert capsys.readouterr().out == ""


def test_what_cannot_be_replayed_is_named() -> None:
    own = recorded(f=lambda x: x)
    own.get("f")(print)
    assert own.as_data(1000) is None
    assert own.why_not == "f is called with builtin_function_or_method"
    large = recorded(f=lambda x: "x" * 1000)
    large.get("f")(1)
    assert large.as_data(1000) is None
    assert "too much data" in large.why_not
    assert recorded(f=int).get("f") is int


def test_names_that_the_tests_define_themselves_are_not_the_programs() -> None:
    tests = "import math\ndef check(candidate):\n    x = poly(1)\n    assert all(x for x in helper(y)) and math.pi\n"
    assert harness.used_names([tests]) == {"poly", "all", "helper", "y"}

"""What comes back from either sandbox, and how strictly it is read."""

from __future__ import annotations

import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandbox_places import sandbox

from fgrl.feedback.sandbox import Call, SandboxSpec
from fgrl.feedback.sandbox.calls import line, parse

WALLS = ["bubblewrap", "plain"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("wall", WALLS)
def test_values_arguments_and_what_is_printed(wall) -> None:
    place = sandbox(wall)
    source = "def f(a, b, *, c=1):\n  print('seen', a)\n  return {'got': [a, b, c], 'text': 'é🎉'}"
    found = place.run(Call(source, "f", ["x", None], {"c": 2.5}))
    assert found.value == {"got": ["x", None, 2.5], "text": "é🎉"}
    assert found.printed == "seen x\n"
    assert place.run(Call("x = 1")).returned
    assert place.run(Call("def f(): return 1 / 0", "f")).detail == "line 1: ZeroDivisionError: division by zero"
    assert place.run(Call("def f(x): return x", "f", ["\ud800 alone"], truth=True)).value is True
    assert [place.run(Call("def f(n): return n", "f", [n])).value for n in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("wall", WALLS)
def test_truth_is_what_python_takes_for_true(wall) -> None:
    source = "import re\ndef f(text): return re.search('b', text)"
    place = sandbox(wall)
    assert place.run(Call(source, "f", ["abc"], truth=True)).value is True
    assert place.run(Call(source, "f", ["xyz"], truth=True)).value is False
    assert place.run(Call(source, "f", ["abc"])).kind == "error"


@pytest.mark.parametrize("wall", WALLS)
def test_a_process_that_died_is_replaced(wall) -> None:
    place = sandbox(wall, SandboxSpec(seconds=12.5))
    call = Call("def one(): return 1", "one")
    assert place.run(call).value == 1
    for _ in range(2):
        place._worker._process.kill()
        place._worker._process.wait()
        assert place.run(call).value == 1


@pytest.mark.parametrize("wall", WALLS)
def test_threads_take_turns(wall) -> None:
    place = sandbox(wall)
    found: dict[int, object] = {}

    def ask(number: int) -> None:
        found[number] = place.run(Call("def f(n): return n", "f", [number])).value

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == {number: number for number in range(8)}


@given(json_values)
def test_every_value_is_read_back(value) -> None:
    assert parse(json.dumps({"value": value})) == ("value", value, "")


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")) | json_values.map(json.dumps))
def test_nothing_else_is_a_value(text) -> None:
    kind, value, detail = parse(text)
    told = json.loads(text) if kind == "value" else None
    assert kind == "malformed" or set(told) == {"value"}
    assert detail.isprintable()
    assert kind == "value" or value is None


@pytest.mark.parametrize(
    "text",
    ["", "1", "[]", "{}", '{"value": 1, "value": 2}', '{"value": NaN}', '{"value": -Infinity}', '{"value": "\\ud800"}',
     '{"error": "x"}', '{"error": 1, "memory": false}', '{"error": "x", "memory": 1}', '{"value": 1} ""', "[" * 100_000,
     '{"value": {"a": 1, "a": 2}}', '{"value": ' + "9" * 5000 + "}"],
)  # fmt: skip
def test_malformed_answers(text) -> None:
    assert parse(text)[0] == "malformed"


@given(st.text(max_size=6000))
def test_a_strangers_line_is_printable_and_bounded(text) -> None:
    assert line(text).isprintable()
    assert len(line(text)) <= 1000


def test_arguments_are_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Call("def f(x): return x", "f", [object()]).encoded()
    with pytest.raises(ValueError, match="JSON"):
        Call("def f(x): return x", "f", [float("nan")]).encoded()

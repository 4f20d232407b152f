"""The first JSON object of a text, found as soon as it is complete and no earlier."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgrl.feedback.llm.json_object import first_object

ROUGH = st.text(alphabet='{}[]"\\:,ab \n\u2713\U0001f389', max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | ROUGH,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ROUGH, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(ROUGH, VALUES, max_size=3), ROUGH.filter(lambda text: "{" not in text), ROUGH, st.booleans())
def test_an_object_ends_at_its_own_brace_whatever_its_strings_hold(content, before, after, ascii_only) -> None:
    written = json.dumps(content, ensure_ascii=ascii_only)
    start, end = len(before), len(before) + len(written)
    assert first_object(before + written + after) == (start, end)
    assert all(first_object((before + written)[:cut]) is None for cut in range(end))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The set {x} holds {y: 1}.", None),
        ('def f(): {\n  return {"a": 1}\n', '{"a": 1}'),
        ('{"a", {"b": 2}', None),
        ('{"a", {"b": 2}}', '{"b": 2}'),
        ('Sure:\n```json\n{"a": [{"b": "}"}]}\n```', '{"a": [{"b": "}"}]}'),
        ('{"a": "he said \\"{\\" and left"} and {"b": 2}', '{"a": "he said \\"{\\" and left"}'),
        ('{"a": "two\nlines"}', '{"a": "two\nlines"}'),
        ('{"a": 1,}', None),
        ('{"open": "{"', None),
        ('[{"a": 1}]', '{"a": 1}'),
        ("", None),
    ],
)
def test_what_is_not_json_is_passed_over(text, wanted) -> None:
    place = first_object(text)
    assert (None if place is None else text[slice(*place)]) == wanted


def test_deep_nesting_is_no_error() -> None:
    assert first_object('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}") is None

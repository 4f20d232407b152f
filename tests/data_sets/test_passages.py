"""Passages as one text."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl.data.questions.context import Passage, cut, render

WORDS = st.lists(st.text("ab([1]) …", min_size=1).filter(str.strip), min_size=1, max_size=6)


@settings(deadline=None)
@given(st.lists(st.builds(Passage, WORDS.map("\n ".join), st.just("") | st.just("u")), max_size=5),
       st.none() | st.integers(1, 8), st.booleans())  # fmt: skip
def test_passages_are_a_line_each_in_order_with_their_first_words(passages, words, urls):
    lines = render(passages, words, urls).split("\n") if passages else []
    assert len(lines) == len(passages)
    for number, (line, passage) in enumerate(zip(lines, passages, strict=True), start=1):
        start = f"[{number}] " + ("(u) " if urls and passage.url else "")
        assert line.startswith(start)
        whole = passage.text.split()
        shown = line[len(start) :]
        if words is None or len(whole) <= words:
            assert shown.split() == whole
        else:
            assert shown.endswith("…")
            assert shown[:-1].split() == whole[:words]


@settings(deadline=None)
@given(st.text(), st.integers(1, 20))
def test_a_text_that_is_short_enough_is_not_touched(text, words):
    assert cut(text, None) == text
    if len(text.split()) <= words:
        assert cut(text, words) == text

"""Which examples are shown with which question."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl.base.errors import DataError
from fgrl.data.questions.shots import Examples, Shot, Shots, draw, same


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["A?", "a? ", "B?", "C?", "D?", "E?"]), min_size=1), st.integers(1, 4), st.integers(0, 3)
)
def test_examples_differ_and_are_never_the_question(questions, count, seed):
    shots = Shots(count=count, seed=seed)
    drawn = draw(shots, len(questions), lambda numbers: (Shot(questions[n], questions[n]) for n in numbers))
    examples = Examples(shots, drawn, "here")
    kinds = {same(question) for question in questions}
    for question in (*questions, "Z?"):
        if len(kinds - {same(question)}) < count:
            with pytest.raises(DataError, match=r"`shots.count`"):
                examples.text(question)
        else:
            texts = [same(text) for text in examples.text(question).split("\n\n")]
            assert len(set(texts)) == len(texts) == count
            assert same(question) not in texts

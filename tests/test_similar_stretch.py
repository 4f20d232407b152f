"""The most similar stretch of a text, against a search through all stretches."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz import fuzz

from fgrl.feedback.similar_stretch import most_similar

letters = st.text("abc é山", max_size=14)


@settings(max_examples=600, deadline=None)
@given(quote=letters.filter(bool), text=letters, least=st.sampled_from([0.1, 0.3, 0.5, 0.75, 0.9, 1.0]))
def test_it_is_the_best_of_all_stretches(quote: str, text: str, least: float) -> None:
    stretches = [(begin, end) for begin in range(len(text)) for end in range(begin + 1, len(text) + 1)]
    best = max((fuzz.ratio(quote, text[begin:end]) / 100 for begin, end in stretches), default=0.0)
    found = most_similar(quote, text, least)
    if best < least - 1e-6:
        assert found is None
    elif best > least + 1e-6:
        assert found is not None
        assert fuzz.ratio(quote, text[slice(*found)]) / 100 == pytest.approx(best)


def test_a_passage_elsewhere_with_the_length_of_the_quote_does_not_hide_a_longer_one() -> None:
    quote = "the green sea of the far north"
    longer = "the green and quiet sea of the very far north"
    text = f"the cream tea of the car booth. {longer}."
    assert text[slice(*most_similar(quote, text, 0.5))] == longer  # type: ignore[misc]


def test_nothing_is_found_in_nothing() -> None:
    assert most_similar("abc", "", 0.5) is None
    assert most_similar("abc", "xyz", 0.5) is None


def test_half_a_character_is_one_like_others() -> None:
    assert most_similar("ab\ud800d", "x ab\ud800c", 0.7) == (2, 5)

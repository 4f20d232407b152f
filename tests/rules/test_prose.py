"""Sentences as nltk's trained tokenizer punkt counts them; its counts were recorded with its English model."""

from __future__ import annotations

import pytest

from fgrl.feedback.rules.sentences import final_periods, prose


@pytest.mark.parametrize(
    ("text", "punkt"),
    [
        ("1. First\n2. Second", 3),
        ("Steps:\n1. Wash it.\n2. Dry it.", 4),
        ("- 3. item one\n- 4. Item two", 2),
        ("He was born in 1990. She was not.", 2),
        ("It costs 5. so buy it.", 1),
        ("In 2. half of it. Done.", 2),
        ("*He left.* Then she came.", 2),
        ("He left._ Then she came.", 1),
        ("Dr. Smith met Mr. Jones.", 1),
        ("so... then he left", 1),
        ("What?! No.", 2),
    ],
)
def test_sentences_are_counted_as_punkt_counts_them(text: str, punkt: int) -> None:
    assert len(prose(text)) == punkt


def test_the_number_of_a_list_item_ends_with_a_final_period() -> None:
    assert final_periods("1. Wash it.\n2. Dry it.") == {1, 10, 13, 21}

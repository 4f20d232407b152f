"""Sentences of MulDimIF become rules when all of them is understood, and go to the judge otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl.data.rubrics.muldimif import check_of
from fgrl.kinds import Verifier
from fgrl.registry import build

WORDS, SENTENCES = ["Length", "Words"], ["Length", "Sentences"]
KEYWORDS, MARKS, ENGLISH = ["Content", "Keywords"], ["Content", "Punctuation"], ["Language", "English"]


def words(low: int | None, high: int | None) -> dict[str, Any]:
    name = "length_constraints:number_words"
    if low is None:
        return {"name": name, "relation": "less than", "num_words": high + 1}
    if high is None:
        return {"name": name, "relation": "at least", "num_words": low}
    return {"name": "count:word_count_range", "min_words": low, "max_words": high}


@pytest.mark.parametrize(
    ("told", "low", "high"),
    [
        ("At least 500 words", 500, None),
        ("At least: 5 words", 5, None),
        ("The answer must contain at least 1,000 words.", 1000, None),
        ("a minimum of twenty words", 20, None),
        ("The response must be no fewer than 30 words", 30, None),
        ("more than 10 words", 11, None),
        ("the response must be at least 150 words long, providing a comprehensive explanation", 150, None),
        ("The response must contain no more than 150 words", None, 150),
        ("The answer must be at most 10 words long", None, 10),
        ("does not exceed 20 words", None, 20),
        ("The answer should not exceed 20 words in length", None, 20),
        ("ensure the response is limited to 15 words", None, 15),
        ("less than 10 words", None, 9),
        ("exactly 12 words", 12, 12),
        ("Range: 50-100 words", 50, 100),
        ("The answer must be between five and ten words.", 5, 10),
        ('"""The response must contain between 5 to 7 words."""', 5, 7),
    ],
)
def test_how_many_words(told: str, low: int | None, high: int | None) -> None:
    assert check_of([*WORDS, told]) == words(low, high)
    assert check_of(["Words", "At most", told]) == words(low, high)


def test_how_many_sentences() -> None:
    name = "length_constraints:number_sentences"
    least, most = ({"name": name, "relation": relation, "num_sentences": 5} for relation in ("at least", "less than"))
    assert check_of([*SENTENCES, "The answer must contain at least five sentences"]) == least
    assert check_of([*SENTENCES, "while not exceeding 4 sentences to maintain clarity and conciseness"]) == most
    both = check_of([*SENTENCES, "between 3 and 5 sentences"])
    rule = build(Verifier, dict(both or {}))
    assert [rule.check("One. " * n) for n in (2, 3, 5, 6)] == [False, True, True, False]


@pytest.mark.parametrize(
    ("told", "keywords"),
    [
        ("Must include the keyword 'machine learning'", ["machine learning"]),
        ('The answer must include the keyword "Mulan".', ["Mulan"]),
        ('The answer must include the keyword "Mulan"', ["Mulan"]),
        ('The answer must include the keywords "Mulan" and "Shang"', ["Mulan", "Shang"]),
        ('"Mulan" must be included', None),
        ("\"Must include the keyword 'machine learning'.\"", ["machine learning"]),
        ("The response must include the terms 'tactics' and 'strategy'", ["tactics", "strategy"]),
        ("The script must include the keywords 'A', 'B', and 'C'", None),
        ("must include the keywords 'A', 'B', and 'C'", ["A", "B", "C"]),
        ("the keyword 'organic' must be included to emphasize the trend", ["organic"]),
        ("Must include the keyword 'to' as part of the infinitive.", None),
        ("Must include the keyword 'x' at least 3 times", None),
        ("Must not include the keyword 'x'", None),
        ("Must include the keyword", None),
    ],
)
def test_keywords(told: str, keywords: list[str] | None) -> None:
    assert check_of([*KEYWORDS, told]) == (keywords and {"name": "keywords:existence", "keywords": keywords})


@pytest.mark.parametrize(
    ("topic", "told", "check"),
    [
        (MARKS, "Ending punctuation must be a period", {"name": "end:last_characters", "characters": "."}),
        (MARKS, "it should end with a question mark.", {"name": "end:last_characters", "characters": "?"}),
        (ENGLISH, "All uppercase", {"name": "change_case:english_capital", "detect_language": False}),
        (ENGLISH, "The answer must be in all lowercase letters", {"name": "change_case:english_lowercase", "detect_language": False}),
        (ENGLISH, "The answer must use capitalized letters for each word.", {"name": "case:capitalized_words"}),
        (MARKS, "the corrected text should end with a period", None),
        (MARKS, "Ending punctuation must be a period or a question mark", None),
        (MARKS, "Each sentence must end with a period", None),
        (ENGLISH, "The table headers must be in all uppercase letters", None),
        (ENGLISH, "The examples must be capitalized.", None),
        (["Format", "Table"], "at most 3 rows", None),
        (["Language", "Chinese"], "The answer must be in Simplified Chinese", None),
        (WORDS, "each phrase should contain no more than 5 words", None),
        (WORDS, "at most 3 words long, and it must include the keyword 'illusion'", None),
        (WORDS, "between 9 and 5 words", None),
        (WORDS, "The answer must be short", None),
    ],
)  # fmt: skip
def test_the_rest(topic: list[str], told: str, check: dict[str, Any] | None) -> None:
    assert check_of([*topic, told]) == check
    if check:
        build(Verifier, dict(check))


def test_no_length_where_words_have_no_spaces_between_them() -> None:
    told = [*WORDS, "Range: 50-100 words"]
    assert check_of(told, "Why is the sky blue?")
    assert check_of(told, "為什麼台灣的中文與大陆的不同？") is None
    assert check_of([*KEYWORDS, "Must include the keyword '中文'"], "為什麼？") == {
        "name": "keywords:existence",
        "keywords": ["中文"],
    }


PIECES = st.sampled_from(
    ["at least", "at most", "between", "exactly", "no more than", "less than", "and", "to", "-", "0", "1", "5", "12", "1,000", "9" * 5000,
     "five", "words", "sentences", "the answer", "must", "contain", "include", "the keyword", "'a'", '"b"', "''", "end with", "a period",
     "all", "uppercase", "to be clear", "each", ".", ",", "範囲"]
)  # fmt: skip


@given(pieces=st.lists(PIECES, max_size=9), topic=st.sampled_from([WORDS, SENTENCES, KEYWORDS, MARKS, ENGLISH]))
@settings(max_examples=400, deadline=None)
def test_whatever_is_told_is_a_rule_or_left_to_the_judge(pieces: list[str], topic: list[str]) -> None:
    check = check_of([*topic, " ".join(pieces)])
    if check is not None:
        build(Verifier, dict(check))


@given(told=st.text(max_size=80), topic=st.sampled_from([WORDS, SENTENCES, KEYWORDS, MARKS, ENGLISH]))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_without_raising(told: str, topic: list[str]) -> None:
    check_of([*topic, told])


@pytest.mark.parametrize("told", ["at least 0 words", "at most 0 words", "exactly 0 words", "less than 1 words"])
def test_bounds_that_ask_nothing_or_too_much(told: str) -> None:
    assert check_of([*WORDS, told]) is None

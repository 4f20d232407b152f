"""The rules decide as the official checkers of IFEval and IFBench do (in if-verifiable), wherever those run offline."""

from __future__ import annotations

import csv
import random
import re
from typing import Any

import pytest
import rule_oracle
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from if_verifiable.common import get_loose_transformations
from if_verifiable.ifbench.instructions_util import split_into_sentences
from nltk.tokenize import NLTKWordTokenizer
from rule_cases import IFBENCH, IFEVAL, OWN, PIECES, answers, rule_of
from rule_examples import EXAMPLES
from rule_oracle import NEEDS_DATA, official

from fgrl.feedback.rules.rule import loose, variants
from fgrl.feedback.rules.sentences import prose, sentences
from fgrl.feedback.rules.word_tokens import tokens
from fgrl.registry import names

SLOW = {name for name in IFEVAL if name.startswith("language:") or "english" in name}
few = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
many = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))

CRASHES = {
    # where the official checker raises, and what ours says there: docs/how-to/verifiers.md
    "format:quote_unquote": (IndexError, True),
    "custom:csv_city": (csv.Error, False),
    "custom:csv_special_character": (csv.Error, False),
    "custom:csv_quotes": ((csv.Error, IndexError), False),
    "custom:sentence_alphabet": (IndexError, False),
    "detectable_format:json_format": (RecursionError, False),
}


def words_are_words(text: str) -> bool:
    r"""From nltk 3.10 on `\w` there is that of the package regex: joiners and combining marks are parts of words."""
    return len(re.findall(r"\w+", text)) == len(rule_oracle.nltk.tokenize.RegexpTokenizer(r"\w+").tokenize(text))


def skip_reason(name: str) -> Any:
    return pytest.mark.skip(reason=NEEDS_DATA[name]) if name in NEEDS_DATA else ()


def edited(texts: list[str]) -> st.SearchStrategy[str]:
    """Answers that are nearly one of the texts: pieces put in, parts cut out."""

    @st.composite
    def strategy(draw: st.DrawFn) -> str:
        text = draw(st.sampled_from(texts))
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(0, len(text)))
            cut = draw(st.sampled_from([0, 0, 1, 3]))
            text = text[:at] + draw(st.sampled_from(["", *PIECES])) + text[at + cut :]
        return text

    return strategy()


def agrees(name: str, kwargs: dict[str, Any], text: str) -> None:
    if name in ("count:word_count_range", "length_constraints:number_words") and not words_are_words(text):
        return
    rule = rule_of(name, kwargs)
    try:
        expected = official(name, kwargs, text)
    except CRASHES.get(name, ((), None))[0]:
        expected = CRASHES[name][1]
    assert (name, rule.check(text)) == (name, expected)


def test_every_id_is_here_or_listed() -> None:
    assert len(IFEVAL) == 25
    assert set(IFEVAL) == set(rule_oracle.IFEVAL)
    assert set(IFBENCH) | {"words:start_verb"} == set(rule_oracle.IFBENCH)
    assert set(IFEVAL) | set(IFBENCH) | {"all_of"} <= set(names("verifier"))
    assert "words:start_verb" not in names("verifier")


FAST = {name: kwargs for name, kwargs in {**IFEVAL, **IFBENCH}.items() if name not in NEEDS_DATA and name not in SLOW}


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 11), answers)
def test_generated_answers(choice: int, text: str) -> None:
    """Every id on every answer."""
    for name, kwargs in FAST.items():
        agrees(name, kwargs[choice % len(kwargs)], text)


@few
@given(st.integers(0, 1), answers)
def test_generated_answers_in_some_language(choice: int, text: str) -> None:
    for name in SLOW:
        agrees(name, IFEVAL[name][choice % len(IFEVAL[name])], text)


@pytest.mark.parametrize("name", NEEDS_DATA)
def test_not_against_the_official_checker(name: str) -> None:
    """Their answers are in test_rule_examples.py; four of them are compared below, given the sentences."""
    pytest.skip(NEEDS_DATA[name])


@pytest.mark.parametrize(
    ("name", "kwargs", "texts"),
    [
        pytest.param(name, kwargs, good + bad, marks=skip_reason(name), id=f"{name}-{index}")
        for index, (name, kwargs, good, bad) in enumerate(EXAMPLES)
        if name not in OWN
    ],
)
def test_examples_and_what_is_near_them(name: str, kwargs: dict[str, Any], texts: list[str]) -> None:
    short = [text for text in texts if len(text) < 2000]

    @settings(few, max_examples=15 if name in SLOW else 50)
    @given(edited(short))
    def check(text: str) -> None:
        agrees(name, kwargs, text)

    for text in texts:
        agrees(name, kwargs, text)
    check()


@pytest.mark.parametrize(
    "name",
    [
        "change_case:capital_word_frequency",
        "words:words_position",
        "words:keywords_specific_position",
        "format:title_case",
    ],
)
def test_rules_on_nltks_words_given_the_sentences(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """nltk's word tokenizer needs data only to split sentences: with ours in their place the official checker runs. Left out
    are answers that the two word tokenizers cut differently."""
    cut = NLTKWordTokenizer()

    def word_tokenize(text: str) -> list[str]:
        return [word for start, end in prose(text) for word in cut.tokenize(text[start:end])]

    monkeypatch.setattr(rule_oracle.nltk, "word_tokenize", word_tokenize)
    kwargs = {**IFEVAL, **IFBENCH}[name]
    examples = [text for one, _, good, bad in EXAMPLES if one == name for text in good + bad]

    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(kwargs), st.one_of(answers, edited(examples)))
    def check(kwargs: dict[str, Any], text: str) -> None:
        assume(same_words(text))
        assume(all(same_words(sentence.text) for sentence in sentences(text)))
        assert rule_of(name, kwargs).check(text) == official(name, kwargs, text)

    check()


def same_words(text: str) -> bool:
    cut = NLTKWordTokenizer()
    theirs = [word for start, end in prose(text) for word in cut.tokenize(text[start:end])]
    return [quotes_alike(word) for word in theirs] == [quotes_alike(word.text) for word in tokens(text)]


def quotes_alike(word: str) -> str:
    """nltk writes straight quotation marks as `` and ''."""
    return '"' if word in ("``", "''") else word


@pytest.mark.parametrize(
    "text",
    [
        "Hello there, my friend: it's 3.14 (or 1,000)!",
        "DON'T can't cannot he'll she's we've they're I'm you'd",
        'He said "no." Then (quietly) left... A well-known fact -- or not?',
        "'quoted' words, 'tis and gonna; A&B #1 50% $3 a@b.c * [x] {y} <z>",
        "“curly” ‘quotes’ — dashes, e.g. here. The U.S. is big. Mr. Smith agrees.",
        "First: one\n\nSecond: two.\n- a list, 'The Lottery'",
    ],
)
def test_words_are_nltks(text: str) -> None:
    assert same_words(text)


SENTENCE_PIECES = [
    *[
        "Mr.",
        "Mrs. ",
        "Ms.",
        "Dr. ",
        "St.",
        " Inc.",
        " Ltd. ",
        " Jr.",
        " Sr. ",
        " Co. ",
        "J.",
        " K. ",
        "U.S.",
        "U.S.A. ",
        "a.b.",
    ],
    *[
        "e.g.",
        "Ph.D.",
        "Prof",
        "He ",
        "They ",
        " It ",
        "But ",
        "Wherever",
        "x",
        "com",
        ".com",
        ".org",
        ".me",
        "1",
        "3.14",
        "é",
    ],
    *[" ", "  ", "\n", ".", "..", "...", "?", "!", '"', "”", '."', ".”", '!"', '?"', "'", "‽"],
]


def test_sentences_of_pieces_are_ifbenchs() -> None:
    """Every abbreviation beside every other, many times over."""
    draw = random.Random(0)
    for _ in range(8000):
        text = "".join(draw.choice(SENTENCE_PIECES) for _ in range(draw.randint(1, 9)))
        found = sentences(text)
        assert [sentence.text for sentence in found] == split_into_sentences(text)
        for sentence in found:
            pairs = zip(sentence.text, sentence.at, strict=True)
            assert all(text[at].replace("\n", " ") == character for character, at in pairs)


@many
@given(
    st.one_of(
        answers,
        st.lists(st.sampled_from([*PIECES, "It ", "They ", "St.", "Ltd. ", "J. ", ".com", "\r", "\t"]), max_size=9).map(
            "".join
        ),
    )
)
def test_sentences_are_ifbenchs(text: str) -> None:
    assert [sentence.text for sentence in sentences(text)] == split_into_sentences(text)


@many
@given(answers)
def test_loose_readings_are_the_official_eight(text: str) -> None:
    assert sorted(variants(text)) == sorted(get_loose_transformations(text))
    assert variants(text)[0] == text


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(
        [
            (name, one)
            for name, kwargs in IFEVAL.items()
            if name not in NEEDS_DATA and name not in SLOW
            for one in kwargs
        ]
    ),
    answers,
)
def test_the_loose_verdict_is_the_official_one(case: tuple[str, dict[str, Any]], text: str) -> None:
    name, kwargs = case
    assume(all(map(words_are_words, variants(text))))
    expected = any(official(name, kwargs, reading) for reading in get_loose_transformations(text))
    assert loose(rule_of(name, kwargs), text) == expected

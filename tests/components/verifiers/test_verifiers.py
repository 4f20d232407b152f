"""Written rules, against hand-made answers and IFEval's own definitions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fgrl.components.verifiers.all_of import AllOf
from fgrl.components.verifiers.ifeval.length import NumberWords
from fgrl.components.verifiers.ifeval.punctuation import NoComma
from fgrl.feedback.rules.text import count_words
from fgrl.kinds import Verifier
from fgrl.registry import name_of

AT_LEAST_3 = NumberWords(relation="at least", num_words=3)
LESS_THAN_5 = NumberWords(relation="less than", num_words=5)
RULES = [NoComma(), AT_LEAST_3, LESS_THAN_5, AllOf(rules=[NoComma(), AT_LEAST_3])]
answers = st.text(alphabet=st.sampled_from("ab_9,，. \n'-é你🎉"), max_size=40)


def marked(rule: Verifier, text: str) -> list[str] | None:
    spans = rule.violations(text)
    return None if spans is None else [text[span.start : span.end] for span in spans]


@pytest.mark.parametrize("rule", RULES, ids=Verifier.title)
@pytest.mark.parametrize("empty", ["", " ", "\n\t "])
def test_an_empty_answer_breaks_every_rule_nowhere_in_particular(rule, empty):
    assert not rule.check(empty)
    assert rule.violations(empty) is None


@pytest.mark.parametrize("rule", [NoComma(), LESS_THAN_5, AT_LEAST_3], ids=Verifier.title)
@given(answers)
def test_check_and_violations_agree(rule, text):
    """Kept = nothing marked; broken = something marked, or None."""
    spans = rule.violations(text)
    assert rule.check(text) == (spans == [])
    for span in spans or []:
        assert 0 <= span.start < span.end <= len(text)
        assert span.label == -1.0
        assert span.reasons


def test_no_comma():
    assert NoComma().check("One. Two; three")
    assert marked(NoComma(), "One, two,, three,") == [",", ",", ",", ","]
    assert [span.start for span in NoComma().violations("a,b,")] == [1, 3]


@pytest.mark.parametrize("other", ["，", "、", "،", "‚", "﹐"])
def test_only_the_ascii_comma_is_one(other):
    """IFEval searches for "," alone."""
    assert NoComma().check(f"One{other} two")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        ("one", 1),
        ("one two  three\nfour", 4),
        ("don't", 2),
        ("well-known", 2),
        ("snake_case", 1),
        ("3.14", 2),
        ("... !!! ,", 0),
        ("naïve café", 2),
        ("你好 世界", 2),
        ("🎉 party", 1),
    ],
)
def test_words_are_counted_as_ifeval_counts(text, words):
    assert count_words(text) == words


@given(answers)
def test_words_are_nltks_tokens(text):
    r"""IFEval: len(RegexpTokenizer(r"\w+").tokenize(text)), which is findall."""
    assert count_words(text) == len(re.findall(r"\w+", text))


def test_bounds_are_ifevals():
    """ "at least" includes the bound, "less than" excludes it."""
    assert [AT_LEAST_3.check("w " * n) for n in (2, 3, 4)] == [False, True, True]
    assert [LESS_THAN_5.check("w " * n) for n in (1, 4, 5, 6)] == [True, True, False, False]


def test_words_beyond_the_limit_are_marked():
    assert marked(LESS_THAN_5, "a b c d") == []
    assert marked(LESS_THAN_5, "a b, c d e. f") == ["e", "f"]
    assert marked(NumberWords(relation="less than", num_words=1), "a b") == ["a", "b"]


def test_too_short_is_broken_nowhere():
    assert AT_LEAST_3.violations("a b") is None
    assert AT_LEAST_3.violations("a b c") == []


def test_all_of_keeps_all_and_marks_the_union():
    rule = AllOf(rules=[NoComma(), AT_LEAST_3, LESS_THAN_5])
    assert rule.check("a b c")
    assert not rule.check("a, b c")
    assert not rule.check("a b")
    assert marked(rule, "a b c d e, f") == ["e", ",", "f"]
    assert marked(rule, "a, b") == [","]  # too short as well, which has no place
    assert AllOf(rules=[AT_LEAST_3]).violations("a b") is None
    assert marked(AllOf(rules=[AllOf(rules=[NoComma()]), AT_LEAST_3]), "a,") == [","]


def test_verdicts_name_each_rule():
    rule = AllOf(rules=[NoComma(), AllOf(rules=[AT_LEAST_3, LESS_THAN_5])])
    assert rule.verdicts("a, b c d") == {
        "punctuation:no_comma": False,
        "length_constraints:number_words at least 3": True,
        "length_constraints:number_words less than 5": True,
    }
    assert set(rule.verdicts("").values()) == {False}


def test_ids_are_ifevals():
    assert name_of(NoComma()) == ("verifier", "punctuation:no_comma")
    assert name_of(NumberWords) == ("verifier", "length_constraints:number_words")
    assert name_of(AllOf) == ("verifier", "all_of")


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        (NumberWords, {"relation": "at most", "num_words": 3}),
        (NumberWords, {"relation": "at least", "num_words": 0}),
        (NumberWords, {"relation": "at least", "num_words": 2.5}),
        (NumberWords, {"relation": "at least"}),
        (AllOf, {"rules": []}),
    ],
)
def test_wrong_settings_are_refused(rule, settings):
    with pytest.raises(ValidationError):
        rule(**settings)

"""Properties of the marks: inside the answer, in line with the verdict, and enough to mend it where that can be."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import rule_cases as cases
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from rule_cases import answers, rule_of
from rule_examples import EXAMPLES

from fgrl.feedback.rules.rule import Rule, relevant
from fgrl.kinds import Verifier
from fgrl.registry import build, dump, name_of
from fgrl.types import Span

LANGUAGE = {"language:response_language", "change_case:english_capital", "change_case:english_lowercase"}
RULES = [
    rule_of(name, kwargs)
    for name, several in cases.RULES.items()
    if name not in LANGUAGE
    for kwargs in several
] + [
    build(Verifier, {"name": name, "detect_language": False})
    for name in ("change_case:english_capital", "change_case:english_lowercase")
]  # fmt: skip
usual = settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
several = st.lists(st.sampled_from(RULES), min_size=1, max_size=3).map(
    lambda rules: build(Verifier, {"name": "all_of", "rules": [dump(rule) for rule in rules]})
)
texts = st.one_of(
    answers, st.sampled_from([text for _, _, good, bad in EXAMPLES for text in good + bad if len(text) < 3000])
)


@usual
@given(st.one_of(st.sampled_from(RULES), several), texts)
def test_marks_lie_inside_and_agree_with_the_verdict(rule: Verifier, text: str) -> None:
    broken, shown = rule.violations(text), rule.evidence(text)
    assert rule.check(text) == (broken == [])
    for spans, label in ((broken, -1.0), (shown, 1.0)):
        for span in spans or []:
            assert 0 <= span.start < span.end <= len(text)
            assert span.label == label
            assert span.reasons
    for span in relevant(rule, text):
        assert 0 <= span.start < span.end <= len(text)
        assert span.label == 1.0


def test_a_rule_among_several_that_is_broken_nowhere_in_particular() -> None:
    long = {"name": "length_constraints:number_words", "relation": "at least", "num_words": 20}
    both = build(Verifier, {"name": "all_of", "rules": [long, {"name": "punctuation:no_comma"}]})
    assert both.check("hi there") is False
    assert both.violations("hi there") is None, "[] would mean that all rules are kept"
    assert [span.start for span in both.violations("hi, there") or []] == [2]


NESTED_NEEDLES = {"keywords:forbidden_words", "count:keywords_multiple"}
"""Rules with several words, one of which may lie in another."""


@usual
@given(st.sampled_from([rule for rule in RULES if name_of(rule)[1] not in NESTED_NEEDLES]), texts)
@example(rule_of("words:vowel"), "a cat is out\nuntil now")
def test_no_character_breaks_a_rule_twice(rule: Verifier, text: str) -> None:
    spans = sorted((span.start, span.end) for span in rule.violations(text) or [])
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@usual
@given(st.sampled_from(RULES), texts)
def test_a_rule_that_never_marks_what_breaks_it_says_so(rule: Verifier, text: str) -> None:
    assert rule.marks_breaks() or not rule.violations(text)


def test_every_rule_that_says_that_it_marks_breaks_does() -> None:
    marked = {name for name, kwargs, _, bad in EXAMPLES for text in bad if rule_of(name, kwargs).violations(text)}
    assert {name for name, kwargs, _, _ in EXAMPLES if rule_of(name, kwargs).marks_breaks()} == marked


@usual
@given(st.sampled_from([rule for rule in RULES if rule.scope() == "positive"]), texts)
def test_what_must_be_there_is_shown_where_it_is(rule: Rule, text: str) -> None:
    if rule.check(text):
        assert rule.evidence(text) or not _asks_for_something(rule)


def _asks_for_something(rule: Rule) -> bool:
    return not any(getattr(rule, name, None) == 0 for name in ("N", "num_bullets"))


@usual
@given(st.sampled_from([rule for rule in RULES if rule.scope() == "negative"]), texts)
def test_what_must_not_be_there_is_marked_where_it_is(rule: Rule, text: str) -> None:
    """A rule that forbids something can always say where, but for a few that a single mark cannot explain."""
    if text.strip() and not rule.check(text) and name_of(rule)[1] not in MAY_BE_NOWHERE:
        assert rule.violations(text)


MAY_BE_NOWHERE = {
    "ratio:stop_words",  # no word at all
    "words:alphabet",  # no word at all
    "words:last_first",  # a sentence without a word
    "format:newline",  # more lines than words
    "format:line_indent",  # an empty line that counts
    "custom:date_format_list",  # nothing between two commas
    "change_case:english_capital",  # no letter at all
    "change_case:english_lowercase",  # no letter at all
    "keywords:frequency",  # "less than 0"
}


def cut(text: str, spans: list[Span] | None) -> str:
    gone = {at for span in spans or [] for at in range(span.start, span.end)}
    return "".join(character for at, character in enumerate(text) if at not in gone)


def mend(name: str, kwargs: dict[str, Any], text: str, rounds: int = 1) -> tuple[Verifier, str]:
    """The answer without what breaks the rule."""
    rule = build(Verifier, {"name": name, **kwargs})
    for _ in range(rounds):
        text = cut(text, rule.violations(text))
    return rule, text


@usual
@given(st.sampled_from([
    ("punctuation:no_comma", {}),
    ("format:no_whitespace", {}),
    ("keywords:letter_frequency", {"letter": "a", "let_frequency": 2, "let_relation": "less than"}),
    ("words:repeats", {"small_n": 1}),
    ("length_constraints:number_words", {"relation": "less than", "num_words": 3}),
    ("ratio:stop_words", {"percentage": 0}),
]), texts)  # fmt: skip
@example(("punctuation:no_comma", {}), ",")
def test_cutting_the_marks_out_mends_the_answer(case: tuple[str, dict[str, Any]], text: str) -> None:
    rule, mended = mend(*case, text)
    assume(mended.strip())
    assume(case[0] != "ratio:stop_words" or any(character.isalnum() for character in mended))
    assert rule.check(mended)


@usual
@given(texts)
def test_forbidden_words_are_gone_after_a_few_cuts(text: str) -> None:
    """Once is not always enough: cutting "cat" out of "ca cat t" may leave another."""
    rule, mended = mend("keywords:forbidden_words", {"forbidden_words": ["cat", "word"]}, text, rounds=20)
    assume(mended.strip())
    assert rule.check(mended)


@usual
@given(texts)
def test_letters_of_the_wrong_case_are_all_marked(text: str) -> None:
    for name, kept in (("change_case:english_capital", str.isupper), ("change_case:english_lowercase", str.islower)):
        rule, mended = mend(name, {"detect_language": False}, text)
        if any(character.isupper() or character.islower() for character in mended):
            assert kept(mended)
            assert rule.check(mended)


@usual
@given(texts)
def test_replacing_the_marked_characters_by_others_mends_them(text: str) -> None:
    rule = build(Verifier, {"name": "punctuation:no_comma"})
    marks = {span.start for span in rule.violations(text) or []}
    mended = "".join(";" if at in marks else character for at, character in enumerate(text))
    assert rule.check(mended) == bool(text.strip())

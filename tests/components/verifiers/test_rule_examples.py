"""Answers that somebody thought about, for every rule: empty, blank, Unicode, quotes, nested JSON, fences."""

from __future__ import annotations

from typing import Any

import pytest
from rule_cases import RULES, rule_of
from rule_examples import EXAMPLES

from fgrl.feedback.rules.rule import loose, relevant, variants
from fgrl.kinds import Verifier
from fgrl.registry import build


def marked(rule: Verifier, text: str) -> list[str] | None:
    spans = rule.violations(text)
    return None if spans is None else [text[span.start : span.end] for span in spans]


def shown(rule: Verifier, text: str) -> list[str] | None:
    spans = rule.evidence(text)
    return None if spans is None else [text[span.start : span.end] for span in spans]


def test_every_id_has_answers_that_keep_it_and_answers_that_break_it() -> None:
    assert {name for name, _, _, _ in EXAMPLES} == set(RULES)
    assert all(len(good) >= 1 and len(bad) >= 2 for _, _, good, bad in EXAMPLES)


CASES = [
    pytest.param(name, kwargs, text, verdict, id=f"{name}-{verdict}-{number}-{index}")
    for number, (name, kwargs, good, bad) in enumerate(EXAMPLES)
    for verdict, texts in ((True, good), (False, bad))
    for index, text in enumerate(texts)
]


@pytest.mark.parametrize(("name", "kwargs", "text", "verdict"), CASES)
def test_the_verdict(name: str, kwargs: dict[str, Any], text: str, verdict: bool) -> None:
    rule = rule_of(name, kwargs)
    assert rule.check(text) is verdict
    assert (rule.violations(text) == []) is verdict


@pytest.mark.parametrize("name", [*RULES])
@pytest.mark.parametrize("blank", ["", " ", "\n\t ", "\u3000\u00a0"])
def test_a_blank_answer_breaks_every_rule_nowhere_in_particular(name: str, blank: str) -> None:
    for kwargs in RULES[name]:
        rule = rule_of(name, kwargs)
        assert rule.check(blank) is False
        assert loose(rule, blank) is False
        assert rule.violations(blank) is None
        assert rule.evidence(blank) is None


def test_titles_say_what_is_set() -> None:
    assert rule_of("keywords:existence", {"keywords": ["cat", "dog"]}).title() == "keywords:existence cat, dog"
    assert rule_of("punctuation:no_comma", {}).title() == "punctuation:no_comma"
    assert build(Verifier, {"name": "change_case:english_capital", "detect_language": False}).title() == (
        "change_case:english_capital (letters only)"
    )
    long = rule_of("combination:repeat_prompt", {"prompt_to_repeat": "word " * 100}).title()
    assert len(long) < 80


@pytest.mark.parametrize(
    ("name", "kwargs", "text", "broken"),
    [
        ("keywords:frequency", {"keyword": "cat", "frequency": 2, "relation": "less than"}, "cat Cat cat", ["Cat", "cat"]),
        ("keywords:frequency", {"keyword": "cat", "frequency": 0, "relation": "less than"}, "a cat", ["cat"]),
        ("keywords:frequency", {"keyword": "cat", "frequency": 2, "relation": "at least"}, "cat", None),
        ("keywords:existence", {"keywords": ["cat", "dog"]}, "cat", None),
        ("keywords:forbidden_words", {"forbidden_words": ["cat", "C++"]}, "Cat, cats, C++", ["Cat", "C++"]),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 1}, "a\n***\nbb\n***\nc", ["bb", "c"]),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\n***\nb", ["***"]),
        ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "x"}, "a\n\n'Yes, b", ["Yes"]),
        ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"}, "One. Two. Three", ["Two.", "Three"]),
        ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "* a\n - b\n* c", ["- b", "* c"]),
        ("detectable_format:json_format", {}, '{"a": 1} and more', ["and more"]),
        ("detectable_format:json_format", {}, 'Here: {"a": 1}', ["Here:"]),
        ("detectable_format:json_format", {}, '```json\n{"a": oops}\n```', ["oops}"]),
        ("detectable_format:json_format", {}, '{"a": 1', None),
        ("combination:two_responses", {}, "a******b******c", ["c"]),
        ("combination:two_responses", {}, "a******a", ["a"]),
        ("startend:end_checker", {"end_phrase": "The end."}, "x the end. Or not?", ["Or not?"]),
        ("change_case:english_capital", {"detect_language": False}, "AbcD eF", ["bc", "e"]),
        ("change_case:english_lowercase", {"detect_language": False}, "aBC d", ["BC"]),
        ("count:numbers", {"N": 1}, "3.14 and 1,000", ["1,000"]),
        ("words:alphabet", {}, "a b, 'd' D", ["d"]),
        ("words:repeats", {"small_n": 1}, "a b A, b", ["A", "b"]),
        ("words:no_consecutive", {}, "a cat (can) sit", ["can"]),
        ("words:prime_lengths", {}, "it is 'a' word", ["a", "word"]),
        ("words:paragraph_last_first", {}, "cat and dog\ncat cat", ["dog"]),
        ("words:last_first", {}, "See cats. Dogs see.", ["Dogs"]),
        ("words:vowel", {}, "a e i o", ["o"]),
        ("words:words_position", {"keyword": "cat"}, "a cat b dog.", ["dog"]),
        ("sentence:keyword", {"word": "cat", "N": 2}, "One. Two dogs. cat", ["Two dogs."]),
        ("sentence:increment", {"small_n": 1}, "One. Two three four.", ["Two three four."]),
        ("format:newline", {}, "a b\nc", ["b"]),
        ("format:emoji", {}, "Hi 🎉. You.", ["You."]),
        ("format:line_indent", {}, "a\nb\n c", ["b"]),
        ("format:quote_unquote", {}, 'x “a” "b" c', ["”", '"']),
        ("format:sub-bullets", {}, "* a\n* b - c", ["* a"]),
        ("format:no_whitespace", {}, "a  b\n", ["  ", "\n"]),
        ("format:title_case", {}, "The big Cat", ["big"]),
        ("ratio:stop_words", {"percentage": 10}, "the cat", ["the"]),
        ("ratio:sentence_words", {}, "Ab. Cd. Ef. Gh.", ["Gh."]),
        ("custom:multiples", {}, "7, 14", ["7"]),
        ("custom:date_format_list", {}, "1805-12-02, soon", ["soon"]),
        ("count:words_japanese", {"N": 2}, "a b c 猫", ["b"]),
        ("count:word_count_range", {"min_words": 1, "max_words": 2}, "a b c d", ["c", "d"]),
        ("words:odd_even_syllables", {}, "cat dog water", ["dog"]),
        ("sentence:alliteration_increment", {}, "Big bears. Cats do.", ["Cats do."]),
    ],
)  # fmt: skip
def test_what_breaks_the_rule(name: str, kwargs: dict[str, Any], text: str, broken: list[str] | None) -> None:
    rule = build(Verifier, {"name": name, **kwargs})
    assert not rule.check(text)
    assert marked(rule, text) == broken


@pytest.mark.parametrize(
    ("name", "kwargs", "text", "kept"),
    [
        ("keywords:existence", {"keywords": ["cat", "dog"]}, "Cat and catfish", ["Cat", "cat"]),
        ("keywords:frequency", {"keyword": "cat", "frequency": 2, "relation": "at least"}, "cat, CAT", ["cat", "CAT"]),
        ("keywords:frequency", {"keyword": "cat", "frequency": 2, "relation": "less than"}, "cat", None),
        ("keywords:letter_frequency", {"letter": "a", "let_frequency": 1, "let_relation": "at least"}, "bAna", ["A", "a"]),
        ("detectable_content:number_placeholders", {"num_placeholders": 3}, "[a] [b c]", ["[a]", "[b c]"]),
        ("detectable_content:postscript", {"postscript_marker": "P.S."}, "x\n  P.S. Hi!\ny", ["P.S. Hi!"]),
        ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "- a\nb\n * c", ["- a", "* c"]),
        ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "a *b* **c**", ["*b*", "**c**"]),
        ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 1}, "x\nSection 1\ny", ["Section 1"]),
        ("detectable_format:title", {}, "<<a b>>\n<< >>", ["<<a b>>"]),
        ("detectable_format:constrained_response", {}, "So: My answer is no.", ["My answer is no."]),
        ("combination:two_responses", {}, "a******b", ["******"]),
        ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi"}, " say HI. hi", ["say HI"]),
        ("startend:end_checker", {"end_phrase": "Bye."}, '"x. bye."', ["bye."]),
        ("startend:quotation", {}, ' "a"', ['"', '"']),
        ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Yes"}, "a\n\n'YES, b", ["YES"]),
        ("change_case:capital_word_frequency", {"capital_frequency": 1, "capital_relation": "at least"}, "the USA.", ["USA"]),
        ("count:person_names", {"N": 1}, "Mia met Emma", ["Mia", "Emma"]),
        ("count:conjunctions", {"small_n": 1}, "a (and) b", ["(and)"]),
        ("words:palindrome", {}, "a level, noon Radar", ["level", "Radar"]),
        ("format:thesis", {}, "x <em>a</em> b", ["<em>a</em>"]),
        ("format:parentheses", {}, "a (((((b))))) c", ["(((((b)"]),
        ("format:quotes", {}, "a \"b 'c \"d\" e' f\" g", ["\"b 'c \"d\" e' f\""]),
        ("format:list", {"sep": "-"}, "- a\n- b", ["-", "-"]),
        ("sentence:keyword", {"word": "cat", "N": 2}, 'Aa. He "saw cats."', ["cat"]),
        ("custom:character_reverse", {}, "x ELGAE dlab", ["ELGAE dlab"]),
        ("punctuation:no_comma", {}, "a", None),
    ],
)  # fmt: skip
def test_what_speaks_for_the_rule(name: str, kwargs: dict[str, Any], text: str, kept: list[str] | None) -> None:
    assert shown(rule_of(name, kwargs), text) == kept


def test_loose_forgives_an_introduction_a_remark_and_asterisks() -> None:
    rule = rule_of("detectable_format:json_format", {})
    answer = 'Sure!\n**{"a": 1}**\nHope this helps.'
    assert not rule.check(answer)
    assert loose(rule, answer)
    assert len(variants(answer)) == 8
    assert not loose(rule, 'Sure!\nHere:\n{"a": 1}')
    assert not loose(rule_of("punctuation:no_comma", {}), "a,\n")  # what is left without the first line is empty


def test_what_is_relevant_follows_scope_and_verdict() -> None:
    """Rubrics to Tokens, appendix C.3."""
    comma = rule_of("punctuation:no_comma", {})
    cat = rule_of("keywords:existence", {"keywords": ["cat", "dog"]})
    words = rule_of("length_constraints:number_words", {"num_words": 2, "relation": "at least"})

    def where(rule: Verifier, text: str) -> list[tuple[int, int, float]]:
        return [(span.start, span.end, span.label) for span in relevant(rule, text)]

    assert (comma.scope(), cat.scope(), words.scope()) == ("negative", "positive", "global")
    assert where(comma, "a, b,") == [(1, 2, 1.0), (4, 5, 1.0)]
    assert where(comma, "a b") == []
    assert where(cat, "cat dog") == [(0, 3, 1.0), (4, 7, 1.0)]
    assert where(cat, "cat") == []
    assert where(words, "cat dog") == [(0, 7, 1.0)]
    assert where(words, "cat") == [(0, 3, 1.0)]
    assert where(words, "") == []
    english = rule_of("change_case:english_capital", {})
    assert where(english, "CECI EST UNE PHRASE ASSEZ LONGUE EN FRANÇAIS") == [(0, 44, 1.0)]


def test_scopes_depend_on_the_relation() -> None:
    few = rule_of("keywords:frequency", {"keyword": "cat", "frequency": 2, "relation": "less than"})
    many = rule_of("keywords:frequency", {"keyword": "cat", "frequency": 2, "relation": "at least"})
    assert (few.scope(), many.scope()) == ("negative", "positive")

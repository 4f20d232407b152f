"""Rules in words."""

from __future__ import annotations

import pytest
from rule_cases import OWN, rule_of
from rule_examples import EXAMPLES

from fgrl.feedback.rules.wording import IFBENCH, IFEVAL, IFTRAIN, LANGUAGES, PLACE, SENTENCES, sentence
from fgrl.registry import get, names

UNNAMED = ("all_of", "code:checker", "code:tests", *OWN)
"""Rules that no data set names by an id."""


def test_every_rule_has_a_sentence_and_nothing_else_has() -> None:
    known = {name for name in names("verifier") if name not in UNNAMED} | {"words:start_verb"}
    assert set(IFEVAL) | set(IFBENCH) == known
    assert (len(IFEVAL), len(IFBENCH), len(IFTRAIN)) == (25, 58, 29)
    assert not set(IFTRAIN) & known


@pytest.mark.parametrize("name", sorted(set(IFEVAL) | set(IFBENCH) - {"words:start_verb"}))
def test_a_sentence_says_all_that_a_rule_is_told(name: str) -> None:
    assert set(PLACE.findall(SENTENCES[name])) == set(get("verifier", name).model_fields) - {"detect_language"}


@pytest.mark.parametrize(("name", "kwargs"), [(name, kwargs) for name, kwargs, _, _ in EXAMPLES if name not in OWN])
def test_examples_in_words(name: str, kwargs: dict) -> None:
    said = sentence(name, kwargs)
    assert said is not None
    assert not PLACE.search(said)
    assert said[0].isupper()


def test_title_case_asks_for_the_words_that_its_rule_looks_at() -> None:
    rule = rule_of("format:title_case")
    assert [rule.check(text) for text in ("The Lord Of The Rings", "The Lord of the Rings")] == [True, False]
    assert "major" not in (sentence("format:title_case") or ""), "small words count as well"


def test_values_are_told_as_people_say_them() -> None:
    kwargs = {"relation": "less than", "num_words": 20.0, "keywords": None}
    assert sentence("length_constraints:number_words", kwargs) == "Write fewer than 20 words."
    assert sentence("keywords:existence", {"keywords": ["a", "b"]}) == 'Use each of these keywords: "a", "b".'
    assert "German" in (sentence("language:response_language", {"language": "de"}) or "")
    assert len(LANGUAGES) == 55


def test_what_cannot_be_told_is_none() -> None:
    assert sentence("of:nobody") is None
    assert sentence("count:numbers", {"N": None}) is None
    assert sentence("of:nobody", {"x": 3}, {"of:nobody": "Do it {x} times."}) == "Do it 3 times."
    assert sentence("punctuation:no_comma", None, {"punctuation:no_comma": "No commas!"}) == "No commas!"

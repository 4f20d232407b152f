"""From a data set's columns to rules; what is refused, and how that is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rule_cases import rule_of
from rule_examples import EXAMPLES
from scratch_registry import scratch

from fgrl.base.errors import Unavailable
from fgrl.components.readers.instructions import IFEval
from fgrl.data.row import BadRow
from fgrl.data.rubrics.instruction_ids import spec
from fgrl.feedback.rules import languages
from fgrl.kinds import Verifier
from fgrl.registry import (
    NotRegistered,
    Problems,
    build,
    dump,
    get,
    name_of,
    names,
    register,
)


def test_columns_of_other_rules_are_null_and_left_out() -> None:
    row = {"num_words": 3, "relation": "at least", "keywords": None, "letter": None}
    rules = [rule_of("length_constraints:number_words", row), rule_of("punctuation:no_comma", {"num_words": None})]
    assert [name_of(rule)[1] for rule in rules] == ["length_constraints:number_words", "punctuation:no_comma"]
    assert rules[0].check("a b c")


def test_whole_floats_are_whole_numbers_again() -> None:
    assert spec("count:numbers", {"N": 15.0}) == {"name": "count:numbers", "N": 15}
    assert rule_of("ratio:stop_words", {"percentage": 20.5}).check("cats sleep")
    with pytest.raises(Problems, match=r"wants int, got float 1\.5"):
        rule_of("count:numbers", {"N": 1.5})


def test_a_spec_is_what_recipes_write() -> None:
    written = spec("keywords:forbidden_words", {"forbidden_words": ["a"], "N": None})
    rule = build(Verifier, dict(written))
    assert build(Verifier, dump(rule)) == rule
    assert spec("punctuation:no_comma", {"keywords": ["of another rule"]}) == {"name": "punctuation:no_comma"}
    assert spec("punctuation:no_comma") == {"name": "punctuation:no_comma"}
    assert spec("count:numbers", {"name": "code:checker", "N": 1})["name"] == "count:numbers"


def test_ids_and_kwargs_belong_together() -> None:
    row = {"instruction_id_list": ["punctuation:no_comma", "startend:quotation"], "kwargs": [{}]}
    with pytest.raises(BadRow, match="2 instruction_id_list, 1 kwargs: they belong together one by one"):
        IFEval().demands(row, "p")
    assert len(IFEval().demands(row | {"kwargs": [{}, None]}, "p")) == 2


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("keywords:existence", {"keywords": []}),
        ("keywords:existence", {}),
        ("keywords:letter_frequency", {"letter": "ab", "let_frequency": 1, "let_relation": "at least"}),
        ("keywords:frequency", {"keyword": " ", "frequency": 1, "relation": "at least"}),
        ("keywords:frequency", {"keyword": "a", "frequency": 1, "relation": "at most"}),
        ("language:response_language", {"language": "klingon"}),
        ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 1, "nth_paragraph": 2, "first_word": "a"}),
        ("count:word_count_range", {"min_words": 3, "max_words": 2}),
        ("repeat:repeat_span", {"prompt_to_repeat": "a b", "n_start": 1, "n_end": 1}),
        ("sentence:keyword", {"word": "a", "N": 0}),
    ],
)
def test_what_the_official_checker_would_draw_at_random_is_refused(name: str, kwargs: dict[str, Any]) -> None:
    with pytest.raises((Problems, ValidationError)):
        rule_of(name, kwargs)


def test_a_rule_that_is_not_here_is_unknown_until_it_is_ones_own() -> None:
    with pytest.raises(Problems, match='unknown verifier "words:start_verb"'):
        rule_of("words:start_verb")
    with pytest.raises(NotRegistered, match='unknown verifier "words:start_verb"'):
        get("verifier", "words:start_verb")
    with pytest.raises(Problems, match="did you mean"):
        rule_of("keywords:existance")
    with scratch():

        @register("words:start_verb")
        class StartVerb(get("verifier", "punctuation:no_comma")):  # type: ignore[misc]
            """One's own."""

        assert rule_of("words:start_verb")


@pytest.mark.parametrize(
    ("package", "name", "kwargs", "text"),
    [
        ("langdetect", "language:response_language", {"language": "en"}, "some text"),
        ("langdetect", "change_case:english_lowercase", {}, "some text"),
        ("emoji", "format:emoji", {}, "some text"),
        ("syllapy", "words:odd_even_syllables", {}, "some text"),
    ],
)
def test_a_package_that_is_missing_is_asked_for(
    package: str, name: str, kwargs: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a guess in its place."""
    monkeypatch.setattr("fgrl.base.errors.find_spec", lambda module: None if module == package else module)
    rule = rule_of(name, kwargs)
    with pytest.raises(Unavailable, match=r"pip install 'fgrl\[rules\]'"):
        rule.check_machine()
    with pytest.raises(Unavailable, match=package):
        rule.check(text)


def test_case_alone_needs_no_package() -> None:
    rule = build(Verifier, {"name": "change_case:english_lowercase", "detect_language": False})
    assert rule.check("hello")
    assert not rule.check("Hello")


def test_the_language_of_a_text_is_always_the_same() -> None:
    text = "hello world cats"
    assert len({languages.language_of(text) for _ in range(10)}) == 1
    assert languages.language_of("12345") is None


def test_the_page_on_verifiers_is_about_these_rules() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "verifiers.md").read_text(encoding="utf-8")
    rows = {
        rule: (found[1], found[2])
        for found in re.finditer(r"^\| ([a-z ]+) \| ([a-z ]+) \| (`.*`) \|$", page, re.MULTILINE)
        for rule in re.findall(r"`(\S+)`", found[3])
    }
    assert set(rows) == {name for name in names("verifier") if name not in ("all_of", "code:checker", "code:tests")}
    keeps: dict[str, set[str]] = {}
    about: dict[str, set[str]] = {}
    for name, kwargs, good, bad in EXAMPLES:
        rule = rule_of(name, kwargs)
        about.setdefault(name, set()).add(rule.scope())
        found = keeps.setdefault(name, set())
        found |= {"breaks"} if any(map(rule.violations, bad)) else set()
        found |= {"keeps"} if any(map(rule.evidence, good)) else set()
    for name, (said, spans) in rows.items():
        assert set(said.split(" or ")) == about[name], name
        assert set(spans.split(" and ")) - {"no"} == keeps[name], name
    differences = re.findall(r"^\| \*\*[a-z ]+\*\*: .* \| (`[^|]*`) \| [^|]* \|$", page, re.MULTILINE)
    assert len(differences) == 10
    assert {rule for line in differences for rule in re.findall(r"`(\S+?)`", line)} <= set(rows)

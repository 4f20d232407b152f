"""Hostile text costs no more than its length: nothing in rules and data is quadratic. Steps are counted, never time."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest
import regex_steps

import fgrl.components.readers
import fgrl.components.verifiers
import fgrl.data
import fgrl.feedback.rules
from fgrl.components.verifiers.ifeval.keywords import anycase, whole_word
from fgrl.data.rubrics.coded_set import asked_of_model
from fgrl.feedback.rules import sentences
from fgrl.kinds import Verifier
from fgrl.registry import build, get, names

PACKAGES = (fgrl.feedback.rules, fgrl.data, fgrl.components.verifiers, fgrl.components.readers)
ANCHORED = {"MARK", "CHOICE", "LETTERS", "_NEXT", "DATE"}
"""Patterns that are only tried at one place."""


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Every pattern that a module of the rooms has, those made of keywords, and those of the steps of `sentences`."""
    for package in PACKAGES:
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, re.Pattern):
                    yield ".".join([*module.name.split(".")[-2:], name]), value
    yield from ((f"{made.__name__}({word})", made(word)) for made in (anycase, whole_word) for word in ("a", "a("))
    listed = [*(pattern for pattern, _ in sentences._STEPS), *sentences._LATER_STEPS, *sentences._LAST_STEPS]
    yield from ((f"sentences {text}", re.compile(text)) for text in listed)


def hostile(characters: list[str], length: int) -> Iterator[str]:
    for first, second in product(characters, repeat=2):
        yield (first + second) * (length // 2)
        yield first + second * (length - 1)
        yield first * (length - 1) + second


def grows_too_fast(small: int, large: int) -> bool:
    """Twice the text may take twice the steps, not four times."""
    return large > 2.5 * small + 100


def most_steps(pattern: re.Pattern[str], texts: list[str], anchored: bool) -> int:
    most = 0
    for text in texts:
        matcher = regex_steps.Matcher(pattern, text)
        matcher.find_all(anchored)
        most = max(most, matcher.steps)
    return most


def is_too_slow(pattern: re.Pattern[str], anchored: bool = False) -> bool:
    characters = list(dict.fromkeys([*regex_steps.literals(pattern)[:5], " ", "\n", "a", "."]))
    counts = [most_steps(pattern, list(hostile(characters, length)), anchored) for length in (60, 120)]
    return grows_too_fast(*counts)


@pytest.mark.parametrize(("name", "pattern"), list(dict(patterns()).items()), ids=list(dict(patterns())))
def test_no_pattern_tries_the_rest_of_a_text_again_and_again(name: str, pattern: re.Pattern[str]) -> None:
    assert not is_too_slow(pattern, name.rpartition(".")[2] in ANCHORED)


@pytest.mark.parametrize(
    "pattern", [r"\[.*?\]", r"(?m)^\s*(-.*)$", r"<<[^\n]+>>", r"[.?!]+[\"']*(?=\s|$)", r"\n*(?:Question \d+)"]
)
def test_a_pattern_that_does_is_noticed(pattern: str) -> None:
    assert is_too_slow(re.compile(pattern))


@pytest.mark.parametrize(("name", "pattern"), list(dict(patterns()).items()), ids=list(dict(patterns())))
def test_the_counting_matcher_finds_what_re_finds(name: str, pattern: re.Pattern[str]) -> None:
    texts = [
        '1. A cat\'s "end".\n\n* one\n- two!?',
        "[a] <<b>> *c* ***",
        "Mr. J. Smith, Ph.D. (U.S.A.) e.g. 3.14 co. It",
    ]
    for text in texts:
        assert regex_steps.Matcher(pattern, text).find_all() == [match.span() for match in pattern.finditer(text)], text


class Watched(str):
    """A text that counts the characters which are copied out of it."""

    copied = 0

    def __getitem__(self, place: Any) -> str:
        part = super().__getitem__(place)
        Watched.copied += len(part)
        return part


def steps(work: Callable[[], object]) -> int:
    """Lines of fgrl that the work executes, and characters that it copies out of a watched text (counted as a quarter)."""
    lines = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        if "fgrl" not in frame.f_code.co_filename:
            return None
        lines += event == "line"
        return trace

    Watched.copied, before = 0, sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines + Watched.copied // 4


PIECES = [
    "\n",
    "a",
    ". ",
    "1. ",
    "***",
    "\n\n***",
    "*\n",
    "(",
    "'\"",
    "a, ",
    "<<",
    "[",
    "-\n",
    "Question 1",
    "Mr. ",
    "..x",
    " \n",
]
SET: dict[str, dict[str, Any]] = {
    "length_constraints:number_paragraphs": {"num_paragraphs": 2},
    "length_constraints:nth_paragraph_first_word": {"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "a"},
}
PARAMETERS: dict[str, Any] = {
    "relation": "less than", "let_relation": "less than", "capital_relation": "less than", "letter": "a", "keywords": ["a", "("],
    "forbidden_words": ["a", "("], "keyword": "a", "word": "a", "options": "a/b", "sep": "-", "min_words": 1, "max_words": 2,
    "percentage": 5, "reference_text": "a", "prompt_to_repeat": "a b c", "n_start": 0, "n_end": 2, "section_spliter": "a",
    "postscript_marker": "P.S.", "end_phrase": "a", "first_word": "a", "characters": ".", "language": "en", "detect_language": False,
}  # fmt: skip
ASKS_A_LIBRARY = {"all_of", "code:checker", "code:tests", "language:response_language", "words:odd_even_syllables"}


def rule(name: str) -> Verifier:
    fields = get("verifier", name).model_fields
    usual = {field: PARAMETERS.get(field, "a" if field.startswith("keyword") else 2) for field in fields}
    return build(Verifier, {"name": name, **SET.get(name, usual)})


@pytest.mark.parametrize("name", sorted(set(names("verifier")) - ASKS_A_LIBRARY))
def test_no_rule_goes_through_a_text_again_and_again(name: str) -> None:
    verifier = rule(name)

    def all_of_it(text: str) -> None:
        for method in (verifier.check, verifier.violations, verifier.evidence):
            method(Watched(text))

    for piece in PIECES:
        small, large = (steps(partial(all_of_it, piece * size)) for size in (100, 200))
        assert not grows_too_fast(small, large), repr(piece)


@pytest.mark.parametrize("source", ["llm_score(", "llm_score(a, b, 'c' ", "llm_judge(x, (", "llm_score()"])
def test_no_source_is_read_again_and_again(source: str) -> None:
    small, large = (steps(partial(asked_of_model, source * size)) for size in (40, 80))
    assert not grows_too_fast(small, large)

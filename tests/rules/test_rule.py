"""The base classes of rules: what they make of a verdict and of spans."""

from __future__ import annotations

import re

import pytest

from fgrl.feedback.rules.counted import Counted, Length
from fgrl.feedback.rules.rule import Forbids, Requires, Rule, broken_at, kept_at
from fgrl.feedback.rules.text import CharRange, full_and_hollow, pieces_between
from fgrl.kinds import Verifier
from fgrl.types import Span


def stars(text: str) -> list[int]:
    return [at for at, character in enumerate(text) if character == "*"]


class NoStars(Forbids):
    def faults(self, response: str) -> list[Span]:
        return [broken_at(at, at + 1, "star") for at in stars(response)]


class Stars(Requires):
    def supporting(self, response: str) -> list[Span]:
        return [kept_at(at, at + 1, "star") for at in stars(response)]


class TwoStars(Stars):
    def keeps(self, response: str) -> bool:
        return response.count("*") == 2

    def faults(self, response: str) -> list[Span]:
        return [broken_at(at, at + 1, "star") for at in stars(response)[2:]]


class Even(Rule):
    def keeps(self, response: str) -> bool:
        return len(response) % 2 == 0


class AtMostOne(Length):
    what = "star"

    def places(self, response: str) -> list[CharRange]:
        return [(at, at + 1) for at in stars(response)]

    def bounds(self) -> tuple[int, int | None]:
        return 0, 1


class Any_(Verifier):
    def check(self, response: str) -> bool:
        return True


def starts(spans: list[Span] | None) -> list[int] | None:
    return None if spans is None else [span.start for span in spans]


@pytest.mark.parametrize(
    ("rule", "text", "kept", "violations", "evidence"),
    [
        (NoStars(), "a", True, [], None),
        (NoStars(), "*a*", False, [0, 2], None),
        (Stars(), "a*", True, [], [1]),
        (Stars(), "a", False, None, []),
        (TwoStars(), "*", False, None, [0]),
        (TwoStars(), "**", True, [], [0, 1]),
        (TwoStars(), "***", False, [2], [0, 1, 2]),
        (Even(), "ab", True, [], None),
        (Even(), "abc", False, None, None),
        (AtMostOne(), "***", False, [1, 2], None),
        (NoStars(), "  ", False, None, None),
    ],
)
def test_a_verdict_and_its_spans(
    rule: Rule, text: str, kept: bool, violations: list[int] | None, evidence: list[int] | None
) -> None:
    assert rule.check(text) is kept
    assert starts(rule.violations(text)) == violations
    assert starts(rule.evidence(text)) == evidence


def test_what_a_rule_is_about() -> None:
    assert [rule.scope() for rule in (NoStars(), Stars(), Even(), AtMostOne())] == [
        "negative", "positive", "global", "global",
    ]  # fmt: skip
    assert Counted.scope(AtMostOne()) == "negative"
    assert Any_().scope() == "global"


def test_pieces_that_are_blank_between_others() -> None:
    text = "* a** b*"
    pieces = pieces_between(re.compile(r"\*"), text)
    assert [text[start:end] for start, end in pieces] == ["", " a", "", " b", ""]
    full, hollow = full_and_hollow(text, pieces)
    assert [text[start:end] for start, end in full] == [" a", " b"]
    assert hollow == [(4, 4)]

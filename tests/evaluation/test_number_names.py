"""One number has one name; other spellings are understood."""

from __future__ import annotations

import re

import pytest

from fgrl.base.errors import UsageError
from fgrl.measuring.number_names import NumberName, StageNumber, check_known, pick

NO_COMMA = NumberName("rule", "punctuation:no_comma")


def test_the_name_is_that_of_metrics_json_without_repetition() -> None:
    assert str(NO_COMMA) == "rule.punctuation:no_comma"
    assert [str(NumberName("exact_match", number)) for number in ("", "mean", "exact_match")] == ["exact_match"] * 3


@pytest.mark.parametrize(
    "spelling",
    ["rule.punctuation:no_comma", "rule: punctuation:no comma", "no comma", "no_comma", "No Comma", "punctuation:no_comma",
     "evaluate/no_comma"],
)  # fmt: skip
def test_spellings_of_one_number(spelling: str) -> None:
    known = [StageNumber("evaluate", name) for name in (NumberName("rule", "kept"), NO_COMMA, NumberName("kl", "sum"))]
    assert pick(known, spelling).name == NO_COMMA
    assert NO_COMMA.contains_any([spelling.rpartition("/")[2]])


def test_keys_of_metrics_json_are_understood() -> None:
    known = [StageNumber("e", NumberName("exact_match", "exact_match")), StageNumber("e", NumberName("kl", "mean"))]
    assert str(pick(known, "exact_match.exact_match").name) == "exact_match"
    assert str(pick(known, "kl.mean").name) == "kl"


def test_a_whole_name_is_preferred_to_a_part() -> None:
    known = [StageNumber("e", NumberName("win_rate", "win_rate")), StageNumber("e", NumberName("other", "win_rate"))]
    assert pick(known, "win_rate") == known[0]


def test_several_stages() -> None:
    known = [StageNumber(stage, NumberName("kl", "sum")) for stage in ("a", "b")]
    assert pick(known, "b/kl.sum") == pick(known, "kl.sum", prefer="b") == known[1]
    with pytest.raises(UsageError, match=re.escape('"sum" may mean "a/kl.sum", "b/kl.sum": name one of them')):
        pick(known, "sum")


def test_the_nearest_name_is_suggested() -> None:
    with pytest.raises(
        UsageError,
        match=re.escape('no evaluation has a number "rule.kep"; did you mean "rule.kept"?  (there are: rule.kept)'),
    ):
        pick([StageNumber("e", NumberName("rule", "kept"))], "rule.kep")
    with pytest.raises(
        UsageError, match=re.escape("no number has 'rule.kpet' in its name; did you mean \"rule.kept\"?")
    ):
        check_known([NumberName("rule", "kept")], ["rule.kpet"])
    check_known([], ["anything"])  # nothing has run: there is nothing to choose from


def test_of_many_numbers_only_the_close_ones_are_suggested() -> None:
    names = [NumberName("rule", f"keywords:rule_{letter}") for letter in "abcdefghij"] + [NumberName("kl", "sum")]
    with pytest.raises(UsageError) as unknown:
        check_known(names, ["kl.sun"])
    assert str(unknown.value) == (
        "no number has 'kl.sun' in its name; did you mean \"kl.sum\"?  (fgrl table SOURCE lists all numbers)"
    )
    with pytest.raises(UsageError) as unknown:
        pick([StageNumber("e", name) for name in names], "rule.keywords:rule_x")
    assert str(unknown.value).count("keywords:rule_") == 1 + 3
    with pytest.raises(UsageError, match=re.escape("'entropy' in its name  (fgrl table")):
        check_known(names, ["entropy"])

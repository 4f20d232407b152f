"""What data may not say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fgrl.base.errors import DataError
from fgrl.components.readers.jsonl import JsonLines
from fgrl.data.row import BadRow
from fgrl.data.rubrics.instruction_ids import checked_by, fitted
from fgrl.data.rubrics.untrusted import is_for_data, refuse_sandbox
from fgrl.types import Criterion, Sample

CODE = {"name": "code:checker", "source": "def check(response): return True"}


def sample(check: dict) -> Sample:
    return Sample(id="s", prompt="p", rubric=[Criterion(text="t", check=check)])


@pytest.mark.parametrize(
    "check",
    [
        {**CODE, "sandbox": {"require": "weak"}},
        {**CODE, "sandbox": None},
        {"name": "all_of", "rules": ["punctuation:no_comma", {**CODE, "sandbox": {"seconds": 600}}]},
        {"name": "all_of", "rules": [{"name": "all_of", "rules": [{**CODE, "sandbox": {"require": "weak"}}]}]},
    ],
)
def test_a_record_that_sets_the_sandbox_is_refused(check: dict, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="sets `sandbox`, which only a recipe may"):
        refuse_sandbox(sample(check), "here")
    file = tmp_path / "samples.jsonl"
    file.write_text(
        sample({"name": "punctuation:no_comma"}).model_dump_json() + "\n" + sample(check).model_dump_json() + "\n"
    )
    with pytest.raises(DataError, match=r"samples.jsonl:2: sample s, criterion 't'"):
        list(JsonLines(path=str(file)).read())


def test_other_records_are_read(tmp_path: Path) -> None:
    free = [
        CODE,
        {**CODE, "arguments": {"sandbox": {"require": "weak"}}},
        {"name": "keywords:existence", "keywords": ["sandbox"]},
    ]
    file = tmp_path / "samples.jsonl"
    records = [sample(check).model_dump() | {"id": str(number)} for number, check in enumerate(free)]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert len(list(JsonLines(path=str(file)).read())) == 3


@pytest.mark.parametrize("name", ["code:checker", "all_of"])
def test_a_data_set_cannot_name_rules_that_run_or_hold_others(name: str) -> None:
    with pytest.raises(BadRow, match="a data set must not name"):
        is_for_data(name)
    with pytest.raises(BadRow, match="a data set must not name"):
        checked_by(name, {"source": "def check(response): return True", "sandbox": {"require": "weak"}})


def test_rules_that_data_may_name() -> None:
    assert is_for_data("punctuation:no_comma")
    assert not is_for_data("words:start_verb")
    assert not is_for_data("nobody:knows")


WORDS = "length_constraints:number_words"


@pytest.mark.parametrize(
    ("name", "kwargs", "check"),
    [
        (WORDS, {"relation": "at least", "num_words": 5.0}, {"relation": "at least", "num_words": 5}),
        (WORDS, {"relation": "At most ", "num_words": 5}, {"relation": "less than", "num_words": 6}),
        (WORDS, {"relation": "no more than", "num_words": 5}, {"relation": "less than", "num_words": 6}),
        (WORDS, {"relation": "more than", "num_words": 5}, {"relation": "at least", "num_words": 6}),
        ("keywords:letter_frequency", {"letter": "a", "let_frequency": 2, "relation": "at most"},
         {"letter": "a", "let_frequency": 3, "let_relation": "less than"}),
        ("change_case:capital_word_frequency", {"capital_frequency": 2, "relation": "at least", "num_words": None},
         {"capital_frequency": 2, "capital_relation": "at least"}),
    ],
)  # fmt: skip
def test_parameters_in_other_words(name: str, kwargs: dict, check: dict) -> None:
    assert fitted(name, kwargs) == {"name": name, **check}
    assert checked_by(name, kwargs) == ({"name": name, **check}, "")


def test_why_a_rule_has_no_check() -> None:
    assert checked_by(WORDS, {"relation": "around", "num_words": 5}) == (None, "its parameters do not fit")
    assert checked_by(WORDS, {"num_words": 5}) == (None, "its parameters do not fit")
    assert checked_by("punctuation:no_comma", {"N": 3}) == ({"name": "punctuation:no_comma"}, "")
    assert checked_by("count:numbers", {"N": 3, "more": 1}) == (None, "its parameters do not fit")
    assert checked_by("words:start_verb", {}) == (None, "no such rule here")
    other = {"name": "code:checker", "keywords": ["sea"]}
    assert checked_by("keywords:existence", other) == (None, "its parameters do not fit"), "a rule inside of another's"
    assert checked_by("keywords:existence", {**other, "name": None}) == (
        {"name": "keywords:existence", "keywords": ["sea"]}, "",
    )  # fmt: skip
    choose = "detectable_format:constrained_response"
    assert checked_by(choose, {}, "Say 'My answer is yes.', 'My answer is no.' or 'My answer is maybe.'")[0] == {
        "name": choose
    }
    assert checked_by(choose, {}, "Answer with one of: A, B, C") == (None, "other options")
    assert checked_by(choose, {}) == ({"name": choose}, "")

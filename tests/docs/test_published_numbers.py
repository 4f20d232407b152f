"""Published numbers: the data files fit together, and the check that compares them with a text notices every swap."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from fgrl.base.errors import UsageError
from fgrl.runs.results.published import read_published

ROOT = Path(__file__).resolve().parents[2]
SYNTHETIC = Path(__file__).parent / "published"
sys.path.insert(0, str(ROOT / "tools"))

import check_published_numbers as checks  # noqa: E402

DATA = checks.read_data()


@pytest.fixture
def data() -> dict[str, Any]:
    return {"paper": yaml.safe_load((SYNTHETIC / "paper.yaml").read_text(encoding="utf-8"))}


@pytest.fixture
def layouts() -> dict[str, Any]:
    return yaml.safe_load((SYNTHETIC / "layouts.yaml").read_text(encoding="utf-8"))


def test_every_number_of_the_synthetic_paper_is_found(data: dict[str, Any], layouts: dict[str, Any]) -> None:
    assert checks.check(data, SYNTHETIC, layouts) == []
    shapes = {own.get("shape", "tabs") for own in layouts["paper"].values()} | {"columns"}
    assert shapes == set(checks.SHAPES) - {"ends"}


@pytest.mark.parametrize("kind", ["digits", "rows", "columns"])
@pytest.mark.parametrize("seed", range(20))
def test_a_planted_swap_is_noticed(kind: str, seed: int, data: dict[str, Any], layouts: dict[str, Any]) -> None:
    text, changed = checks.plant(data, kind, random.Random(seed))
    assert checks.check(changed, SYNTHETIC, layouts), text


def test_what_is_missing_in_the_text_is_noticed(data: dict[str, Any], layouts: dict[str, Any]) -> None:
    tables = data["paper"]["tables"]
    tables["1"]["rows"]["Flat"]["Thrice"] = ["1", "2"]
    tables["3"]["rows"]["Tiny"] = ["1.00", "2"]
    tables["9"] = dict(tables["4"])
    wrong = checks.check(data, SYNTHETIC, layouts)
    assert [text.partition(":")[0] for text in wrong] == ["paper, Table 1", "paper, Table 3", "paper, Table 9"]


def rows(paper: str, number: str) -> dict[str, list[str]]:
    return {
        f"{row.group} / {row.name}" if row.group else row.name: row.values
        for row in checks.rows_of(DATA[paper]["tables"][number])
    }


def numbers(values: Sequence[str]) -> list[float]:
    return [float(re.sub(r"[^\d.-]", "", value)) for value in values]


OTHERWISE = ("Without Search / +SFT Acc", "Without Search / +SFT F1")
"""Rows of RLA's Table 3 whose last value (72.64, 69.62) is not the mean of the two before it (73.64, 69.11)."""


def sums() -> Iterator[tuple[str, float, float, float]]:
    """(what, printed, computed, largest distance): means and totals that the papers print."""
    for name, values in rows("segment_ppo", "7").items():
        *each, average = numbers(values)
        yield f"segment_ppo 7 {name}", average, sum(each) / 6, 0.05
    for name, values in rows("rla", "2").items():
        if "%" not in name:
            *each, average = numbers(values)
            yield f"rla 2 {name}", average, sum(each) / 6, 0.02
    for name, values in rows("rla", "3").items():
        climate, health, fact, hate, bias, fairness, every = numbers(values)
        yield f"rla 3 {name} fact", fact, (climate + health) / 2, 0.02
        yield f"rla 3 {name} fairness", fairness, (hate + bias) / 2, 0.02
        if name not in OTHERWISE:
            yield f"rla 3 {name} all", every, (fact + fairness) / 2, 0.02
    for name, values in rows("text2grad", "3").items():
        *each, average = numbers(values[1:])
        yield f"text2grad 3 {name}", average, sum(each) / 4, 0.16
    for column in range(3):
        *each, total = (numbers(values[:3])[column] for values in rows("text2grad", "14").values())
        yield f"text2grad 14 {column}", total, sum(each), 0.011
    for values in rows("text2grad", "15").values():
        yield "text2grad 15", numbers(values)[1], 100 - numbers(values)[0], 1e-9
    for column in range(4):
        *each, total = (numbers(values)[column] for values in rows("span_feedback", "1").values())
        yield f"span_feedback 1 {column}", total, sum(each), 0
    hours = numbers([values[0] for values in rows("rubrics_to_tokens", "5").values()])
    yield "rubrics_to_tokens 5", hours[4], sum(hours[:4]), 1e-6
    yield "rubrics_to_tokens 5 without", hours[5], sum(hours[:3]), 1e-6


@pytest.mark.parametrize(
    ("what", "printed", "computed", "distance"), sums(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_means_and_totals_are_those_of_their_rows(what: str, printed: float, computed: float, distance: float) -> None:
    assert printed == pytest.approx(computed, abs=distance), what


def test_a_row_in_several_tables_has_one_value() -> None:
    """Ours of Table 1 is repeated in the ablations of the segment paper, RTT-AON in those of Rubrics to Tokens."""
    ours = rows("segment_ppo", "1")["Segment (Ours)"]
    for number, name in (("4", "Ours"), ("5", "Regression-based (Section 2.3)"), ("6", "Even Split (Section 2.3)")):
        assert rows("segment_ppo", number)[name] == [ours[0], ours[2], ours[5]]
    main = rows("rubrics_to_tokens", "1")
    for name, values in rows("rubrics_to_tokens", "3").items():
        group, row = name.split(" / w/ ")
        if row.startswith("Intra"):
            assert values == [value.split()[0] for value in main[f"{group} / + RTT-AON (Ours)"]]


def test_every_table_of_the_papers_is_there() -> None:
    tables = {name: list(content["tables"]) for name, content in DATA.items()}
    assert tables == {
        "rla": ["1", "2", "3", "4", "E"],
        "rubrics_to_tokens": list("12345678"),
        "segment_ppo": list("123456789"),
        "span_feedback": ["1", "2"],
        "text2grad": [str(number) for number in range(1, 20)],
    }
    for content in DATA.values():
        for number, table in content["tables"].items():
            assert all(len(row.values) == len(table["columns"]) for row in checks.rows_of(table)), number


def test_the_checker_accepts_the_changes_of_the_data() -> None:
    for table in DATA["rubrics_to_tokens"]["tables"].values():
        assert list(checks._changes(checks.rows_of(table))) == []


def test_a_table_is_read_by_row_and_column() -> None:
    published = read_published("segment_ppo.yaml::2", checks.DATA)
    assert published.value("Llama-3-8B-SFT / Token", "Arena-Hard # token") == "622"
    assert published.value("Llama-3-8B-SFT / Token", "no such column") is None
    assert published.value("Token", "Arena-Hard # token") is None
    with pytest.raises(UsageError, match='no table "77"'):
        read_published("segment_ppo.yaml::77", checks.DATA)

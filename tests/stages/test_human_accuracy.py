"""Verdicts of people on annotations: shares, agreement against a count of pairs, and mistakes in the file."""

from __future__ import annotations

import json
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from fgrl.cli import app
from fgrl.measuring.human_verdicts import JudgedAnnotation, numbers
from fgrl.measuring.span_sets import MarkedResponse
from fgrl.measuring.statistics import value_of
from fgrl.types import Sample

TEXT = "A lamp, and another lamp by the door."
SPANS = [{"start": 0, "end": 6}, {"start": 8, "end": 24, "label": -1}]


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("\n".join(map(json.dumps, lines)))


def run(folder: Path, verdicts: list[dict[str, Any]]) -> Result:
    annotation = {"by": "critic", "critique": "Twice a lamp.", "spans": SPANS}
    write(
        folder / "samples.jsonl",
        [{"id": id, "prompt": f"q{id}", "responses": [{"text": TEXT, "annotations": [annotation]}]} for id in "abc"],
    )
    write(folder / "verdicts.jsonl", verdicts)
    part = {"data": {"name": "jsonl", "path": "samples.jsonl"}, "verdicts": "verdicts.jsonl"}
    stage = {"name": "human_accuracy", "of": {"critic": part}}
    (folder / "recipe.yaml").write_text(json.dumps({"about": "People.", "stages": {"people": stage}}))
    return CliRunner().invoke(app, ["run", str(folder / "recipe.yaml"), "--runs", str(folder / "runs")])


VERDICTS: list[dict[str, Any]] = [
    {"id": "a", "by": "ada", "critique": "correct", "spans": ["Correct", "incorrect"]},
    {"id": "a", "by": "bob", "critique": True, "spans": [True, None]},
    {"id": "b", "by": "ada", "critique": False, "spans": [True, True], "response": TEXT},
    {"id": "b", "by": "bob", "critique": "correct"},
]


def test_from_files_to_numbers(tmp_path: Path) -> None:
    done = run(tmp_path, VERDICTS)
    assert done.exit_code == 0, done.output + str(done.exception)
    (path,) = (tmp_path / "runs" / "stages").glob("people-*/out/metrics.json")
    metrics = json.loads(path.read_text())["metrics"]
    human = {name: number["mean"] for name, number in metrics["human"]["critic"].items()}
    assert human["critique_correct"] == 3 / 4
    assert human["spans_correct"] == 4 / 5
    assert human["critique_majority"] == 1, "the vote on b is even"
    assert human["critique_agreement"] == 1 / 2
    assert human["missing"] == pytest.approx(1 / 3)
    assert metrics["span_accuracy"]["critic"]["negative_all"]["mean"] == 1 / 2
    record = json.loads((path.parent.parent / "stage.json").read_text())
    assert record["summary"]["critic: people"] == 2
    table = CliRunner().invoke(app, ["table", str(tmp_path / "recipe.yaml"), "--runs", str(tmp_path / "runs")])
    assert "critique_correct" in table.stdout, table.output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"id": "z", "by": "ada"}, "sample 'z' has no annotated response"),
        ({"id": "a", "by": "ada", "response": "other"}, "sample 'a' has no annotated response"),
        ({"id": "a", "by": "ada", "spans": [True]}, "it judges 1 spans, and the annotation has 2"),
        ({"id": "a", "by": "eve", "critique": "maybe"}, "wants true or false, or correct or incorrect"),
        ({"id": "a", "by": "eve", "critique": 1}, "wants true or false"),
    ],
)
def test_mistakes_are_shown_with_their_line(tmp_path: Path, line: dict[str, Any], message: str) -> None:
    done = run(tmp_path, [VERDICTS[2], line])
    assert done.exit_code != 0
    assert "verdicts.jsonl:2" in done.output.replace("\n", "")
    assert message in done.output.replace("\n", " ")


def test_a_person_judges_a_response_once(tmp_path: Path) -> None:
    done = run(tmp_path, [VERDICTS[0], VERDICTS[0]])
    assert "a second verdict of 'ada'" in done.output


VOTES = st.lists(st.dictionaries(st.sampled_from("pqr"), st.booleans(), max_size=3), min_size=1, max_size=8)


@given(VOTES)
def test_agreement_is_that_of_pairs(votes: list[dict[str, bool]]) -> None:
    items = [
        JudgedAnnotation(
            MarkedResponse(str(n), str(n), Sample(id=str(n), prompt="q"), "t", (), ()), own, people=set(own)
        )
        for n, own in enumerate(votes)
    ]
    found = {name: value_of(number) for name, number in numbers(items).items()}
    pairs = [a == b for own in votes for a, b in combinations(own.values(), 2)]
    assert found["critique_agreement"] == (pytest.approx(sum(pairs) / len(pairs)) if pairs else None)
    # Krippendorff: disagreement inside items against that of all verdicts that have a partner
    paired = [own for own in votes if len(own) > 1]
    verdicts = [value for own in paired for value in own.values()]
    if len(set(verdicts)) < 2:
        assert found["critique_alpha"] is None
        return
    observed = sum(sum(a != b for a, b in permutations(own.values(), 2)) / (len(own) - 1) for own in paired) / len(
        verdicts
    )
    every = list(permutations(verdicts, 2))
    expected = sum(a != b for a, b in every) / len(every)
    assert found["critique_alpha"] == pytest.approx(1 - observed / expected)

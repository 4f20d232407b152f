"""Lines that earlier versions wrote are read as the same samples: `tests/data/records` was written by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fgrl.types import Annotation, Pair, PairVerdict, Response, Sample, Span, read_jsonl, write_jsonl

RECORDS = Path(__file__).parents[1] / "data" / "records"
FILES = {"by-hand": 6, "drawn": 2, "scored": 2, "preferred": 2, "marked": 6, "negatives": 2}


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def samples(name: str) -> list[Sample]:
    return list(read_jsonl(RECORDS / f"{name}.jsonl", Sample))


@pytest.mark.parametrize(("name", "count"), FILES.items())
def test_nothing_of_a_line_is_lost(name: str, count: int) -> None:
    """Every text, score, span, critique and verdict of the line is in the sample, and nothing else is."""
    found = samples(name)
    assert len(found) == count
    for line, sample in zip(lines(name), found, strict=True):
        candidates = line.get("candidates", [])
        places = {"id": sample.id, "rubric": [one.model_dump(exclude_defaults=True) for one in sample.rubric]}
        assert places == {"id": line["id"], "rubric": line.get("rubric", [])}
        assert sample.model_dump(include={"prompt", "reference"}, exclude_defaults=True) == {
            key: line[key] for key in ("prompt", "reference") if key in line
        }
        for candidate, response in zip(candidates, sample.responses, strict=False):
            assert (response.text, response.score) == (candidate["text"], candidate.get("score"))
            assert response.finished is candidate.get("finished", True)
        assert len(sample.responses) - len(candidates) in (0, 1)
        if "response" in line:
            chosen = sample.chosen_response
            assert chosen is not None
            assert chosen.text == line["response"]
            assert [span.model_dump(exclude_defaults=True) for span in chosen.spans] == line.get("spans", [])
            assert [one.critique for one in chosen.annotations if one.critique] == (
                [line["critique"]] if "critique" in line else []
            )
        else:
            assert sample.chosen is None
        assert sum(len(response.annotations) for response in sample.responses) <= 1


@pytest.mark.parametrize("name", FILES)
def test_what_is_written_again_is_in_todays_form_and_the_same(name: str, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "again.jsonl", samples(name))
    text = (tmp_path / "again.jsonl").read_text(encoding="utf-8")
    assert not {"response", "spans", "critique", "candidates"} & {
        key for line in text.splitlines() for key in json.loads(line)
    }
    assert list(read_jsonl(tmp_path / "again.jsonl", Sample)) == samples(name)


def test_written_responses_and_candidates_by_hand() -> None:
    bare, written, both, empty, floating, same = samples("by-hand")
    assert (bare.responses, bare.chosen, bare.verdicts) == ([], None, None)
    assert (written.responses, written.chosen) == ([Response(text="Because.")], 0)
    assert written.meta == {"topic": 1, "preferences": ["a user's own column"]}, "not what `preference` wrote"
    assert both.responses == [
        Response(text="one", finished=True, score=0.0),
        Response(text="two", finished=False),
        Response(text="", finished=False, score=-1.5),
        Response(
            text="A written one.",
            annotations=[
                Annotation(
                    critique="Too short.",
                    spans=[Span(start=0, end=1, label=-1.0, reasons=["odd", "rude"]), Span(start=2, end=9)],
                )
            ],
        ),
    ], "candidates keep their places; whether a written response was finished is unknown"
    assert both.chosen == 3
    assert empty.responses == [Response(text="", annotations=[Annotation(spans=[Span(start=0, end=0, label=0.25)])])]
    assert floating.responses == []
    assert floating.meta == {"critique": "of nothing", "spans": [{"start": 0, "end": 3}]}
    assert same.chosen == 1, "the first candidate of the same text"
    assert [(one.text, one.score, len(one.annotations)) for one in same.responses] == [
        ("one", None, 0), ("two", 2.0, 1), ("two", 1.0, 0)
    ]  # fmt: skip


def test_verdicts_of_a_judge() -> None:
    compared, alone = samples("preferred")
    assert compared.verdicts == [
        PairVerdict(first=0, second=1, verdict="second", p=0.0, agree=True),
        PairVerdict(first=0, second=2, verdict=None),
        PairVerdict(first=1, second=2, verdict="first", p=1.0, agree=True),
    ]
    assert compared.meta == {"topic": 1}
    assert (alone.verdicts, alone.meta) == ([], {}), (
        "it was compared with nothing, which is not the same as not compared"
    )


def test_a_chosen_candidate_keeps_its_score() -> None:
    scored, _ = samples("scored")
    assert scored.chosen_response == Response(text="The sea is brown.", score=0.5, finished=False)
    assert [response.score for response in scored.responses] == [0.5, None, 0.0]


def test_pairs() -> None:
    pairs = list(read_jsonl(RECORDS / "pairs.jsonl", Pair))
    assert [pair.model_dump(exclude_defaults=True) for pair in pairs] == lines("pairs")
    assert [(pair.chosen, pair.rejected) for pair in pairs] == [
        ("An old mill.", "The sea is brown."), ("An old mill.", "You fool, the sea!")
    ]  # fmt: skip

"""Small local JSON files are read without `datasets`; what is read is the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fgrl.data import hub
from fgrl.kinds import Reader
from fgrl.registry import build

ROWS = [
    {"id": 3, "prompt": "A café\u2028by the sea", "response": "Yes.", "note": "2024-01-01 10:00:00"},
    {"id": 5, "prompt": "no", "response": "🙂"},
    {"prompt": "Why?", "id": 7, "response": "It rains", "note": None},
]


def reader(file: Path) -> Reader:
    columns = {"id": "id", "meta": ["note"]}
    return build(Reader, {"name": "hf", "path": "json", "files": [str(file)], "format": "sft", "columns": columns})


@pytest.mark.parametrize("shape", ["lines", "list"])
def test_the_samples_are_those_of_the_library(tmp_path, monkeypatch, shape):
    file = tmp_path / "rows.json"
    text = "\n".join(map(json.dumps, ROWS)) if shape == "lines" else json.dumps(ROWS)
    file.write_text(text, encoding="utf-8")
    monkeypatch.setattr(hub, "datasets", None)  # not loaded
    plain = list(reader(file).read())
    monkeypatch.undo()
    monkeypatch.setattr(hub, "MOST_BYTES", 0)
    by_library = list(reader(file).read())
    assert [sample.meta["note"] for sample in plain] == ["2024-01-01 10:00:00", None, None]
    assert str(by_library[0].meta["note"]) == "2024-01-01 10:00:00"  # a text, or what the library takes for a time
    plain, by_library = (
        [sample.model_copy(update={"meta": {}}) for sample in samples] for samples in (plain, by_library)
    )
    assert plain == by_library


def test_part_of_a_split_is_left_to_the_library(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    part = reader(file).model_copy(update={"split": "train[:2]"})
    assert [sample.id for sample in part.read()] == ["3", "5"]

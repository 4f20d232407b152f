"""Every bad row of a file is reported at once, up to a number that a person reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fgrl.base.errors import DataError
from fgrl.components.readers.jsonl import JsonLines
from fgrl.data.mistakes import LOOKED, SHOWN, Mistakes


def problems(reader: JsonLines) -> list[str]:
    with pytest.raises(DataError) as raised:
        list(reader.read())
    return str(raised.value).splitlines()


def written(folder: Path, *lines: object) -> str:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return str(path)


def test_two_bad_rows_are_both_reported(tmp_path: Path) -> None:
    path = written(tmp_path, {"prompt": "a"}, {"prompt": 3}, {"prompt": "b"}, {"prompt": None})
    first, second, last = problems(JsonLines(path=path, format="prompts"))
    assert first.startswith(f"{path}:2: ")
    assert second.startswith(f"{path}:4: ")
    assert last.startswith("2 bad rows")
    assert "bad_rows: drop" in last


def test_a_single_bad_row_is_one_line(tmp_path: Path) -> None:
    (line,) = problems(JsonLines(path=written(tmp_path, {"prompt": "a"}, {"prompt": 3}), format="prompts"))
    assert line.startswith(f"{tmp_path / 'rows.jsonl'}:2: ")
    assert "bad_rows: drop" in line


def test_lines_that_are_no_json_are_all_reported(tmp_path: Path) -> None:
    first, second, count = problems(JsonLines(path=written(tmp_path, "{", {"prompt": "a"}, "[1]"), format="prompts"))
    assert ":1:" in first
    assert ":3:" in second
    assert count == "2 bad rows"


def test_records_of_our_own_too(tmp_path: Path) -> None:
    fine = {"id": "a", "prompt": [{"role": "user", "content": "hi"}]}
    path = written(tmp_path, fine, {"id": "b"}, fine, "{")
    lines = problems(JsonLines(path=path))
    text = "\n".join(lines)
    assert all(f"{path}:{number}" in text for number in (2, 3, 4))
    assert 'the id "a" is already that of' in text
    assert lines[-1] == "3 bad rows (`bad_rows: drop` leaves such rows out and counts them)"


def test_many_are_counted(tmp_path: Path) -> None:
    lines = problems(JsonLines(path=written(tmp_path, {"prompt": "a"}, *[{"prompt": 3}] * 50), format="prompts"))
    assert len(lines) == SHOWN + 2
    assert lines[-2] == f"... and {50 - SHOWN} more"
    assert lines[-1].startswith("50 bad rows")


def test_looking_ends_somewhere() -> None:
    mistakes, rows = Mistakes(), 0
    mistakes.add("row 1: wrong")
    while mistakes.still_looking():
        rows += 1
    assert rows == LOOKED - 1
    mistakes.add("row 2: wrong")
    assert str(mistakes.error()).endswith("2 bad rows among those looked at")

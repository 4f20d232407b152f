"""Files that may be damaged."""

from __future__ import annotations

import math
from pathlib import Path

from fgrl.runs.reading import finite, read_json, read_lines


def test_finite() -> None:
    assert finite(3) == 3.0
    assert [finite(value) for value in (True, "1", None, math.nan, math.inf, 10**400)] == [None] * 6


def test_what_cannot_be_read_is_a_note(tmp_path: Path) -> None:
    notes: list[str] = []
    assert read_json(tmp_path / "gone.json", notes, what="the run was killed") == {}
    (tmp_path / "half.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    assert read_json(tmp_path / "half.json", notes) == read_json(tmp_path / "list.json", notes) == {}
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n[]\n\n{"st')
    assert list(read_lines(tmp_path / "log.jsonl", notes, "policy")) == [{"step": 1}]
    gone, half, other, lines = notes
    assert gone.startswith("gone.json cannot be read")
    assert gone.endswith("the run was killed.")
    assert half.startswith("half.json is not JSON")
    assert other == "list.json does not contain a JSON object."
    assert lines == "policy: 2 lines of log.jsonl could not be read and were left out."

"""The first rows of a table in a large local file, without reading the rest of it."""

from __future__ import annotations

import csv
import io
from itertools import islice
from pathlib import Path

from fgrl.data.row import Row
from fgrl.data.text_file import check_csv, parse_row, read_text


def of_csv(file: Path, count: int, most: int) -> list[Row]:
    """Return the first rows of a CSV file of at most `most` bytes; [] for a larger one. Raises `DataError`."""
    if not file.is_file() or file.stat().st_size > most:
        return []
    check_csv(file)
    return list(islice(csv.DictReader(io.StringIO(read_text(file))), count))


def of_json_lines(file: Path, count: int) -> list[Row]:
    """Return the first rows of a file of JSON lines; [] for another file. Raises `DataError`."""
    if file.suffix not in (".jsonl", ".ndjson") or not file.is_file():
        return []
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        numbered = islice(((number, line) for number, line in enumerate(lines, start=1) if line.strip()), count)
        return [parse_row(line, file, number) for number, line in numbered]

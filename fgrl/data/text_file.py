"""Text, JSON and CSV files. Every problem with a file is a `DataError` with the file and, if possible, the line."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fgrl.base.errors import DataError
from fgrl.base.files import kept
from fgrl.data.mistakes import Mistakes
from fgrl.data.row import Row

DELIMITERS = ",;\t|"
"""Delimiters of CSV files, the most usual first."""
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Escape of half of a character beyond U+FFFF; two of them together encode the character."""


def read_text(path: str | Path) -> str:
    r"""Return the text of a UTF-8 file, with or without a byte order mark; every line end is `\n`. Raises
    `DataError`.
    """
    check_utf8(path)
    return kept(path).read_text(encoding="utf-8-sig")


def check_utf8(path: str | Path) -> None:
    """Raise `DataError` for a file that cannot be read, and for the first line that is not UTF-8."""
    number = 0
    try:
        with kept(path).open("rb") as file:
            for line in file:
                number += 1
                line.decode()
    except UnicodeDecodeError as error:
        if error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise DataError(f"{path}: this is UTF-16; save the file as UTF-8") from None
        if error.object.startswith(b"\x1f\x8b"):
            raise DataError(f"{path}: this is packed (gzip); unpack it: gunzip {path}") from None
        byte = f"byte 0x{error.object[error.start]:02x}"
        raise DataError(f"{path}:{number}: not UTF-8: {byte}, {error.reason}; save the file as UTF-8") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def numbered_lines(path: str | Path) -> list[tuple[int, str]]:
    """Return the lines that are not blank, with their numbers from 1. Raises `DataError`."""
    lines = enumerate(read_text(path).split("\n"), start=1)
    return [(number, line) for number, line in lines if line.strip()]


def parse_json(text: str, path: str | Path, line: int = 1) -> Any:
    """Return the JSON that begins in a line of a file. Raises `DataError`, also for values that cannot be written
    again: half of a surrogate pair, infinite numbers.
    """
    try:
        value = json.loads(text, parse_float=_finite)
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        place = f"{path}:{line + error.lineno - 1}:{error.colno}"
        raise DataError(f"{place}: not valid JSON: {_slip(error) or error.msg}") from None
    except (ValueError, RecursionError) as error:  # a whole number of thousands of digits, too
        raise DataError(f"{path}:{line}: {error}") from None


def _slip(error: json.JSONDecodeError) -> str | None:
    """Return a frequent mistake in words, with its correction."""
    before, rest = error.doc[: error.pos].rstrip(), error.doc[error.pos :].lstrip()
    if error.doc.startswith("\ufeff"):
        return "it begins with a byte order mark (U+FEFF), as where files were joined: remove it"
    if rest.startswith("'"):
        return "it has single quotes, as Python prints them; JSON has double quotes (json.dumps writes them)"
    if before.endswith(",") and rest[:1] in ("}", "]", ""):
        return "remove the comma behind the last value"
    if not rest:
        return f"it ends too early ({error.msg[0].lower()}{error.msg[1:]}); is a }}, ] or quote missing?"
    return None


def parse_row(text: str, path: str | Path, line: int) -> Row:
    """Return a line that is one JSON object. Raises `DataError`."""
    return _as_row(parse_json(text, path, line), f"{path}:{line}")


def read_json_rows(paths: Sequence[str | Path]) -> list[Row]:
    """Return the rows of files that hold a list of objects each, or one object per line, unchanged: a column may have a
    different type in each row, which Arrow does not allow. Raises `DataError` with the place.
    """
    return [row for path in paths for row in _rows_of(path)]


def parse_rows(lines: Sequence[tuple[int, str]], path: str | Path) -> list[Row]:
    """Return the rows of numbered lines that are one JSON object each. Raises `DataError` with all lines that are
    not.
    """
    first = lines[0][1].lstrip() if lines else ""
    if not lines:
        raise DataError(f"{path}: no rows; wants one JSON object per line")
    if first[:1] in ("[", "<") or (first[:1] not in ("{", "\ufeff") and Path(path).suffix in (".csv", ".tsv")):
        kind = "csv" if first[:1] != "[" else "json"
        raise DataError(
            f"{path}:{lines[0][0]}: this is not JSON lines, which have one JSON object per line; a table or a JSON list "
            f"is read by {{name: hf, path: {kind}, files: [{Path(path).name}], format: ...}}"
        )
    mistakes, rows = Mistakes(), []
    for number, line in lines:
        if not mistakes.still_looking():
            break
        try:
            rows.append(parse_row(line, path, number))
        except DataError as error:
            mistakes.add(str(error))
    if mistakes:
        raise mistakes.error()
    return rows


def with_all_columns(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, each with all columns that occur in any of them; a missing value is None."""
    columns = dict.fromkeys(name for row in rows for name in row)
    return [row if len(row) == len(columns) else {name: row.get(name) for name in columns} for row in rows]


def delimiter_of(path: str | Path) -> str:
    """Return the delimiter of the fields of a CSV file: a comma, or, if a comma does not work, the sign that divides
    its first lines into an equal number of fields.
    """
    for sign in DELIMITERS:
        with Path(path).open(encoding="utf-8-sig", errors="replace", newline="") as file:
            counts = {len(row) for row in itertools.islice(csv.reader(file, delimiter=sign), 10) if row}
        if len(counts) == 1 and counts != {1}:
            return sign
    return ","


def check_csv(path: str | Path, delimiter: str = ",") -> None:
    """Raise `DataError` for a line of a CSV file that has more or fewer fields than the first line."""
    rows = csv.reader(io.StringIO(read_text(path)), delimiter=delimiter, strict=True)
    columns = None
    try:
        for row in rows:
            columns = columns or len(row)
            if row and len(row) != columns:
                raise DataError(f"{path}:{rows.line_num}: {len(row)} fields, but the first line has {columns}")
    except csv.Error as error:
        raise DataError(f"{path}:{rows.line_num}: not valid CSV: {error}") from None


def _rows_of(path: str | Path) -> list[Row]:
    text = read_text(path)
    if text.lstrip().startswith("["):
        return [_as_row(row, f"{path}: row {number}") for number, row in enumerate(parse_json(text, path), start=1)]
    return parse_rows(numbered_lines(path), path)


def _as_row(value: Any, place: str) -> Row:
    if not isinstance(value, dict):
        raise DataError(f"{place}: wants a JSON object, got {type(value).__name__}")
    return value


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text[:20]} is too large for a number")
    return number


def first_rows(file: Path, count: int, most: int, kind: str = "") -> list[Row]:
    """Return the first rows of a file of JSON lines, or of a CSV file of at most `most` bytes; [] for another file. The
    rest of a file of JSON lines is not read, and `datasets` is not loaded. kind: "csv" for a CSV file of any name.
    Raises `DataError`.
    """
    if file.suffix in (".jsonl", ".ndjson") and file.is_file():
        with file.open(encoding="utf-8-sig", errors="replace") as lines:
            numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
            return [parse_row(line, file, number) for number, line in itertools.islice(numbered, count)]
    if not (kind == "csv" or file.suffix in (".csv", ".tsv")) or not file.is_file() or file.stat().st_size > most:
        return []
    sign = delimiter_of(file)
    check_csv(file, sign)
    return list(itertools.islice(csv.DictReader(io.StringIO(read_text(file)), delimiter=sign), count))

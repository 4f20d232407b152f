"""Metrics that a stage logs: `log.jsonl` and `metrics.csv`."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fgrl.base.files import write_text


class Log:
    """Metrics in `log.jsonl` (one line a call: step, time, metrics) and in `metrics.csv`.

    A number that is not finite is `null` in the JSON (JSON has no NaN) and `nan` or `inf` in the CSV.
    """

    def __init__(self, folder: Path) -> None:
        self.jsonl = folder / "log.jsonl"
        self.csv = folder / "metrics.csv"
        self._columns: list[str] | None = None

    def append(self, metrics: Mapping[str, float], step: int) -> None:
        if self._columns is None:
            self.rewind(step, metrics)
        row: dict[str, Any] = {"step": step, "time": round(time.time(), 3), **metrics}
        with self.jsonl.open("a", encoding="utf-8") as file:
            file.write(json.dumps({name: _finite(value) for name, value in row.items()}, allow_nan=False) + "\n")
        assert self._columns is not None
        if set(row) <= set(self._columns):
            with self.csv.open("a", encoding="utf-8", newline="") as file:
                csv.DictWriter(file, self._columns).writerow(row)
        else:
            self._columns += [name for name in row if name not in self._columns]
            self._rewrite_csv(row)

    def rewind(self, step: int, metrics: Collection[str]) -> None:
        """Keep the rows before `step`, and the rows at `step` that have none of `metrics`. A line that was cut off when
        the process was killed is removed too.

        One step can have the numbers of an evaluation and of the training, and a killed process may have logged only
        the later of the two.
        """
        rows = [
            row
            for row in read_log(self.jsonl)
            if row["step"] < step or (row["step"] == step and not row.keys() & set(metrics))
        ]
        self._columns = ["step", "time"]
        for row in rows:
            self._columns += [name for name in row if name not in self._columns]
        self.jsonl.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.jsonl, "".join(json.dumps(row) + "\n" for row in rows))
        self._rewrite_csv()

    def _rewrite_csv(self, last: Mapping[str, Any] | None = None) -> None:
        """Write all rows of `log.jsonl` under the current columns. `last` is its last row before rounding to JSON."""
        rows: list[Mapping[str, Any]] = list(read_log(self.jsonl))
        if last is not None:
            rows[-1] = last
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self._columns or ["step", "time"])
        writer.writeheader()
        for row in rows:
            writer.writerow({name: "nan" if value is None else value for name, value in row.items()})
        write_text(self.csv, text.getvalue())


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a `log.jsonl`, or an empty list if the file does not exist. An incomplete last line is left
    out.
    """
    if not path.exists():
        return []
    rows = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        try:
            if line:
                rows.append(json.loads(line))
        except json.JSONDecodeError:
            if number < len(lines):
                raise ValueError(f"{path}:{number}: not a line of JSON") from None
    return rows


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value

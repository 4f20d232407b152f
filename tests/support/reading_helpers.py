"""What the tests of readers share: files as the hub has them, prompt files, and a run that remembers what was said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets

PROMPTS = Path(__file__).resolve().parents[2] / "prompts"


class Listening:
    """A run that remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


class Folder:
    """Writes data and prompt files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def parquet(self, rows: list[dict[str, Any]], features: datasets.Features, name: str = "data") -> dict[str, Any]:
        """The rows with the hub's types; returns where to read them."""
        file = self.path / f"{name}.parquet"
        datasets.Dataset.from_list(rows, features=features).to_parquet(str(file))
        return {"path": "parquet", "files": [str(file)]}

    def jsonl(self, rows: list[dict[str, Any]], name: str = "data") -> dict[str, Any]:
        file = self.path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return {"path": "json", "files": [str(file)]}

    def prompt(self, text: str, name: str = "prompt") -> str:
        file = self.path / f"{name}.txt"
        file.write_text(text, encoding="utf-8")
        return str(file)


def read(reader: Any) -> tuple[list[Any], list[str]]:
    """All samples, and what was said."""
    run = Listening()
    reader.setup(run)
    return list(reader.read()), run.said

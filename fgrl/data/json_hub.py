"""Data sets whose JSON files are read as they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import PrivateAttr

from fgrl.data.hub import Hub, download
from fgrl.data.row import Row
from fgrl.data.text_file import read_json_rows
from fgrl.kinds import Expected, Peek

JSON_FILES = (".json", ".jsonl")


class JsonHub(Hub):
    """Rows of a data set; JSON files are read as they are, whatever types their columns have, others by `datasets`."""

    HUB_FILES: ClassVar[tuple[str, ...]] = ()
    """JSON files on the hub whose columns have not one type each."""

    _expected: Expected | None = PrivateAttr(None)

    def expects(self, peek: Peek) -> Expected | None:
        """Local files are read and counted; of data on the hub it is `limit` or `expect_rows`, where the recipe sets them."""
        if not self.files and not Path(self.path).is_dir():
            return super().expects(peek)
        if self._expected is None:
            self._expected = Expected(sum(1 for _ in self.read()))
        return self._expected

    def rows(self) -> tuple[str, Sequence[Row]]:
        names = list(self.data_files or self.HUB_FILES)
        if self.files and self.path == "json":
            return ", ".join(self.files), read_json_rows(self.files)
        if self.files or not names or not all(name.endswith(JSON_FILES) for name in names):
            return super().rows()
        folder = Path(self.path)
        if folder.is_dir():
            paths = [folder / name for name in names]
            return ", ".join(map(str, paths)), read_json_rows(paths)
        where, paths = download(self.path, names, self.revision, self.say)
        return where, read_json_rows(paths)

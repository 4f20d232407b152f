"""The folder of a stage, `runs/stages/<stage>-<key>/`. What is in it is read when it is asked for."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from fgrl.errors import DataError
from fgrl.results.reading import mapping
from fgrl.results.records import STAGE, StageRecord, find_stage, parse_stage

SETTINGS = "recipe.yaml"


@dataclass(frozen=True)
class StageFolder:
    """A stage, finished or not."""

    folder: Path
    called: str = ""
    """Its name in the recipe that it was found by."""
    about: str = ""
    """Description of that recipe."""

    @cached_property
    def _found(self) -> StageRecord | None:
        return find_stage(self.folder)

    @property
    def finished(self) -> bool:
        """True if it has a record, whatever state its product is in."""
        return self._found is not None

    @property
    def record(self) -> StageRecord:
        """Raises `Broken` where it has none."""
        return self._found or parse_stage(self.folder)

    @property
    def name(self) -> str:
        return self.called or (self.record.name if self.finished else self.folder.name)

    @property
    def key(self) -> str:
        return self.folder.name.rpartition("-")[2]

    @property
    def out(self) -> Path:
        """Its product."""
        return self.folder / "out"

    @cached_property
    def _recipe(self) -> dict[str, Any]:
        file = self.folder / SETTINGS
        try:
            return mapping(yaml.safe_load(file.read_text(encoding="utf-8"))) if file.is_file() else {}
        except yaml.YAMLError as error:
            raise DataError(f"{file}: cannot be read: {error}") from None

    @property
    def seed(self) -> int:
        seed = self._recipe.get("seed")
        return seed if isinstance(seed, int) else 0

    @property
    def settings(self) -> dict[str, Any]:
        """Its settings, as its recipe resolved them."""
        return mapping(next(iter(mapping(self._recipe.get("stages")).values()), {}))

    @cached_property
    def bytes(self) -> int:
        return size_of(self.folder)

    @property
    def changed(self) -> float:
        """When it was last worked on, in seconds since 1970."""
        own = [self.folder, *(self.folder / name for name in (STAGE, "log.jsonl", "last.ckpt"))]
        return max((path.lstat().st_mtime for path in own if path.exists()), default=0.0)


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder. Links are not followed; what vanishes meanwhile counts as nothing."""
    total = 0
    for place, _folders, names in os.walk(folder):
        for name in names:
            try:
                info = os.lstat(os.path.join(place, name))  # noqa: PTH118
            except FileNotFoundError:
                continue
            total += info.st_size if stat.S_ISREG(info.st_mode) else 0
    return total

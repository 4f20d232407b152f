"""Drawn responses on disk, before they are scored: a run that is killed meanwhile goes on with the same responses.

The random streams alone do not promise that: an engine in another process may draw others after a restart.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fgrl.files import write_json
from fgrl.kinds import Drawer, Drawn, DrawRequest

FILE = "drawn-{rank}.json"


class Kept(Drawer):
    """Another drawer, whose last responses are kept in a file. New weights go to that drawer, which is also the one to
    close.
    """

    def __init__(self, drawer: Drawer, file: Path) -> None:
        self._drawer, self._file = drawer, file

    def draw(self, requests: Sequence[DrawRequest]) -> list[Drawn]:
        """Return the responses in the file, where they are those to these requests; else draw them and write the
        file.
        """
        asked = fingerprint(requests, self._drawer.version)
        if (kept := self._kept(asked)) is not None:
            return kept
        drawn = self._drawer.draw(requests)
        write_json(self._file, {"asked": asked, "drawn": [asdict(each) for each in drawn]})
        return drawn

    def _kept(self, asked: str) -> list[Drawn] | None:
        try:
            kept: Any = json.loads(self._file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # a file that was cut off has no responses
            return None
        return [Drawn(**each) for each in kept["drawn"]] if kept["asked"] == asked else None


def fingerprint(requests: Sequence[DrawRequest], version: int) -> str:
    """Return a hash of everything that decides what is drawn, apart from the weights, which `version` stands for."""
    digest = hashlib.sha256(str(version).encode())
    for one in requests:
        sampling = one.sampling.model_dump(exclude={"batch_size"})
        digest.update(json.dumps([list(one.prompt), sampling, one.seed, one.row, repr(one.early)]).encode())
    return digest.hexdigest()

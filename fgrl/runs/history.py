"""Contents of a folder of runs: the runs, the stages that each used, and their sizes.

Only small files are read, so that hundreds of runs are listed quickly. A missing or broken file leaves a field empty,
and never makes the list fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from fgrl.runs.folders import Runs
from fgrl.runs.reading import mapping, read_json
from fgrl.runs.run import Run
from fgrl.runs.stage import Stage


class History:
    """Runs and stages in a folder of runs. Raises `UsageError` if the folder is a file."""

    def __init__(self, runs: Runs) -> None:
        runs.check()
        self.runs = runs
        self.by_key: dict[str, list[Stage]] = {}
        """Stages by key: a stage that was renamed while it was unfinished may have two folders."""
        for folder in sorted(runs.stages.glob("*-*")):
            if not folder.is_symlink() and folder.is_dir():
                self.by_key.setdefault(folder.name.rpartition("-")[2], []).append(Stage(folder))
        self.entries = [Run(folder, quick=True) for folder in runs.every_invocation() if not folder.is_symlink()]
        """The runs, the newest first."""

    @cached_property
    def stages(self) -> list[Stage]:
        return [stage for stages in self.by_key.values() for stage in stages]

    @property
    def bytes(self) -> int:
        """Return the bytes of all stages and of the runs' own folders; a shared stage counts once."""
        return sum(stage.bytes for stage in self.stages) + sum(run.bytes for run in self.entries)

    def used_by(self, run: Run) -> list[Stage]:
        """Return the stages of a run that have a folder."""
        return [stage for key in run.keys.values() for stage in self.by_key.get(key, [])]

    def done(self, run: Run) -> int:
        """Return the number of a run's finished stages."""
        return sum(any(stage.finished for stage in self.by_key.get(key, [])) for key in run.keys.values())

    def needed_by(self, runs: Iterable[Run]) -> set[str]:
        """Return the keys of the stages that these runs used or will use, and of the stages whose products these stages
        read.
        """
        needed: set[str] = set()
        waiting = [key for run in runs for key in (*run.keys.values(), *run.reads)]
        while waiting:
            key = waiting.pop()
            if key not in needed:
                needed.add(key)
                waiting += [above for stage in self.by_key.get(key, []) for above in self._upstream(stage)]
        return needed

    def _upstream(self, stage: Stage) -> Iterator[str]:
        """Yield the keys of the stages whose products a stage read, and of the stages that contain the base models of
        its adapters.
        """
        if stage.finished:
            yield from stage.record.upstream.values()
        for file in (*stage.out.glob("fgrl.json"), *stage.out.glob("*/fgrl.json"), *stage.out.glob("*/*/fgrl.json")):
            base = mapping(mapping(read_json(file, []).get("model")).get("base"))
            if base.get("local"):
                for place in (str(base.get("name") or ""), str(file.parent / str(base.get("relative") or ""))):
                    if key := self.runs.key_in(place):
                        yield key

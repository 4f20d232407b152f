"""What a running stage is given: its folders, its seed, the products of other stages, a log, a voice.

A stage that is killed starts again in the same `dir` with an empty `out`: whatever it wants to go on from lies in `dir`,
whatever it hands on lies in `out`. `stage.json`, written by the pipeline after the stage returned, says that it is done.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import random
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl import lazy
from fgrl.console import Console, Ticking
from fgrl.files import write_text
from fgrl.types import Ref

if TYPE_CHECKING:
    from fgrl.specs import ModelSpec
models = lazy.load("fgrl.models")
torch = lazy.load("torch")
numpy = lazy.load("numpy")
pytorch = lazy.load("torch")


class Run:
    """One stage's run. `fgrl.kinds.Run` is the part of it that components may rely on."""

    def __init__(
        self,
        stage: str,
        folder: Path,
        *,
        cache: Path,
        seed: int = 0,
        products: Mapping[str, Path] | None = None,
        console: Console | None = None,
        rank: int = 0,
        limit: int | None = None,
        interrupted: Callable[[], bool] = lambda: False,
        tracker: Any = None,
        accelerator: str = "auto",
    ) -> None:
        self.stage = stage
        self.seed = seed
        self.rank = rank
        """Which process of a distributed stage; only 0 writes and speaks."""
        self.limit = limit
        """`--limit`: read at most this many samples, take at most this many steps. Part of the stage's key."""
        self.accelerator = accelerator
        """What the stage's settings say: "cpu" keeps models off a GPU that is there."""
        self.dir = folder
        self.out = folder / "out"
        self.cache = cache
        self.products = dict(products or {})
        self.console = console or Console(quiet=True)
        self.noticed = False
        """Somebody asked `interrupted` and was told yes: what the stage returns is not a finished product."""
        self._interrupted = interrupted
        self._tracker = tracker
        self._log = Log(folder) if rank == 0 else None
        self._models: dict[str, Any] = {}

    @property
    def interrupted(self) -> bool:
        """Ctrl-C was pressed: save and leave. A stage that asks and is told yes counts as unfinished."""
        asked = self._interrupted()
        self.noticed = self.noticed or asked
        return asked

    def stop_if_interrupted(self) -> None:
        """Raise `KeyboardInterrupt` after a Ctrl-C: everything up to here is on disk."""
        if self.interrupted:
            raise KeyboardInterrupt

    def path(self, ref: Ref[Any]) -> Path:
        """The product folder of another stage."""
        if ref.stage not in self.products:
            known = ", ".join(self.products) or "none"
            raise KeyError(f"stage {self.stage} did not name {ref!r} in its fields; its upstream stages: {known}")
        return self.products[ref.stage]

    def model(self, spec: ModelSpec, *, head: str = "lm", trainable: bool = False) -> Any:
        """A loaded `fgrl.models.LanguageModel`; frozen ones are shared within the stage."""
        if trainable:
            return models.load(spec, head=head, trainable=True, resolve=self.path).to(self.device)
        key = json.dumps([head, spec.model_dump(mode="json")], sort_keys=True)
        if key not in self._models:
            self._models[key] = models.load(spec, head=head, trainable=False, resolve=self.path).to(self.device)
        return self._models[key]

    @property
    def device(self) -> Any:
        """The GPU of this process, or the CPU: there is no GPU, or the stage does not want it."""
        if self.accelerator == "cpu" or not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Append to `log.jsonl` and `metrics.csv` (and W&B). Steps rise; the first call of a process cuts what an
        earlier, killed process logged at this step and after it."""
        if self._log is None:
            return
        numbers = {name: float(value) for name, value in metrics.items()}
        self._log.append(numbers, step)
        if self._tracker is not None:
            self._tracker.log(self.stage, numbers, step)

    def rewind(self, step: int) -> None:
        """Drop logged rows from `step` on: they are going to be computed again."""
        if self._log is not None:
            self._log.rewind(step)

    def say(self, text: str) -> None:
        """One line for the person at the terminal (stderr)."""
        if self.rank == 0:
            self.console.say(text)

    def progress(self, what: str, total: int, done: int = 0) -> AbstractContextManager[Ticking]:
        """A progress line with ETA; `done` steps were already taken before this process."""
        return self.console.progress(what, total, done)

    def seed_libraries(self, *, torch: bool = True) -> None:
        """Seed Python, NumPy and torch, so that a stage draws the same whatever ran before it in this process.

        A stage whose class says `uses_torch = False` is spared the seconds that loading torch takes.
        """
        random.seed(self.seed)
        if torch:
            numpy.random.seed(self.seed % 2**32)
            pytorch.manual_seed(self.seed)


class Log:
    """`log.jsonl` (one line a call: step, time, metrics) and the same as `metrics.csv`.

    A number that is not finite is `null` in the JSON (JSON has no NaN) and `nan` or `inf` in the CSV.
    """

    def __init__(self, folder: Path) -> None:
        self.jsonl = folder / "log.jsonl"
        self.csv = folder / "metrics.csv"
        self._columns: list[str] | None = None

    def append(self, metrics: Mapping[str, float], step: int) -> None:
        if self._columns is None:
            self.rewind(step)
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

    def rewind(self, step: int) -> None:
        """Keep the rows before `step`; a line that a kill cut in half goes too."""
        rows = [row for row in read_log(self.jsonl) if row["step"] < step]
        self._columns = ["step", "time"]
        for row in rows:
            self._columns += [name for name in row if name not in self._columns]
        self.jsonl.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.jsonl, "".join(json.dumps(row) + "\n" for row in rows))
        self._rewrite_csv()

    def _rewrite_csv(self, last: Mapping[str, Any] | None = None) -> None:
        """All rows of `log.jsonl` under the columns of now; `last` is its last row before rounding to JSON."""
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
    """Rows of a `log.jsonl`; none when there is no file. A last line that is cut in half is left out."""
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

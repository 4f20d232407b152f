"""Small stages for the tests of the pipeline and of the command line; recipes import this file."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from fgrl.base.errors import DataError, OverBudget, Stopped, UsageError
from fgrl.kinds import Run, Stage
from fgrl.kinds.specs import ModelSpec
from fgrl.pages.report.marked_tokens import MarkedTokens as Shown
from fgrl.registry import File, Settings, Unkeyed, register
from fgrl.types import Ref, Report, Samples


class Inner(Settings):
    """Nested settings."""

    rate: float = 0.5
    """A number."""
    table: dict[str, int] = {}
    """A mapping."""


@register("counting")
class Counting(Stage):
    """Counts to `steps`, one line a step in `run.dir`, and goes on after a kill."""

    makes = Samples
    uses_torch = False

    steps: int = Field(3, ge=1)
    """How far to count."""
    inner: Inner = Inner()
    """Nested settings."""
    source: Ref[Samples] | None = None
    """What to count on from."""
    words: Annotated[str | None, File] = None
    """A file."""
    model: ModelSpec | None = None
    """A model that is only named."""
    pause: Annotated[float, Unkeyed] = 0.0
    """Seconds a step."""
    devices: Annotated[int, Unkeyed] = 1
    """Processes."""

    def processes(self) -> int:
        return self.devices

    def run(self, run: Run) -> dict[str, Any]:
        state = run.dir / "state.txt"
        done = state.read_text().split() if state.exists() else []
        base = (run.path(self.source) / "samples.jsonl").read_text() if self.source is not None else ""
        with run.progress("counting", self.steps, len(done)) as ticker:
            for step in range(len(done), self.steps):
                (run.out / "half.txt").write_text("half written")
                time.sleep(self.pause)
                run.log({"count": step}, step)  # before the state: what is counted as done has been logged
                done.append(f"{step}:{os.getpid()}")
                temporary = state.with_suffix(".partial")
                temporary.write_text(" ".join(done))
                temporary.replace(state)
                ticker.advance(1, count=step)
                if run.interrupted:
                    (run.dir / f"stopped-{run.rank}").touch()
                run.stop_if_interrupted()
        if run.rank == 0:
            numbers = " ".join(item.split(":")[0] for item in done)
            (run.out / "samples.jsonl").write_text(f"{base}{numbers}\n")
            (run.out / "half.txt").unlink(missing_ok=True)
        return {"counted": len(done)}

    def inspect(self, run: Run, count: int) -> Iterator[Shown]:
        for number in range(count + 1):
            yield Shown(f"sample {number}", ["one", " two"], ["prompt", "response"], [-1, 0], [0.0, 0.5])


ERRORS = {
    "data": DataError("rows.jsonl:3: no prompt"),
    "budget": OverBudget("1.00 EUR of 1.00 EUR are spent"),
    "stopped": Stopped("kl is 40 nats at step 3"),
    "full": OSError(errno.ENOSPC, "No space left on device"),
    "usage": UsageError("no such device"),
    "bug": ZeroDivisionError("a bug"),
}


@register("failing")
class Failing(Stage):
    """Fails in a chosen way."""

    makes = Samples
    uses_torch = False

    how: str = "bug"
    """Which way."""
    devices: Annotated[int, Unkeyed] = 1
    """Processes."""

    def processes(self) -> int:
        return self.devices

    def run(self, run: Run) -> dict[str, Any]:
        if self.how == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            run.stop_if_interrupted()
        if self.how == "abort":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        if self.how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "late":  # Ctrl-C that nobody asked about: the work is whole
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            return {}
        raise ERRORS[self.how]


@register("measuring")
class Measuring(Stage):
    """Measures a number that is in its settings."""

    makes = Report
    uses_torch = False

    value: float = 0.5
    """What to find."""
    of: Ref[Samples] | None = None
    """What to measure."""

    def run(self, run: Run) -> dict[str, Any]:
        import json

        numbers = {
            "sft": {"share": {"mean": 0.25, "low": 0.2, "high": 0.3, "n": 8}},
            "policy": {"share": {"mean": self.value, "low": 0.4, "high": 0.6, "n": 8}},
            "differences": {"policy": {"share": {"mean": self.value - 0.25, "low": 0.1, "high": 0.4, "n": 8}}},
        }
        meaning = {"words": "share of answers that satisfy share", "better": "higher", "even": None}
        meanings = {"rule": {"purpose": "goal", "numbers": {"share": meaning}}}
        report = {"baseline": "sft", "metrics": {"rule": numbers}, "meanings": meanings}
        (run.out / "metrics.json").write_text(json.dumps(report))
        return {"share": self.value}


@register("descending")
class Descending(Stage):
    """Logs `level / (step + 1)` at each step, and can fail."""

    makes = Report
    uses_torch = False

    level: float = 1.0
    """Value at the first step."""
    steps: int = 9
    """Number of steps."""
    fails: bool = False
    """Fail at the end."""
    dies: bool = False
    """End the process by a signal."""
    leaves: bool = False
    """End the process as if all was well."""
    pause: Annotated[float, Unkeyed] = 0.0
    """Seconds a step."""
    of: Ref[Samples] | None = None
    """Only to need another stage."""

    def run(self, run: Run) -> dict[str, Any]:
        done = run.dir / "done.txt"
        first = len(done.read_text().split()) if done.exists() else 0
        for step in range(first, self.steps):
            time.sleep(self.pause)
            run.log({"loss": self.level / (step + 1)}, step)
            with done.open("a") as file:
                file.write(f"{step} ")
            run.stop_if_interrupted()
        if self.leaves:
            os._exit(0)
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fails:
            raise DataError("rows.jsonl:3: no prompt")
        return {"loss": self.level / self.steps}

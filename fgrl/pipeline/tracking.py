"""Where metrics go besides a stage's own logs: TensorBoard and Weights & Biases, from the recipe's `track` or the command line.

A tracker is opened for the time of one stage: a distributed stage opens the same one from its own process. What the stage logged in
an earlier run, before it was interrupted, is sent first, so that its curves are whole.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fgrl.errors import Requires
from fgrl.pipeline.log import read_log
from fgrl.recipe.tracking import TensorBoard, Tracking, Wandb
from fgrl.sanitizing import Sanitizer

NOT_METRICS = ("step", "time")


class Tracker(ABC):
    """One place that gets the metrics."""

    @abstractmethod
    def open(self, stage: str) -> None:
        """Called before a stage begins to log. Raises `Unavailable` when a package is missing."""

    @abstractmethod
    def log(self, stage: str, metrics: Mapping[str, float], step: int, when: float) -> None:
        """when: seconds since 1970."""

    @abstractmethod
    def close(self, stage: str, summary: Mapping[str, Any], *, failed: bool) -> None:
        """Called when the stage has ended, also when `open` raised an error.

        summary: the stage's; empty when it did not finish. failed: it ended by an error or an interrupt.
        """


class Trackers:
    """All that a run was asked for."""

    def __init__(self, trackers: Iterable[Tracker]) -> None:
        self._trackers = list(trackers)
        self._earlier: list[dict[str, Any]] | None = None

    @contextmanager
    def opened(self, stage: str, folder: Path) -> Iterator[dict[str, Any]]:
        """Inside, a stage runs and logs; what is put into the dictionary is its summary. However it ends, every tracker is closed.

        folder: the stage's, with the log of an earlier, interrupted run.
        """
        summary: dict[str, Any] = {}
        with ExitStack() as stack:
            for tracker in self._trackers:
                stack.enter_context(_opened(tracker, stage, summary))
            self._earlier = read_log(folder / "log.jsonl") if self._trackers else []
            yield summary

    def log(self, stage: str, metrics: Mapping[str, float], step: int) -> None:
        for row in self._earlier or []:
            if row["step"] < step:  # the rest is logged again
                numbers = {
                    name: float(value) for name, value in row.items() if name not in NOT_METRICS and value is not None
                }
                self._send(stage, numbers, row["step"], float(row.get("time") or 0.0))
        self._earlier = []
        self._send(stage, metrics, step, time.time())

    def _send(self, stage: str, metrics: Mapping[str, float], step: int, when: float) -> None:
        for tracker in self._trackers:
            tracker.log(stage, metrics, step, when)


@contextmanager
def _opened(tracker: Tracker, stage: str, summary: Mapping[str, Any]) -> Iterator[None]:
    failed = True
    try:
        tracker.open(stage)
        yield
        failed = False
    finally:
        tracker.close(stage, summary, failed=failed)


def trackers(tracking: Tracking, *, recipe: str, run: Path, config: Mapping[str, Any]) -> Trackers:
    """recipe: its name. run: the folder of the run. config: the resolved recipe, for W&B."""
    made: list[Tracker] = []
    for settings in tracking.values():
        if isinstance(settings, TensorBoard):
            folder = Path(settings.folder) / recipe / run.name if settings.folder is not None else run / "tensorboard"
            made.append(TensorBoardTracker(folder))
        elif isinstance(settings, Wandb):
            made.append(WandbTracker(settings, recipe=recipe, run=run, config=config))
    return Trackers(made)


class TensorBoardTracker(Tracker):
    """Event files, in a folder for each stage."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None

    def open(self, stage: str) -> None:
        with Requires("tensorboard", "event files need the package tensorboard", extra="tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self._folder / stage))

    def log(self, stage: str, metrics: Mapping[str, float], step: int, when: float) -> None:
        if self._writer is not None:
            for name, value in metrics.items():
                self._writer.add_scalar(name, value, step, walltime=when)
            self._writer.flush()

    def close(self, stage: str, summary: Mapping[str, Any], *, failed: bool) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class WandbTracker(Tracker):
    """One W&B run for a run of fgrl, with every stage's metrics under the stage's name.

    Whether it is online, offline or off is W&B's own `WANDB_MODE`; under a sweep the agent has chosen the run already. Neither a secret
    nor a path of this machine is sent, and nothing that W&B collects itself: commands, hosts, users, repositories, code.
    """

    def __init__(self, settings: Wandb, *, recipe: str, run: Path, config: Mapping[str, Any]) -> None:
        self.settings, self.recipe, self.folder = settings, recipe, run
        self._sanitizer = Sanitizer(config, [run.parent.parent])
        self.config = self._sanitizer.value(config)
        self._run: Any = None

    def open(self, stage: str) -> None:
        with Requires("wandb", "logging to Weights & Biases needs the package wandb", extra="wandb"):
            import wandb

        identity = f"{self.recipe}-{self.folder.name}".replace(".", "-")[:128]
        self._run = wandb.init(
            project=self.settings.project,
            entity=self.settings.entity,
            group=self.settings.group,
            tags=self.settings.tags or None,
            name=f"{self.recipe}/{self.folder.name}",
            id=os.environ.get("WANDB_RUN_ID", identity),
            resume="allow",
            dir=str(self.folder),
            config=self.config,
            settings=wandb.Settings(
                silent=True,
                console="off",
                x_disable_meta=True,
                disable_git=True,
                disable_code=True,
                save_code=False,
                x_disable_machine_info=True,
                host="-",
            ),
        )
        self._run.define_metric(f"{stage}/step", hidden=True)
        self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")

    def log(self, stage: str, metrics: Mapping[str, float], step: int, when: float) -> None:
        if self._run is not None:
            self._run.log({f"{stage}/{name}": value for name, value in metrics.items()} | {f"{stage}/step": step})

    def close(self, stage: str, summary: Mapping[str, Any], *, failed: bool) -> None:
        if self._run is not None:
            for path, value in _numbers(self._sanitizer.value(summary), stage):
                self._run.summary[path] = value
            self._run.finish(exit_code=int(failed))
            self._run = None


def _numbers(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [leaf for name, item in value.items() for leaf in _numbers(item, f"{path}/{name}")]
    return [(path, value)] if isinstance(value, int | float | str | bool) else []

"""Trackers of metrics besides a stage's own logs: TensorBoard, Weights & Biases and MLflow, from the recipe's `track`
or the command line.

A tracker is open while one stage runs: a distributed stage opens the same tracker from its own process. The log of an
earlier, interrupted run of the stage is sent first, so that its curves are complete.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fgrl.base.sanitizing import Sanitizer
from fgrl.experiments.pipeline.log import read_log
from fgrl.experiments.pipeline.planning import SweptPoint
from fgrl.experiments.recipe.tracking import MLflow, TensorBoard, Tracking, Wandb

NOT_METRICS = ("step", "time")
MLFLOW_PARAMETERS, MLFLOW_LONGEST = 100, 6000
"""Limits of MLflow: number of parameters of one request, and number of characters of a value."""


Log = Callable[[Mapping[str, float], int, float], None]
"""Function that gets metrics, their step, and the time when they were logged (seconds since 1970)."""
Tracker = Callable[[str, Mapping[str, Any]], AbstractContextManager[Log]]
"""Destination that gets the metrics of a stage while it runs. It is opened with the stage's name and a mapping that has
its summary when it is closed, empty if the stage did not finish. Raises `Unavailable` when a package is missing.
"""


class Trackers:
    """All trackers that a run was asked to use."""

    def __init__(self, trackers: Iterable[Tracker]) -> None:
        self._trackers = list(trackers)
        self._logs: list[Log] = []
        self._earlier: list[dict[str, Any]] = []

    @contextmanager
    def opened(self, stage: str, folder: Path) -> Iterator[dict[str, Any]]:
        """Open every tracker while a stage runs and logs inside the context. The dictionary takes the stage's summary.
        Every tracker is closed, also after an error.

        folder: the stage's folder, with the log of an earlier, interrupted run.
        """
        summary: dict[str, Any] = {}
        with ExitStack() as stack:
            self._logs = [stack.enter_context(tracker(stage, summary)) for tracker in self._trackers]
            self._earlier = read_log(folder / "log.jsonl") if self._trackers else []
            yield summary

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for row in self._earlier:
            if row["step"] < step:  # the rest is logged again
                numbers = {
                    name: float(value) for name, value in row.items() if name not in NOT_METRICS and value is not None
                }
                self._send(numbers, row["step"], float(row.get("time") or 0.0))
        self._earlier = []
        self._send(metrics, step, time.time())

    def _send(self, metrics: Mapping[str, float], step: int, when: float) -> None:
        for log in self._logs:
            log(metrics, step, when)


def trackers(
    tracking: Tracking, *, recipe: str, run: Path, config: Mapping[str, Any], swept: SweptPoint | None = None
) -> Trackers:
    """Return the trackers. recipe: its name. run: the folder of the run. config: the resolved recipe, for W&B. swept:
    the point of a sweep that the run belongs to: W&B groups the runs of a sweep, and its charts find the parameters by
    their paths.
    """
    made: list[Tracker] = []
    identity = f"{swept.sweep}-{swept.number}" if swept is not None else None
    for settings in tracking.values():
        if isinstance(settings, TensorBoard):
            folder = Path(settings.folder) / recipe / run.name if settings.folder is not None else run / "tensorboard"
            made.append(partial(to_tensorboard, folder))
        elif isinstance(settings, Wandb):
            if swept is not None:
                settings = settings.model_copy(update={"group": settings.group or swept.sweep})
                config = {**config, "sweep": {"id": swept.sweep, "point": swept.number}, **swept.parameters}
            made.append(partial(to_wandb, settings, recipe, run, config, identity=identity))
        elif isinstance(settings, MLflow):
            made.append(partial(to_mlflow, settings.experiment, recipe, run, config, swept, identity=identity))
    return Trackers(made)


@contextmanager
def to_tensorboard(folder: Path, stage: str, summary: Mapping[str, Any]) -> Iterator[Log]:
    """Write event files, in a folder for each stage."""
    from torch.utils.tensorboard import SummaryWriter

    def log(metrics: Mapping[str, float], step: int, when: float) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, value, step, walltime=when)
        writer.flush()

    with closing(SummaryWriter(str(folder / stage))) as writer:
        yield log


@contextmanager
def to_wandb(
    settings: Wandb,
    recipe: str,
    run: Path,
    config: Mapping[str, Any],
    stage: str,
    summary: Mapping[str, Any],
    *,
    identity: str | None = None,
) -> Iterator[Log]:
    """Log to one W&B run for a run of fgrl, with every stage's metrics under the stage's name. identity: W&B's id of
    the run, so that a point of a sweep that was killed continues its W&B run; None: the id of the run's folder.

    W&B's own `WANDB_MODE` decides whether it is online, offline or off. Under a W&B sweep the agent has chosen the run
    already. Secrets and paths of this machine are not sent, nor what W&B collects itself: commands, hosts, users,
    repositories, code.
    """
    import wandb

    sanitizer = Sanitizer(config, [run.parent.parent])
    identity = (identity or f"{recipe}-{run.name}").replace(".", "-")[-128:]
    session = wandb.init(
        project=settings.project,
        entity=settings.entity,
        group=settings.group,
        tags=settings.tags or None,
        name=f"{recipe}/{run.name}",
        id=os.environ.get("WANDB_RUN_ID", identity),
        resume="allow",
        dir=str(run),
        config=sanitizer.value(config),
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
    failed = True
    try:
        session.define_metric(f"{stage}/step", hidden=True)
        session.define_metric(f"{stage}/*", step_metric=f"{stage}/step")
        yield lambda metrics, step, _when: session.log(
            {f"{stage}/{name}": value for name, value in metrics.items()} | {f"{stage}/step": step}
        )
        failed = False
    finally:
        for path, value in _leaves(sanitizer.value(_numbers(summary)), stage, "/"):
            if isinstance(value, int | float | str):
                session.summary[path] = value
        session.finish(exit_code=int(failed))


@contextmanager
def to_mlflow(
    experiment: str,
    recipe: str,
    run: Path,
    config: Mapping[str, Any],
    swept: SweptPoint | None,
    stage: str,
    summary: Mapping[str, Any],
    *,
    identity: str | None = None,
) -> Iterator[Log]:
    """Log to one MLflow run for a run of fgrl, with every stage's metrics under the stage's name. identity: as in
    `to_wandb`, in the tag `fgrl_run`.

    Parameters are the recipe's values by their paths, as `stages.policy.train.lr`, so MLflow's table and charts compare
    the points of a sweep, which share the tag `fgrl_sweep`. Secrets and paths of this machine are not sent.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow
    from mlflow.entities import Metric, Param

    sanitizer = Sanitizer(config, [run.parent.parent])
    client = mlflow.MlflowClient()
    tags = {"fgrl_run": identity or f"{recipe}/{run.name}"} | ({} if swept is None else {"fgrl_sweep": swept.sweep})
    known = client.get_experiment_by_name(experiment)
    place = client.create_experiment(experiment) if known is None else known.experiment_id
    earlier = client.search_runs([place], f"tags.fgrl_run = '{tags['fgrl_run']}'", max_results=1)
    session = earlier[0] if earlier else client.create_run(place, tags=tags, run_name=f"{recipe}/{run.name}")
    name = session.info.run_id
    settings = [] if earlier else _leaves(sanitizer.value(config), "", ".")
    for first in range(0, len(settings), MLFLOW_PARAMETERS):
        part = settings[first : first + MLFLOW_PARAMETERS]
        client.log_batch(name, params=[Param(_for_mlflow(path), str(value)[:MLFLOW_LONGEST]) for path, value in part])
    client.update_run(name, "RUNNING")

    def log(metrics: Mapping[str, float], step: int, when: float) -> None:
        numbers = ((_for_mlflow(f"{stage}/{each}"), float(value)) for each, value in metrics.items())
        client.log_batch(name, metrics=[Metric(each, value, int(when * 1000), step) for each, value in numbers])

    failed = True
    try:
        yield log
        failed = False
    finally:
        ends = _leaves(sanitizer.value(_numbers(summary)), "", "/")
        log({path: value for path, value in ends if isinstance(value, int | float)}, 0, time.time())
        client.set_terminated(name, "FAILED" if failed else "FINISHED")


def _for_mlflow(name: str) -> str:
    return re.sub(r"[^\w./ :-]", "_", name, flags=re.ASCII)


def _numbers(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stage's summary, with its measurements under the names that sweeps and tables use."""
    return {name: value for name, value in summary.items() if name != "measured"} | (summary.get("measured") or {})


def _leaves(value: Any, path: str, sign: str) -> list[tuple[str, Any]]:
    """Return the values inside nested mappings, each with its path of names."""
    if isinstance(value, Mapping):
        inside = ((f"{path}{sign}{name}" if path else str(name), item) for name, item in value.items())
        return [leaf for name, item in inside for leaf in _leaves(item, name, sign)]
    return [(path, value)]

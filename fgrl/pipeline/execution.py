"""Run what is missing.

1. plan; nothing missing and a page of the same plan there: say so and leave
2. the folder of this invocation: what was asked for, with what, on what
3. each missing stage, in order, under its lock: here, or in a process of its own when it wants several
4. summary.json after every stage, report.html at the end, also after a failure
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fgrl import lazy
from fgrl.console import Console, duration
from fgrl.errors import DataError, OverBudget, Stopped, Unavailable, UsageError
from fgrl.files import sync, write_json, write_text
from fgrl.pipeline import keys, ranks
from fgrl.pipeline.environment import environment, versions
from fgrl.pipeline.folders import is_done, now, read_stage
from fgrl.pipeline.interrupts import Interrupts
from fgrl.pipeline.libraries import diverted
from fgrl.pipeline.planning import Plan, Planned, criteria, plan
from fgrl.pipeline.run import Run
from fgrl.pipeline.tracking import WandbTracker
from fgrl.registry import unknown

if TYPE_CHECKING:
    from fgrl.recipe import Recipe
report = lazy.load("fgrl.report")

DONE, FAILED, USAGE, DATA, BUDGET, STOPPED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
"""Exit codes."""
GRACE = 15.0
"""Seconds that the process of a distributed stage has to leave after it was aborted."""


@dataclass
class Options:
    """What `fgrl run` was asked for besides the recipe."""

    only: Sequence[str] = ()
    """Run only these stages; what they need must be there."""
    start: str | None = None
    """Run this stage and those after it."""
    limit: int | None = None
    """At most so many samples and steps in every stage."""
    wandb: str | None = None
    """Project to log to."""
    arguments: Sequence[str] = ()
    """Overrides as they were typed, for the processes of distributed stages."""
    command: Sequence[str] = ()
    """The whole command, for the record."""


@dataclass
class Summary:
    """How an invocation ended; `as_json` is `summary.json`."""

    recipe: str
    path: str
    about: str
    seed: int
    key: str
    command: list[str]
    folder: Path | None = None
    report: Path | None = None
    started: str = ""
    finished: str | None = None
    seconds: float | None = None
    exit: int | None = None
    error: str = ""
    nothing_to_do: bool = False
    worker: bool = False
    """This process was a worker of a distributed stage: rank 0 tells how it went."""
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in vars(self).items()
            if name not in ("folder", "report", "nothing_to_do", "worker")
        }


def execute(recipe: Recipe, runs: Path, options: Options | None = None, console: Console | None = None) -> Summary:
    """Run the stages of a recipe that `runs` does not have. Errors of stages end in `Summary.exit`, not in exceptions;
    a request that cannot be carried out raises `UsageError`."""
    options = options or Options()
    console = console or Console()
    here = plan(recipe, runs, limit=options.limit)
    chosen = _choose(here, options)
    if ranks.rank() > 0:
        return _work(here, chosen, options, console)
    whole = not options.only and options.start is None
    if whole and all(stage.cached for stage in here.stages):
        before = _finished_before(here)
        if before is not None:
            return before
    with _Invocation(here, options, console) as invocation:
        for stage in chosen:
            invocation.run(stage)
    return invocation.summary


def _choose(here: Plan, options: Options) -> list[Planned]:
    """The stages that `--only` and `--from` ask for, in order; what they need must be done or among them."""
    names = [stage.name for stage in here.stages]
    for name in (*options.only, *([options.start] if options.start is not None else [])):
        if name not in names:
            raise UsageError(unknown("stage", name, names))
    chosen = here.stages
    if options.start is not None:
        chosen = chosen[names.index(options.start) :]
    if options.only:
        chosen = [stage for stage in chosen if stage.name in options.only]
    inside = {stage.name for stage in chosen}
    for stage in chosen:
        for other in stage.upstream:
            if not stage.cached and other not in inside and not here[other].cached:
                raise UsageError(
                    f"stage {stage.name} needs {other}, which is not done yet: "
                    f"run it too (--only {other} --only {stage.name}, or --from {other})"
                )
    return chosen


def _finished_before(here: Plan) -> Summary | None:
    """The newest invocation that finished the very same plan and has its page."""
    for folder in here.runs.invocations(here.name):
        path = folder / "summary.json"
        page = folder / "report.html"
        if not (path.is_file() and page.is_file()):
            continue
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["key"] == here.short and told["exit"] == DONE and set(told["stages"]) == {s.name for s in here.stages}:
            return Summary(**told, folder=folder, report=page, nothing_to_do=True)
    return None


def _work(here: Plan, chosen: list[Planned], options: Options, console: Console) -> Summary:
    """A worker of a distributed stage: takes part, writes nothing, says nothing."""
    if len(chosen) != 1:
        raise UsageError("a launcher (torchrun, srun) runs one stage at a time: name it with --only")
    stage = chosen[0]
    summary = _summary(here, options)
    with (
        Interrupts(lambda _: None, deaf=True),
        diverted(Path(os.devnull), verbose=console.verbose),
        contextlib.suppress(Stopped),  # raised in every process at the same point, and rank 0 says it
    ):
        run = _run_of(here, stage, Console(quiet=True), ranks.rank(), options, lambda: False)
        run.seed_libraries()
        stage.stage.run(run)
    summary.exit, summary.worker = DONE, True
    return summary


def _summary(here: Plan, options: Options) -> Summary:
    recipe = here.recipe
    return Summary(
        recipe=here.name,
        path=recipe.address,
        about=recipe.about,
        seed=recipe.seed,
        key=here.short,
        command=list(options.command),
        started=now(),
    )


def _run_of(
    here: Plan, stage: Planned, console: Console, rank: int, options: Options, interrupted: Any, tracker: Any = None
) -> Run:
    products = {}
    for name, key in stage.upstream.items():
        folder = here.runs.find(key)
        if folder is None:
            raise FileNotFoundError(f"the folder of stage {name} ({key}) is gone from {here.runs.stages}")
        products[name] = folder / "out"
    return Run(
        stage.name,
        here.runs.find(stage.key) or stage.dir,
        cache=here.runs.cache,
        seed=here.recipe.seed,
        products=products,
        console=console,
        rank=rank,
        limit=options.limit,
        interrupted=interrupted,
        tracker=tracker,
        accelerator=stage.stage.accelerator(),
    )


class _Invocation:
    """`runs/<recipe>/<UTC>-<short key>/`, and the stages run for it."""

    def __init__(self, here: Plan, options: Options, console: Console) -> None:
        self.here, self.options, self.console = here, options, console
        self.summary = _summary(here, options)
        self.began = time.monotonic()
        self.environment = ranks.without_launcher(os.environ)
        self.interrupts = Interrupts(console.alert)
        parent = os.environ.get(ranks.INVOCATION)
        self.child = parent is not None
        """This process runs one distributed stage for an invocation that another process keeps the books of."""
        if parent is not None:
            self.folder = Path(parent)
        else:
            self.folder = here.runs.new_invocation(here.name, here.short)
            self._record()
        self.summary.folder = self.folder
        self.tracker = self._tracker()

    # -- what was asked for --------------------------------------------------------------------------------------------

    def _record(self) -> None:
        recipe = self.here.recipe
        write_text(self.folder / "recipe.yaml", recipe.to_yaml())
        origins = {".".join(map(str, path)) if isinstance(path, tuple) else str(path): str(place)
                   for path, place in recipe.origins.items()}  # fmt: skip
        write_json(self.folder / "origins.json", origins)
        about = environment(Path(recipe.path))
        write_json(self.folder / "environment.json", {"command": self.summary.command, "seed": recipe.seed, **about})
        write_json(self.folder / "inputs.json", inputs(self.here))
        (self.folder / "stages").mkdir()
        self._save()

    def _tracker(self) -> WandbTracker | None:
        if self.options.wandb is None:
            return None
        return WandbTracker(
            self.options.wandb,
            name=f"{self.here.name}/{self.folder.name}",
            identity=f"{self.here.name}-{self.folder.name}".replace(".", "-")[:128],
            folder=self.folder,
            config=dict(self.here.recipe.data),
        )

    def _save(self) -> None:
        if not self.child:
            self.summary.seconds = round(time.monotonic() - self.began, 3)
            write_json(self.folder / "summary.json", self.summary.as_json(), default=str)

    # -- stages --------------------------------------------------------------------------------------------------------

    def run(self, stage: Planned) -> None:
        """Run a stage, or take it as it is when it is done. Whatever it raises leaves through `__exit__`."""
        index = self.here.stages.index(stage) + 1
        label = f"[{index}/{len(self.here.stages)}] {stage.name}"
        runs = self.here.runs
        found = runs.find(stage.key)
        if found is None or not is_done(found):
            with (
                runs.lock(
                    stage.key,
                    waiting=lambda who: self.console.say(f"{label}: being run by {who}; waiting for it"),
                    leave=self.interrupts,
                )
                if not self._apart(stage)
                else _nothing() as held
            ):
                if not held or self.interrupts():
                    raise KeyboardInterrupt
                found = runs.find(stage.key)
                if found is None or not is_done(found):
                    self._make(stage, label, found or stage.dir)
                    return
        assert found is not None
        self._enter(stage, found, cached=True)
        self.console.say(f"{label}: from the cache")

    def _apart(self, stage: Planned) -> bool:
        """Does the stage need a process of its own? Not when this process was started for it alone."""
        return stage.stage.processes() > 1 and list(self.options.only) != [stage.name]

    def _make(self, stage: Planned, label: str, folder: Path) -> None:
        if not self.child:  # our parent has said it
            self.console.say(f"{label}: {stage.why}")
        began = time.monotonic()
        self._enter(stage, folder, cached=False)
        if self._apart(stage):
            self._make_apart(stage)
        else:
            self._make_here(stage, label, folder, began)
        made = read_stage(folder)
        self._enter(stage, folder, cached=False, made=made)
        told = "  ".join(
            f"{name} {value}" for name, value in made["summary"].items() if isinstance(value, int | float | str)
        )
        if not self._apart(stage):
            self.console.say(f"{label}: done in {duration(time.monotonic() - began)}" + (f"  {told}" if told else ""))

    def _make_here(self, stage: Planned, label: str, folder: Path, began: float) -> None:
        if (folder / "out").exists():
            shutil.rmtree(folder / "out")
        (folder / "out").mkdir(parents=True)
        self.here.runs.cache.mkdir(parents=True, exist_ok=True)
        data = {"seed": self.here.recipe.seed, "stages": {stage.name: self.here.recipe.data["stages"][stage.name]}}
        write_text(folder / "recipe.yaml", yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110))
        run = _run_of(self.here, stage, self.console, 0, self.options, self.interrupts, self.tracker)
        self.console.prefix = f"{label} · "
        if self.tracker is not None:
            self.tracker.open(stage.name)
        try:
            run.seed_libraries(torch=type(stage.stage).uses_torch)
            summary = dict(stage.stage.run(run) or {})
            summary |= criteria(stage.stage)
        finally:
            self.console.prefix = ""
        if run.noticed:
            raise KeyboardInterrupt
        if self.tracker is not None:
            self.tracker.close(stage.name, summary)
        sync(folder / "out")
        write_json(
            folder / "stage.json",
            {
                "name": stage.name,
                "key": stage.key,
                "component": stage.component,
                "makes": stage.makes,
                "recipe": self.here.name,
                "made": now(),
                "seconds": round(time.monotonic() - began, 3),
                "upstream": stage.upstream,
                "summary": summary,
                "identity": stage.identity,
                "versions": versions(),
            },
            default=str,
        )

    def _make_apart(self, stage: Planned) -> None:
        """`fgrl run R --only stage` in a process of its own, so that Lightning's launcher re-executes just that."""
        options = self.options
        command = [sys.executable, "-m", "fgrl", "run", self.here.recipe.address, "--only", stage.name]
        command += ["--runs", str(self.here.runs.root)]
        command += ["--limit", str(options.limit)] if options.limit is not None else []
        command += ["--wandb", options.wandb] if options.wandb is not None else []
        command += ["-q"] * self.console.quiet + ["-v"] * self.console.verbose + list(options.arguments)
        child = subprocess.Popen(
            command,
            env={**self.environment, ranks.INVOCATION: str(self.folder.resolve())},
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches it once, through us
        )
        forwarded = False
        try:
            while True:
                try:
                    code = child.wait(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    if self.interrupts() and not forwarded:
                        child.send_signal(signal.SIGINT)
                        forwarded = True
        except BaseException:
            os.killpg(child.pid, signal.SIGTERM if forwarded else signal.SIGINT)
            try:
                child.wait(timeout=GRACE)
            except subprocess.TimeoutExpired:  # a process that waits for another one in a collective operation is deaf
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            raise
        if code != DONE:
            raise _Child(code)

    def _enter(self, stage: Planned, folder: Path, *, cached: bool, made: Mapping[str, Any] | None = None) -> None:
        """Note the state of a stage in the summary and link to its folder."""
        if cached:
            made = read_stage(folder)
        self.summary.stages[stage.name] = {
            "key": stage.key,
            "kind": stage.component,
            "dir": os.path.relpath(folder, self.folder),
            "cached": cached,
            "done": made is not None,
            "why": stage.why,
            "seconds": None if made is None else made["seconds"],
            "summary": {} if made is None else made["summary"],
        }
        if not self.child:
            link = self.folder / "stages" / stage.name
            if not link.is_symlink():
                link.symlink_to(os.path.relpath(folder, link.parent), target_is_directory=True)
        self._save()

    # -- how it ends ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> _Invocation:
        self.console.log = (self.folder / "run.log").open("a", encoding="utf-8")
        self.interrupts.__enter__()
        self.diverted = diverted(self.folder / "run.log", verbose=self.console.verbose)
        self.diverted.__enter__()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        self.interrupts.__exit__()
        try:
            if isinstance(error, UsageError | SystemExit):
                return False
            self.summary.exit = DONE if error is None else self._failed(error)
            self.summary.finished = now()
            self._save()
            if not self.child and self.summary.exit != INTERRUPTED:
                self._page()
        finally:
            self.diverted.__exit__(None, None, None)
            if self.console.log is not None:
                self.console.log.close()
                self.console.log = None
        return True

    def _page(self) -> None:
        """`report.html`. Results do not depend on it: when it fails, that is a bug to show, and the stages stay done."""
        try:
            self.summary.report = report.write(self.folder)
        except Exception:
            self.summary.exit = self.summary.exit or FAILED
            self.summary.error = self.summary.error or "report.html could not be written; the stages are done"
            self.console.alert(traceback.format_exc().rstrip())
            self.console.alert(self.summary.error)
            self._save()

    def _failed(self, error: BaseException) -> int:
        code, message = explain(error, self.here.runs.root)
        self.summary.error = message
        if isinstance(error, _Child):
            return code
        if code == FAILED and not _full(error):
            self.console.alert("".join(traceback.format_exception(error)).rstrip())
        self.console.alert(message)
        return code


class _Child(Exception):
    """A distributed stage's process ended with this exit code, and has said why."""


def explain(error: BaseException, runs: Path) -> tuple[int, str]:
    """Exit code and what to tell a person."""
    if isinstance(error, _Child):
        code = error.args[0]
        return (code if code > 0 else FAILED), f"the process of a distributed stage ended with {code}"
    if isinstance(error, KeyboardInterrupt) and error.args:
        return INTERRUPTED, "aborted; run the same command to go on from the last checkpoint"
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted; checkpoint saved; run the same command to go on"
    if isinstance(error, Unavailable):
        return USAGE, str(error)
    if isinstance(error, DataError):
        return DATA, f"data: {error}"
    if isinstance(error, OverBudget):
        return BUDGET, f"over budget: {error}"
    if isinstance(error, Stopped):
        return STOPPED, f"stopped: {error}"
    if _full(error):
        free = shutil.disk_usage(runs).free / 2**20
        return FAILED, (
            f"the disk is full ({free:.0f} MiB free in {runs}): make room and run the same command; finished stages stay"
        )
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return FAILED, "out of memory: lower train.micro_batch_size or sampling.batch_size and run the same command"
    return FAILED, f"{type(error).__name__}: {error}"


def _full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    # torch and safetensors write in C++ and Rust, and tell in words
    return os.strerror(errno.ENOSPC) in str(error) or os.strerror(errno.EDQUOT) in str(error)


def inputs(here: Plan) -> dict[str, Any]:
    """Hashes of what the stages read: files, weights, products of other stages, imported user files."""
    read = {
        stage.name: {
            path.removeprefix("settings."): value for path, value in keys.leaves(stage.identity) if keys.place(value)
        }
        for stage in here.stages
    }
    return {"stages": read, "sources": {str(path): str(digest) for path, digest in here.recipe.sources.items()}}


class _nothing:
    """A lock that is always held: the process of a distributed stage takes the real one."""

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None: ...

"""Evaluations on held-out data while a model trains: before the first round, at regular intervals, and after the last
round.

In the stage's folder:

    evaluations/<step>/numbers.json    numbers after this many iterations or optimizer steps
    evaluations/<step>/<set>/          the answers, and the metrics' records about them
    policies/<step>/                   a model that was stored

An evaluation is made between two rounds, after their checkpoint. Its model is stored and its numbers are logged before
its folder gets its final name, so a training that was killed repeats at most one evaluation.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import Field, model_validator

from fgrl.base import lazy, seeds
from fgrl.base.files import atomically, write_json
from fgrl.base.mergeable import merged
from fgrl.kinds import Client, Peek, Run
from fgrl.kinds.specs import Sampling
from fgrl.measuring import comparison
from fgrl.measuring.answer import Answer, read_answers, write_answers
from fgrl.measuring.choosing import Choice
from fgrl.measuring.held_out import HeldOut, meanings, measure
from fgrl.measuring.number_names import NumberName, StageNumber
from fgrl.measuring.overlap import HeldOutItem, settle
from fgrl.measuring.statistics import Estimate, estimate, weighted_mean
from fgrl.registry import Settings
from fgrl.types import Mean, Number

if TYPE_CHECKING:
    from fgrl.feedback.llm import estimating, together
    from fgrl.training.rounds import Process
else:
    estimating, together = lazy.load("fgrl.feedback.llm.estimating"), lazy.load("fgrl.feedback.llm.together")
answering = lazy.load("fgrl.measuring.answering")
models = lazy.load("fgrl.models")
sources = lazy.load("fgrl.models.sources")
steps = lazy.load("fgrl.training.steps")
random_state = lazy.load("lightning.pytorch.utilities.seed")
torch = lazy.load("torch")

START, TRAINED = "start", "policy"
"""Names under which metrics see the answers before training, which are the baseline, and the answers of the present
model.
"""
HOLDOUT = "holdout"
"""Name of the set of units that `holdout` takes from the training data."""
FOLDER, NUMBERS = "evaluations", "numbers.json"


class HeldOutSet(HeldOut):
    """Prompts that the model answers during training, and metrics of the answers."""

    sampling: Sampling
    """Settings of sampling: temperature, limits and more."""


class Best(Choice):
    """Number and goal that choose the best of the evaluated models."""

    patience: int | None = Field(None, ge=1)
    """Number of consecutive evaluations without a better one after which training stops; null: never."""


class TrainingEvaluation(Settings):
    """Evaluations during training. Their numbers are in the log and in the report's curves; they do not change weights."""

    every: int = Field(ge=1, le=100_000_000)
    """Number of iterations of `rl`, or optimizer steps of `finetune`, between two evaluations. There is also one before
    the first and one after the last.
    """
    sets: dict[str, HeldOutSet] = {}
    """Sets of held-out prompts, by the names that the log shows. A metric that compares models compares with the model
    before training (`start`).
    """
    keep: Literal["none", "all"] = "none"
    """Models to store besides the product. `all`: every evaluated model is stored, and later stages name it by its
    `step`.
    """
    best: Best | None = None
    """Choice of the best of the evaluated models as the stage's product; null: the last model is the product."""

    @model_validator(mode="after")
    def _check(self) -> TrainingEvaluation:
        for name, held_out in self.sets.items():
            if name in (HOLDOUT, "reward", "seconds") or not re.fullmatch(r"\w[\w-]*", name):
                raise ValueError(
                    f"{name!r} cannot be the name of a set: use letters, digits and _ - (not holdout, reward, seconds)"
                )
            for metric in held_out.metrics:
                metric.check_rewards(())
                metric.check_models((START, TRAINED), START)
        return self

    def setup(self, run: Run) -> None:
        """Do nothing: each set is set up when it is measured (`AnsweredSet`)."""

    def reads_reference(self) -> bool:
        """Return True if metrics compare with the model before training, token by token."""
        return any(held_out.reads_reference() for held_out in self.sets.values())

    def asks(self) -> bool:
        """Return True if a metric or an environment asks a language model."""
        return any(asker.asked_client() for held_out in self.sets.values() for asker in held_out.askers())

    def count(self, total: int) -> int:
        """Return the maximum number of evaluations in a training of `total` iterations or steps."""
        return 1 + -(-total // self.every)

    def loads(self, total: int, peek: Peek) -> list[tuple[Client, estimating.Load]]:
        """Return upper bounds on the questions of metrics and environments in a training of `total` iterations or
        steps.
        """
        drawn = [str(number) for number in range(self.count(total))]
        return [
            (client, replace(load, fewer=True))
            for held_out in self.sets.values()
            for asker in held_out.askers()
            for client, load in estimating.at_most(asker, held_out.to_draw(drawn, held_out.sampling, peek), peek)
        ]


class HeldOutData(Protocol):
    """Data on which the model is measured."""

    def measure(self, step: int, process: Process, folder: Path) -> dict[NumberName, Estimate]:
        """Return the model's numbers after `step` iterations or optimizer steps. All processes call this."""


class AnsweredSet:
    """Held-out prompts that the model in training answers, shared among the processes."""

    def __init__(
        self,
        name: str,
        settings: HeldOutSet,
        model: Any,
        reference: Any,
        run: Run,
        folder: Path,
        known: Collection[int] = (),
    ) -> None:
        """Create the set. `folder` is the place of the metrics' records. If `reference` is None, it is the model with
        its adapter switched off. `known` are digests of the prompts that it is trained on.
        """
        self.name, self.settings, self.model, self.reference, self.run = name, settings, model, reference, run
        for component in (settings.prompts, settings.engine, settings.environment):
            if component is not None:
                component.setup(run)
        for metric in settings.metrics:
            metric.setup(_RecordsIn(folder, run))
        asked = [HeldOutItem.of(sample, sample.prompt) for sample in settings.asked(run.limit)]
        self.prompts = settle(settings.overlap, {f"the model of evaluate.sets.{name}": known}, asked, run.say)
        for metric in settings.metrics:
            metric.check_prompts(self.prompts)
        self._start: list[Answer] = []

    def measure(self, step: int, process: Process, folder: Path) -> dict[NumberName, Estimate]:
        """Return the numbers of all metrics. `answers.jsonl` and `metrics.json`, as in an `evaluate` stage, are written
        to `folder`.
        """
        share = steps.split(range(len(self.prompts)), process.world)[process.rank]
        own = together.in_all(lambda: answering.answers(
            self.settings, self.name, self.model, self.reference, [self.prompts[i] for i in share], self.run,
            sampling=self.settings.sampling, rewards={}, seed=seeds.of_evaluation(self.run.seed),
            first=share.start, without_adapter=self.reference is None,
        ))  # fmt: skip
        name = TRAINED if step else START
        drawn = {name: together.everybody(own)}
        self.settings.check_conversations(self.name, drawn[name], self.run.say)
        write_answers(folder / "answers.jsonl", drawn)
        if not step:
            self._start = drawn[START]
        elif not self._start:  # a training that goes on
            before = self.run.dir / FOLDER / "0" / self.name / "answers.jsonl"
            self._start = read_answers(before)[START]
        measured, observed = measure(self.settings.metrics, {START: self._start, **drawn}, START)
        about = meanings(self.settings.metrics, measured)
        comparison.write(folder, START, measured, about, observed)
        return {
            NumberName(metric, number): Estimate(**value)
            for metric, by_model in measured.items()
            for number, value in by_model.get(name, {}).items()
        }


class HeldOutUnits:
    """Units of the training data that are not trained on, each measured separately by the algorithm's own metrics."""

    def __init__(self, algorithm: str, count: int, metrics_of: Callable[[int], Mapping[str, Number]]) -> None:
        """Create the set. `metrics_of(i)` returns the metrics of unit i of `count`."""
        self.algorithm, self.count, self.metrics_of = algorithm, count, metrics_of

    def measure(self, step: int, process: Process, folder: Path) -> dict[NumberName, Estimate]:
        """Return means as over one step of all units, with intervals over units. Metrics that are maxima are left out."""
        share = steps.split(range(self.count), process.world)[process.rank]
        passes = range(-(-self.count // process.world))  # of all processes: shards are read by all of them
        measured = [merged([(self.metrics_of(min(share.start + i, self.count - 1)), 1)]) for i in passes]
        of_units = together.everybody(measured[: len(share)])
        names = dict.fromkeys(name for metrics in of_units for name in metrics)
        numbers = {}
        for name in names:
            parts = [metrics.get(name, Mean(0, 0)) for metrics in of_units]
            means = [part for part in parts if isinstance(part, Mean)]
            if len(means) == len(parts):
                values = [mean.value if math.isfinite(mean.value) else None for mean in means]
                whole = weighted_mean(values, range(self.count), [mean.count for mean in means])
                numbers[NumberName(self.algorithm, name)] = estimate(whole)
        return numbers


class Evaluations:
    """Evaluations of one training: their numbers, the best model, and the decision whether to stop."""

    def __init__(self, settings: TrainingEvaluation, run: Run) -> None:
        self.settings, self.run = settings, run
        self.data: dict[str, HeldOutData] = {}
        self.measured: dict[int, dict[StageNumber, Estimate]] = {}
        """Numbers by step."""
        # metrics of other ranks record as well, and nobody reads it
        self._elsewhere = tempfile.TemporaryDirectory(prefix="fgrl-") if run.rank else None
        self._root = Path(self._elsewhere.name) if self._elsewhere else run.dir / FOLDER

    def add_set(self, name: str, model: Any, reference: Any, known: Collection[int] = ()) -> None:
        """Add a set with its models. If `reference` is None, it is the model with its adapter switched off; `known` are
        digests of the prompts that the model is trained on.
        """
        self.data[name] = AnsweredSet(
            name, self.settings.sets[name], model, reference, self.run, self._folder(name), known
        )

    def resume(self, step: int) -> None:
        """Read the records of the first `step` iterations or steps. Later records of a killed process are deleted."""
        folders = sorted((self.run.dir / FOLDER).glob("[0-9]*"), key=lambda folder: int(folder.name))
        for folder in folders:
            if int(folder.name) <= step:
                self.measured[int(folder.name)] = _read(folder / NUMBERS)
            elif self.run.rank == 0:
                shutil.rmtree(folder)
        if self.run.rank == 0:
            self._drop_policies()

    def due(self, step: int, total: int) -> bool:
        """Return True if there is an evaluation after `step` of `total` iterations or steps that has not been made."""
        return step not in self.measured and (step % self.settings.every == 0 or step == total)

    def take(self, step: int, process: Process, model: Any, save: Callable[[Path], None]) -> None:
        """Measure the model; `save` it if it is the best so far, or if all are stored. All processes call this."""
        running = self._folder()
        shutil.rmtree(running, ignore_errors=True)
        for name in self.data:
            self._folder(name).mkdir(parents=True)
        # 1. numbers, without a trace in the generators that training uses; those of rank 0 count for all
        with random_state.isolate_rng(), models.evaluating(model), process.forward_context(), torch.no_grad():
            seeds.seed_libraries(seeds.of_evaluation(self.run.seed))
            own = {
                StageNumber(name, number): value
                for name, data in self.data.items()
                for number, value in data.measure(step, process, self._folder(name)).items()
            }
        numbers = together.everybody([own])[0]
        self.measured[step] = numbers
        best = (
            self.best
        )  # on every rank, and also where all are kept: raises where `best.number` names none of the numbers
        # 2. the model, the log, and the record, in this order
        if self.run.rank == 0:
            if self.settings.keep == "all" or best == step:
                with atomically(self.run.dir / sources.POLICIES / str(step)) as folder:
                    save(folder)
            self.run.log(_columns(numbers), step)
            write_json(running / NUMBERS, [_line(name, value) for name, value in numbers.items()])
            running.rename(running.with_name(str(step)))
            self._drop_policies()

    # -- the best model -----------------------------------------------------------------------------------------------

    @property
    def best(self) -> int | None:
        """Return the step of the best model so far, the first of equally good ones; None if no choice is requested, or
        nothing is known.
        """
        if self.settings.best is None:
            return None
        return self.settings.best.best_of({step: self._value(step) for step in self.measured})

    def enough(self) -> bool:
        """Return True if the best model has not changed for as many evaluations as `patience` allows."""
        best = self.settings.best
        if best is None or best.patience is None:
            return False
        return sum(step > (self.best or 0) for step in self.measured) >= best.patience

    def hand_on(self, out: Path) -> None:
        """Copy the stored models into the stage's product: the best one as the product itself, all as
        `policies/<step>`.
        """
        kept = self.run.dir / sources.POLICIES
        if self.best is not None:
            models.copy(kept / str(self.best), out)
        if self.settings.keep == "all":
            for step in self.measured:
                models.copy(kept / str(step), out / sources.POLICIES / str(step))

    def summary(self) -> dict[str, Any]:
        """Return the entries for the stage's summary."""
        if self.settings.best is None:
            return {"evaluations": len(self.measured)}
        number = str(self._number(self.measured[0]))
        value = None if self.best is None else self._value(self.best)
        return {"evaluations": len(self.measured), "best": {"step": self.best, "number": number, "value": value}}

    def _number(self, numbers: Mapping[StageNumber, Estimate]) -> StageNumber:
        """Return the number that decides."""
        assert self.settings.best is not None
        return self.settings.best.among(numbers)

    def _value(self, step: int) -> float | None:
        return self.measured[step][self._number(self.measured[step])].mean

    def _drop_policies(self) -> None:
        """Delete the stored models that are no longer the best, or that a killed process stored."""
        for folder in (self.run.dir / sources.POLICIES).glob("*"):
            kept = folder.name.isdigit() and int(folder.name) in self.measured
            if not kept or not (self.settings.keep == "all" or int(folder.name) == self.best):
                shutil.rmtree(folder)

    def _folder(self, *parts: str) -> Path:
        """Return a path in the folder of the evaluation that is being made."""
        return self._root.joinpath("running", *parts)


class _RecordsIn:
    """Run whose metrics record into a separate folder instead of the stage's product."""

    def __init__(self, out: Path, run: Run) -> None:
        self.out, self._run = out, run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)


def _columns(numbers: Mapping[StageNumber, Estimate]) -> dict[str, float]:
    """Return the log's names: `held_out/rubric.csr`, and the ends of its interval with `/low` and `/high`. Missing
    values are left out.
    """
    columns: dict[str, float] = {}
    for name, value in numbers.items():
        ends = {str(name): value.mean, f"{name}/low": value.low, f"{name}/high": value.high}
        columns |= {column: end for column, end in ends.items() if end is not None}
    return columns


def _line(name: StageNumber, value: Estimate) -> dict[str, Any]:
    return {"set": name.stage, "metric": name.name.metric, "number": name.name.number, "value": value.model_dump()}


def _read(path: Path) -> dict[StageNumber, Estimate]:
    return {
        StageNumber(line["set"], NumberName(line["metric"], line["number"])): Estimate(**line["value"])
        for line in json.loads(path.read_text(encoding="utf-8"))
    }

"""Let several models answer the same prompts, and measure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from fgrl import lazy
from fgrl.components.kinds import Engine, Metric, Reader, Reward, Run, Stage, default_engine
from fgrl.components.metrics.answer import Answer
from fgrl.components.metrics.comparison import Comparison
from fgrl.registry import Unkeyed, name_of, register
from fgrl.specs import ModelSpec, Sampling
from fgrl.types import DataError, Report, Sample

answering = lazy.load("fgrl.stages.answering")


@register("evaluate")
class EvaluateStage(Stage):
    """Answers of every model to held-out prompts, metrics with intervals, differences to a baseline."""

    makes = Report

    prompts: Reader
    """Held-out prompts."""
    models: dict[str, ModelSpec] = Field(min_length=1)
    """What to compare, by the names that tables show."""
    baseline: str
    """Name of the model that differences are taken to; it is also the reference of KL and likelihood."""
    metrics: list[Metric]
    """What to measure."""
    rewards: dict[str, Reward] = {}
    """Rewards whose token values are recorded for every answer."""
    sampling: Sampling
    """How to draw."""
    per_prompt: int = Field(1, ge=1)
    """Answers of each model to each prompt."""
    engine: Engine = Field(default_factory=default_engine)
    """What draws."""
    show: Annotated[int, Unkeyed] = Field(10, ge=0)
    """Answers printed at the end."""

    @model_validator(mode="after")
    def _check(self) -> EvaluateStage:
        if self.baseline not in self.models:
            raise ValueError(f"baseline {self.baseline!r} is not one of the models: {', '.join(self.models)}")
        for name in self.models:
            if name == "differences" or not re.fullmatch(r"\w[\w.-]*", name):
                raise ValueError(
                    f"{name!r} cannot be a model's name: use letters, digits and _ - . (not `differences`)"
                )
        titles = [metric.title or name_of(metric)[1] for metric in self.metrics if isinstance(metric, Comparison)]
        twice = next((title for title in titles if titles.count(title) > 1), None)
        if twice is not None:
            raise ValueError(f"two metrics are called {twice!r}, and only one would be reported: give one a `title`")
        for metric in self.metrics:
            metric.check_rewards(self.rewards)
        return self

    def run(self, run: Run) -> dict[str, Any]:
        self.prompts.setup(run)
        for component in (*self.rewards.values(), *self.metrics):
            component.setup(run)
        prompts: list[Sample] = list(islice(self.prompts.read(), run.limit))
        # 1. answers, one file a model
        answers: dict[str, list[Answer]] = {}
        for name, spec in self.models.items():
            part = run.dir / f"answers-{name}.jsonl"
            if not part.exists():
                drawn = answering.answers(
                    self, name, run.model(spec), run.model(self.models[self.baseline]), prompts, run
                )
                write_answers(part, {name: drawn})
            answers[name] = read_answers(part)[name]
            run.stop_if_interrupted()
        write_answers(run.out / "answers.jsonl", answers)
        # 2. numbers
        measured: dict[str, Any] = {}
        for metric in self.metrics:
            found = metric.measure(answers, baseline=self.baseline)
            if twice := measured.keys() & found.keys():
                raise DataError(
                    f"two metrics measure {sorted(twice)[0]!r}: leave one of them out, or give it a `title`"
                )
            measured |= found
        (run.out / "metrics.json").write_text(
            json.dumps({"baseline": self.baseline, "metrics": measured}, indent=1), encoding="utf-8"
        )
        # 3. a look
        shown = next((name for name in answers if name != self.baseline), self.baseline)
        for answer in answers[shown][: self.show]:
            run.say(f"{shown}: {answer.prompt!r} -> {answer.response!r}")
        return {"prompts": len(prompts), "models": list(answers)}


def write_answers(path: Path, answers: dict[str, list[Answer]]) -> None:
    """One line an answer, finished by rename."""
    temporary = path.with_suffix(".partial")
    with temporary.open("w", encoding="utf-8") as file:
        for name, found in answers.items():
            file.writelines(json.dumps({"model": name} | answer.to_json()) + "\n" for answer in found)
    temporary.replace(path)


def read_answers(path: Path) -> dict[str, list[Answer]]:
    """What `write_answers` wrote."""
    answers: dict[str, list[Answer]] = {}
    for record in lines(path):
        answers.setdefault(record.pop("model"), []).append(Answer.from_json(record))
    return answers


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from (json.loads(line) for line in file)

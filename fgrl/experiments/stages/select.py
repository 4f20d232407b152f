"""Choice of the best of several models by a number measured on validation prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import model_validator

from fgrl.base import lazy
from fgrl.base.errors import DataError
from fgrl.experiments.stages.evaluate import EvaluateStage
from fgrl.kinds import MadeModel, Run
from fgrl.kinds.specs import ModelSpec
from fgrl.measuring.choosing import Choice
from fgrl.measuring.number_names import StageNumber
from fgrl.registry import register
from fgrl.runs.results.numbers import measures
from fgrl.types import Checkpoint, Product, Report

models = lazy.load("fgrl.models")


@register("select")
class SelectStage(EvaluateStage):
    """Best of `models` by a number measured on validation prompts. Among equally good models the first is chosen.

    The product is that model, and the evaluation of all of them.
    """

    makes: ClassVar[type[Product]] = Checkpoint

    best: Choice
    """Number and goal of the choice, for example {number: rubric.csr, goal: max}."""
    among: list[str] | None = None
    """Names of the models that may be chosen; null: all. The other models are only there for comparison, as the base
    model is for `elo` or `win_rate`.
    """

    @model_validator(mode="after")
    def _candidates(self) -> SelectStage:
        if not self.models:
            raise ValueError("nothing to select from: name models under `models`")
        if self.among is not None:
            if not self.among:
                raise ValueError("among: nothing to select from; leave it out to choose among all models")
            unknown = next((name for name in self.among if name not in self.models), None)
            if unknown is not None:
                raise ValueError(f"among: {unknown!r} is not one of `models`: {', '.join(self.models)}")
        return self

    @property
    def candidates(self) -> dict[str, ModelSpec]:
        """Return the models that may be chosen, by name, in their order under `models`."""
        return {name: spec for name, spec in self.models.items() if self.among is None or name in self.among}

    def makes_model(self) -> MadeModel | None:
        return next(map(MadeModel, self.candidates.values()), None)

    def run(self, run: Run) -> dict[str, Any]:
        # 1. answers of all models, and the numbers
        summary = super().run(run)
        if run.rank:
            return summary
        known = {measure.name: measure for measure in measures(Report(run.out).read())}
        # 2. the best one
        named = (name for name, measure in known.items() if any(measure[model] for model in self.candidates))
        number = self.best.among([StageNumber("select", name) for name in named]).name
        measured = {name: own.value for name in self.candidates if (own := known[number][name]) is not None}
        values = {name: measured[name].mean if name in measured else None for name in self.candidates}
        chosen = self.best.best_of(values)
        if chosen is None:
            raise DataError(f"{number} is missing for every model: {', '.join(self.candidates)}")
        for name in (name for name, value in values.items() if value is None):
            reason = measured[name].note if name in measured else None
            run.say(f"warning: {name} cannot be chosen, its {number} is missing" + (f": {reason}" if reason else ""))
        run.say(f"{chosen}: {number} {values[chosen]:.4g}, the {self.best.goal} of {len(values)} models")
        # 3. the product
        self._hand_on(self.models[chosen], run)
        return {"chosen": chosen, "number": str(number), "value": values[chosen], **summary}

    def _hand_on(self, spec: ModelSpec, run: Run) -> None:
        """Copy the stored files of the model, not the model that was loaded for evaluation."""
        source = models.locate(spec, run.path)
        if source.about() is not None:
            models.copy(Path(source.name), run.out)
        else:
            stored = ModelSpec(base=spec.base, revision=spec.revision)
            models.save(run.model(stored), run.out, {})

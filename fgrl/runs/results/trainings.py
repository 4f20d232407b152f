"""The training of a run that made a model of an evaluation, and the models that it started from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fgrl.kinds.specs import stage_of
from fgrl.runs.reading import finite, mapping
from fgrl.runs.run import Run


@dataclass(frozen=True)
class TrainedModel:
    """A model of an evaluation that is the product of a training."""

    name: str
    """Name of the model in the evaluation."""
    stage: str | None = None
    """Training that made it; None if the recipe does not tell."""
    step: float | None = None
    """Step of a model that the training stored during training; None if it is the training's product."""
    starts: tuple[str, ...] | None = None
    """Names of the evaluation's models from which its training began, directly or through earlier trainings, the
    nearest first; None if the recipe does not tell.
    """


class Trainings:
    """The trainings of a run's recipe."""

    def __init__(self, run: Run) -> None:
        self._stages = mapping(run.settings.get("stages"))
        self._chosen = {stage.name: stage.summary.get("chosen") for stage in run.stages.values()}

    def trained_models(self, models: Mapping[str, Any], names: list[str], baseline: str) -> list[TrainedModel]:
        """Return the models in `names` that a stage of the recipe made. If the settings of `models` do not refer to a
        stage, return all but the baseline, without further facts.
        """
        made = [self._trained(name, models) for name in names if name != baseline and stage_of(models.get(name))]
        return made or [TrainedModel(name) for name in names if name != baseline]

    def rewarding(self, metrics: Any) -> set[str]:
        """Return the names of the metrics (settings as a recipe has them) that are functions of a training's reward."""
        paths = {path for stage in self._stages.values() for path in names_in(mapping(stage).get("reward"))}
        own = [mapping(each) for each in (metrics if isinstance(metrics, list) else [])]
        return {str(each.get("title") or str(each["path"]).rpartition(":")[2])
                for each in own if each.get("name") == "function" and each.get("path") in paths}  # fmt: skip

    def _trained(self, name: str, models: Mapping[str, Any]) -> TrainedModel:
        own = self._selected(models[name])
        step = finite(mapping(own).get("step"))
        stage = stage_of(own)
        ancestors = self._began_with(stage)
        if not ancestors:
            return TrainedModel(name, stage, step)
        known = {_identity(self._selected(settings)): other for other, settings in reversed(list(models.items()))}
        starts = tuple(known[each] for each in map(_identity, ancestors) if each in known)
        return TrainedModel(name, stage, step, starts)

    def _began_with(self, stage: str | None) -> list[Any]:
        """Return settings of the model that a stage trained, then of the model that this one was trained from, and so
        on.
        """
        ancestors: list[Any] = []
        while stage is not None and len(ancestors) <= len(self._stages):
            start = mapping(self._stages.get(stage)).get("model")
            if start is None:
                break
            ancestors.append(self._selected(start))
            stage = stage_of(ancestors[-1])
        return ancestors

    def _selected(self, model: Any) -> Any:
        """Return the settings of the model that a `select` stage chose, if the model is the product of such a stage."""
        for _ in self._stages:
            stage = stage_of(model)
            models = mapping(mapping(self._stages.get(stage or "")).get("models"))
            chosen = self._chosen.get(stage or "")
            if not isinstance(chosen, str) or chosen not in models:
                break
            model = models[chosen]
        return model


def names_in(reward: Any) -> Iterator[str]:
    """Yield the names of a reward's components and the paths of its files and functions. reward: its settings."""
    for each in reward if isinstance(reward, list) else []:
        yield from names_in(each)
    for key, value in mapping(reward).items():
        if key in ("name", "path", "title"):
            yield from map(str, value if isinstance(value, list) else [value])
        else:
            yield from names_in(value)


def _identity(model: Any) -> tuple[str, str]:
    """Return a key that is equal for settings of the same weights."""
    settings = {"base": model} if isinstance(model, str) else mapping(model)
    if (stage := stage_of(model)) is not None:
        return f"${{out:{stage}}}", str(settings.get("step"))
    return str(settings.get("base")).strip(), str(settings.get("revision"))

"""Origin and measurements of a trained model, read from the folders of stages.

A stage's folder has its settings (`recipe.yaml`) and its record (hashes of what it read, keys of the stages it was
made from). Those stages lie beside it, and so do the evaluations that measured it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fgrl.base.errors import DataError
from fgrl.kinds.specs import HUB_ID, names_folder, stage_of
from fgrl.registry.problems import dotted
from fgrl.runs.reading import mapping
from fgrl.runs.records import STAGE
from fgrl.runs.results.differing import inside
from fgrl.runs.results.evaluations import read_evaluation
from fgrl.runs.results.numbers import Measure, ModelNumber
from fgrl.runs.stage import Stage, find

_REFERENCE = re.compile(r"\$\{out:\s*([^}\s]+)\s*\}")


@dataclass(frozen=True)
class Input:
    """A file or a data set that a stage read."""

    setting: str
    """The stage, and the path of the setting that names it."""
    name: str
    """The path of the file or folder, `rewards.py:score` of a function, or the data set's id on the hub."""
    identity: str
    """sha256 of a file or of a folder's contents; the revision of a data set."""
    hub: bool = False
    part: str = ""
    """Configuration and split of a data set."""


@dataclass
class MeasuredNumbers:
    """Numbers of the model in one evaluation."""

    evaluation: Stage
    baseline: str
    model: str
    """Names in the evaluation; the first is empty for a model that is itself the baseline."""
    rows: list[tuple[Measure, ModelNumber, ModelNumber | None]]
    """The number, the model's value, and the baseline's."""


@dataclass
class Provenance:
    """Origin of a model. Empty for a model whose stage's folder is unknown."""

    chain: list[Stage] = field(default_factory=list)
    """The stages that it was made from, in order of execution; its own stage is the last."""
    measured: list[MeasuredNumbers] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Stages whose folders are gone."""
    about: str = ""
    """Description of the recipe."""

    @property
    def stage(self) -> Stage | None:
        return self.chain[-1] if self.chain else None

    def recipe(self) -> dict[str, Any]:
        """Return the stages as one recipe, in plain data. A second stage with the same name has its key after the name."""
        names = self.names()
        stages = {names[stage.key]: _renamed(stage.settings, stage.record.upstream, names) for stage in self.chain}
        about = self.about or "The stages that this model was made with."
        return {"about": about, "seed": self.chain[-1].seed, "stages": stages}

    def names(self) -> dict[str, str]:
        """Return a name for each stage, by its key: the name that the stages after it use."""
        called = {key: name for stage in reversed(self.chain) for name, key in stage.record.upstream.items()}
        names: dict[str, str] = {}
        for stage in self.chain:
            name = called.get(stage.key, stage.name)
            names[stage.key] = f"{name}_{stage.key}" if name in names.values() else name
        return names

    def inputs(self) -> list[Input]:
        """Return the files, folders, functions and data sets that the stages read. An input of several stages is listed
        once.
        """
        listed: dict[tuple[str, str, str], Input] = {}
        names = self.names()
        for stage in self.chain:
            identity = stage.record.identity
            read = _inputs((names[stage.key],), identity.get("settings"), stage.settings, mapping(identity.get("data")))
            for each in read:
                listed.setdefault((each.name, each.identity, each.part), each)
        return list(listed.values())

    def datasets(self) -> list[str]:
        """Ids of the data sets from the hub."""
        return list(dict.fromkeys(each.name for each in self.inputs() if each.hub))


def read(stage: Path, *, step: int | None = None, about: str = "") -> Provenance:
    """Return the provenance of the model in `stage/out`, or of the checkpoint that its training kept at `step`.

    Raises `DataError` if the folder is not a finished stage.
    """
    own = Stage(stage.resolve())
    if not own.finished:
        raise DataError(f"{stage}: it is not the folder of a finished stage ({STAGE} cannot be read)")
    provenance = Provenance(about=about)
    _collect(own, provenance, set())
    provenance.measured = list(_measured(own, step))
    return provenance


def _collect(stage: Stage, into: Provenance, known: set[str]) -> None:
    """Collect the stages that `stage` was made from, then the stage itself."""
    known.add(stage.key)
    for name, key in stage.record.upstream.items():
        if key in known:
            continue
        other = find(stage.place.parent, key)
        if other is None or not other.finished:
            known.add(key)
            into.missing.append(f"{name}-{key}")
        else:
            _collect(other, into, known)
    into.chain.append(stage)


def _measured(stage: Stage, step: int | None) -> Iterator[MeasuredNumbers]:
    """Yield the measurements of its model by finished evaluations beside the stage, the newest first."""
    evaluations = [other for other in map(Stage, stage.place.parent.glob("*-*")) if other.measured]
    for evaluation in sorted(evaluations, key=lambda other: other.record.made, reverse=True):
        if stage.key not in (*evaluation.record.upstream.values(), evaluation.key):
            continue
        results = read_evaluation(evaluation.out, [])
        for model in _names_of(stage, step, evaluation):
            base = "" if model == results.baseline else results.baseline
            rows = [(each, own, each[base]) for each in results.measures if (own := each[model]) is not None]
            if rows:
                yield MeasuredNumbers(evaluation, base, model, rows)


def _names_of(stage: Stage, step: int | None, evaluation: Stage) -> list[str]:
    """Return the names of a stage's model in an evaluation; for `select`, whose product is one of its models, the
    chosen name.
    """
    if evaluation.key == stage.key:
        chosen = evaluation.record.summary.get("chosen")
        return [chosen] if isinstance(chosen, str) else []
    names = []
    for name, spec in mapping(evaluation.settings.get("models")).items():
        made_by = stage_of(spec)
        if made_by and evaluation.record.upstream.get(made_by) == stage.key and mapping(spec).get("step") == step:
            names.append(str(name))
    return names


def _renamed(value: Any, upstream: Mapping[str, str], names: Mapping[str, str]) -> Any:
    """Return settings in which `${out:x}` is replaced by the name that the stage got."""
    if isinstance(value, Mapping):
        return {name: _renamed(item, upstream, names) for name, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, upstream, names) for item in value]
    if not isinstance(value, str):
        return value
    return _REFERENCE.sub(lambda match: f"${{out:{names.get(upstream.get(match[1], ''), match[1])}}}", value)


def _inputs(path: Sequence[str | int], identity: Any, settings: Any, data: Mapping[str, Any]) -> Iterator[Input]:
    """Walk both trees: the identity has what each file and data set is, the settings have its name.

    path: the stage and the settings down to here; data: hashes of the inputs, by the path of each reader. The hash of a
    folder is only there.
    """
    place = ".".join(map(str, path))
    if isinstance(identity, list):
        identity = dict(enumerate(identity))
    if not isinstance(identity, Mapping):
        return
    name, folder = identity.get("path"), inside(settings, "path")
    part = " ".join(str(identity[key]) for key in ("config", "split") if identity.get(key))
    digest = mapping(data.get(dotted(path[1:]))).get("sha256")
    if set(identity) == {"sha256"} and isinstance(settings, str):
        code = " of the code" if ".py" in settings else ""
        yield Input(place, settings, f"sha256{code} {identity['sha256']}")
    elif name == "folder" and isinstance(folder, str) and digest:
        yield Input(place, folder, f"sha256 {digest}", part=part)
    elif isinstance(name, str) and "/" in name and digest and not names_folder(name) and HUB_ID.fullmatch(name):
        revision = identity.get("revision")
        yield Input(place, name, f"revision {revision}" if revision else "no pinned revision", True, part)
    for key, item in identity.items():
        yield from _inputs((*path, key), item, inside(settings, key), data)

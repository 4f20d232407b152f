"""Observations of a stage: the statistic of each number of each model, and the values that it is computed from.

observations.jsonl    first line: common data of the numbers (prompts, units, options of each metric); then a line for
each number metrics.json          the numbers derived from them, and the sha256 of `observations.jsonl`

Intervals of differences between recipes are also computed only from these values, whatever judge or rule produced them.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.base.errors import DataError
from fgrl.base.files import digest_of_file, write_lines
from fgrl.measuring.statistics import Measured, difference, estimate

if TYPE_CHECKING:
    from fgrl.measuring.answer import Answer
hashlib = lazy.load("hashlib")
np = lazy.load("numpy")

FILE = "observations.jsonl"
DIGITS = 16
"""Number of hex digits of a digest."""


@dataclass(frozen=True)
class Observed:
    """Numbers of one metric."""

    numbers: Mapping[str, Mapping[str, Measured]]
    """Numbers by model and name."""
    options: Mapping[str, Any]
    """Options of the bootstrap."""
    baseline: str | None = None
    """Name of the model for differences."""
    about: str = ""
    """Description of the computation."""
    depends: Sequence[str] = ()
    """The stage's settings that change its numbers, as paths in the stage's identity: `metrics.0`."""
    alike: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Digests of further inputs of a model's numbers besides its own answers, by model: {"answers of sft": digest}."""

    def derived(self) -> dict[str, Any]:
        """Return the estimates as `Metric.measure` does. Raises `DataError` if two models have different clusters."""
        about = {"about": self.about} if self.about else {}
        return against(self.numbers, self.baseline, self.options) | about


@dataclass(frozen=True)
class Observations:
    """Numbers of a stage."""

    metrics: Mapping[str, Observed]
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Digest of each prompt with its references and its rubric, by id; empty if the stage has no prompts."""
    answers: Mapping[str, int] = field(default_factory=dict)
    """Number of answers, by model."""

    @classmethod
    def of(cls, metrics: Mapping[str, Observed], answers: Mapping[str, Sequence[Answer]]) -> Observations:
        every = (answer for own in answers.values() for answer in own)
        # what an environment asks may be unknown where it failed
        prompts = {one.id: digest(_asked(one)) for one in sorted(every, key=lambda answer: answer.lost is None)}
        return cls(metrics, prompts, {model: len(own) for model, own in answers.items()})


def against(
    measured: Mapping[str, Mapping[str, Measured]], baseline: str | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return estimates of each model's numbers, and under "differences" those of each other model's to the baseline's.
    Numbers that are themselves differences have none.

    options: of `fgrl.measuring.statistics.estimate` and `difference`. Raises `DataError` if two models have different
    clusters.
    """
    result: dict[str, Any] = {
        model: {name: estimate(number, **options).model_dump() for name, number in numbers.items()}
        for model, numbers in measured.items()
    }
    if baseline is not None and baseline in measured:
        result["differences"] = {
            model: {
                name: _difference(model, baseline, number, measured[baseline][name], options)
                for name, number in numbers.items()
                if name in measured[baseline] and number.statistic != "elo_difference"
            }
            for model, numbers in measured.items()
            if model != baseline
        }
    return result


def _difference(
    model: str, baseline: str, first: Measured, second: Measured, options: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        return difference(first, second, **options).model_dump()
    except ValueError as error:
        raise DataError(f"{model} and {baseline}: {error}") from None


def digest_of_answers(answers: Sequence[Answer]) -> str:
    """Return a digest of the texts of a model's answers, with the prompts' ids."""
    texts = [[answer.id, answer.text, *(turn.response.text for turn in answer.follow_ups)] for answer in answers]
    return digest(texts)


def _asked(answer: Answer) -> Any:
    asked = answer.sample.model_dump(mode="json", include={"prompt", "rubric"})
    return [asked, answer.references, [turn.question for turn in answer.follow_ups]]


def digest(value: Any) -> str:
    """Return a digest of JSON-ready data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:DIGITS]


# -- the file ----------------------------------------------------------------------------------------------------------

OWN_LINE = ("statistic", "parameters", "n", "positives", "missing")
"""Fields of `Measured` that a line has unchanged."""
SHARED = ("options", "baseline", "about", "depends", "alike")
"""Fields of `Observed` that the first line has, by metric."""


def write(folder: Path, observations: Observations) -> str:
    """Write `observations.jsonl`. Return its sha256."""
    units: dict[tuple[Hashable, ...], int] = {}
    lines = [
        {
            "metric": metric, "model": model, "number": name, "units": units.setdefault(one.clusters, len(units)),
            **{key: getattr(one, key) for key in OWN_LINE},
            "place": None if one.place is None else one.place.tolist(), "rows": one.rows.tolist(),
        }
        for metric, observed in observations.metrics.items()
        for model, numbers in observed.numbers.items()
        for name, one in numbers.items()
    ]  # fmt: skip
    shared = {name: {key: getattr(own, key) for key in SHARED} for name, own in observations.metrics.items()}
    head = {
        "prompts": observations.prompts, "answers": observations.answers, "units": list(units), "metrics": shared,
    }  # fmt: skip
    write_lines(folder / FILE, map(json.dumps, [head, *lines]))
    return digest_of_file(folder / FILE)


def read(folder: Path) -> Observations | None:
    """Return the observations of a product; None if there are none. Raises `DataError` for a damaged file."""
    if not (folder / FILE).exists():
        return None
    try:
        head, *lines = map(json.loads, (folder / FILE).read_text(encoding="utf-8").splitlines())
        units = [tuple(own) for own in head["units"]]
        numbers: dict[str, dict[str, dict[str, Measured]]] = {}
        for line in lines:
            rows = np.array(line["rows"], dtype=np.float64)
            measured = Measured(
                units[line["units"]], rows=rows if rows.ndim == 2 else rows.reshape(0, 1),
                place=None if line["place"] is None else np.array(line["place"], dtype=np.int64),
                **{key: line[key] for key in OWN_LINE},
            )  # fmt: skip
            numbers.setdefault(line["metric"], {}).setdefault(line["model"], {})[line["number"]] = measured
        metrics = {name: Observed(numbers.get(name, {}), **own) for name, own in head["metrics"].items()}
        return Observations(metrics, head["prompts"], head["answers"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DataError(f"{folder / FILE} is damaged: {error!r}") from None


def refreshed(report: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return `metrics.json`. If the observations beside it are not the ones that its numbers were computed from, the
    numbers are computed again.
    """
    known, file = report.get("observations"), folder / FILE
    if known is None or not file.exists() or digest_of_file(file) == known:
        return report
    observations = read(folder)
    assert observations is not None
    derived = {name: own.derived() for name, own in observations.metrics.items() if name in report["metrics"]}
    return {**report, "metrics": report["metrics"] | derived}

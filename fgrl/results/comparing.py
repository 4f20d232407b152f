"""Recipes compared by what their evaluations recorded: numbers measured again from the answers, paired by prompt and by seed.

Several seeds of a recipe are several trained models. A recipe's number is the mean of its seeds' numbers. Two questions are
kept apart, each with an interval of its own: would other prompts say the same of these models (bootstrap: the same prompts
are drawn for all seeds and for both recipes), and would other seeds say the same on these prompts (Student's t on the
differences of runs of one seed)?
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fgrl import registry
from fgrl.errors import DataError, Unavailable
from fgrl.evaluation.answer import Answer
from fgrl.evaluation.comparison import Compared
from fgrl.evaluation.statistics import Estimate, Measured, averaged, difference, estimate, student, value_of
from fgrl.kinds import Metric
from fgrl.results.numbers import Measure, measures

ALIKE = 1e-6
"""Two numbers that differ by less, relative to their size, are the same number."""
OF_THE_BOOTSTRAP = ("resamples", "level", "seed", "title")
"""Fields of a metric that do not change its numbers."""


@dataclass
class Again:
    """What a metric said of the recorded answers, before it is resampled."""

    settings: Any
    """All that can change its numbers, to be compared."""
    numbers: Mapping[str, Mapping[str, Measured]]
    """By model and name."""
    options: Mapping[str, Any]
    """Of the bootstrap."""


@dataclass
class Evaluation:
    """A finished evaluation of one recipe with one seed."""

    report: Mapping[str, Any]
    """`metrics.json`."""
    answers: Mapping[str, Sequence[Answer]] = field(default_factory=dict)
    """By model; none when the stage records none."""
    again: Mapping[str, Again] = field(default_factory=dict)
    """By metric: those that were measured again."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """By metric: why it was not."""

    @property
    def baseline(self) -> str:
        return str(self.report.get("baseline") or "")

    @cached_property
    def measures(self) -> list[Measure]:
        """What `metrics.json` has."""
        return measures(self.report)

    @cached_property
    def models(self) -> list[str]:
        """All that it has numbers of."""
        return list(dict.fromkeys(row.model for measure in self.measures for row in measure.rows))

    @cached_property
    def asked(self) -> dict[str, Any]:
        """What was asked and what is right, by the prompt's id."""
        return {
            one.id: (one.prompt, one.conversation, one.references, one.rubric)
            for found in self.answers.values()
            for one in found
        }


@dataclass
class Side:
    """A number of one recipe."""

    over_prompts: Estimate
    seeds: dict[str, float | None]


@dataclass
class Difference:
    """A recipe's number less the first one's."""

    over_seeds: Estimate
    """Over the seeds that both have; no interval for a single one."""
    over_prompts: Estimate | None
    """None: the number cannot be paired by prompt."""
    seeds: dict[str, float | None]


@dataclass
class Number:
    """One number of one model of an evaluation, in every recipe."""

    title: str
    model: str
    about: str
    level: float | None
    """Share of the interval over prompts; None: as the stage had it."""
    again: bool
    """It was measured again; else it is what `metrics.json` has."""
    before: dict[str, Side]
    """Of the evaluation's own baseline; by recipe where they differ, else under ""."""
    recipes: dict[str, Side]
    differences: dict[str, Difference] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class Stage:
    """An evaluation that the recipes have in common."""

    name: str
    prompts: int | None
    """None: it recorded no answers."""
    answers: dict[str, dict[str, int]] = field(default_factory=dict)
    """How many there are, by recipe and model, of all its seeds."""
    numbers: list[Number] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_answers(path: Path) -> dict[str, list[Answer]]:
    """`answers.jsonl` by model; nothing when the stage wrote none."""
    found: dict[str, list[Answer]] = {}
    if path.exists():
        with path.open(encoding="utf-8") as file:
            for record in map(json.loads, file):
                found.setdefault(record.pop("model"), []).append(Answer.from_json(record))
    return found


def measure_again(
    metrics: Iterable[Metric], answers: Mapping[str, Sequence[Answer]], baseline: str, run: Any
) -> tuple[dict[str, Again], dict[str, str]]:
    """The metrics that need nothing but the answers, on the answers; and why the others were not measured, both by metric.

    A metric may load a packaged encoder, or run code in the sandbox; one that asks a judge or any other endpoint does not.
    """
    again: dict[str, Again] = {}
    reasons: dict[str, str] = {}
    for metric in metrics:
        if not isinstance(metric, Compared):
            continue  # its name is not known: see `compare`
        if reason := metric.why_not_remeasured() or ("" if answers else "no answers were recorded"):
            reasons[metric.called] = reason
            continue
        try:
            metric.setup(run)
            numbers = metric.by_model(metric.counted(answers), baseline)
        except (DataError, Unavailable) as problem:
            reasons[metric.called] = f"it could not be measured again: {problem}"
            continue
        settings = {name: value for name, value in registry.dump(metric).items() if name not in OF_THE_BOOTSTRAP}
        options = {"resamples": metric.resamples, "level": metric.level, "seed": metric.seed}
        again[metric.called] = Again(settings, numbers, options)
    return again, reasons


def compare(
    name: str,
    recipes: Mapping[str, Mapping[str, Evaluation]],
    models: Sequence[str] = (),
    only: Sequence[str] = (),
) -> Stage:
    """Every number that the first recipe shares with another, with the differences to the first.

    recipes: evaluations by recipe and seed, the one to compare with first. models: whose numbers; empty: those that are no
    baseline of the evaluation. only: texts of which a number's title must have one; empty: all.
    """
    first = next(iter(recipes))
    found = Stage(name, None)
    kept = _same_prompts(recipes, found)
    if len(kept) < 2 or first not in kept:
        found.notes.append("nothing is left to compare")
        return found
    for recipe, seeds in kept.items():
        of_models = {model: 0 for one in seeds.values() for model in one.answers}
        for one in seeds.values():
            for model, answers in one.answers.items():
                of_models[model] += len(answers)
        found.answers[recipe] = of_models
    wanted = _models(kept, models, found)
    titles: dict[tuple[str, str], Measure] = {}
    for one in (one for seeds in kept.values() for one in seeds.values()):
        for measure in one.measures:
            titles.setdefault((measure.metric, measure.name), measure)
        for metric, of in one.again.items():
            for inner in (inner for numbers in of.numbers.values() for inner in numbers):
                titles.setdefault((metric, inner), Measure(metric, inner))
    for model in wanted:
        for measure in titles.values():
            if only and not any(text in measure.title or text in f"{measure.metric}.{measure.name}" for text in only):
                continue
            number = _number(kept, measure, model)
            if number is not None:
                found.numbers.append(number)
    return found


def _same_prompts(recipes: Mapping[str, Mapping[str, Evaluation]], found: Stage) -> dict[str, dict[str, Evaluation]]:
    """The evaluations that asked what the first one asked; the others are noted."""
    first = next(iter(recipes))
    asked = next(iter(recipes[first].values())).asked
    found.prompts = len(asked) or None
    if not asked:
        found.notes.append("it recorded no answers: that all were asked the same is not checked")
    kept: dict[str, dict[str, Evaluation]] = {}
    for recipe, seeds in recipes.items():
        for seed, one in seeds.items():
            other = one.asked
            if other == asked:
                kept.setdefault(recipe, {})[seed] = one
                continue
            strange = [id for id in {**asked, **other} if asked.get(id) != other.get(id)]
            found.notes.append(
                f"{recipe}, seed {seed}, is left out: it was asked something else than {first} "
                f"({len(strange)} prompts, references or rubrics differ, the first is {strange[0]})"
            )
    return kept


def _models(kept: Mapping[str, Mapping[str, Evaluation]], wanted: Sequence[str], found: Stage) -> list[str]:
    """The models to compare: in the first recipe and in another. What only some have is noted."""
    have = {
        recipe: list(dict.fromkeys(m for one in seeds.values() for m in one.models)) for recipe, seeds in kept.items()
    }
    baselines = {one.baseline for seeds in kept.values() for one in seeds.values()}
    known = list(dict.fromkeys(model for models in have.values() for model in models))
    chosen = []
    first = next(iter(kept))
    for model in known:
        if (wanted and model not in wanted) or (not wanted and model in baselines):
            continue
        without = [recipe for recipe in kept if model not in have[recipe]]
        if without:
            found.notes.append(f"no numbers of {model} in {', '.join(without)}")
        if model in have[first] and len(without) < len(kept) - 1:
            chosen.append(model)
    found.notes += [
        f"no model is called {model}; there are {', '.join(known)}" for model in wanted if model not in known
    ]
    return chosen


def _number(kept: Mapping[str, Mapping[str, Evaluation]], measure: Measure, model: str) -> Number | None:
    """One number; None when the first recipe, or all others, do not have it."""
    metric, name = measure.metric, measure.name
    first, *others = kept
    parts = {recipe: _parts(seeds, metric, name, model) for recipe, seeds in kept.items()}
    evaluations = [one for seeds in kept.values() for one in seeds.values()]
    again = all(part is not None for some in parts.values() for part in some.values()) and any(parts.values())
    units = {frozenset(part.clusters) for some in parts.values() for part in some.values() if part is not None}
    again = again and len(units) == 1
    stored = {recipe: _stored(seeds, metric, name, model) for recipe, seeds in kept.items()}
    have = [recipe for recipe in kept if (parts[recipe] if again else stored[recipe])]
    if first not in have or len(have) < 2:
        return None
    options = evaluations[0].again[metric].options if again else {}
    sides = {recipe: _side(parts[recipe] if again else None, stored[recipe], options) for recipe in have}
    number = Number(
        measure.title,
        model,
        measure.about,
        options.get("level"),
        again,
        _before(kept, metric, name, model, again),
        sides,
    )
    if not again:
        why = "its units differ between runs" if len(units) > 1 else "it cannot be measured from the answers alone"
        why = next((one.reasons[metric] for one in evaluations if metric in one.reasons), why)
        number.notes.append(f"taken from metrics.json as it is, because {why}: no paired interval over prompts")
    comparable = _comparable(kept, metric) if again else set(have)
    for recipe in others:
        if recipe not in have:
            number.notes.append(f"{recipe} has no such number")
        elif recipe not in comparable:
            number.notes.append(f"{recipe} measures it with other settings than {first}: no difference is taken")
        else:
            number.differences[recipe] = _difference(sides[recipe], sides[first], parts[recipe], parts[first], options)
    if again:
        number.notes += _remarks(number, kept, stored)
    return number


Parts = Mapping[str, Measured | None]


def _parts(seeds: Mapping[str, Evaluation], metric: str, name: str, model: str) -> dict[str, Measured | None]:
    """What was measured again, by seed; None where it was not. Seeds whose metric does not have the number are left out."""
    found: dict[str, Measured | None] = {}
    for seed, one in seeds.items():
        if metric not in one.again:
            found[seed] = None
        elif (part := one.again[metric].numbers.get(model, {}).get(name)) is not None:
            found[seed] = part
    return found


def _stored(seeds: Mapping[str, Evaluation], metric: str, name: str, model: str) -> dict[str, Estimate]:
    """What `metrics.json` has, by seed."""
    found = {}
    for seed, one in seeds.items():
        for measure in one.measures:
            for row in measure.rows:
                if (measure.metric, measure.name, row.model) == (metric, name, model) and row.value is not None:
                    value = row.value
                    n, note = value.n or 0, value.note or None
                    found[seed] = Estimate(mean=value.mean, low=value.low, high=value.high, n=n, note=note)
    return found


def _side(parts: Parts | None, stored: Mapping[str, Estimate], options: Mapping[str, Any]) -> Side:
    if parts is not None:
        seeds = {seed: value_of(part) for seed, part in parts.items() if part is not None}
        known = [part for seed, part in parts.items() if part is not None and seeds[seed] is not None]
        if not known:
            note = next((part.missing for part in parts.values() if part is not None and part.missing), "no values")
            return Side(Estimate(mean=None, note=note), dict(seeds))
        return Side(estimate(averaged(known), **options), dict(seeds))
    means = {seed: one.mean for seed, one in stored.items()}
    if len(stored) == 1:
        return Side(next(iter(stored.values())), means)
    there = [mean for mean in means.values() if mean is not None]
    return Side(
        Estimate(mean=sum(there) / len(there) if there else None, n=sum(one.n for one in stored.values())), means
    )


def _difference(one: Side, other: Side, parts: Parts, others: Parts, options: Mapping[str, Any]) -> Difference:
    """Over the seeds at which both have a value."""
    seeds: dict[str, float | None] = {}
    for seed in one.seeds:
        if seed in other.seeds:
            pair = one.seeds[seed], other.seeds[seed]
            seeds[seed] = None if pair[0] is None or pair[1] is None else pair[0] - pair[1]
    both = {seed: value for seed, value in seeds.items() if value is not None}
    over_seeds = student(list(both.values()), level=options.get("level", 0.95))
    first = [part for seed in both if (part := parts.get(seed)) is not None]
    second = [part for seed in both if (part := others.get(seed)) is not None]
    if not options or not both:
        return Difference(over_seeds, None, seeds)
    over_prompts = difference(averaged(first), averaged(second), **options)
    return Difference(over_seeds, over_prompts, seeds)


def _before(
    kept: Mapping[str, Mapping[str, Evaluation]], metric: str, name: str, model: str, again: bool
) -> dict[str, Side]:
    """The number of each evaluation's own baseline: once where the recipes have the same one, else of each recipe."""
    sides: dict[str, Side] = {}
    for recipe, seeds in kept.items():
        baseline = next(iter(seeds.values())).baseline
        if not baseline or baseline == model:
            continue
        stored = _stored(seeds, metric, name, baseline)
        parts = _parts(seeds, metric, name, baseline) if again else None
        if not stored or (again and not parts):
            continue
        options = next(iter(seeds.values())).again[metric].options if again else {}
        sides[recipe] = _side(parts, stored, options)
    if not sides:
        return {}
    fullest = max(sides.values(), key=lambda side: len(side.seeds))
    same = all(_alike(value, fullest.seeds.get(seed)) for side in sides.values() for seed, value in side.seeds.items())
    return {"": fullest} if same and len(sides) == len(kept) else sides


def _comparable(kept: Mapping[str, Mapping[str, Evaluation]], metric: str) -> set[str]:
    """The recipes whose metric has the settings of the first one's."""
    first = next(iter(next(iter(kept.values())).values())).again[metric].settings
    return {
        recipe
        for recipe, seeds in kept.items()
        if all(metric in one.again and one.again[metric].settings == first for one in seeds.values())
    }


def _remarks(
    number: Number, kept: Mapping[str, Mapping[str, Evaluation]], stored: Mapping[str, Mapping[str, Estimate]]
) -> list[str]:
    """What a reader must know of single values."""
    said = []
    for recipe, side in number.recipes.items():
        if side.over_prompts.note:
            said.append(f"{recipe}: {side.over_prompts.note}")
        if side.over_prompts.mean is None:
            continue
        gone = [seed for seed, value in side.seeds.items() if value is None]
        if gone:
            said.append(f"{recipe} has no value at seed {', '.join(gone)}, which its mean leaves out")
        all = sum(len(one.answers.get(number.model, ())) for one in kept[recipe].values())
        if side.over_prompts.n < all:
            said.append(f"{recipe}: {side.over_prompts.n} of {all} answers have a value")
        told = stored.get(recipe, {})
        changed = [seed for seed, value in side.seeds.items() if seed in told and not _alike(value, told[seed].mean)]
        if changed:
            was = ", ".join(f"{told[seed].mean:.6g} at seed {seed}" for seed in changed if told[seed].mean is not None)
            said.append(f"{recipe}: measured again it is not what metrics.json has ({was or 'no value'})")
    for recipe, change in number.differences.items():
        if change.over_prompts is not None and change.over_prompts.note:
            said.append(f"difference of {recipe}: {change.over_prompts.note}")
    return said


def _alike(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= ALIKE * max(1.0, abs(one), abs(other))

"""Recipes compared by what their evaluations observed: the record of a comparison, and how it is made. Numbers are
paired by prompt and by seed.

Several seeds of a recipe are several trained models. A recipe's number is the mean of its seeds' numbers. Two questions
are kept apart, each with its own interval: how would the result change with other prompts and these models (bootstrap:
the same prompts are drawn for all seeds and for both recipes), and how would it change with other seeds and these
prompts (Student's t on the differences of runs with one seed)?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import Field, computed_field

from fgrl.evaluation.number_names import NumberName
from fgrl.evaluation.statistics import Estimate, Measured, averaged, difference, estimate, student, value_of
from fgrl.results.differing import Differing, differing
from fgrl.results.evaluations import Evaluation
from fgrl.types import Record

OWN_SEED = "own"
"""Label of the column where every recipe has one seed, and not the same."""
TOLERANCE = 1e-6
"""Two numbers that differ by less, relative to their size, are the same number."""
MOST_SETTINGS = 4
"""Settings that a note names."""


# -- the record --------------------------------------------------------------------------------------------------------


class RecipeNumber(Estimate):
    """A number of one recipe: the mean over its seeds, with the interval over prompts."""

    seeds: dict[str, float | None]


class Difference(Record):
    """A recipe's number minus the first recipe's."""

    over_seeds: Estimate
    """Over the seeds that both have; no interval for a single one."""
    over_prompts: Estimate | None
    """None: the number cannot be paired by prompt."""
    seeds: dict[str, float | None]


class ComparedNumber(Record):
    """One number of one model of an evaluation, in every recipe."""

    number: str
    model: str
    about: str
    level: float | None
    """Share of the interval over prompts; None: as the stage computed it."""
    why_recorded: str = ""
    """Reason to take it from `metrics.json`, without intervals over prompts of differences; empty: it is derived from
    the observations.
    """
    before: RecipeNumber | dict[str, RecipeNumber] | None
    """Number of the evaluation's own baseline; by recipe where they differ; None: there is none."""
    recipes: dict[str, RecipeNumber]
    differences: dict[str, Difference] = {}
    notes: list[str] = []

    @computed_field
    def observed(self) -> bool:
        return not self.why_recorded


class ComparedEvaluation(Record):
    """An evaluation that the recipes have in common."""

    name: str = Field(exclude=True)
    prompts: int | None = None
    """None: it recorded no prompts."""
    answers: dict[str, dict[str, int]] = {}
    """Number of answers over all seeds, by recipe and model."""
    numbers: list[ComparedNumber] = []
    notes: list[str] = []


class ComparedRecipe(Record):
    """One of the recipes."""

    path: str
    """The recipe's file, or the folder of its runs."""
    seeds: dict[str, int]
    """By the label of its column: the seed itself, or "own" where every recipe has a different one."""


class Missing(Record):
    """Evaluations that have not run."""

    recipe: str
    seed: str
    stages: list[str]
    command: str
    """Command that runs them; empty for the folder of a run."""


class RecipeComparison(Record):
    """Recipes against the first of them."""

    recipes: dict[str, ComparedRecipe]
    settings: list[Differing]
    evaluations: list[ComparedEvaluation]
    missing: list[Missing] = []
    notes: list[str] = []

    @property
    def seeds(self) -> list[str]:
        """Labels of the columns."""
        return list(dict.fromkeys(label for recipe in self.recipes.values() for label in recipe.seeds))

    @property
    def numbers(self) -> list[ComparedNumber]:
        return [number for evaluation in self.evaluations for number in evaluation.numbers]

    def as_json(self) -> Mapping[str, Any]:
        names = list(self.recipes)
        return {
            "baseline": names[0],
            "seeds": self.seeds,
            "settings": [
                {"key": each.key, "values": dict(zip(names, each.values, strict=True))} for each in self.settings
            ],
            "stages": {evaluation.name: evaluation.model_dump() for evaluation in self.evaluations},
            **self.model_dump(include={"recipes", "missing", "notes"}),
        }


# -- how it is made ----------------------------------------------------------------------------------------------------

Evaluations = Mapping[str, Mapping[str, Evaluation]]
"""By recipe and seed."""


def compare(
    name: str, recipes: Evaluations, models: Sequence[str] = (), wanted: Sequence[str] = ()
) -> ComparedEvaluation:
    """Every number that the first recipe shares with another, with the differences to the first.

    recipes: evaluations by recipe and seed, the one to compare with first. models: whose numbers; empty: those that are
    no baseline of the evaluation. wanted: texts of which a number's name must contain one; empty: all.
    """
    compared = ComparedEvaluation(name=name)
    evaluations = _same_questions(recipes, compared)
    if len(evaluations) < 2 or next(iter(recipes)) not in evaluations:
        compared.notes.append("nothing is left to compare")
        return compared
    for recipe, by_seed in evaluations.items():
        counts: Counter[str] = Counter()
        for evaluation in by_seed.values():
            counts.update(evaluation.observed.answers)
        compared.answers[recipe] = dict(counts)
    numbers = {name: about for name, about in _numbers(evaluations).items() if name.contains_any(wanted)}
    for model in _models(evaluations, models, compared):
        for number, about in numbers.items():
            result = _compared_number(evaluations, number, model, about)
            if result is not None:
                compared.numbers.append(result)
    return compared


def _numbers(evaluations: Evaluations) -> dict[NumberName, str]:
    """All numbers, and how each was computed where its metric reports that."""
    abouts: dict[NumberName, str] = {}
    for evaluation in _every(evaluations):
        for measure in evaluation.measures:
            abouts.setdefault(measure.name, measure.about)
    return abouts


def _every(evaluations: Evaluations) -> list[Evaluation]:
    return [evaluation for by_seed in evaluations.values() for evaluation in by_seed.values()]


def _same_questions(recipes: Evaluations, compared: ComparedEvaluation) -> dict[str, dict[str, Evaluation]]:
    """Return the evaluations with the prompts of the first one, and those whose prompts are not known; the others are
    noted.
    """
    first = next(iter(recipes))
    questions = next(iter(recipes[first].values())).observed.prompts
    compared.prompts = len(questions) or None
    if any(not evaluation.observed.prompts for evaluation in _every(recipes)):
        compared.notes.append("not all runs recorded their prompts: whether these are the same is not checked")
    same: dict[str, dict[str, Evaluation]] = {}
    for recipe, by_seed in recipes.items():
        for seed, evaluation in by_seed.items():
            others = evaluation.observed.prompts
            if not others or not questions or others == questions:
                same.setdefault(recipe, {})[seed] = evaluation
                continue
            ids = [id for id in {**questions, **others} if questions.get(id) != others.get(id)]
            compared.notes.append(
                f"{recipe}, seed {seed}, is left out: its prompts differ from those of {first} "
                f"({len(ids)} prompts, references or rubrics differ, the first is {ids[0]})"
            )
    return same


def _models(evaluations: Evaluations, wanted: Sequence[str], compared: ComparedEvaluation) -> list[str]:
    """Return the models to compare: in the first recipe and in another. What only some have is noted."""
    models_of = {
        recipe: list(dict.fromkeys(model for evaluation in by_seed.values() for model in evaluation.models))
        for recipe, by_seed in evaluations.items()
    }
    baselines = {evaluation.baseline for evaluation in _every(evaluations)}
    known = list(dict.fromkeys(model for models in models_of.values() for model in models))
    if baselines.issuperset(known):  # a model alone, which is its own baseline
        baselines = set()
    chosen = []
    first = next(iter(evaluations))
    for model in known:
        if (wanted and model not in wanted) or (not wanted and model in baselines):
            continue
        without = [recipe for recipe, models in models_of.items() if model not in models]
        if without:
            compared.notes.append(f"no numbers of {model} in {', '.join(without)}")
        if model in models_of[first] and len(without) < len(evaluations) - 1:
            chosen.append(model)
    compared.notes += [
        f"no model is called {model}; there are {', '.join(known)}" for model in wanted if model not in known
    ]
    return chosen


class Measurement(NamedTuple):
    """A number of a model in the evaluations of one recipe."""

    evaluations: Mapping[str, Evaluation]
    """By seed."""
    name: NumberName
    model: str


def row_number(row: Measurement) -> RecipeNumber | None:
    """Return the mean over the seeds with its interval over prompts; None where no seed has the number."""
    own = {"": row.evaluations}
    values = {"": _values(*row)}
    why = _why_recorded(row.name.metric, own, values)
    return values[""].number(None if why else _options(own, row.name))


def row_difference(row: Measurement, other: Measurement) -> Difference | str:
    """Return row - other, over the prompts and the seeds that both have, or why they cannot be paired."""
    if row.name != other.name:
        return "they are different numbers"
    sides = {"row": row.evaluations, "other": other.evaluations}
    if len(_same_questions(sides, ComparedEvaluation(name=""))) < 2:
        return "their prompts differ"
    if differing := _measured_otherwise(row, other):
        return f"they are not measured in the same way: {differing[0]}"
    values = {name: _values(*each) for name, each in zip(sides, (row, other), strict=True)}
    options = None if _why_recorded(row.name.metric, sides, values) else _options(sides, row.name)
    numbers = {name: value.number(options) for name, value in values.items()}
    if numbers["row"] is None or numbers["other"] is None:
        return "one of them has no value"
    return _difference((numbers["row"], values["row"]), (numbers["other"], values["other"]), options)


# -- one number --------------------------------------------------------------------------------------------------------


@dataclass
class _Values:
    """One number of one model in the evaluations of a recipe, by seed."""

    recorded: Mapping[str, Estimate]
    """As `metrics.json` has it."""
    measured: Mapping[str, Measured]
    """The observations, at the seeds that have some."""

    def number(self, options: Mapping[str, Any] | None) -> RecipeNumber | None:
        """Return the mean over the seeds that have a value; None without seeds. options: of the bootstrap; None: as
        recorded, with the interval where there is one seed.
        """
        if options is not None:
            values = {seed: value_of(part) for seed, part in self.measured.items()}
            known = [part for seed, part in self.measured.items() if values[seed] is not None]
            if known:
                over_prompts = estimate(averaged(known), **options)
            else:
                reason = next((part.missing for part in self.measured.values() if part.missing), "no values")
                over_prompts = Estimate(mean=None, note=reason)
        else:
            values = {seed: recorded.mean for seed, recorded in self.recorded.items()}
            if len(values) == 1:
                (over_prompts,) = self.recorded.values()
            else:
                means = [value for value in values.values() if value is not None]
                count = sum(recorded.n for recorded in self.recorded.values())
                over_prompts = Estimate(mean=sum(means) / len(means) if means else None, n=count)
        return RecipeNumber(**over_prompts.model_dump(), seeds=values) if values else None


def _values(by_seed: Mapping[str, Evaluation], name: NumberName, model: str) -> _Values:
    recorded = {
        seed: number.value
        for seed, evaluation in by_seed.items()
        for measure in evaluation.measures
        for number in measure.models
        if measure.name == name and number.model == model
    }
    own = {seed: evaluation.measured(name, model) for seed, evaluation in by_seed.items()}
    return _Values(recorded, {seed: part for seed, part in own.items() if part is not None})


def _compared_number(evaluations: Evaluations, name: NumberName, model: str, about: str) -> ComparedNumber | None:
    """One number; None when the first recipe, or all others, do not have it."""
    first, *others = evaluations
    values = {recipe: _values(by_seed, name, model) for recipe, by_seed in evaluations.items()}
    why_recorded = _why_recorded(name.metric, evaluations, values)
    options = None if why_recorded else _options(evaluations, name)
    numbers = {recipe: number for recipe, side in values.items() if (number := side.number(options)) is not None}
    if first not in numbers or len(numbers) < 2:
        return None
    compared = ComparedNumber(
        number=str(name),
        model=model,
        about=about,
        level=None if options is None else options.get("level"),
        why_recorded=why_recorded,
        before=_before(evaluations, name, model, options),
        recipes=numbers,
    )
    for recipe in others:
        if recipe not in numbers:
            compared.notes.append(f"{recipe} has no such number")
        elif differing := _measured_otherwise(
            *(Measurement(evaluations[each], name, model) for each in (recipe, first))
        ):
            more = [f"{len(differing) - MOST_SETTINGS} more"] if len(differing) > MOST_SETTINGS else []
            named = "; ".join([*differing[:MOST_SETTINGS], *more])
            compared.notes.append(f"{recipe} does not measure it as {first} does, so no difference is taken: {named}")
        else:
            sides = (numbers[recipe], values[recipe]), (numbers[first], values[first])
            compared.differences[recipe] = _difference(*sides, options)
    if options is not None:
        compared.notes += _remarks(compared, name, evaluations)
    return compared


def _options(evaluations: Evaluations, name: NumberName) -> Mapping[str, Any]:
    """Return the options of the bootstrap."""
    return {"level": 0.95, **_every(evaluations)[0].observed.metrics[name.metric].options}


def _why_recorded(metric: str, evaluations: Evaluations, values: Mapping[str, _Values]) -> str:
    """Return the reason to take a number from `metrics.json`; empty where there are observations everywhere, of the
    same units.
    """
    reasons = (each.why_not_observed(metric) for each in _every(evaluations))
    if reason := next(filter(None, reasons), None):
        return reason
    units = {frozenset(part.clusters) for side in values.values() for part in side.measured.values()}
    return "" if len(units) == 1 else "its units differ between runs"


def _difference(
    side: tuple[RecipeNumber, _Values], first: tuple[RecipeNumber, _Values], options: Mapping[str, Any] | None
) -> Difference:
    """Over the seeds at which both have a value. options: of the bootstrap; None: the numbers are as recorded."""
    values, first_values = side[0].seeds, first[0].seeds
    seeds = {seed: _minus(value, first_values[seed]) for seed, value in values.items() if seed in first_values}
    paired = {seed: change for seed, change in seeds.items() if change is not None}
    over_prompts = None
    if options and paired:
        parts, first_parts = ([values.measured[seed] for seed in paired] for _, values in (side, first))
        over_prompts = difference(averaged(parts), averaged(first_parts), **options)
    over_seeds = student(list(paired.values()), level=(options or {}).get("level", 0.95))
    return Difference(over_seeds=over_seeds, over_prompts=over_prompts, seeds=seeds)


def _minus(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value - other


def _before(
    evaluations: Evaluations, name: NumberName, model: str, options: Mapping[str, Any] | None
) -> RecipeNumber | dict[str, RecipeNumber] | None:
    """Return the number of each evaluation's own baseline: once where the recipes have the same one, else of each
    recipe.
    """
    numbers: dict[str, RecipeNumber] = {}
    for recipe, by_seed in evaluations.items():
        baseline = next(iter(by_seed.values())).baseline
        if not baseline or baseline == model:
            continue
        values = _values(by_seed, name, baseline)
        if values.recorded and (number := values.number(options)) is not None:
            numbers[recipe] = number
    fullest = max(numbers.values(), key=lambda number: len(number.seeds), default=None)
    if fullest is None or len(numbers) < len(evaluations):
        return numbers or None
    same = all(
        _equal(value, fullest.seeds.get(seed)) for number in numbers.values() for seed, value in number.seeds.items()
    )
    return fullest if same else numbers


def _measured_otherwise(one: Measurement, first: Measurement) -> list[str]:
    """Return what differs in how a number was measured apart from the models, seed by seed: settings as `PATH: ONE, not
    FIRST`, and names of what a model was compared with. Empty where all is the same.
    """
    for seed in [each for each in one.evaluations if each in first.evaluations]:
        sides = [(side.evaluations[seed], side.name, side.model) for side in (first, one)]
        evaluations = [evaluation for evaluation, _name, _model in sides]
        if evaluations[0] is evaluations[1]:
            continue
        settings = [evaluation.settings(name) for evaluation, name, _model in sides]
        if found := [f"{each.key}: {each.values[1]}, not {each.values[0]}" for each in differing(settings)]:
            return found
        expected, found_there = (evaluation.alike(name, model) for evaluation, name, model in sides)
        if sorted(expected.values()) != sorted(found_there.values()):
            names = dict.fromkeys([*expected, *found_there])
            return [f"the {what} are others" for what in names if expected.get(what) != found_there.get(what)]
    return []


def _remarks(number: ComparedNumber, name: NumberName, evaluations: Evaluations) -> list[str]:
    """Return remarks on single values."""
    remarks = []
    for recipe, side in number.recipes.items():
        if side.note:
            remarks.append(f"{recipe}: {side.note}")
        if side.mean is None:
            continue
        empty = [seed for seed, value in side.seeds.items() if value is None]
        if empty:
            remarks.append(f"{recipe} has no value at seed {', '.join(empty)}, which its mean leaves out")
        own = evaluations[recipe].values()
        answers = sum(each.observed.answers.get(number.model, 0) for each in own)
        if side.n < answers and not any(each.alike(name, number.model) for each in own):
            remarks.append(f"{recipe}: {side.n} of {answers} answers have a value")
    for recipe, change in number.differences.items():
        if change.over_prompts is not None and change.over_prompts.note:
            remarks.append(f"difference of {recipe}: {change.over_prompts.note}")
    return remarks


def _equal(value: float | None, other: float | None) -> bool:
    if value is None or other is None:
        return value is other
    return abs(value - other) <= TOLERANCE * max(1.0, abs(value), abs(other))

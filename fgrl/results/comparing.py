"""Recipes compared by what their evaluations recorded: the record of a comparison, and how it is made. Numbers are
measured again from the answers, paired by prompt and by seed.

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
from fgrl.results.differing import ABSENT, Differing, differing
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
    """Reason to take it from `metrics.json`; empty: it was measured again from the answers."""
    before: RecipeNumber | dict[str, RecipeNumber] | None
    """Number of the evaluation's own baseline; by recipe where they differ; None: there is none."""
    recipes: dict[str, RecipeNumber]
    differences: dict[str, Difference] = {}
    notes: list[str] = []

    @computed_field
    def measured_again(self) -> bool:
        return not self.why_recorded


class ComparedEvaluation(Record):
    """An evaluation that the recipes have in common."""

    name: str = Field(exclude=True)
    prompts: int | None = None
    """None: it recorded no answers."""
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
            counts.update({model: len(answers) for model, answers in evaluation.answers.items()})
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
        for metric, remeasured in evaluation.remeasured.items():
            for number in (number for numbers in remeasured.numbers.values() for number in numbers):
                abouts.setdefault(NumberName(metric, number), "")
    return abouts


def _every(evaluations: Evaluations) -> list[Evaluation]:
    return [evaluation for by_seed in evaluations.values() for evaluation in by_seed.values()]


def _same_questions(recipes: Evaluations, compared: ComparedEvaluation) -> dict[str, dict[str, Evaluation]]:
    """Return the evaluations with the prompts of the first one; the others are noted."""
    first = next(iter(recipes))
    questions = next(iter(recipes[first].values())).questions
    compared.prompts = len(questions) or None
    if not questions:
        compared.notes.append("it recorded no answers: whether all had the same prompts is not checked")
    same: dict[str, dict[str, Evaluation]] = {}
    for recipe, by_seed in recipes.items():
        for seed, evaluation in by_seed.items():
            others = evaluation.questions
            if others == questions:
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
    if settings := _other_settings(sides, row.name)["other"]:
        return f"they are measured with other settings: {settings[0]}"
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
    measured: dict[str, Measured]
    """Measured again from the answers."""
    complete: bool
    """True if its metric was measured again at every seed."""

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
    again = {
        seed: evaluation.remeasured[name.metric]
        for seed, evaluation in by_seed.items()
        if name.metric in evaluation.remeasured
    }
    measured = {
        seed: part
        for seed, remeasured in again.items()
        if (part := remeasured.numbers.get(model, {}).get(name.number)) is not None
    }
    return _Values(recorded, measured, len(again) == len(by_seed))


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
    others_settings = _other_settings(evaluations, name)
    for recipe in others:
        if recipe not in numbers:
            compared.notes.append(f"{recipe} has no such number")
        elif settings := others_settings[recipe]:
            more = [f"{len(settings) - MOST_SETTINGS} more"] if len(settings) > MOST_SETTINGS else []
            named = "; ".join([*settings[:MOST_SETTINGS], *more])
            compared.notes.append(
                f"{recipe} measures it with other settings than {first}, so no difference is taken: {named}"
            )
        else:
            sides = (numbers[recipe], values[recipe]), (numbers[first], values[first])
            compared.differences[recipe] = _difference(*sides, options)
    if options is not None:
        compared.notes += _remarks(compared, evaluations, values)
    return compared


def _options(evaluations: Evaluations, name: NumberName) -> Mapping[str, Any]:
    """Return the options of the bootstrap."""
    return _every(evaluations)[0].remeasured[name.metric].options


def _why_recorded(metric: str, evaluations: Evaluations, values: Mapping[str, _Values]) -> str:
    """Return the reason to take a number from `metrics.json`; empty where it was measured again everywhere, over the
    same units.
    """
    units = {frozenset(part.clusters) for side in values.values() for part in side.measured.values()}
    if len(units) == 1 and all(side.complete for side in values.values()):
        return ""
    if reason := next(filter(None, (each.not_remeasured.get(metric) for each in _every(evaluations))), None):
        return reason
    return "its units differ between runs" if len(units) > 1 else "it cannot be measured from the answers alone"


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


def _other_settings(evaluations: Evaluations, name: NumberName) -> dict[str, list[str]]:
    """By recipe, the settings that a number depends on and that are not those of the first recipe."""
    first = _every(evaluations)[0]
    return {recipe: _differing(name, first, list(by_seed.values())) for recipe, by_seed in evaluations.items()}


def _differing(name: NumberName, first: Evaluation, others: Sequence[Evaluation]) -> list[str]:
    """Return the settings that differ, each as `PATH: OTHER, not FIRST`; empty where all are the same."""
    remeasured = first.remeasured.get(name.metric)
    for other in others:
        known = [each.measured_by for each in (first, other) if each.measured_by is not None]
        found = differing([each.settings(name) for each in known]) if len(known) == 2 else []
        if not all(each.complete for each in known):  # what only one of them states may be a default of the other
            found = [each for each in found if ABSENT not in each.values and len(set(each.values)) > 1]
        if found:
            return [f"{each.key}: {each.values[1]}, not {each.values[0]}" for each in found]
        own = other.remeasured.get(name.metric)
        if remeasured and own and remeasured.settings != own.settings:
            return [f"settings of {name.metric}"]
    return []


def _remarks(number: ComparedNumber, evaluations: Evaluations, values: Mapping[str, _Values]) -> list[str]:
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
        answers = sum(len(evaluation.answers.get(number.model, ())) for evaluation in evaluations[recipe].values())
        if side.n < answers:
            remarks.append(f"{recipe}: {side.n} of {answers} answers have a value")
        recorded = values[recipe].recorded
        changed = {
            seed: recorded[seed].mean
            for seed, value in side.seeds.items()
            if seed in recorded and not _equal(value, recorded[seed].mean)
        }
        if changed:
            means = ", ".join(f"{mean:.6g} at seed {seed}" for seed, mean in changed.items() if mean is not None)
            remarks.append(f"{recipe}: measured again, it differs from metrics.json ({means or 'no value'})")
    for recipe, change in number.differences.items():
        if change.over_prompts is not None and change.over_prompts.note:
            remarks.append(f"difference of {recipe}: {change.over_prompts.note}")
    return remarks


def _equal(value: float | None, other: float | None) -> bool:
    if value is None or other is None:
        return value is other
    return abs(value - other) <= TOLERANCE * max(1.0, abs(value), abs(other))

"""Comparison of recipes by the observations of their evaluations: rows of the table, paired by prompt and by seed.

Several seeds of a recipe are several trained models. A recipe's number is the mean of its seeds' numbers. Two kinds of
variation have separate intervals: the variation over prompts with these models (bootstrap: the same prompts are drawn
for all seeds and for both recipes), and the variation over seeds with these prompts (Student's t on the differences of
runs with one seed).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, computed_field

from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.measuring.number_names import NumberName
from fgrl.measuring.statistics import Estimate, averaged, difference, estimate, student, value_of
from fgrl.runs.reading import mapping
from fgrl.runs.results.differing import Differing, differing
from fgrl.runs.results.evaluations import Evaluation
from fgrl.runs.results.table import Row, evaluation_of, rows_of
from fgrl.runs.run import Run
from fgrl.runs.source import Source
from fgrl.types import Record
from fgrl.types.meanings import Better

problems = lazy.load("fgrl.registry.problems")

OWN_SEED = "own"
"""Label of the column if every recipe has one seed, and the seeds differ."""
TOLERANCE = 1e-6
"""Relative difference below which two numbers count as equal."""
MOST_SETTINGS = 4
"""Maximum number of settings that a note names."""
Evaluations = Mapping[str, Mapping[str, Evaluation]]
"""Evaluations by recipe and seed."""
Cell = Mapping[str, Row]
"""One number of one model of one recipe, by seed."""


class RecipeNumber(Estimate):
    """Number of one recipe: the mean over its seeds, with the interval over prompts."""

    seeds: dict[str, float | None]


class Difference(Record):
    """Number of a recipe minus the number of the first recipe."""

    over_seeds: Estimate
    """Difference over the seeds that both have; no interval for a single seed."""
    over_prompts: Estimate | None
    """Difference paired by prompt; None if it cannot be paired."""
    seeds: dict[str, float | None]


class ComparedNumber(Record):
    """One number of one model of an evaluation, in every recipe."""

    number: str
    model: str
    about: str
    better: Better | None
    level: float | None
    """Confidence level of the interval over prompts; None: as the stage computed it."""
    why_recorded: str
    """Reason why the number is taken from `metrics.json`, without intervals over prompts of differences; empty if it is
    derived from the observations.
    """
    before: RecipeNumber | dict[str, RecipeNumber] | None
    """Number of the evaluation's own baseline, or a number for each recipe if they differ; None if there is none."""
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
    """Number of prompts; None if it recorded no prompts."""
    answers: dict[str, dict[str, int]] = {}
    """Number of answers over all seeds, by recipe and model."""
    numbers: list[ComparedNumber] = []
    """Compared numbers, the goal first."""
    notes: list[str] = []


@dataclass
class Comparison:
    """Comparison of recipes with the first of them."""

    paths: Mapping[str, str]
    """The recipe's file, or the folder of its runs, by name."""
    runs: Mapping[str, Mapping[str, Run]]
    """Runs by name and label of the column: the seed itself, or "own" if every recipe has a different seed."""
    evaluations: list[ComparedEvaluation]
    settings: list[Differing]
    notes: list[str]

    @property
    def seeds(self) -> list[str]:
        """Return the labels of the columns."""
        return list(dict.fromkeys(label for own in self.runs.values() for label in own))

    @property
    def numbers(self) -> list[ComparedNumber]:
        return [number for evaluation in self.evaluations for number in evaluation.numbers]

    @property
    def missing(self) -> list[dict[str, Any]]:
        """Return the evaluations that have not run, with the command that runs them."""
        common = [evaluation.name for evaluation in self.evaluations]
        return [
            {"recipe": name, "seed": label, "stages": stages, "command": run.command}
            for name, own in self.runs.items()
            for label, run in own.items()
            if (stages := [stage for stage in common if stage not in run.measured])
        ]

    def as_json(self) -> dict[str, Any]:
        seeds = {name: {label: run.seed for label, run in own.items()} for name, own in self.runs.items()}
        return {
            "baseline": next(iter(self.runs)),
            "seeds": self.seeds,
            "settings": [
                {"key": each.key, "values": dict(zip(self.runs, each.values, strict=True))} for each in self.settings
            ],
            "stages": {evaluation.name: evaluation.model_dump() for evaluation in self.evaluations},
            "recipes": {name: {"path": self.paths[name], "seeds": own} for name, own in seeds.items()},
            "missing": self.missing,
            "notes": self.notes,
        }


# -- recipes -----------------------------------------------------------------------------------------------------------


def named_sides(sources: Sequence[Source], *, any_seed: bool) -> dict[str, Mapping[str, Run]]:
    """Return the runs of the sources by different names. any_seed: sources that have one seed each share a column, even
    if the seeds differ.

    Raises `UsageError` if a folder has runs of one seed with several settings.
    """
    sides: dict[str, Mapping[str, Run]] = {}
    by_seed = [source.by_seed() for source in sources]
    own = any_seed and all(len(each) == 1 for each in by_seed) and len({seed for each in by_seed for seed in each}) > 1
    for place, (source, runs) in enumerate(zip(sources, by_seed, strict=True)):
        count = sum(other.name == source.name for other in sources[:place])
        name = f"{source.name} ({count + 1})" if count else source.name
        sides[name] = {OWN_SEED if own else str(seed): run for seed, run in runs.items()}
    return sides


def common_evaluations(
    sides: Mapping[str, Mapping[str, Run]], wanted: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Return the evaluations that the first recipe and another recipe have, and notes on the left-out ones.

    Raises `UsageError` for an evaluation in `wanted` that no recipe has, or if there is no common evaluation.
    """
    evaluations = {name: [*dict.fromkeys(stage for run in runs.values() for stage in (*run.measured, *run.waiting))]
                   for name, runs in sides.items()}  # fmt: skip
    first, *others = evaluations.values()
    known = list(dict.fromkeys(stage for stages in evaluations.values() for stage in stages))
    if absent := [name for name in wanted if name not in known]:
        raise UsageError(problems.unknown("evaluation", absent[0], known))
    chosen = [name for name in known if not wanted or name in wanted]
    common = [name for name in chosen if name in first and any(name in other for other in others)]
    if not common:
        has = "; ".join(f"{recipe} has {', '.join(stages) or 'none'}" for recipe, stages in evaluations.items())
        raise UsageError(f"the recipes have no evaluation in common with {next(iter(sides))}: {has}")
    without = {name: [recipe for recipe, stages in evaluations.items() if name not in stages] for name in chosen}
    return common, [f"{name} is no evaluation of {', '.join(those)}" for name, those in without.items() if those]


def compare_recipes(
    sources: Sequence[Source],
    stages: Sequence[str] = (),
    models: Sequence[str] = (),
    numbers: Sequence[str] = (),
    *,
    any_seed: bool = True,
) -> Comparison:
    """Return the comparison. stages: the evaluations; empty: all common ones. models, numbers: see `compare`. Raises
    `DataError` if numbers cannot be read, and `UsageError` if there are none.
    """
    sides = named_sides(sources, any_seed=any_seed)
    common, notes = common_evaluations(sides, stages)
    evaluations = []
    for name in common:
        known = {
            recipe: {label: evaluation_of(run.measured[name]) for label, run in runs.items() if name in run.measured}
            for recipe, runs in sides.items()
        }
        known = {recipe: by_seed for recipe, by_seed in known.items() if by_seed}
        both = next(iter(sides)) in known and len(known) > 1
        evaluations.append(compare(name, known, models, numbers) if both else ComparedEvaluation(name=name))
    firsts = [next(iter(runs.values())) for runs in sides.values()]
    wanted = dict.fromkeys(stage for run in firsts for stage in _with_inputs(run, common))
    written = [mapping(run.settings.get("stages")) for run in firsts]
    built = [run.with_defaults for run in firsts] if all(run.command for run in firsts) else written
    differs = differing([{name: own for name, own in each.items() if name in wanted} for each in built], written)
    notes += [note for source in sources for note in source.notes]
    notes += [text for run in firsts if run.waiting and (text := run.with_other_settings())]
    paths = {name: str(source.path) for name, source in zip(sides, sources, strict=True)}
    comparison = Comparison(paths, sides, evaluations, differs, notes)
    if not comparison.numbers:
        raise UsageError(_nothing(comparison, numbers))
    return comparison


def _with_inputs(run: Run, names: Sequence[str]) -> list[str]:
    """Return these stages and all stages that they depend on."""
    written, wanted = mapping(run.settings.get("stages")), list(names)
    for name in wanted:
        wanted += [other for other in re.findall(r"\$\{out:(\w+)", str(written.get(name))) if other not in wanted]
    return wanted


def _nothing(comparison: Comparison, wanted: Sequence[str]) -> str:
    """Return the reason why there is nothing to show, and the next step."""
    reasons = [*comparison.notes, *(f"{each.name}: {note}" for each in comparison.evaluations for note in each.notes)]
    if not comparison.missing and not reasons:
        named = f"{' or '.join(map(repr, wanted))} in its name" if wanted else "the same model"
        reasons.append(f"no number that they have in common has {named} (fgrl table shows all)")
    if comparison.missing:
        reasons.append("these evaluations have not run:")
        reasons += [f"  {missing['command'] or missing['recipe']}" for missing in comparison.missing]
        reasons.append("run them, or give --run")
    return "\n".join(["nothing can be compared", *reasons])


# -- one evaluation ----------------------------------------------------------------------------------------------------


def compare(
    name: str, recipes: Evaluations, models: Sequence[str] = (), wanted: Sequence[str] = ()
) -> ComparedEvaluation:
    """Return every number that the first recipe shares with another, with the differences to the first.

    recipes: evaluations by recipe and seed, the reference recipe first. models: models whose numbers are compared;
    empty: all models except the evaluation's baselines. wanted: texts, one of which a number's name must contain;
    empty: all.
    """
    compared = ComparedEvaluation(name=name)
    first = next(iter(recipes))
    evaluations = _same_questions(recipes, compared)
    if len(evaluations) < 2 or first not in evaluations:
        compared.notes.append("nothing is left to compare")
        return compared
    cells: dict[tuple[NumberName, str], dict[str, dict[str, Row]]] = {}
    for recipe, by_seed in evaluations.items():
        own = compared.answers.setdefault(recipe, {})
        for seed, evaluation in by_seed.items():
            for model, count in evaluation.observed.answers.items():
                own[model] = own.get(model, 0) + count
            for row in rows_of(recipe, name, evaluation):
                cells.setdefault((row.metric, row.model), {}).setdefault(recipe, {})[seed] = row
    chosen = _models(evaluations, models, compared)
    for (metric, model), found in cells.items():
        if model in chosen and metric.contains_any(wanted) and first in found and len(found) > 1:
            found = {recipe: found[recipe] for recipe in evaluations if recipe in found}
            baselines = {recipe: next(iter(by_seed.values())).baseline for recipe, by_seed in evaluations.items()}
            before = {
                recipe: cell
                for recipe, own in baselines.items()
                if own != model and (cell := cells.get((metric, own), {}).get(recipe))
            }
            compared.numbers.append(_compared_number(found, before, list(evaluations)))
    rank = {(str(metric), model): next(iter(found[first].values())).place
            for (metric, model), found in cells.items() if first in found}  # fmt: skip
    compared.numbers.sort(key=lambda number: (chosen.index(number.model), rank[number.number, number.model]))
    return compared


def _every(evaluations: Evaluations) -> Iterator[Evaluation]:
    return (evaluation for by_seed in evaluations.values() for evaluation in by_seed.values())


def _same_questions(recipes: Evaluations, compared: ComparedEvaluation) -> dict[str, dict[str, Evaluation]]:
    """Return the evaluations with the same prompts as the first one, and the evaluations with unknown prompts; the
    others are noted.
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
    """Return the models to compare: those in the first recipe and in another. Models that only some recipes have are
    noted.
    """
    models_of = {
        recipe: list(dict.fromkeys(model for evaluation in by_seed.values() for model in evaluation.models))
        for recipe, by_seed in evaluations.items()
    }
    first, *_ = models_of.values()
    known = list(dict.fromkeys(model for models in models_of.values() for model in models))
    baselines = {evaluation.baseline for evaluation in _every(evaluations)}
    rest = [model for model in known if model not in baselines] or known  # a model alone is its own baseline
    chosen = [model for model in known if model in (wanted or rest)]
    without = {model: [recipe for recipe, models in models_of.items() if model not in models] for model in chosen}
    compared.notes += [f"no numbers of {model} in {', '.join(those)}" for model, those in without.items() if those]
    compared.notes += [
        f"no model is called {model}; there are {', '.join(known)}" for model in wanted if model not in known
    ]
    return [model for model in chosen if model in first and len(without[model]) < len(evaluations) - 1]


# -- one number --------------------------------------------------------------------------------------------------------


def options_of(*cells: Cell) -> Mapping[str, Any] | str:
    """Return the options of the bootstrap, or the reason for taking the numbers from `metrics.json`, if not all have
    observations of the same units.
    """
    rows = [row for cell in cells for row in cell.values()]
    metric = rows[0].metric.metric
    if reason := next(filter(None, (row.evaluation.why_not_observed(metric) for row in rows)), None):
        return reason
    units = {frozenset(row.measured.clusters) for row in rows if row.measured is not None}
    options = rows[0].evaluation.observed.metrics[metric].options
    return {"level": 0.95, **options} if len(units) == 1 else "its units differ between runs"


def seeds_of(cell: Cell, options: Mapping[str, Any] | str) -> dict[str, float | None]:
    """Return the value of each seed, or None for a seed without a value."""
    if isinstance(options, str):
        return {seed: row.value.mean for seed, row in cell.items()}
    return {seed: value_of(row.measured) for seed, row in cell.items() if row.measured is not None}


def number_of(cell: Cell, options: Mapping[str, Any] | str) -> RecipeNumber:
    """Return the mean over the seeds that have a value, with its interval over prompts. Without observations, several
    seeds have no interval.
    """
    values = seeds_of(cell, options)
    if isinstance(options, str):
        known = [value for value in values.values() if value is not None]
        count = sum(row.value.n for row in cell.values())
        over_prompts = Estimate(mean=sum(known) / len(known) if known else None, n=count)
        if len(cell) == 1:
            (over_prompts,) = (row.value for row in cell.values())
    else:
        measured = {seed: row.measured for seed, row in cell.items() if row.measured is not None}
        parts = [part for seed, part in measured.items() if values[seed] is not None]
        reason = next((part.missing for part in measured.values() if part.missing), "no values")
        over_prompts = estimate(averaged(parts), **options) if parts else Estimate(mean=None, note=reason)
    return RecipeNumber(**over_prompts.model_dump(), seeds=values)


def difference_of(one: Cell, other: Cell, options: Mapping[str, Any] | str) -> Difference:
    """Return one - other, over the prompts and the seeds for which both have a value."""
    values, others = seeds_of(one, options), seeds_of(other, options)
    seeds: dict[str, float | None] = {}
    for seed in [seed for seed in values if seed in others]:
        (value, less) = values[seed], others[seed]
        seeds[seed] = None if value is None or less is None else value - less
    paired = {seed: change for seed, change in seeds.items() if change is not None}
    over_prompts, level = None, 0.95
    if not isinstance(options, str):
        level = options["level"]
        sides = [averaged([row.measured for seed, row in cell.items() if seed in paired and row.measured is not None])
                 for cell in (one, other) if paired]  # fmt: skip
        over_prompts = difference(*sides, **options) if sides else None
    return Difference(over_seeds=student(list(paired.values()), level=level), over_prompts=over_prompts, seeds=seeds)


def row_number(cell: Cell) -> RecipeNumber | None:
    """Return the number of a row of a paper's table; None if no seed has it."""
    return number_of(cell, options_of(cell)) if cell else None


def row_difference(one: Cell, other: Cell) -> Difference | str:
    """Return one - other, or the reason why they cannot be paired."""
    rows = [next(iter(cell.values())) for cell in (one, other)]
    if rows[0].metric != rows[1].metric:
        return "they are different numbers"
    sides = {
        name: {seed: row.evaluation for seed, row in cell.items()} for name, cell in (("one", one), ("other", other))
    }
    if len(_same_questions(sides, ComparedEvaluation(name=""))) < 2:
        return "their prompts differ"
    if otherwise := _measured_otherwise(one, other):
        return f"they are not measured in the same way: {otherwise[0]}"
    change = difference_of(one, other, options_of(one, other))
    return change if change.over_seeds.mean is not None else "one of them has no value"


def _compared_number(cells: Mapping[str, Cell], before: Mapping[str, Cell], recipes: Sequence[str]) -> ComparedNumber:
    """Return the compared number. cells: by recipe, the first recipe first. before: cells of the baselines. recipes:
    all recipes.
    """
    first, *others = recipes
    options, row = options_of(*cells.values()), next(iter(cells[first].values()))
    why = options if isinstance(options, str) else ""
    level = None if isinstance(options, str) else float(options["level"])
    compared = ComparedNumber(
        number=str(row.metric), model=row.model, about=row.about, better=row.better,
        level=level, why_recorded=why,
        before=_before({recipe: number_of(cell, options) for recipe, cell in before.items()}, recipes),
        recipes={recipe: number_of(cell, options) for recipe, cell in cells.items()},
    )  # fmt: skip
    for recipe in others:
        if recipe not in cells:
            compared.notes.append(f"{recipe} has no such number")
        elif otherwise := _measured_otherwise(cells[recipe], cells[first]):
            more = [f"{len(otherwise) - MOST_SETTINGS} more"] if len(otherwise) > MOST_SETTINGS else []
            named = "; ".join([*otherwise[:MOST_SETTINGS], *more])
            compared.notes.append(f"{recipe} does not measure it as {first} does, so no difference is taken: {named}")
        else:
            compared.differences[recipe] = difference_of(cells[recipe], cells[first], options)
    if not why:
        compared.notes += _remarks(compared, cells)
    return compared


def _before(numbers: dict[str, RecipeNumber], recipes: Sequence[str]) -> RecipeNumber | dict[str, RecipeNumber] | None:
    """Return the number of the baselines: one number if all recipes have the same, else the number of each recipe."""
    fullest = max(numbers.values(), key=lambda number: len(number.seeds), default=None)
    if fullest is None or len(numbers) < len(recipes):
        return numbers or None
    pairs = [(value, fullest.seeds.get(seed)) for number in numbers.values() for seed, value in number.seeds.items()]
    same = all(
        one is two if one is None or two is None else abs(one - two) <= TOLERANCE * max(1.0, abs(one), abs(two))
        for one, two in pairs
    )
    return fullest if same else numbers


def _measured_otherwise(one: Cell, first: Cell) -> list[str]:
    """Return the differences in the measurement of a number other than the models, seed by seed: settings as `PATH:
    ONE, not FIRST`, and names of the comparisons of a model. Empty if there are no differences.
    """
    for row, other in [(first[seed], row) for seed, row in one.items() if seed in first]:
        if row.evaluation is other.evaluation:
            continue
        found = differing([each.evaluation.settings(each.metric) for each in (row, other)])
        if found:
            return [f"{each.key}: {each.values[1]}, not {each.values[0]}" for each in found]
        expected, there = (each.evaluation.alike(each.metric, each.model) for each in (row, other))
        if sorted(expected.values()) != sorted(there.values()):
            names = dict.fromkeys([*expected, *there])
            return [f"the {what} are others" for what in names if expected.get(what) != there.get(what)]
    return []


def _remarks(number: ComparedNumber, cells: Mapping[str, Cell]) -> Iterator[str]:
    """Yield remarks on single values."""
    for recipe, side in number.recipes.items():
        if side.note:
            yield f"{recipe}: {side.note}"
        if side.mean is None:
            continue
        if empty := [seed for seed, value in side.seeds.items() if value is None]:
            yield f"{recipe} has no value at seed {', '.join(empty)}, which its mean leaves out"
        answers = sum(row.evaluation.observed.answers.get(row.model, 0) for row in cells[recipe].values())
        if side.n < answers and not any(row.evaluation.alike(row.metric, row.model) for row in cells[recipe].values()):
            yield f"{recipe}: {side.n} of {answers} answers have a value"
    for recipe, change in number.differences.items():
        if change.over_prompts is not None and change.over_prompts.note:
            yield f"difference of {recipe}: {change.over_prompts.note}"

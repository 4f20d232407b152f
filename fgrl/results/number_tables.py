"""The numbers of several recipes side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fgrl.errors import DataError
from fgrl.evaluation.number_names import StageNumber, check_known
from fgrl.results.differing import labels, leaves
from fgrl.results.evaluations import Evaluation, RecipeResults, read_evaluation
from fgrl.results.numbers import Measure
from fgrl.runs.run import Run
from fgrl.runs.stage import Stage

NumberTable = Mapping[str, Sequence[tuple[str, Measure]] | None]
"""By recipe its numbers with their names, after `evaluate/` where a recipe of the table has several evaluations; None:
none of its evaluations is finished.
"""


def number_table(results: Sequence[RecipeResults], wanted: Sequence[str] = ()) -> NumberTable:
    """All numbers, or those with one of the texts in their names. Raises `UsageError` for a text that is in no name."""
    several = any(len(recipe.evaluations) > 1 for recipe in results)
    known = [measure.name for recipe in results for each in recipe.evaluations.values() for measure in each.measures]
    check_known(known, wanted)
    return {
        name: _numbers(recipe, several, wanted) if recipe.evaluations else None
        for name, recipe in zip(recipe_names(results), results, strict=True)
    }


def recipe_names(results: Sequence[RecipeResults]) -> list[str]:
    """Each recipe's name, with the settings in which it differs from others of that name; a repeated one is counted."""
    names: list[str] = []
    for recipe, label in zip(results, labels(results), strict=True):
        name = " ".join(filter(None, (recipe.recipe, label)))
        count = sum(other == name or other.startswith(f"{name} (") for other in names)
        names.append(f"{name} ({count + 1})" if count else name)
    return names


def results_of(run: Run) -> RecipeResults:
    """Return the numbers of a run's finished evaluations. Raises `DataError` when they cannot be read."""
    measured = {name: evaluation_of(stage) for name, stage in run.stages.items() if stage.measured}
    return RecipeResults(run.name, leaves(run.settings), measured)


def evaluation_of(stage: Stage) -> Evaluation:
    """Return the numbers of a finished evaluation, without the answers. Raises `DataError` when they cannot be read."""
    notes: list[str] = []
    root = stage.place.parent.parent
    stage.checked(f"`fgrl doctor {root}` marks the stage as unfinished, and `fgrl run` then runs it again")
    evaluation = read_evaluation(stage.out, notes)
    if notes:
        raise DataError(f"{stage.out}: {' '.join(notes)}")
    return evaluation


def headline(stages: Iterable[Stage]) -> str:
    """Return the first number of the last of these stages that measured something: the baseline's value, then that of
    the last model, as in `rule.kept 0.17 -> 0.55`. Empty without one.
    """
    for stage in reversed([stage for stage in stages if stage.measured]):
        for measure in read_evaluation(stage.out, []).measures[:1]:
            values = [number.value.mean for number in measure.models]
            texts = ["missing" if value is None else f"{value:.3g}" for value in values]
            return f"{measure.name} {' -> '.join(dict.fromkeys([texts[0], texts[-1]]) if len(texts) > 1 else texts)}"
    return ""


def _numbers(recipe: RecipeResults, with_stage: bool, wanted: Sequence[str]) -> list[tuple[str, Measure]]:
    return [
        (str(StageNumber(stage, measure.name) if with_stage else measure.name), measure)
        for stage, evaluation in recipe.evaluations.items()
        for measure in evaluation.measures
        if measure.name.contains_any(wanted)
    ]

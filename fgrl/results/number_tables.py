"""The numbers of several recipes side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fgrl.evaluation.number_names import StageNumber, check_known
from fgrl.results.differing import labels
from fgrl.results.evaluations import RecipeResults
from fgrl.results.numbers import Measure

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


def _numbers(recipe: RecipeResults, with_stage: bool, wanted: Sequence[str]) -> list[tuple[str, Measure]]:
    return [
        (str(StageNumber(stage, measure.name) if with_stage else measure.name), measure)
        for stage, evaluation in recipe.evaluations.items()
        for measure in evaluation.measures
        if measure.name.contains_any(wanted)
    ]

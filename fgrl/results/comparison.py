"""The record of a comparison of recipes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, computed_field

from fgrl.evaluation.statistics import Estimate
from fgrl.results.differing import Differing
from fgrl.types import Record

OWN_SEED = "own"
"""Label of the column where every recipe has one seed, and not the same."""


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

"""Finished recipes compared with the first of them.

1. the evaluations that they have in common, 2. what of them has not run, 3. their observations, 4. numbers against the
first recipe's, and the settings in which the recipes differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fgrl import registry
from fgrl.console import Console
from fgrl.errors import UsageError
from fgrl.pipeline.unfinished import run_unfinished
from fgrl.recipe import named
from fgrl.recipe.words import Source
from fgrl.registry import unknown
from fgrl.results.comparing import OWN_SEED, ComparedEvaluation, ComparedRecipe, Missing, RecipeComparison, compare
from fgrl.results.differing import differing
from fgrl.results.evaluations import Evaluation
from fgrl.results.table import evaluation_of
from fgrl.runs.run import Run


@dataclass
class Side:
    """One of the recipes."""

    name: str
    source: Source
    seeds: dict[str, Run]
    """By the label of the column."""

    @property
    def first(self) -> Run:
        return next(iter(self.seeds.values()))


def sides(sources: Sequence[Source], *, any_seed: bool) -> list[Side]:
    """Return the sources with different names. any_seed: where each has one seed, and not the same, they share a
    column.

    Raises `UsageError` when a folder has runs of one seed with several settings.
    """
    result: list[Side] = []
    by_seed = [source.by_seed() for source in sources]
    own = (
        any_seed
        and all(len(seeds) == 1 for seeds in by_seed)
        and len({seed for seeds in by_seed for seed in seeds}) > 1
    )
    for source, seeds in zip(sources, by_seed, strict=True):
        count = sum(side.source.name == source.name for side in result)
        name = f"{source.name} ({count + 1})" if count else source.name
        result.append(
            Side(name, source, {OWN_SEED if own else str(seed): finished for seed, finished in seeds.items()})
        )
    return result


def common_evaluations(sides: Sequence[Side], wanted: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return the evaluations that the first recipe and another have, and notes on what is left out.

    Raises `UsageError` for an evaluation in `wanted` that no recipe has, or when there is none in common.
    """
    evaluations = {side.name: named.evaluations(side.first) for side in sides}
    first, *others = evaluations
    known = list(dict.fromkeys(name for names in evaluations.values() for name in names))
    for name in wanted:
        if name not in known:
            raise UsageError(unknown("evaluation", name, known))
    common, notes = [], []
    for name in known:
        if wanted and name not in wanted:
            continue
        without = [recipe for recipe, names in evaluations.items() if name not in names]
        if without:
            notes.append(f"{name} is no evaluation of {', '.join(without)}")
        if name in evaluations[first] and any(name in evaluations[other] for other in others):
            common.append(name)
    if not common:
        raise UsageError(
            f"the recipes have no evaluation in common with {first}: "
            + "; ".join(f"{recipe} has {', '.join(names) or 'none'}" for recipe, names in evaluations.items())
        )
    return common, notes


def run_missing(
    sides: Sequence[Side], common: Sequence[str], command: Sequence[str], console: Console, machines: Path | None = None,
    *, dry_run: bool = False,
) -> int:  # fmt: skip
    """Run the recipes that lack an evaluation, seed by seed. Returns the exit code of the first that fails, else 0."""
    labels = dict.fromkeys(label for side in sides for label in side.seeds)
    every = (side.seeds[label] for label in labels for side in sides if label in side.seeds)
    lacking = (each for each in every if each.command and set(named.unfinished(each)) & set(common))
    return run_unfinished(lacking, command, console, machines, dry_run=dry_run)


def compare_recipes(
    sides: Sequence[Side], common: Sequence[str], models: Sequence[str] = (), numbers: Sequence[str] = ()
) -> RecipeComparison:
    """models, numbers: see `fgrl.results.comparing.compare`. Raises `DataError` when numbers cannot be read."""
    return RecipeComparison(
        recipes={
            side.name: ComparedRecipe(
                path=str(side.source.path), seeds={label: finished.seed for label, finished in side.seeds.items()}
            )
            for side in sides
        },
        settings=differing(
            [_settings(side.first, common) for side in sides],
            [side.first.settings.get("stages", {}) for side in sides],
        ),
        evaluations=[_compared(name, sides, models, numbers) for name in common],
        missing=[
            Missing(recipe=side.name, seed=label, stages=names, command=finished.command)
            for side in sides
            for label, finished in side.seeds.items()
            if (names := [name for name in named.unfinished(finished) if name in common])
        ],
        notes=[
            *(note for side in sides for note in side.source.notes),
            *(text for side in sides if named.unfinished(side.first) and (text := side.first.with_other_settings())),
        ],
    )


def _compared(name: str, sides: Sequence[Side], models: Sequence[str], numbers: Sequence[str]) -> ComparedEvaluation:
    recipes: dict[str, dict[str, Evaluation]] = {}
    for side in sides:
        for label, finished in side.seeds.items():
            if name in finished.stages and finished.stages[name].measured:
                recipes.setdefault(side.name, {})[label] = evaluation_of(finished.stages[name])
    if sides[0].name not in recipes or len(recipes) < 2:
        return ComparedEvaluation(name=name)
    return compare(name, recipes, models, numbers)


def _settings(run: Run, names: Iterable[str]) -> dict[str, Any]:
    """Return settings of these stages and of all before them, with their defaults; without, where the recipe cannot be
    built.
    """
    if (recipe := named.built(run)) is None:
        return dict(run.settings.get("stages", {}))
    graph, wanted = recipe.graph(), set(names)
    for stage in reversed(graph):
        if stage in wanted:
            wanted |= set(graph[stage])
    return {name: registry.dump(stage) for name, stage in recipe.stages.items() if name in wanted}

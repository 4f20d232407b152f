"""Numbers of finished runs as pandas DataFrames: `fgrl.table`, `compare`, `frontier`, `curves` and `elo`.

sources: one or several of: a recipe, a folder of a run or of runs, a result of `fgrl.run`. overrides, seeds: those with
which the recipes were run. Nothing is run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.library import named, words
from fgrl.library.inputs import RUNS, Overrides, load_recipe, override_texts
from fgrl.measuring.statistics import Estimate
from fgrl.runs.folders import Runs
from fgrl.runs.results.table import Table, results_of, table_of
from fgrl.runs.run import Run
from fgrl.runs.source import Source

if TYPE_CHECKING:
    from pandas import DataFrame

    from fgrl.measuring.elo import Anchor
comparing = lazy.load("fgrl.runs.results.comparing")
curve_results = lazy.load("fgrl.runs.results.curves")
elo_views = lazy.load("fgrl.runs.results.elo_views")
frontiers = lazy.load("fgrl.runs.results.frontier")
pandas = lazy.load("pandas")

Sources = Path | str | Run | Iterable[Path | str | Run]
Texts = str | Sequence[str]
COLUMNS = (
    "recipe", "row", "seed", "stage", "model", "number", "mean", "low", "high", "n", "difference", "difference_low",
    "difference_high", "note",
)  # fmt: skip


def table(
    sources: Sources,
    overrides: Overrides | None = None,
    *,
    seeds: Sequence[int] = (),
    wanted: Texts = (),
    units: bool = False,
    runs: Path | str = RUNS,
) -> DataFrame:
    """Return the numbers of finished evaluations, one row for each recipe, model and number.

    wanted: texts, one of which a number's name must contain, as in "rule.kept". units: True for one row per unit that a
    number was measured on (a prompt, a game, an annotated item), with its values.

    The columns: "recipe", "row" (the settings in which it differs from other runs of the recipe), "seed", "stage",
    "model", "number", "mean" with its interval "low" to "high", "n" (the number of values), "difference" to the
    baseline of the evaluation, paired by prompt, with "difference_low" and "difference_high", "note". With `units`:
    "statistic", "unit" and "values" replace the columns from "mean" on. NaN means missing.

    Raises `UsageError` for a source without runs and for a text that is in no number's name, `DataError` for numbers
    that cannot be read, `Problems` for a recipe with mistakes.
    """
    lines: list[tuple[Any, ...]] = []
    for row in _measured(_sources(sources, overrides, seeds, runs), _texts(wanted)).rows:
        at = (row.recipe, row.row, row.seed, row.stage, row.model, str(row.metric))
        if units:
            statistic = "" if row.measured is None else row.measured.statistic
            lines += [(*at, statistic, unit, values) for unit, values in row.values.items()]
        else:
            mean, low, high, *changes = row.ends.values()
            lines.append((*at, mean, low, high, row.value.n or None, *changes, row.value.note))
    names = (*COLUMNS[: COLUMNS.index("mean")], "statistic", "unit", "values") if units else COLUMNS
    return pandas.DataFrame(lines, columns=list(names))


def compare(
    sources: Sources,
    overrides: Overrides | None = None,
    *,
    seeds: Sequence[int] = (),
    wanted: Texts = (),
    stages: Texts = (),
    models: Texts = (),
    runs: Path | str = RUNS,
) -> DataFrame:
    """Return the numbers of recipes compared with the first of them, one row for each number and recipe, the goal
    first.

    "mean", "low" and "high" are over prompts; "difference" is to the first recipe, with "prompts_low" to "prompts_high"
    (other prompts, the same trained models) and "seeds_low" to "seeds_high" (other trainings). stages, models, wanted:
    only these evaluations, models, and numbers. Raises as `table`, and `UsageError` if nothing can be compared.
    """
    own = _sources(sources, overrides, seeds, runs)
    found = comparing.compare_recipes(own, _texts(stages), _texts(models), _texts(wanted), any_seed=not seeds)
    lines = []
    for evaluation in found.evaluations:
        for number in evaluation.numbers:
            for recipe, side in number.recipes.items():
                change = number.differences.get(recipe)
                over = (change.over_prompts, change.over_seeds) if change else (None, None)
                lines.append(
                    {"stage": evaluation.name, "model": number.model, "number": number.number, "recipe": recipe}
                    | _ends(side)
                    | {"difference": over[1].mean if over[1] else None}
                    | {f"{name}_{end}": getattr(each, end, None)
                       for name, each in zip(("prompts", "seeds"), over, strict=True) for end in ("low", "high")}
                    | {"note": "; ".join(filter(None, (number.why_recorded, *number.notes)))}
                )  # fmt: skip
    return pandas.DataFrame(lines)


def frontier(
    sources: Sources,
    y: str,
    x: str = "kl.sum",
    overrides: Overrides | None = None,
    *,
    seeds: Sequence[int] = (),
    models: Texts = (),
    runs: Path | str = RUNS,
) -> DataFrame:
    """Return two numbers side by side, one row for each model of each recipe; "best" is True for the Pareto-optimal
    ones. Raises as `table`, and `UsageError` for a number that does not exist.
    """
    found = frontiers.frontier(_measured(_sources(sources, overrides, seeds, runs)), x, y, _texts(models))
    points = ((point.series, point.model, point.label, point.best, point.x, point.y) for point in found.points)
    return pandas.DataFrame(
        {"series": series, "model": model, "settings": settings, "best": best, **_ends(across, "x_"), **_ends(up, "y_")}
        for series, model, settings, best, across, up in points
    )


def curves(
    sources: Sources,
    metric: str,
    overrides: Overrides | None = None,
    *,
    seeds: Sequence[int] = (),
    stages: Texts = (),
    runs: Path | str = RUNS,
) -> DataFrame:
    """Return a logged metric of trainings over their steps, the mean over seeds with its interval: one row for each
    curve and step. Raises as `table`, and `UsageError` for a metric that no log has.
    """
    found = [curve_results.curves_of(source.name, source.by_seed(), metric, _texts(stages))[0]
             for source in _sources(sources, overrides, seeds, runs)]  # fmt: skip
    return pandas.DataFrame(
        {"name": own.name, "step": step, **_ends(each)}
        for own in itertools.chain(*found)
        for step, each in own.points.items()
    )


def elo(
    sources: Sources,
    overrides: Overrides | None = None,
    *,
    seeds: Sequence[int] = (),
    anchor: Anchor | None = None,
    ridge: float | None = None,
    by: Texts = (),
    runs: Path | str = RUNS,
) -> DataFrame:
    """Return the Elo ratings of models, one row for each model, the best first, with "difference" to the best.

    anchor, ridge, by: repeat the fit with another level, with a ridge, or with only the games that these judges
    decided. Raises as `table`.
    """
    changes = elo_views.Changes(anchor=anchor, ridge=ridge, by=_texts(by))
    views = elo_views.of_table(_measured(_sources(sources, overrides, seeds, runs)), changes)
    return pandas.DataFrame(
        {"source": view.source, "metric": view.title, "model": model}
        | {key: value for name, each in own.items() for key, value in _ends(each, f"{name}_").items()}
        for view in views
        for model, own in view.numbers.items()
    )


# ----------------------------------------------------------------------------------------------------------------------


def _sources(sources: Sources, overrides: Overrides | None, seeds: Sequence[int], runs: Path | str) -> list[Source]:
    texts, found = override_texts(overrides), []
    for source in [sources] if isinstance(sources, Path | str | Run) else sources:
        if isinstance(source, Run):
            found.append(Source(source.folder, [source]))
        elif Path(source).is_dir():
            found += words.read_sources([Path(source)], Path(runs), (), list(seeds))
        else:
            each = [[*texts, f"seed={seed}"] for seed in seeds] or [texts]
            own: list[Run] = [named.NamedRecipe(load_recipe(source, given), given, Runs(Path(runs))) for given in each]
            found.append(Source(Path(source), own))
    return found


def _measured(sources: Sequence[Source], wanted: Sequence[str] = ()) -> Table:
    return table_of([results_of(run) for source in sources for run in source.recipes], wanted)


def _texts(given: Texts) -> list[str]:
    return [given] if isinstance(given, str) and given else list(given)


def _ends(value: Estimate, prefix: str = "") -> dict[str, float | None]:
    return {f"{prefix}{end}": getattr(value, end) for end in ("mean", "low", "high")}

"""Table of measured numbers: a row for each number of each model, from runs, named recipes and rows of papers.

`fgrl table`, `compare` and `frontier`, the tables of papers and `fgrl.table` select, group and print these rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fgrl.base.errors import DataError
from fgrl.measuring.number_names import NumberName, StageNumber, check_known
from fgrl.measuring.statistics import Measured
from fgrl.runs.results.differing import labels, leaves
from fgrl.runs.results.estimates import ShownEstimate
from fgrl.runs.results.evaluations import Evaluation, RecipeResults, read_evaluation
from fgrl.runs.run import Run
from fgrl.runs.stage import Stage
from fgrl.types.meanings import Better

FIRST = ("goal", "reward")
"""Purposes of metrics whose numbers come first."""


@dataclass(frozen=True)
class Row:
    """Number of one model."""

    recipe: str
    row: str
    """Settings in which it differs from other runs of its recipe; empty if there are none."""
    seed: int
    stage: str
    model: str
    metric: NumberName
    about: str
    """Description of the computation, if its metric gives one."""
    value: ShownEstimate
    difference: ShownEstimate | None
    """Difference to the evaluation's baseline, paired by prompt."""
    evaluation: Evaluation

    @property
    def title(self) -> str:
        """Return the name of the run among other runs."""
        return " ".join(filter(None, (self.recipe, self.row)))

    @property
    def name(self) -> StageNumber:
        return StageNumber(self.stage, self.metric)

    @property
    def better(self) -> Better | None:
        """Return the better side."""
        known = self.evaluation.known(self.metric)
        return known.meaning.better if known else None

    @property
    def place(self) -> int:
        """Return the position of its metric among the purposes: the goal comes first."""
        known = self.evaluation.known(self.metric)
        return FIRST.index(known.purpose) if known and known.purpose in FIRST else len(FIRST)

    @property
    def measured(self) -> Measured | None:
        """Return the statistic of the number, with the values of its units; None if there are no observations."""
        return self.evaluation.measured(self.metric, self.model)

    @property
    def ends(self) -> dict[str, float | None]:
        """Return the mean and the interval, of the number and of the difference."""
        sides = {"": self.value, "change_": self.difference}
        return {
            f"{side}{end}": None if own is None else getattr(own, end)
            for side, own in sides.items()
            for end in ("mean", "low", "high")
        }

    @property
    def values(self) -> Mapping[Hashable, list[list[float]]]:
        """Return the values from which the number is computed, by unit (a prompt, a game, an annotated item)."""
        if (own := self.measured) is None:
            return {}
        places = range(len(own.rows)) if own.place is None else own.place.tolist()
        values: dict[Hashable, list[list[float]]] = {}
        for place, row in zip(places, own.rows.tolist(), strict=True):
            values.setdefault(own.clusters[place], []).append(row)
        return values


@dataclass(frozen=True)
class Table:
    """Rows in the order of the recipes."""

    rows: list[Row]
    not_run: list[str]
    """Recipes without a finished evaluation."""

    @cached_property
    def several(self) -> bool:
        """True if a recipe has several evaluations."""
        stages = {(each.title, each.stage) for each in self.rows}
        return len(stages) > len({title for title, _ in stages})

    def shown(self, row: Row) -> str:
        """Return the name of a row's number, with the stage if a recipe has several."""
        return str(row.name if self.several else row.metric)

    def by_number(self) -> dict[str, list[Row]]:
        """Return the rows of each number; the goal first."""
        numbers: dict[str, list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: row.place):
            numbers.setdefault(self.shown(row), []).append(row)
        return numbers


def table_of(results: Sequence[RecipeResults], wanted: Sequence[str] = ()) -> Table:
    """Return all numbers, or those whose names contain one of the texts. Raises `UsageError` for a text that no name
    contains.
    """
    rows: list[Row] = []
    not_run: list[str] = []
    names: list[str] = []
    for recipe, label in zip(results, labels(results), strict=True):
        title = " ".join(filter(None, (recipe.recipe, label)))
        count = sum(other == title or other.startswith(f"{title} (") for other in names)
        label = " ".join(filter(None, (label, f"({count + 1})" if count else "")))
        names.append(" ".join(filter(None, (recipe.recipe, label))))
        not_run += [] if recipe.evaluations else names[-1:]
        for stage, evaluation in recipe.evaluations.items():
            rows += rows_of(recipe.recipe, stage, evaluation, label, recipe.seed)
    check_known([row.metric for row in rows], wanted)
    return Table([row for row in rows if row.metric.contains_any(wanted)], not_run)


def rows_of(recipe: str, stage: str, evaluation: Evaluation, row: str = "", seed: int = 0) -> list[Row]:
    """Return the numbers of an evaluation."""
    return [
        Row(recipe, row, seed, stage, own.model, each.name, each.about, own.value, own.difference, evaluation)
        for each in evaluation.measures
        for own in each.models
    ]


def results_of(run: Run) -> RecipeResults:
    """Return the numbers of a run's finished evaluations. Raises `DataError` when they cannot be read."""
    measured = {name: evaluation_of(stage) for name, stage in run.measured.items()}
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
    """Return the first number of the last of these stages that measured a number: the baseline's value, then the value
    of the last model, as in `rule.kept 0.17 -> 0.55`. Empty if there is none.
    """
    for stage in reversed([stage for stage in stages if stage.measured]):
        for measure in read_evaluation(stage.out, []).measures[:1]:
            values = [number.value.mean for number in measure.models]
            texts = ["missing" if value is None else f"{value:.3g}" for value in values]
            return f"{measure.name} {' -> '.join(dict.fromkeys([texts[0], texts[-1]]) if len(texts) > 1 else texts)}"
    return ""


def answer(number: str, one: str, other: str, better: Better | None, changes: Mapping[str, ShownEstimate]) -> str:
    """Return a sentence that says whether a model is better than another. changes: its number minus the other's, by the
    units of the interval (prompts or seeds); a change without an interval if there is none.
    """
    known = {over: each for over, each in changes.items() if each.interval}
    change = next(iter(changes.values()))
    if not known:
        return f"{number}: {one} less {other} is {change.change}, without an interval."
    shown = " and ".join(f"[{each.interval}]{f' {over}' if over else ''}" for over, each in known.items())
    if any((each.low or 0) <= 0 <= (each.high or 0) for each in known.values()):
        sides = f"{one} and {other}: {change.change} {shown}"
        return f"{number}: no clear difference between {sides}: an interval contains 0."
    side = "higher" if (change.mean or 0) > 0 else "lower"
    word = side if better is None else "better" if side == better else "worse"
    return f"{number}: {one} is {word} than {other}: {change.change} {shown}."

"""Table of a paper: our numbers with their intervals, the best row if the intervals show one, and the published
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fgrl.measuring.number_names import pick
from fgrl.measuring.statistics import Estimate, student
from fgrl.runs.results import comparing
from fgrl.runs.results.comparing import Difference, RecipeNumber, row_difference, row_number
from fgrl.runs.results.evaluations import Evaluation
from fgrl.runs.results.table import rows_of
from fgrl.types.meanings import Better

E = TypeVar("E", bound=Estimate)
Evaluations = Mapping[str, Mapping[str, Evaluation]]
"""Evaluations by seed and stage."""
Measured = comparing.Cell


@dataclass
class Cell:
    """Number of one row."""

    published: str | None = None
    """Published value, as printed."""
    ours: RecipeNumber | None = None
    """Mean over seeds, with the interval over prompts, in the units of the paper."""
    over_seeds: Estimate | None = None
    """Mean and interval over seeds; None for a single seed."""
    best: bool = False
    """True if it is better than every other row that has run, by the paired intervals."""
    missing: str = ""
    """Reason why we have no number."""


@dataclass
class TableRow:
    """Row of the table."""

    group: str
    name: str
    recipe: str
    """Address of the recipe; empty if the row has none."""
    model: str
    cells: dict[str, Cell]
    """Cells by the title of the column."""
    waiting: str = ""
    """Reason why nothing was measured for the row; empty if something was."""
    commands: list[str] = field(default_factory=list)
    """Commands that run the missing parts of the row."""
    budget: str = ""
    """Description of the training of its models."""
    x: float | None = None
    """Position on the axis of a figure."""

    @property
    def full_name(self) -> str:
        return " / ".join(filter(None, (self.group, self.name)))


@dataclass
class PaperTable:
    """Rows and columns in the order of the paper."""

    about: str
    columns: list[str]
    rows: list[TableRow]
    numbers: dict[str, str] = field(default_factory=dict)
    """Name of our number, by column."""
    models: list[str] = field(default_factory=list)
    """Base models of our rows."""
    seeds: list[int] = field(default_factory=list)
    source: str = ""
    """Source of the published numbers: paper, table, section."""
    published_model: str = ""
    published_budget: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def groups(self) -> dict[str, list[TableRow]]:
        """Return the rows by group, in order."""
        groups: dict[str, list[TableRow]] = {}
        for row in self.rows:
            groups.setdefault(row.group, []).append(row)
        return groups


def measurement(evaluations: Evaluations, number: str, model: str) -> Measured | None:
    """Return a number of a row at the seeds that have it; None if nothing has run. Raises `UsageError` for a number
    that a finished evaluation does not have.
    """
    stage = number.partition("/")[0]
    rows = {seed: rows_of("", stage, stages[stage]) for seed, stages in evaluations.items() if stage in stages}
    if not rows:
        return None
    name = pick([row.name for row in next(iter(rows.values()))], number)
    return {seed: row for seed, own in rows.items() for row in own if row.name == name and row.model == model}


def cell_of(measured: Measured, scale: float, missing: str = "") -> Cell:
    """Return the number of a row, times `scale`. missing: the reason, if no row has the number."""
    number = row_number(measured)
    if number is None or number.mean is None:
        return Cell(missing=(number.note if number else None) or missing)
    values = [value for value in number.seeds.values() if value is not None]
    over_seeds = _scaled(student(values), scale) if len(values) > 1 else None
    return Cell(ours=_scaled(number, scale), over_seeds=over_seeds)


def derived_number(
    cells: Sequence[Cell], value: Callable[[Sequence[float]], float | None]
) -> tuple[RecipeNumber, Estimate | None] | None:
    """Return a number that is computed from the numbers of other rows, without an interval over prompts; and its mean
    over the seeds that all of these rows have. None if one of the rows has no number.
    """
    numbers = [cell.ours for cell in cells]
    means = [number.mean for number in numbers if number is not None and number.mean is not None]
    mean = value(means) if len(means) == len(cells) else None
    if mean is None:
        return None
    known = [number.seeds for number in numbers if number is not None]
    own = {seed: [one for seeds in known if (one := seeds.get(seed)) is not None] for seed in known[0]}
    by_seed = {seed: value(each) for seed, each in own.items() if len(each) == len(cells)}
    several = [each for each in by_seed.values() if each is not None]
    return RecipeNumber(mean=mean, seeds=by_seed), student(several) if len(several) > 1 else None


def mark_best(cells: Mapping[str, Cell], measured: Mapping[str, Measured], better: Better) -> str:
    """Mark the best of the rows if it is better than each other row by every available paired interval. Return the
    reason why no row is marked; empty if one is, or if fewer than two have run.
    """
    known = {row: number.mean for row, cell in cells.items() if (number := cell.ours) and number.mean is not None}
    if len(known) < 2:
        return ""
    sign = 1 if better == "higher" else -1
    best = max(known, key=lambda row: sign * known[row])
    for row in known:
        if row == best:
            continue
        change = row_difference(measured[best], measured[row])
        if isinstance(change, str):
            return f"{best} and {row} cannot be compared: {change}"
        if (ahead := _ahead(change, sign)) is not True:
            if ahead is False:
                return f"{best} is not clearly ahead of {row}"
            both = (measured[best], measured[row])
            reasons = [own.evaluation.why_not_observed(own.metric.metric) for each in both for own in each.values()]
            return ": ".join(filter(None, (f"no paired interval of {best} and {row}", max(reasons))))
    cells[best].best = True
    return ""


def _ahead(change: Difference, sign: int) -> bool | None:
    """Return True if all intervals of a difference, over prompts and over seeds, exclude zero; None without intervals."""
    ends = [
        (each.low, each.high)
        for each in (change.over_prompts, change.over_seeds)
        if each is not None and each.low is not None and each.high is not None
    ]
    return all((low if sign > 0 else -high) > 0 for low, high in ends) if ends else None


def _scaled(estimate: E, scale: float) -> E:
    def scaled(value: float | None) -> float | None:
        return None if value is None else value * scale

    changed: dict[str, object] = {end: scaled(getattr(estimate, end)) for end in ("mean", "low", "high")}
    if isinstance(estimate, RecipeNumber):
        changed["seeds"] = {seed: scaled(value) for seed, value in estimate.seeds.items()}
    return estimate.model_copy(update=changed)

"""A table of a paper: our numbers with their intervals, which row is the best as far as one can tell, and the published
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
"""By seed and stage."""
Measured = comparing.Cell


@dataclass
class Cell:
    """A number of one row."""

    published: str | None = None
    """As printed."""
    ours: RecipeNumber | None = None
    """Mean over seeds, with the interval over prompts, in the units of the paper."""
    over_seeds: Estimate | None = None
    """Mean and interval over seeds; None for a single one."""
    best: bool = False
    """Better than every other row that has run, by the paired intervals."""
    missing: str = ""
    """Why there is no number of ours."""


@dataclass
class TableRow:
    """A row of the table."""

    group: str
    name: str
    recipe: str
    """Address; empty where the row has no recipe."""
    model: str
    cells: dict[str, Cell]
    """By the title of the column."""
    waiting: str = ""
    """Why nothing of it was measured; empty where something was."""
    commands: list[str] = field(default_factory=list)
    """What runs the rest of it."""
    budget: str = ""
    """How its models were trained."""
    x: float | None = None
    """Place on the axis of a figure."""

    @property
    def full_name(self) -> str:
        return " / ".join(filter(None, (self.group, self.name)))


@dataclass
class PaperTable:
    """Rows and columns as the paper has them."""

    about: str
    columns: list[str]
    rows: list[TableRow]
    numbers: dict[str, str] = field(default_factory=dict)
    """By column the name of our number."""
    models: list[str] = field(default_factory=list)
    """Base models of our rows."""
    seeds: list[int] = field(default_factory=list)
    source: str = ""
    """Where the published numbers are: paper, table, section."""
    published_model: str = ""
    published_budget: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def groups(self) -> dict[str, list[TableRow]]:
        """Rows by group, in order."""
        groups: dict[str, list[TableRow]] = {}
        for row in self.rows:
            groups.setdefault(row.group, []).append(row)
        return groups


def measurement(evaluations: Evaluations, number: str, model: str) -> Measured | None:
    """Return a number of a row at the seeds that have it; None where nothing has run. Raises `UsageError` for a number
    that a finished evaluation does not have.
    """
    stage = number.partition("/")[0]
    rows = {seed: rows_of("", stage, stages[stage]) for seed, stages in evaluations.items() if stage in stages}
    if not rows:
        return None
    name = pick([row.name for row in next(iter(rows.values()))], number)
    return {seed: row for seed, own in rows.items() for row in own if row.name == name and row.model == model}


def cell_of(measured: Measured, scale: float, missing: str = "") -> Cell:
    """Return the number of a row, times `scale`; missing: why there is none, where no row has it."""
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
    over the seeds that all of them have. None where one of them has no number.
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
    """Mark the best of the rows if it is better than each other one by every paired interval that there is. Returns why
    none is marked; empty where one is, or where fewer than two have run.
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
    """Return True if all intervals of a difference, over prompts and over seeds, are beyond zero; None without any."""
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

"""Elo tables as text, as Markdown and as the page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fgrl.errors import DataError
from fgrl.evaluation import rated
from fgrl.evaluation.elo import EloTable, Meeting
from fgrl.evaluation.statistics import Estimate
from fgrl.report.tables import columns, markdown
from fgrl.results.estimates import Axis, ShownEstimate, axis_of, known_values

DECIMALS = 0
"""Of ratings and their differences."""


@dataclass(frozen=True)
class ShownStanding:
    """A model's line."""

    model: str
    rating: ShownEstimate
    difference: ShownEstimate | None
    """To the best model; None for the best model itself."""
    win_rate: ShownEstimate
    wins: int
    ties: int
    losses: int
    missing: int

    @property
    def games(self) -> int:
        return self.wins + self.ties + self.losses


@dataclass(frozen=True)
class ShownElo:
    """A table with the axes of its two drawings."""

    title: str
    best: str | None
    rows: list[ShownStanding]
    meetings: list[Meeting]
    zero: float | None
    """Where zero lies on the axis of the differences (percent); None where no difference is known."""
    lines: list[str]
    """What is to be known about the games and the fit."""


def shown(table: EloTable) -> ShownElo:
    ratings = known_values(standing.rating for standing in table.standings)
    changes = known_values(standing.difference for standing in table.standings if standing.model != table.best)
    rating_axis = axis_of(ratings) if ratings else Axis(0.0, 0.0)
    change_axis = axis_of([*changes, 0.0]) if changes else Axis(0.0, 0.0)
    rows = [
        ShownStanding(
            standing.model,
            ShownEstimate(standing.rating, DECIMALS, rating_axis),
            None
            if standing.model == table.best
            else ShownEstimate(standing.difference, DECIMALS, change_axis),
            ShownEstimate(standing.win_rate, 2),
            standing.wins, standing.ties, standing.losses, standing.missing,
        )
        for standing in table.standings
    ]  # fmt: skip
    zero = change_axis.percent(0.0) if changes else None
    return ShownElo(table.title, table.best, rows, table.meetings, zero, lines(table))


def lines(table: EloTable) -> list[str]:
    """How many games, how they were fitted, position bias, and what a reader must know."""
    anchor, level = table.settings.get("anchor") or {}, table.settings.get("level", 0.95)
    ridge = table.settings.get("ridge", 0)
    fixed = f"{anchor['model']} is set to" if anchor.get("model") else "the mean is set to"
    missing = sum(standing.missing for standing in table.standings) // 2
    judges = ", ".join(f"{name} ({count:,})" for name, count in table.judges.items())
    parts = [
        f"{table.games:,} games on {table.prompts:,} prompts, decided by {judges}"
        + (f"; {missing:,} without a verdict are left out" if missing else ""),
        "Bradley-Terry model fitted by maximum likelihood"
        + (f" with a ridge of {ridge:g}" if ridge else "")
        + f", base 10, scale 400, ties count one half; {fixed} {anchor.get('rating', 1500):g}",
        f"Intervals hold {level:.0%} of {table.settings.get('resamples', 0):,} resamples of the prompts; all games of a prompt are drawn together",
    ]
    if table.chose_first is not None:
        share = ShownEstimate(table.chose_first, 2)
        parts.append(
            f"Position bias: the answer shown first won {share.with_interval} of the judgments that chose (0.50 is none)"
        )
    if table.disagreements is not None:
        parts.append(f"The two orders disagreed in {table.disagreements:,} games")
    return [*parts, *(f"Note: {note}" for note in table.notes)]


def rows(table: EloTable) -> list[list[str]]:
    """The table with its head; columns for ties and missing verdicts only where there are some."""
    with_ties = any(standing.ties for standing in table.standings)
    with_missing = any(standing.missing for standing in table.standings)
    head = ["model", "rating", "difference to the best", "games", "won"]
    head += ["tied"] * with_ties + ["lost"] + ["missing"] * with_missing + ["win rate"]
    body = []
    for row in shown(table).rows:
        counts = [row.games, row.wins, *[row.ties] * with_ties, row.losses, *[row.missing] * with_missing]
        cells = [row.model, row.rating.with_interval, _difference(row), *(f"{count:,}" for count in counts)]
        body.append([*cells, row.win_rate.with_interval])
    return [head, *body]


def meeting_rows(table: EloTable) -> list[list[str]]:
    """Every two models that met, with the head."""
    head = ["model", "against", "won", "tied", "lost", "missing", "difference of ratings"]
    body = [
        [meeting.first, meeting.second, *(f"{n:,}" for n in (meeting.wins, meeting.ties, meeting.losses, meeting.missing)),
         _change(meeting.difference)]
        for meeting in table.meetings
    ]  # fmt: skip
    return [head, *body]


def text(title: str, table: EloTable, *, pairs: bool = False, as_markdown: bool = False) -> str:
    """A table for a terminal or as Markdown, with what is to be known about it."""
    draw = markdown if as_markdown else columns
    tables = [rows(table), meeting_rows(table)] if pairs else [rows(table)]
    about = lines(table)
    below = "\n\n".join(about) if as_markdown else "\n".join(f"  {line}" for line in about)
    return "\n\n".join([f"**{title}**" if as_markdown else title, *map(draw, tables), below])


def side_by_side(tables: Sequence[tuple[str, EloTable]], *, as_markdown: bool = False) -> str:
    """Several tables in one: a row for each model, best of the first table first, with its rating in each table and the interval of its
    difference to that table's best model in brackets. A model that a table does not have is a dash there."""
    lines = {model: None for _name, table in tables for model in (standing.model for standing in table.standings)}
    cells = []
    for _name, table in tables:
        own = {row.model: row for row in shown(table).rows}
        cells.append({model: _in_one_cell(own.get(model)) for model in lines})
    body = [
        ["model", *(name for name, _table in tables)],
        *([model, *(own[model] for own in cells)] for model in lines),
    ]
    note = "rating, and in brackets the interval of the difference to the best model of the column"
    return f"{markdown(body)}\n\n{note}" if as_markdown else f"{columns(body)}\n\n  {note}"


def _in_one_cell(row: ShownStanding | None) -> str:
    if row is None:
        return "–"
    interval = "best" if row.difference is None else row.difference.interval or "no interval"
    return f"{row.rating.value} [{interval}]"


def _difference(row: ShownStanding) -> str:
    return "best" if row.difference is None else _shown_change(row.difference)


def _change(estimate: Estimate) -> str:
    return _shown_change(ShownEstimate(estimate, DECIMALS))


def _shown_change(change: ShownEstimate) -> str:
    return change.change + (f" [{change.interval}]" if change.interval else "")


def elo_section(folder: Path, notes: list[str]) -> list[ShownElo]:
    """The tables in a stage's folder; one that cannot be read is noted."""
    try:
        return [shown(table) for table in rated.read_tables(folder / "out").values()]
    except DataError as problem:
        notes.append(str(problem))
        return []

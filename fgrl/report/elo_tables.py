"""Elo tables as text, as Markdown and as the page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fgrl.errors import DataError
from fgrl.evaluation import rated
from fgrl.evaluation.elo import EloTable, Standing
from fgrl.report.text_tables import columns, markdown
from fgrl.results.estimates import Axis, ShownEstimate, axis_of, known_values

DECIMALS = 0
"""Decimals of ratings and their differences."""


class ShownStanding(Standing):
    """A model's line."""

    rating: ShownEstimate
    difference: ShownEstimate
    win_rate: ShownEstimate


@dataclass(frozen=True)
class ShownElo:
    """A table with the axes of its two drawings."""

    table: EloTable
    rows: list[ShownStanding]
    zero: float | None
    """Position of zero on the axis of the differences (percent); None where no difference is known."""
    lines: list[str]
    """Remarks on the games and the fit."""


def shown(table: EloTable) -> ShownElo:
    """Return a table of ratings as the page shows it."""
    ratings = known_values(standing.rating for standing in table.standings)
    changes = known_values(standing.difference for standing in table.standings if standing.model != table.best)
    rating_axis = axis_of(ratings) if ratings else Axis(0.0, 0.0)
    change_axis = axis_of([*changes, 0.0]) if changes else Axis(0.0, 0.0)
    rows = []
    for standing in table.standings:
        estimates = {
            "rating": ShownEstimate.of(standing.rating, DECIMALS, rating_axis),
            "difference": ShownEstimate.of(standing.difference, DECIMALS, change_axis),
            "win_rate": ShownEstimate.of(standing.win_rate, 2),
        }
        rows.append(ShownStanding(**{**dict(standing), **estimates}))
    return ShownElo(table, rows, change_axis.percent(0.0) if changes else None, lines(table))


def lines(table: EloTable) -> list[str]:
    """Return remarks: the number of games, the fit, position bias, and the table's notes."""
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
        share = ShownEstimate.of(table.chose_first, 2)
        parts.append(
            f"Position bias: the answer shown first won {share.with_interval} of the judgments that chose (0.50 is none)"
        )
    if table.disagreements is not None:
        parts.append(f"The two orders disagreed in {table.disagreements:,} games")
    return [*parts, *(f"Note: {note}" for note in table.notes)]


def rows(table: EloTable) -> list[list[str]]:
    """Return the table with its head; columns for ties and missing verdicts only where there are some."""
    with_ties = any(standing.ties for standing in table.standings)
    with_missing = any(standing.missing for standing in table.standings)
    head = ["model", "rating", "difference to the best", "games", "won"]
    head += ["tied"] * with_ties + ["lost"] + ["missing"] * with_missing + ["win rate"]
    body = []
    for row in shown(table).rows:
        counts = [row.games, row.wins, *[row.ties] * with_ties, row.losses, *[row.missing] * with_missing]
        difference = "best" if row.model == table.best else row.difference.change_with_interval
        cells = [row.model, row.rating.with_interval, difference, *(f"{count:,}" for count in counts)]
        body.append([*cells, row.win_rate.with_interval])
    return [head, *body]


def meeting_rows(table: EloTable) -> list[list[str]]:
    """Every two models that met, with the head."""
    head = ["model", "against", "won", "tied", "lost", "missing", "difference of ratings"]
    body = [
        [meeting.first, meeting.second, *(f"{n:,}" for n in (meeting.wins, meeting.ties, meeting.losses, meeting.missing)),
         ShownEstimate.of(meeting.difference, DECIMALS).change_with_interval]
        for meeting in table.meetings
    ]  # fmt: skip
    return [head, *body]


def text(title: str, table: EloTable, *, pairs: bool = False, as_markdown: bool = False) -> str:
    """Return a table for a terminal or as Markdown, with what is to be known about it."""
    draw = markdown if as_markdown else columns
    tables = [rows(table), meeting_rows(table)] if pairs else [rows(table)]
    about = lines(table)
    below = "\n\n".join(about) if as_markdown else "\n".join(f"  {line}" for line in about)
    return "\n\n".join([f"**{title}**" if as_markdown else title, *map(draw, tables), below])


def side_by_side(tables: Sequence[tuple[str, EloTable]], *, as_markdown: bool = False) -> str:
    """Several tables in one: a row for each model, best of the first table first, with its rating in each table and the
    interval of its difference to that table's best model in brackets. A model that a table does not have is a dash
    there.
    """
    models = {model: None for _name, table in tables for model in (standing.model for standing in table.standings)}
    cells = [{row.model: _in_one_cell(row, table.best) for row in shown(table).rows} for _name, table in tables]
    body = [["model", *(name for name, _table in tables)]]
    body += [[model, *(own.get(model, "–") for own in cells)] for model in models]
    note = "rating, and in brackets the interval of the difference to the best model of the column"
    return f"{markdown(body)}\n\n{note}" if as_markdown else f"{columns(body)}\n\n  {note}"


def _in_one_cell(row: ShownStanding, best: str | None) -> str:
    interval = "best" if row.model == best else row.difference.interval or "no interval"
    return f"{row.rating.value} [{interval}]"


def elo_section(folder: Path, notes: list[str]) -> list[ShownElo]:
    """Return the tables in a stage's folder; one that cannot be read is noted."""
    try:
        return [shown(table) for table in rated.read_tables(folder / "out").values()]
    except DataError as problem:
        notes.append(str(problem))
        return []

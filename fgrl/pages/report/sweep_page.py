"""`index.html` of a sweep: one file that needs no other file, like a run's page."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from fgrl.base.files import write_text
from fgrl.base.sanitizing import hide_on_page
from fgrl.base.visible import visible
from fgrl.pages.report import plots, sweep_plots, templates
from fgrl.pages.report.page import FIRST, Compared, environment
from fgrl.runs.results.estimates import ShownEstimate, axis_of, common_decimals, known_values
from fgrl.runs.results.influences import influences
from fgrl.runs.results.sweep_records import (
    INDEX,
    PointRecord,
    SweepRecord,
    as_word,
    in_words,
    mean_of,
    read_sweep_record,
    short_names,
)
from fgrl.runs.run import Run
from fgrl.runs.series import Series

MOST_CURVES = 4
"""Maximum number of metrics whose curves are drawn."""
MOST_COLUMNS = 3
"""Maximum number of further columns in the table of points."""
SEED = "seed"


@dataclass
class Row:
    """A point in the table."""

    point: PointRecord
    values: list[str]
    """Values of the varied parameters."""
    value: ShownEstimate | None
    others: list[str]
    page: str
    """Address of its run's page, relative to the index; empty if there is none."""
    best: bool


@dataclass
class SweepView:
    """Data that the template reads."""

    record: SweepRecord
    css: Markup
    lead: list[str]
    sure: bool | None
    """True if the best point is better than the second with certainty; None if it is unknown."""
    names: list[str]
    """Names of the varied parameters."""
    metric: str
    others: list[str]
    """Names of the further numbers."""
    rows: list[Row]
    figure: Markup | None
    figure_note: str
    curves: list[Compared]


def write(folder: Path) -> Path:
    """Write `index.html` in the folder of a sweep, finished by rename. Return its path."""
    record = read_sweep_record(folder)
    assert record is not None
    page = environment().get_template("sweep.html.j2").render(view=_view(folder, record))
    target = folder / INDEX
    write_text(target, visible(hide_on_page(page)), errors="replace")
    return target


def lead_lines(record: SweepRecord) -> list[str]:
    """Return lines that name the best point and say whether its lead is certain."""
    settings = record.settings()
    if not settings:
        return []
    best = settings[0]
    lines = [f"Best: {_setting(record, best)}", f"{record.metric} {_value(best)} ({record.goal})."]
    if record.of_reward:
        lines.append(
            "This is the reward itself, which was trained on; nothing else was measured. Add a metric that measures your goal."
        )
    found = short_names({each.name: each for each in influences(record)})
    parts = [f"{name} {each.correlation:+.2f}, {each.importance:.2f}" for name, each in found.items()]
    if parts:
        lines.append(f"Correlation with the number, and importance in a random forest: {'; '.join(parts)}.")
    lead = record.lead
    if lead is None or not lead.second:
        return lines
    second = [point for point in record.points if point.number in lead.second]
    against = f"the second ({_setting(record, second)}, {_value(second)})"
    if lead.difference is None or lead.difference.mean is None:
        return [*lines, f"Whether it is better than {against} cannot be told: {lead.note or 'no interval'}."]
    shown = ShownEstimate.of(lead.difference)
    told = "one can tell them apart" if lead.difference.changed else "one cannot tell them apart on these prompts"
    lines.append(f"Best minus {against}: {shown.change_with_interval}, paired by prompt: {told}.")
    if lead.over_seeds is not None and lead.over_seeds.mean is not None:
        seeds = ShownEstimate.of(lead.over_seeds)
        lines.append(f"Over seeds, on these prompts: {seeds.change_with_interval}.")
    lines.append(
        f"The best of {len(settings)} settings is also the luckiest: its number is rather too good. Measure it again with other "
        "seeds or prompts before it is reported."
    )
    return lines


def _setting(record: SweepRecord, points: list[PointRecord]) -> str:
    names = [name for name in record.varied if name != SEED or len(points) == 1]
    numbers = ", ".join(str(point.number) for point in points)
    what = f"point{'s' * (len(points) > 1)} {numbers}"
    words = in_words({name: points[0].parameters.get(name) for name in names})
    return f"{what} ({words})" if words else what


def _value(points: list[PointRecord]) -> str:
    if len(points) == 1 and points[0].value is not None:
        return ShownEstimate.of(points[0].value).with_interval
    return f"{mean_of(points):.4g} (mean over {len(points)} seeds)"


def _view(folder: Path, record: SweepRecord) -> SweepView:
    runs = folder.parent.parent
    settings = record.settings()
    best = set(record.lead.best) if record.lead is not None else {p.number for p in settings[0]} if settings else set()
    values = [point.value for point in record.points if point.value is not None]
    places = common_decimals(values)
    known = known_values(values)
    others = _other_numbers(record)
    columns = {name: common_decimals([p.numbers[name] for p in record.points if name in p.numbers]) for name in others}
    rows = []
    for point in record.points:
        page = runs / point.run / "report.html"
        address = os.path.relpath(page, folder) if point.run and page.is_file() else ""
        shown = ShownEstimate.of(point.value, places, axis_of(known)) if point.value is not None and known else None
        numbers = {
            name: ShownEstimate.of(point.numbers[name], columns[name]) for name in others if name in point.numbers
        }
        texts = [numbers[name].value if name in numbers else "" for name in others]
        words = [as_word(point.parameters.get(name)) for name in record.varied]
        rows.append(Row(point, words, shown, texts, address, point.number in best))
    figure, note = _figure(record, settings, best)
    lead = record.lead
    return SweepView(
        record,
        Markup((templates.HERE / "page.css").read_text(encoding="utf-8")),
        lead_lines(record),
        None if lead is None or lead.difference is None else lead.difference.changed,
        list(short_names(dict.fromkeys(record.varied))),
        _short(record.metric),
        [_short(name) for name in others],
        rows,
        figure,
        note,
        _curves(record, runs),
    )


def _short(metric: str) -> str:
    """Return the name of a number without its stage, for the head of a column."""
    return metric.partition("/")[2]


def _other_numbers(record: SweepRecord) -> list[str]:
    """Return further numbers of evaluations, first those with intervals."""
    found: dict[str, bool] = {}
    for point in record.points:
        for name, value in point.numbers.items():
            if name != record.metric and value.n:
                found[name] = found.get(name, False) or value.low is not None
    varying = [name for name in found if len({p.numbers[name].mean for p in record.points if name in p.numbers}) > 1]
    return sorted(varying, key=lambda name: not found[name])[:MOST_COLUMNS]


def _figure(record: SweepRecord, settings: list[list[PointRecord]], best: set[int]) -> tuple[Markup | None, str]:
    """Return the plot of the points that fits their parameters, and its explanation."""
    varied = [name for name in record.varied if name != SEED]
    shown = []
    for points in settings:
        value = points[0].value
        single = len(points) == 1 and value is not None
        values = tuple(points[0].parameters.get(name) for name in varied)
        low, high = (value.low, value.high) if single and value is not None else (None, None)
        shown.append(sweep_plots.Shown(values, mean_of(points), low, high, points[0].number in best))
    names = list(short_names(dict.fromkeys(varied)))
    seeds = " Each value is the mean over the seeds." if SEED in record.varied else ""
    if not shown or not varied:
        return None, ""
    if len(varied) == 2 and sweep_plots.fits_heat_map(shown):
        better = f"the {'larger' if record.goal == 'maximize' else 'smaller'} the number, the stronger"
        note = (
            f"{record.metric}: {better} the cell; below each value its interval over prompts; framed: the best.{seeds}"
        )
        return sweep_plots.heat_map(shown, (names[0], names[1]), better=record.goal), note
    note = f"{record.metric} over each parameter, with intervals over prompts; the ring marks the best.{seeds}"
    return Markup("").join(sweep_plots.response(shown, place, name) for place, name in enumerate(names)), note


def _curves(record: SweepRecord, runs: Path) -> list[Compared]:
    """Return the curves of the trainings in common plots: the best points in colours, the others thin. A training that
    points share is drawn once.
    """
    ranked = record.ranked
    order = [*ranked, *(point for point in record.points if point not in ranked)]
    logged: dict[str, dict[int, Series]] = {}
    for point in order:
        if not point.run or not (runs / point.run).is_dir():
            continue
        for stage in Run(runs / point.run).stages.values():
            for series in stage.series:
                own = logged.setdefault(f"{stage.name}/{series.name}", {})
                if series.values and all(series.values != other.values for other in own.values()):
                    own[point.number] = series
    different = {name: own for name, own in logged.items() if len(own) > 1}
    place = {name: number for number, name in enumerate(FIRST)}
    evaluated = [name for name, own in different.items() if any(series.interval for series in own.values())]
    known = [name for name in different if name.partition("/")[2] in place]
    usual = sorted(known, key=lambda name: (-len(different[name]), place[name.partition("/")[2]]))
    chosen = dict.fromkeys([*([record.metric] if record.metric in different else []), *evaluated[:2], *usual])
    labels = {p.number: in_words({name: p.parameters.get(name) for name in record.varied}) for p in record.points}
    figures = []
    for name in list(chosen)[:MOST_CURVES]:
        own = different[name]
        front = {f"{number}: {labels[number]}": series for number, series in list(own.items())[: plots.MOST_SERIES]}
        key = [
            (label, plots.line_sample(place), series.values[0], series.values[-1])
            for place, (label, series) in enumerate(front.items())
        ]
        drawn = plots.compared(front, faint=list(own.values())[plots.MOST_SERIES :])
        figures.append(Compared(name, drawn, key, []))
    return figures

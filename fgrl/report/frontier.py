"""A number bought with another: the KL frontier of Figure 4 of the segment paper, for any two numbers of evaluations.

A point is a model of a finished evaluation. It is on the frontier when no other point has a larger (or equal) y at a smaller
(or equal) x. Points of one series (one recipe) are told apart by the settings in which its runs differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fgrl import lazy
from fgrl.files import atomically
from fgrl.results.numbers import Estimate, Measure, measures

backends = lazy.load("matplotlib.backends.backend_agg")
figures = lazy.load("matplotlib.figure")
matplotlib = lazy.load("matplotlib")
tickers = lazy.load("matplotlib.ticker")

LABELS = {
    "kl.sum": "KL to the reference, nats an answer",
    "kl.per_token": "KL to the reference, nats a token",
    "length.tokens": "tokens an answer",
    "length.words": "words an answer",
}
SHARES = ("win_rate", "length_adjusted", "kept", "exact_match")
"""Numbers that an axis shows in percent."""
COLOURS = ("#1f5fa8", "#c8641b", "#2f8f5b", "#8d4a9e", "#b3282d", "#5d6b78", "#a3841a", "#1a8a94")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
INK, MUTED, GRID = "#1d1c1a", "#67635c", "#ece9e2"


class Unknown(ValueError):
    """A number that no evaluation has, or that several have."""


@dataclass
class Finished:
    """The finished evaluations of one recipe with one set of settings."""

    series: str
    settings: Mapping[str, Any]
    """Every value of the recipe by its dotted path."""
    reports: Mapping[str, Mapping[str, Any]]
    """`metrics.json` by stage."""


@dataclass
class Point:
    series: str
    model: str
    label: str
    """Settings in which it differs from the others of its series."""
    x: Estimate
    y: Estimate
    best: bool = False
    """On the frontier."""
    start: bool = False
    """At x = 0: the reference itself."""


@dataclass
class Frontier:
    x_name: str
    y_name: str
    points: list[Point]
    skipped: list[str] = field(default_factory=list)
    """Series without both numbers."""


def collect(finished: Sequence[Finished], x: str, y: str, models: Sequence[str] = ()) -> Frontier:
    """Points of all evaluations, of `models` (all when empty), the ones on the frontier marked.

    x, y: `[STAGE/]METRIC[.NUMBER]`, or the name of a number that only one metric has. Where several stages have x, the stage of
    y is meant.

    Raises `Unknown` when no evaluation has the numbers, or a name is not clear.
    """
    found = Frontier("", "", [])
    labels = differences(finished)
    for one, label in zip(finished, labels, strict=True):
        known = [(stage, measure) for stage, report in one.reports.items() for measure in measures(report)]
        if not known:
            found.skipped.append(" ".join(filter(None, (one.series, label))))
            continue
        y_stage, y_measure = pick(known, y)
        _, x_measure = pick(known, x, prefer=y_stage)
        found.x_name, found.y_name = name_of(x_measure), name_of(y_measure)
        across = {row.model: row.value for row in x_measure.rows}
        for row in y_measure.rows:
            other = across.get(row.model)
            if (models and row.model not in models) or other is None or row.value is None:
                continue
            if other.mean is None or row.value.mean is None:
                continue
            found.points.append(Point(one.series, row.model, label, other, row.value, start=abs(other.mean) < 1e-6))
    found.points = _once(found.points)
    for point in found.points:
        point.best = not any(dominates(other, point) for other in found.points)
    found.points.sort(
        key=lambda point: (not point.start, [f.series for f in finished].index(point.series), point.x.mean)
    )
    return found


def dominates(one: Point, other: Point) -> bool:
    """At least as good in both numbers and better in one."""
    (x, y), (u, v) = ((point.x.mean or 0.0, point.y.mean or 0.0) for point in (one, other))
    return x <= u and y >= v and (x < u or y > v)


def pick(known: Sequence[tuple[str, Measure]], wanted: str, prefer: str | None = None) -> tuple[str, Measure]:
    """The one measure that a selector means. Raises `Unknown`."""
    stage, _, name = wanted.rpartition("/")
    some = [(place, measure) for place, measure in known if not stage or place == stage]
    for fits in (
        lambda m: _plain(name_of(m)) == _plain(name),
        lambda m: _plain(m.metric) == _plain(name) and _plain(m.name) in ("", "mean", _plain(m.metric)),
        lambda m: _plain(m.name) == _plain(name),
        lambda m: _plain(m.metric) == _plain(name),
    ):
        hits = [(place, measure) for place, measure in some if fits(measure)]
        hits = [hit for hit in hits if hit[0] == prefer] or hits
        if len({place for place, _ in hits}) > 1 or len({name_of(measure) for _, measure in hits}) > 1:
            choices = ", ".join(f'"{place}/{name_of(measure)}"' for place, measure in hits)
            raise Unknown(f'"{wanted}" may mean {choices}: name one of them')
        if hits:
            return hits[0]
    choices = ", ".join(dict.fromkeys(f'"{name_of(measure)}"' for _, measure in known))
    raise Unknown(f'no evaluation has a number "{wanted}"; there are {choices}')


def name_of(measure: Measure) -> str:
    return f"{measure.metric}.{measure.name}" if measure.name else measure.metric


def differences(finished: Sequence[Finished]) -> list[str]:
    """Of each, the settings in which it differs from others of its series: `kl_coef 0.01`."""
    told = []
    for one in finished:
        others = [other for other in finished if other.series == one.series]
        paths = [p for p in one.settings if any(other.settings.get(p, one) != one.settings[p] for other in others)]
        told.append(", ".join(f"{path.rsplit('.', 1)[-1]} {_short(one.settings[path])}" for path in paths[:3]))
    return told


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every value of a recipe by its dotted path; what it is about is none."""
    if isinstance(value, Mapping) and value:
        found: dict[str, Any] = {}
        for key, inner in value.items():
            if path or key not in ("about", "extends", "vars"):
                found |= leaves(inner, f"{path}.{key}" if path else str(key))
        return found
    return {path: value}


def draw(frontier: Frontier, target: Path, x_label: str = "", y_label: str = "") -> list[Path]:
    """Write `target`.svg and `target`.png. Returns the two files."""
    figure = figures.Figure(figsize=(7.6, 4.9), layout="constrained", facecolor="white")
    backends.FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _front(axes, frontier)
    shared = _shared([point.label for point in frontier.points if not point.start])
    series = list(dict.fromkeys(point.series for point in frontier.points if not point.start))
    for place, name in enumerate(series):
        own = [point for point in frontier.points if point.series == name and not point.start]
        colour = COLOURS[place % len(COLOURS)]
        axes.plot([p.x.mean for p in own], [p.y.mean for p in own], color=colour, lw=1.2, alpha=0.55, zorder=2)
        for point in own:
            said = point.label.removeprefix(shared).strip()
            _mark(axes, point, said, colour, MARKERS[place % len(MARKERS)], name if point is own[0] else None)
    for point in (point for point in frontier.points if point.start):
        _mark(axes, point, point.model, MUTED, "o", None)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(MUTED)
    axes.grid(color=GRID, lw=0.8, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, labelsize=9)
    axes.set_xlabel(x_label or title(frontier.x_name), color=INK, fontsize=10)
    axes.set_ylabel(y_label or title(frontier.y_name), color=INK, fontsize=10)
    if frontier.y_name.rpartition(".")[2] in SHARES:
        axes.yaxis.set_major_formatter(tickers.PercentFormatter(1.0))
    axes.yaxis.set_major_locator(tickers.MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
    axes.margins(x=0.07, y=0.1)
    legend = axes.legend(frameon=False, fontsize=9, labelcolor=INK, loc="best", alignment="left")
    if shared:
        legend.set_title(f"beside the points: {shared}", prop={"size": 9})
        legend.get_title().set_color(MUTED)
    files = [target.with_name(f"{target.name}.{kind}") for kind in ("svg", "png")]
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fgrl"}):
        for file in files:
            quiet = {"Date": None, "Creator": None} if file.suffix == ".svg" else {"Software": None}
            with atomically(file) as partial:
                figure.savefig(partial, format=file.suffix[1:], dpi=170, metadata=quiet)
    return files


def title(name: str) -> str:
    """What an axis is called."""
    metric, _, last = name.rpartition(".")
    if name in LABELS:
        return LABELS[name]
    words, of = last.replace("_", " "), metric.replace("_", " ")
    return of if last == "mean" else words if of in ("", words) else f"{words} ({of})"


def rows(frontier: Frontier) -> list[tuple[str, ...]]:
    """The table, with its head."""

    def cell(value: Estimate) -> str:
        return value.value + (f" [{value.interval}]" if value.interval else "")

    head = ("", "series", "model", "settings", frontier.x_name, frontier.y_name)
    body = [("*" if p.best else "", p.series, p.model, p.label, cell(p.x), cell(p.y)) for p in frontier.points]
    return [head, *body]


# ----------------------------------------------------------------------------------------------------------------------


def _front(axes: Any, frontier: Frontier) -> None:
    """A step along the best points: what can be had at most for so much x."""
    best = sorted(((p.x.mean, p.y.mean) for p in frontier.points if p.best), key=lambda at: (at[0], at[1]))
    if len(best) < 2:
        return
    across, up = [at[0] for at in best], [at[1] for at in best]
    axes.step(across, up, where="post", color=MUTED, lw=1.0, ls=(0, (4, 3)), alpha=0.45, zorder=1, label="frontier")


def _mark(axes: Any, point: Point, said: str, colour: str, marker: str, label: str | None) -> None:
    x, y = point.x, point.y
    errors = [_error(value) for value in (x, y)]
    axes.errorbar(
        [x.mean],
        [y.mean],
        xerr=errors[0],
        yerr=errors[1],
        fmt="none",
        ecolor=colour,
        elinewidth=1.0,
        alpha=0.4,
        zorder=3,
    )
    axes.scatter(
        [x.mean], [y.mean], s=62 if point.best else 40, marker=marker, zorder=4, label=label, linewidths=1.6,
        facecolors=colour if point.best else "white", edgecolors=colour,
    )  # fmt: skip
    if said:
        behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}
        axes.annotate(
            said, (x.mean, y.mean), xytext=(7, -12), textcoords="offset points", fontsize=8.5, color=colour, zorder=5,
            bbox=behind,
        )  # fmt: skip


def _shared(labels: Sequence[str]) -> str:
    """The setting that is all that the points differ in, so that it need not be written at each."""
    names = {label.rpartition(" ")[0] for label in labels if label}
    name = next(iter(names)) if len(names) == 1 else ""
    return "" if "," in name or " " in name else name


def _error(value: Estimate) -> list[list[float]] | None:
    if value.mean is None or value.low is None or value.high is None:
        return None
    return [[max(0.0, value.mean - value.low)], [max(0.0, value.high - value.mean)]]


def _once(points: Iterable[Point]) -> list[Point]:
    """The same measured point once, e.g. the reference that every recipe of a sweep compares with."""
    seen: dict[tuple[Any, ...], Point] = {}
    for point in points:
        key = (point.model, point.x.mean, point.y.mean, "" if point.start else point.series)
        seen.setdefault(key, point)
    return list(seen.values())


def _plain(text: str) -> str:
    return text.strip().lower().replace(" ", "_")


def _short(value: Any) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return f"{value:g}"
    return "null" if value is None else str(value)

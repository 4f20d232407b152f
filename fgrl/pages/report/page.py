"""`report.html`: one file that needs no other file, no network and no scripts.

Data is escaped by jinja2's autoescape, and the whole page goes through `visible`. The only trusted markup is made by
`plots` and `drawing` from numbers and escaped text. The page's own policy also forbids scripts, forms and content from
elsewhere.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from fgrl.base.files import write_text
from fgrl.base.sanitizing import hide_on_page
from fgrl.base.visible import visible
from fgrl.kinds import Meaning
from fgrl.measuring.answer import Answer
from fgrl.measuring.number_names import METRICS
from fgrl.pages.report import attribution, overview, plots, templates
from fgrl.pages.report.annotated import annotated_section
from fgrl.pages.report.answers import MOST_PROMPTS, MOST_RANKED, ORDERS, Answers, answers_section
from fgrl.pages.report.attribution import Attributions
from fgrl.pages.report.chains import ShownChain, chains_section
from fgrl.pages.report.drawing import Exchange
from fgrl.pages.report.escaping import render
from fgrl.pages.report.rollouts import Credit, StoredRollouts, credit_section, rollouts_section
from fgrl.runs.reading import finite, read_json, read_records
from fgrl.runs.results import metric_names, text
from fgrl.runs.results.concluding import conclusions_of
from fgrl.runs.results.conclusions import Conclusions, Example
from fgrl.runs.results.evaluations import ANSWERS, read_evaluation
from fgrl.runs.results.numbers import Measure, ModelNumber, headlines
from fgrl.runs.run import Run
from fgrl.runs.series import Series
from fgrl.runs.stage import Stage
from fgrl.training import stored_rollouts
from fgrl.training.stored_rollouts import CREDIT, ROLLOUTS, CreditedResponse, StoredRollout
from fgrl.types import Sample

FIRST = (
    "reward", "normalized", "kl", "tokens", "mismatch", "loss", "accuracy", "margin", "policy_loss", "value_loss",
    "explained_variance", "clip_fraction", "entropy",
)  # fmt: skip
"""Names of curves that are visible from the start, in this order, after the curves of evaluations during training; at
most `AT_ONCE` of each of the two groups. If there are more in all, the others are folded away.
"""
AT_ONCE = 8
MOST_LAYERS = 16
"""Maximum number of quantities that can colour the answers of a section, one at a time."""
MOST_CURVES = 60
COMPARED = ("logp_chosen", "log_ratio_chosen", "log_ratio_rejected", "margin")
"""Metrics that are drawn in one plot for all trainings of a run that log them, if several do and at least one logs the
first metric.
"""


@dataclass
class Curve:
    """A plot of one metric."""

    series: Series
    svg: Markup


@dataclass
class Curves:
    """The plots of a stage."""

    stage: Stage
    first: list[Curve]
    more: list[Curve]
    left_out: list[str]


@dataclass
class Compared:
    """One metric of several trainings of the run."""

    metric: str
    svg: Markup
    key: list[tuple[str, Markup, float, float]]
    """(stage, sample of its line, first value, last value)."""
    left_out: list[str]
    """Stages that are not drawn."""


@dataclass
class Fit:
    """A fitted normalizer."""

    stage: str
    name: str
    numbers: dict[str, Any]
    plots: list[tuple[str, str, Markup]]
    """(name, formula, plot)."""


@dataclass
class EvaluationSection:
    """Part of a page about one evaluation."""

    stage: str
    baseline: str
    headlines: list[tuple[Measure, ModelNumber, ModelNumber]]
    """Some numbers before and after training."""
    measures: list[Measure]
    answers: Answers | None
    criteria: Attributions | None
    """Criteria of the prompts' rubrics; None if no prompt has a rubric."""
    explained: dict[str, Meaning] = field(default_factory=dict)
    """Explanations of numbers, by name; only numbers that a metric explains."""
    pair: Example | None = None
    """One prompt with the answers before and after training."""


@dataclass
class View:
    """Data that the template reads."""

    run: Run
    css: Markup
    stopped_at: Stage | None
    verdict: Conclusions
    trainings: list[overview.Training]
    surroundings: list[str]
    evaluations: list[EvaluationSection] = field(default_factory=list)
    curves: list[Curves] = field(default_factory=list)
    fits: list[Fit] = field(default_factory=list)
    rollouts: list[tuple[str, StoredRollouts]] = field(default_factory=list)
    """Stored rollouts, by stage."""
    credit: list[tuple[str, Credit]] = field(default_factory=list)
    """Stored credit of tokens, by stage."""
    annotated: list[tuple[str, list[Exchange]]] = field(default_factory=list)
    """Annotated samples, by stage."""
    chains: list[tuple[str, list[ShownChain]]] = field(default_factory=list)
    """Chains of rewrites, by stage."""
    compared: list[Compared] = field(default_factory=list)

    @property
    def curve(self) -> Curve | None:
        """Return the curve of the first screen: a number of the last training's evaluations, or else its reward or
        loss.
        """
        return next((group.first[0] for group in reversed(self.curves) if group.first), None)

    @property
    def pair(self) -> Example | None:
        """Return the answers of the first screen, unless a conclusion shows some."""
        shown = any(reply.example for reply in self.verdict.replies)
        return None if shown else next((each.pair for each in reversed(self.evaluations) if each.pair), None)


def write(folder: Path) -> Path:
    """Write `folder/report.html` of an invocation folder, finished by rename. Return its path.

    This works for unfinished and failed runs too: missing parts are named on the page.
    """
    view = _view(Path(folder))
    page = environment().get_template("page.html.j2").render(view=view, run=view.run)
    target = Path(folder) / "report.html"
    write_text(target, visible(hide_on_page(page)), errors="replace")
    return target


@functools.cache
def environment() -> jinja2.Environment:
    """Return the environment of the templates, with filters for numbers and names."""
    environment = templates.environment()
    environment.filters |= {"number": text.number, "signed": text.signed, "duration": text.duration, "render": render}
    environment.filters["value"] = _value
    environment.filters["curve_name"] = metric_names.in_words
    return environment


def _value(value: Any) -> str:
    """Return a value of JSON as text."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "−")
    return str(value)


def _view(folder: Path) -> View:
    run = Run(folder)
    run.read()
    stopped = None
    if run.record.state != "finished":
        stopped = next((stage for stage in run.stages.values() if stage.state in ("unfinished", "not started")), None)
    css = Markup((templates.HERE / "page.css").read_text(encoding="utf-8") + _order_rules())
    view = View(run, css, stopped, conclusions_of(run), overview.trainings(run), overview.surroundings(run))
    for stage in run.stages.values():
        if stage.folder is None:
            continue
        if any(series.values or series.broken for series in stage.series):
            view.curves.append(_curves(stage))
        if (stage.folder / "out" / "stats.json").exists():
            stats = read_json(stage.folder / "out" / "stats.json", run.notes)
            if stats:
                view.fits.append(_fit(stage.name, stats))
        if (evaluation := _evaluation(stage, run)) is not None:
            view.evaluations.append(evaluation)
        if (stored := _rollouts(stage.name, stage.folder, run.notes)) is not None:
            view.rollouts.append((stage.name, stored))
        credit = stage.folder / "out" / CREDIT
        if credit.exists() and (drawn := credit_section(read_records(credit, CreditedResponse, run.notes, stage.name))):
            view.credit.append((stage.name, drawn))
        samples = stage.folder / "out" / "samples.jsonl"
        if stage.component == "annotate" and samples.exists():
            shown = annotated_section(read_records(samples, Sample, run.notes, stage.name))
            view.annotated += [(stage.name, shown)] if shown else []
            chains = chains_section(read_records(samples, Sample, [], stage.name))  # lines are noted once
            view.chains += [(stage.name, chains)] if chains else []
    view.compared = _compared(list(run.stages.values()))
    return view


def _compared(stages: list[Stage]) -> list[Compared]:
    """Return the plots of `COMPARED` over all trainings that log the first of these metrics."""
    logs = {stage.name: {series.name: series for series in stage.series if series.values} for stage in stages}
    trainings = {name: own for name, own in logs.items() if COMPARED[0] in own}
    if len(trainings) < 2:
        return []
    shown = []
    for metric in COMPARED:
        series = {name: own[metric] for name, own in trainings.items() if metric in own}
        names = list(series)
        key = [
            (name, plots.line_sample(place), own.values[0], own.values[-1])
            for place, (name, own) in enumerate(series.items())
            if place < plots.MOST_SERIES
        ]
        if len(series) > 1:
            shown.append(Compared(metric, plots.compared(series), key, names[plots.MOST_SERIES :]))
    return shown


def _curves(stage: Stage) -> Curves:
    place = {name: number for number, name in enumerate(FIRST)}
    order = sorted(stage.series, key=lambda series: -1 if series.interval else place.get(series.name, len(FIRST)))
    if len(order) > AT_ONCE:
        evaluated = [series for series in order if series.interval][:AT_ONCE]
        named = [series for series in order if series.name in FIRST][:AT_ONCE]
        first = [*evaluated, *named] or order[:AT_ONCE]
    else:
        first = order
    more = [series for series in order if series not in first]
    room = max(0, MOST_CURVES - len(first))
    return Curves(
        stage,
        [Curve(series, plots.curve(series)) for series in first],
        [Curve(series, plots.curve(series)) for series in more[:room]],
        [series.name for series in more[room:]],
    )


def _rollouts(stage: str, folder: Path, notes: list[str]) -> StoredRollouts | None:
    """Return the stored rollouts of the product, or of a training that has not ended."""
    product = folder / "out" / ROLLOUTS
    files = [product] if product.exists() else stored_rollouts.parts(folder)
    every = (rollout for file in files for rollout in read_records(file, StoredRollout, notes, stage))
    return rollouts_section(every, ended=product.exists())


def _fit(stage: str, stats: dict[str, Any]) -> Fit:
    """Return the points and the fitted function: lines in log p (location), constants (others)."""
    raw = stats.get("points")
    drawn = []
    rows = [point for point in raw if isinstance(point, dict)] if isinstance(raw, list) else []
    for what in ("mean", "std"):
        points = [
            plots.Point(p, value, finite(row.get("count")) or 0.0, row.get("used") is not False)
            for row in rows
            if (p := finite(row.get("p"))) is not None and (value := finite(row.get(what))) is not None
        ]
        w, b = finite(stats.get(f"w_{what}")), finite(stats.get(f"b_{what}"))
        line = (w, b) if w is not None and b is not None else None
        level = finite(stats.get(what))
        floor = finite(stats.get("min_std")) if what == "std" else None
        if not points:
            continue
        formula = ""
        if line:
            formula = f"{text.number(line[0])} ln p {'−' if line[1] < 0 else '+'} {text.number(abs(line[1]))}"
        elif level is not None:
            formula = text.number(level)
        if floor is not None and line:
            formula += f", at least {text.number(floor)}"
        drawn.append((what, formula, plots.fit(points, line, what=what, floor=floor, level=level)))
    label = str(stats.get("normalizer") or stats.get("name") or "")
    shown = {key: value for key, value in stats.items() if key not in ("normalizer", "name", "points")}
    return Fit(stage, label, {key: value for key, value in shown.items() if not isinstance(value, dict | list)}, drawn)


def _order_rules() -> str:
    """Return stylesheet rules for the orders of answers, and for the number that colours them, without scripts and
    without style attributes.
    """
    most = MOST_PROMPTS + len(ORDERS) * MOST_RANKED
    picked = "".join(
        f"section:has(.pick-{place}:checked) .layer:not(.layer-{place}){{display:none}}\n"
        for place in range(MOST_LAYERS)
    )
    return picked + "".join(
        f".answers:has(.by-{order}:checked) .{order}-{place}{{order:{place}}}\n"
        for order in ORDERS
        for place in range(most)
    )


def _evaluation(stage: Stage, run: Run) -> EvaluationSection | None:
    assert stage.folder is not None
    notes = run.notes
    metrics, answers = stage.folder / "out" / METRICS, stage.folder / "out" / ANSWERS
    if not metrics.exists() and not answers.exists():
        return None
    evaluation = read_evaluation(stage.folder / "out", notes, what=f"{stage.name} has answers, but no numbers")
    baseline = evaluation.baseline
    shown = criteria = pair = None
    if answers.exists():
        recorded = list(read_records(answers, Answer, notes, stage.name))
        shown = answers_section(recorded, baseline)
        criteria = attribution.criteria_section(recorded, baseline)
        pair = overview.pair(recorded, baseline)
    best = headlines(evaluation.measures, baseline)
    known = {str(each.name): evaluation.known(each.name) for each in evaluation.measures}
    explained = {name: each.meaning for name, each in known.items() if each is not None}
    return EvaluationSection(stage.name, baseline, best, evaluation.measures, shown, criteria, explained, pair)

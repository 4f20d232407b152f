"""Elo ratings as text: a line for each model, the best first."""

from __future__ import annotations

from collections.abc import Sequence

from fgrl.measuring.statistics import Estimate
from fgrl.pages.report.text_tables import columns, markdown
from fgrl.runs.results.elo_views import EloView
from fgrl.runs.results.estimates import ShownEstimate

WHOLE = ("rating", "difference")
"""Numbers that are shown without decimals."""


def rows(view: EloView) -> list[list[str]]:
    """Return the ratings, with a head. A number that is 0 for all models is left out."""
    names = dict.fromkeys([*WHOLE, "win_rate", *(name for own in view.numbers.values() for name in own)])
    kept = [name for name in names if any(own.get(name, NONE).mean for own in view.numbers.values()) or name in WHOLE]
    lines = [["model", *("difference to the best" if name == "difference" else name for name in kept)]]
    for model, own in view.numbers.items():
        lines.append([model, *(_cell(view, model, name, own.get(name, NONE)) for name in kept)])
    return lines


NONE = Estimate(mean=None)


def _cell(view: EloView, model: str, name: str, value: Estimate) -> str:
    if name == "difference":
        return "best" if model == view.best else ShownEstimate.of(value, 0).change_with_interval
    return ShownEstimate.of(value, 0 if name in WHOLE else 2).with_interval


def text(view: EloView, *, pairs: bool = False, as_markdown: bool = False) -> str:
    """Return the ratings, the settings of their computation, and the reasons why models have none. pairs: include every
    two models that met.
    """
    lay = markdown if as_markdown else columns
    title = ": ".join(filter(None, (view.source, view.title)))
    parts = [f"**{title}**" if as_markdown else title, lay(rows(view))]
    if pairs:
        met = [[one, two, f"{won:g}", f"{lost:g}", ShownEstimate.of(change, 0).change_with_interval]
               for one, two, won, lost, change in view.meetings]  # fmt: skip
        parts.append(lay([["model", "against", "won", "lost", "difference of ratings"], *met]))
    ratings = {model: own["rating"] for model, own in view.numbers.items()}
    why = [f"{model} has no rating: {each.note}" for model, each in ratings.items() if each.mean is None and each.note]
    if all(own.get("ties", NONE).mean == 1 for own in view.numbers.values()):
        why.append("all decided games are ties: they show no difference between the models")
    draws = f"intervals over {view.settings['resamples']:,} resamples of the prompts" if view.settings else ""
    return "\n\n".join([*parts, "\n".join(filter(None, ["; ".join(filter(None, (view.about, draws))), *why]))])


def side_by_side(views: Sequence[EloView], *, as_markdown: bool = False) -> str:
    """Return several ratings in one table: a column for each view, and a row for each model with its rating and the
    interval of its difference to the column's best model. A model that a view does not have is a dash.
    """
    models = list(dict.fromkeys(model for view in views for model in view.numbers))
    lines = [["model", *(": ".join(filter(None, (view.source, view.title))) for view in views)]]
    for model in models:
        cells = []
        for view in views:
            own = view.numbers.get(model, {"rating": NONE, "difference": NONE})
            change = ShownEstimate.of(own["difference"], 0).interval or "no interval"
            shown = ShownEstimate.of(own["rating"], 0).value
            cells.append(f"{shown} [{'best' if model == view.best else change}]" if model in view.numbers else "–")
        lines.append([model, *cells])
    below = "rating, and in brackets the interval of the difference to the best model of the column"
    return f"{(markdown if as_markdown else columns)(lines)}\n\n{below}"

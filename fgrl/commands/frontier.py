"""`fgrl frontier`: plot of one number against its cost, for the finished evaluations of several recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.commands.shared import (
    RUNS,
    AsJson,
    RunsFolder,
    Seeds,
    SetValues,
    Sources,
    WrongWord,
    echo,
    emit,
    read_sources,
)
from fgrl.pages.report.text_tables import columns

frontiers = lazy.load("fgrl.runs.results.frontier")
numbers = lazy.load("fgrl.runs.results.table")
plotting = lazy.load("fgrl.pages.report.figures")

EXAMPLES = """
\b
Examples:
  fgrl frontier recipes/small/segment_ppo*.yaml --y rule.kept
  fgrl frontier A.yaml B.yaml --vary stages.policy.algorithm.kl_coef=0.003,0.01,0.03 --x kl.sum --y win_rate.length_adjusted
  fgrl frontier A.yaml B.yaml --seeds 0,1,2 --y rule.kept
  fgrl frontier runs/segment_ppo_phi3 runs/segment_ppo_phi3-bandit --y length_adjusted --model policy --out figures/kl

A source is a recipe, the folder of a run, or a folder of runs (every one in it, as a sweep leaves them). A number is METRIC.NUMBER,
as `fgrl table` names it, or STAGE/METRIC.NUMBER. Reads what finished evaluations measured and runs nothing. `--out FILE`
writes a plot as FILE.svg and FILE.png. Filled points, and a star in the table, are Pareto-optimal.
"""


def frontier(
    context: typer.Context,
    sources: Sources,
    y: Annotated[str, typer.Option("--y", metavar="NUMBER", help="Number on the y axis: what is wanted.")],
    x: Annotated[str, typer.Option("--x", metavar="NUMBER", help="Number on the x axis: what it costs.")] = "kl.sum",
    seeds: Seeds = None,
    vary: Annotated[
        list[str] | None, typer.Option("--vary", metavar="KEY=A,B,...", help="Values with which every recipe is used.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option("--model", metavar="NAME", help="Show only these models.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write a plot: FILE.svg and FILE.png.", show_default=False),
    ] = None,
    x_label: Annotated[str, typer.Option("--x-label", help="Name of the axis.")] = "",
    y_label: Annotated[str, typer.Option("--y-label", help="Name of the axis.")] = "",
    set_values: SetValues = None,
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Plot a number of finished evaluations against another, such as win rate against KL, and mark the best."""
    alternatives = [_alternatives(text) for text in vary or []]
    read = read_sources(sources, seeds, runs, context, vary=alternatives)
    table = numbers.table_of([numbers.results_of(run) for source in read for run in source.recipes])
    points = frontiers.frontier(table, x, y, model or [])
    if not points.points:
        skipped = f" of {', '.join(points.skipped)}" if points.skipped else ""
        raise UsageError(f"no finished evaluation{skipped} has both numbers; fgrl run comes first")
    files: list[Path] = []
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        files = plotting.draw_frontier(points, out, x_label, y_label)
    if as_json:
        emit({**points.as_json(), "files": list(map(str, files))})
        return
    echo(columns(plotting.frontier_rows(points)))
    if points.skipped:
        echo(f"\nnot run: {', '.join(points.skipped)}")
    echo("\n" + ("\n".join(map(str, files)) or "--out FILE writes a plot"))


def _alternatives(text: str) -> list[str]:
    """Return the overrides in `KEY=A,B,...`, one for each value."""
    key, equals, values = text.partition("=")
    if not equals or not values:
        raise WrongWord(f'"{text}": wants KEY=A,B,...', param_hint="--vary")
    return [f"{key}={value.strip()}" for value in values.split(",")]

"""`fgrl table`: measured numbers side by side, or next to the published numbers of a paper's table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.commands.shared import (
    RUNS,
    AsJson,
    DryRun,
    MachineFile,
    Numbers,
    RunsFolder,
    Seeds,
    SetValues,
    Sources,
    WrongWord,
    echo,
    emit,
    finish,
    named_and_overrides,
    overrides,
    read_sources,
    seed_list,
)  # fmt: skip

if TYPE_CHECKING:
    from fgrl.library.tables import OpenTable
    from fgrl.runs.results.curves import Curve
    from fgrl.runs.results.paper_table import PaperTable
figures = lazy.load("fgrl.pages.report.figures")
numbers = lazy.load("fgrl.runs.results.table")
paper = lazy.load("fgrl.pages.report.paper_table")
recipe_tables = lazy.load("fgrl.experiments.recipe.tables")
tables = lazy.load("fgrl.library.tables")
texts = lazy.load("fgrl.pages.report.text_tables")

EXAMPLES = """
\b
Examples:
  fgrl table recipes/small/*.yaml
  fgrl table A.yaml B.yaml --markdown
  fgrl table A.yaml --seeds 0,1,2 stages.policy.algorithm.kl_coef=0.1
  fgrl table runs/small-rla runs/small-rla_ce --number cosine
  fgrl table sweeps/segment_ppo/table1.yaml --small --run --format markdown
  fgrl table sweeps/segment_ppo/figure3.yaml --out figures/cutoffs.pdf

\b
A source is a recipe, the folder of a run, or a folder of runs. A number is called METRIC.NUMBER everywhere, as in rule.kept.
Reads what finished evaluations measured; runs nothing without --run. Brackets are confidence intervals.
A table file names the rows and columns of a paper's table: see docs/how-to/paper-tables.md.
"""


class Format(StrEnum):
    """Output format of a table."""

    text = "text"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    json = "json"


def table(
    context: typer.Context,
    sources: Sources,
    seeds: Seeds = None,
    number: Numbers = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    style: Annotated[
        Format | None, typer.Option("--format", help="Format of a table file. [default: text]", show_default=False)
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="Use the small version of a table file.")] = False,
    run: Annotated[bool, typer.Option("--run", help="First run what a table file lacks, as `fgrl run` does.")] = False,
    dry_run: DryRun = False,
    figure: Annotated[
        Path | None,
        typer.Option("--out", "--figure", metavar="FILE", help="Draw a table file's figure: .svg, .pdf or .png."),
    ] = None,
    sweep: Annotated[bool, typer.Option("--sweep", help="Print a table file's recipes as a sweep file.")] = False,
    set_values: SetValues = None,
    machines: MachineFile = None,
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Print the measured numbers of several recipes side by side, or a paper's table."""
    named, extra = named_and_overrides([*sources, *context.args])
    files = [Path(word) for word in named if not Path(word).is_dir() and recipe_tables.is_table_file(Path(word))]
    if files:
        if len(named) > 1:
            raise WrongWord("wants one table file, or recipes and folders of runs", param_hint="SOURCE")
        style = Format.json if as_json else style or (Format.markdown if markdown else Format.text)
        own = overrides(extra, context)
        chosen = seed_list(seeds, own)
        if sweep:
            echo(recipe_tables.read_table_file(files[0], small=small).sweep(files[0].parent, chosen))
            return
        opened = tables.open_table(files[0], runs, own, chosen, small=small)
        if run or dry_run:
            finish(opened.lacking, machines, dry_run=dry_run)
            opened = tables.open_table(files[0], runs, own, chosen, small=small)
        _paper_table(opened, style, figure)
        return
    if style or small or run or dry_run or figure or sweep or machines:
        raise WrongWord(
            "--format, --small, --run, --dry-run, --machines, --out and --sweep are for a table file",
            param_hint="SOURCE",
        )
    runs_of = [each for source in read_sources(sources, seeds, runs, context) for each in source.recipes]
    measured = numbers.table_of([numbers.results_of(each) for each in runs_of], number or [])
    if as_json:
        emit({"recipes": texts.number_json(measured)})
        return
    echo(texts.number_text(measured, as_markdown=markdown))
    for each in runs_of:
        if not any(stage.measured for stage in each.stages.values()) and (other := each.with_other_settings()):
            echo(f"\n{other}")


def _paper_table(opened: OpenTable, style: Format, figure: Path | None) -> None:
    made = tables.paper_table(opened)
    how = opened.file.figure
    curves = {metric: tables.table_curves(opened, metric) for metric in (how.metrics if how else [])}
    drawn = [] if figure is None else _draw(opened, made, curves, figure)
    if style is Format.json:
        of_curves = {metric: [own.as_json() for own in each] for metric, each in curves.items()}
        emit({**paper.as_json(made), "curves": of_curves, "files": list(map(str, drawn))})
        return
    parts = [paper.FORMATS[style](made)]
    if style is Format.text:
        parts += [f"\n{metric}\n{texts.columns(figures.curve_rows(own))}" for metric, own in curves.items() if own]
    echo("\n".join([*parts, *map(str, drawn)]))


def _draw(opened: OpenTable, made: PaperTable, curves: Mapping[str, list[Curve]], target: Path) -> list[Path]:
    """Draw the figure of a table file. Raise `UsageError` if none of its recipes has run."""
    if (how := opened.file.figure) is None:
        raise UsageError("it has no figure: `figure` says how its rows are drawn")
    target.parent.mkdir(parents=True, exist_ok=True)

    def named(what: str, count: int) -> Path:
        """Return the file for one of several metrics or columns."""
        name = re.sub(r"\W+", "_", what).strip("_")
        return target if count == 1 else target.with_name(f"{target.stem}-{name}{target.suffix}")

    files: list[Path] = []
    if how.kind == "curves":
        for metric, own in curves.items():
            files += figures.draw_curves(own, named(metric, len(how.metrics)), metric) if own else []
    elif how.kind == "frontier":
        points = tables.table_frontier(opened)
        files += figures.draw_frontier(points, target, how.x, how.y) if points.points else []
    elif any(cell.ours for row in made.rows for cell in row.cells.values()):
        if how.kind == "bars":
            return list(figures.draw_bars(made, target, how.y))
        for title in made.columns:
            files += figures.draw_column(made, title, named(title, len(made.columns)), how.x, how.y)
    if not files:
        raise UsageError("nothing of it has run; --run runs it")
    return files

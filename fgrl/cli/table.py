"""`fgrl table`: measured numbers side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from fgrl import lazy
from fgrl.cli.shared import RUNS, AsJson, Numbers, RunsFolder, Seeds, SetValues, Sources, echo, emit, read_sources

finished = lazy.load("fgrl.pipeline.finished")
tables = lazy.load("fgrl.results.number_tables")
texts = lazy.load("fgrl.report.text_tables")

EXAMPLES = """
\b
Examples:
  fgrl table recipes/small/*.yaml
  fgrl table A.yaml B.yaml --markdown
  fgrl table A.yaml --seeds 0,1,2 stages.policy.algorithm.kl_coef=0.1
  fgrl table runs/small-rla runs/small-rla_ce --number cosine

\b
A source is a recipe, the folder of a run, or a folder of runs. A number is called METRIC.NUMBER everywhere, as in rule.kept.
Reads what finished evaluations measured; runs nothing. Brackets are confidence intervals.
"""


def table(
    context: typer.Context,
    sources: Sources,
    seeds: Seeds = None,
    number: Numbers = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    set_values: SetValues = None,
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Print the measured numbers of several recipes side by side."""
    results = finished.results_of(read_sources(sources, seeds, runs, context))
    measured = tables.number_table(results, number or [])
    if as_json:
        emit({"recipes": texts.number_json(measured)})
    else:
        echo(texts.number_markdown(measured) if markdown else texts.number_blocks(measured))

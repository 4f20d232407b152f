"""`fgrl curves`: a metric of trainings over their steps, with the mean over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.commands.shared import RUNS, AsJson, RunsFolder, Seeds, SetValues, Sources, echo, emit, read_sources
from fgrl.pages.report.text_tables import columns

plotting = lazy.load("fgrl.pages.report.figures")
results = lazy.load("fgrl.runs.results.curves")

EXAMPLES = """
\b
Examples:
  fgrl curves recipes/small/segment_ppo.yaml --metric reward
  fgrl curves A.yaml B.yaml --seeds 0,1,2 --metric reward --reaches 0.5 --out figures/reward
  fgrl curves A.yaml B.yaml --seeds 0,1,2 --metric held_out/win_rate.win_rate --stage policy
  fgrl curves A.yaml --metric logp_chosen --stage '*' --out figures/logp     # every training that logs it, in one plot

A source is a recipe, the folder of a run, or a folder of runs. A metric is called as in the log of a training (log.jsonl, the
curves of the report), numbers of evaluations while training too. Of several seeds the mean is shown, with Student's t interval.
Of several stages each has a separate curve.
Reads logs and runs nothing; with --out it writes OUT.svg and OUT.png.
"""


def curves(
    context: typer.Context,
    sources: Sources,
    metric: Annotated[str, typer.Option("--metric", metavar="NAME", help="Metric to show, by its name in the log.")],
    stage: Annotated[
        list[str] | None,
        typer.Option("--stage", metavar="NAME", help="Stage whose log has the metric, or a pattern; may be repeated."),
    ] = None,
    seeds: Seeds = None,
    reaches: Annotated[
        float | None, typer.Option("--reaches", metavar="X", help="Also print the first step whose mean is at least X.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Path of the plot, without its extension.")
    ] = None,
    set_values: SetValues = None,
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Print and plot a metric of finished trainings over their steps, with intervals over seeds."""
    drawn, waiting = [], []
    for source in read_sources(sources, seeds, runs, context):
        name = source.name if "::" not in str(source.path) else str(source.path).rpartition("/")[2]
        own, absent = results.curves_of(name, source.by_seed(), metric, stage or [])
        drawn += own
        waiting += [f"{source.path} seed {seed}" for seed in absent]
    if not drawn:
        raise UsageError(f"no training has finished; fgrl run comes first: {', '.join(waiting)}")
    files: list[Path] = []
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        files = plotting.draw_curves(drawn, out, metric)
    first = {} if reaches is None else {own.name: results.first_reaching(own.points, reaches) for own in drawn}
    if as_json:
        emit(
            {
                "curves": [own.as_json() for own in drawn],
                "reaches": first,
                "not run": waiting,
                "files": list(map(str, files)),
            }
        )
        return
    echo(columns(plotting.curve_rows(drawn)))
    for name, step in first.items():
        echo(f"{name}: {f'reaches {reaches:g} at step {step:g}' if step is not None else f'never reaches {reaches:g}'}")
    if waiting:
        echo(f"\nnot run: {', '.join(waiting)}")
    for file in files:
        echo(str(file))

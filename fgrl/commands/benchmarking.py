"""`fgrl benchmark`: comparison of a method of your own with the methods of the credit benchmark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.commands.shared import RUNS, AsJson, RunsFolder, SetValues, echo, emit, overrides

benchmark = lazy.load("fgrl_benchmark.commands")
console = lazy.load("fgrl.base.console")

EXAMPLES = """
\b
Examples:
  fgrl benchmark late.py --knob exponent=1,3         a reward or an algorithm in a Python file
  fgrl benchmark mine.yaml::late --told pairs        a recipe that begins with `extends: fgrl_benchmark:task.yaml`
  fgrl benchmark by_turn.py --turns                  a reward of conversations; of an algorithm over turns it is known
  fgrl benchmark --check late.jsonl                  are lines that somebody sent reproduced?

\b
Two tasks, as the benchmark's own methods: six trials with one seed (over turns three rates with three seeds), then five seeds with the
best settings. Writes beside the method NAME.yaml (its recipe), NAME.jsonl (a line for each run; the same command goes on where they
end) and NAME.svg. About 15 minutes on two cores, of which the first command in a folder of runs spends up to nine on the model that all
methods start from. Exit code 7 where --check does not hold. See docs/credit-benchmark-method.md.
"""


def rank(
    context: typer.Context,
    method: Annotated[
        str | None, typer.Argument(metavar="METHOD", help="A Python file, or a recipe: FILE.yaml, FILE.yaml::ROW.", show_default=False)
    ] = None,
    told: Annotated[str, typer.Option("--told", metavar="TEXT", help="Information that it has besides prompt and answer.")] = "outcome",
    knob: Annotated[str, typer.Option("--knob", metavar="NAME=V,V", help="Setting to tune with these values, instead of the KL weight.")] = "",
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Component of a Python file, or the name to give to a recipe.")
    ] = None,
    turns: Annotated[bool, typer.Option("--turns", help="The Python file has a reward of conversations.")] = False,
    check: Annotated[Path | None, typer.Option("--check", metavar="FILE", help="Run a seed of these lines again.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Delete the lines that NAME.jsonl has, and begin anew.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Number of runs at the same time. [default: a run on each core]", show_default=False)]
    = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    set_values: SetValues = None,
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Rank a method of your own in the credit benchmark, or check the recorded lines of a method. Overrides of its
    recipe may follow.
    """
    shown = console.Console(quiet=as_json)
    if (method is None) == (check is None):
        raise UsageError(
            "name a method (a Python file or a recipe), or lines to check: fgrl benchmark --check NAME.jsonl"
        )
    if check is not None:
        found = []
        for finding in benchmark.check(check, runs=str(runs), jobs=jobs, console=shown):
            found.append({"held": finding.held, "finding": finding.text})
            if not as_json:
                echo(f"{'ok' if finding.held else 'DIFFERS'}: {finding.text}")
        if as_json:
            emit({"findings": found})
        raise typer.Exit(0 if all(each["held"] for each in found) else 7)
    place = benchmark.rank(
        method, name=name, told=told, knob=knob, turns=turns, overrides=overrides(context.args, context), again=again, runs=str(runs),
        jobs=jobs, console=shown,
    )  # fmt: skip
    if as_json:
        emit(benchmark.summary(place))
        return
    echo(benchmark.text_of(place))
    echo(f"figure: {benchmark.draw(place) or 'none: no run says which words were credited'}")
    echo(f"lines: {place.sheet.file}; to send them in: docs/credit-benchmark-method.md, `Send it in`")

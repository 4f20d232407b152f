"""`fgrl doctor`: description of this machine. Secrets are never printed: for an environment variable at most whether it
is set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgrl.base import lazy
from fgrl.commands.shared import RUNS, AsJson, RunsFolder, as_text, echo, emit
from fgrl.pages.report.text_tables import columns

library = lazy.load("fgrl.library")

EXAMPLES = """
\b
Examples:
  fgrl doctor
  fgrl doctor --json
  fgrl doctor runs        compare everything in a folder of runs with its checksums
  fgrl doctor --measure card.yaml        measure this machine for fgrl plan
"""


def doctor(
    check: Annotated[
        Path | None,
        typer.Argument(metavar="[RUNS]", help="Verify this folder of runs instead.", show_default=False),
    ] = None,
    measure: Annotated[
        Path | None,
        typer.Option(
            "--measure", metavar="FILE", help="Write the rates of this machine into FILE, a card for `plan --machines`."
        ),
    ] = None,
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Print versions, cores, memory, disk, GPU, extras, packaged models, vLLM, the sandbox, threads. Exit code 1 if
    something is missing.

    With RUNS: compare the products of its stages with their checksums. Exit code 1 if a product is damaged.
    """
    examined = library.doctor(check, runs=runs, measure=measure)
    problems = examined["problems"]
    if as_json:
        emit(examined)
    else:
        echo(columns([(name, as_text(value)) for name, value in examined.items() if name != "problems"], indent=""))
        for problem in problems:
            echo(f"! {problem}")
        if measure is not None:
            echo(f"written to {measure}: fgrl plan RECIPE --machines {measure}")
        elif not problems:
            echo("nothing is missing for the recipes under recipes/small" if check is None else "nothing is broken")
    if problems:
        raise typer.Exit(1)

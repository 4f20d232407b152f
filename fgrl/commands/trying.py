"""`fgrl check`: test that a component trains identically for every division of a training into processes and after a
kill.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fgrl.base import lazy
from fgrl.commands.shared import AsJson, SetValues, echo, emit, overrides

if TYPE_CHECKING:
    from fgrl.experiments.pipeline.trial import Finding
library = lazy.load("fgrl.library")

EXAMPLES = """
\b
Examples:
  fgrl check own_algorithm.py
  fgrl check own.py --name own stages.trained.reward=says_answer imports=[own.py,says_answer.py]

Trains a small random model with each reward, algorithm, environment and engine of the file: in whole optimizer steps, in micro-batches
of one row, in two processes, and killed and continued. Environments get scripted texts first, and engines are asked in several ways.
Exit code 7 where the weights differ or a promise is broken; that of the training where it fails.
"""


def check(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Python file with components.", show_default=False)],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Name of a single component.")] = None,
    set_values: SetValues = None,
    as_json: AsJson = False,
) -> None:
    """Try rewards, algorithms, environments and engines of a Python file in small trainings. Overrides of the trial's recipe may
    follow.
    """
    rows = []

    def show(component: str, found: Finding) -> None:
        rows.append({"component": component, "held": found.held, "finding": found.text})
        if not as_json:
            echo(f"{component}: {'ok' if found.held else 'DIFFERS'}: {found.text}")

    library.check(file, overrides(context.args, context), name=name, show=show)
    if as_json:
        emit({"findings": rows})
    if not all(row["held"] for row in rows):
        raise typer.Exit(7)

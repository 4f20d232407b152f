"""`fgrl check`: does a component train the same however a training is divided, and after a kill?"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from fgrl import lazy
from fgrl.cli.shared import AsJson, SetValues, echo, emit, overrides
from fgrl.errors import UsageError

console = lazy.load("fgrl.console")
registry = lazy.load("fgrl.registry")
trial = lazy.load("fgrl.pipeline.trial")

EXAMPLES = """
\b
Examples:
  fgrl check own_algorithm.py
  fgrl check own.py --name own stages.trained.reward=says_answer imports=[own.py,says_answer.py]

Trains a small random model with each reward and algorithm of the file: in whole optimizer steps, in micro-batches of one row, in two
processes, and killed and continued. Exit code 7 where the weights differ; that of the training where it fails.
"""


def check(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Python file with components.", show_default=False)],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only the component of this name.")] = None,
    set_values: SetValues = None,
    as_json: AsJson = False,
) -> None:
    """Try the rewards and algorithms of a Python file in small trainings. Overrides of the trial's recipe may
    follow.
    """
    tried = {registry.name_of(cls)[1]: cls for cls in trial.tried_components(file)}
    if name is not None and name not in tried:
        raise UsageError(registry.unknown("component", name, sorted(tried)))
    rows = []
    silent = console.Console(quiet=True, stream=io.StringIO())  # the error of a training is raised, too
    for called, cls in tried.items():
        if name not in (None, called):
            continue
        with tempfile.TemporaryDirectory(prefix="fgrl-check-") as folder:
            recipe = trial.write_recipe(cls, file, Path(folder))
            for found in trial.findings(recipe, overrides(context.args, context), silent):
                rows.append({"component": called, "held": found.held, "finding": found.text})
                if not as_json:
                    echo(f"{called}: {'ok' if found.held else 'DIFFERS'}: {found.text}")
    if as_json:
        emit({"findings": rows})
    if not all(row["held"] for row in rows):
        raise typer.Exit(7)

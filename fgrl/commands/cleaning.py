"""`fgrl clean`: deletion of runs, stages and checkpoints that are no longer needed, after confirmation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fgrl.base import lazy
from fgrl.commands.checking import size
from fgrl.commands.runs import FolderOfRuns, known_folder
from fgrl.commands.shared import RUNS, AsJson, WrongWord, echo, emit
from fgrl.pages.report.text_tables import columns

if TYPE_CHECKING:
    from datetime import timedelta

    from fgrl.runs.cleaning import Deletions
cleanings = lazy.load("fgrl.runs.cleaning")
library = lazy.load("fgrl.library")
listed_runs = lazy.load("fgrl.library.listed_runs")

EXAMPLES = """
\b
Examples:
  fgrl clean --older-than 30d                     runs that started over 30 days ago, and stages that only they used
  fgrl clean --recipe small-rtt                   all runs of a recipe
  fgrl clean --recipe 'small-*' --older-than 2w   old runs of some recipes
  fgrl clean --unreferenced                       stages that no run uses, and files that a killed process left half written
  fgrl clean --checkpoints                        checkpoints of finished stages
  fgrl clean runs/small-rtt --checkpoints         those of one recipe; its runs stay
  fgrl clean runs --older-than 30d --yes          delete without asking

\b
Prints what would be deleted and its size. Deletes only with --yes, or after a yes at the terminal. Never deletes what a process is
working on, a stage that a remaining run needs, or the cache of answers (runs/cache). Links are not followed.
"""


def clean(
    folder: FolderOfRuns = RUNS,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Minimum age: 90m, 12h, 30d, 8w.", show_default=False),
    ] = None,
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            "--recipe",
            metavar="NAME",
            help="Runs of this recipe, or of a pattern. With --unreferenced or --checkpoints only stages of it; its runs stay.",
        ),
    ] = None,
    unreferenced: Annotated[
        bool, typer.Option("--unreferenced", help="Stages that no run uses, half-written files, copies of data files.")
    ] = False,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="Checkpoints of finished stages.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Delete without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete runs, stages and checkpoints that are no longer needed. They are shown first."""
    root, own = listed_runs.root_of(known_folder(folder))
    recipes = [*own, *(recipe or [])]
    chosen = library.clean(
        root, older_than=_age(older_than), recipes=recipes, unreferenced=unreferenced, checkpoints=checkpoints,
        delete=yes if as_json else lambda chosen: _agreed(chosen, yes),
    )  # fmt: skip
    if as_json:
        emit({**chosen.as_json(), "deleted": yes, "freed": chosen.freed or 0, "problems": chosen.problems})
        return
    for problem in chosen.problems:
        echo(problem, err=True)
    if chosen.freed is not None:
        echo(f"deleted: {size(chosen.freed)}")


def _agreed(chosen: Deletions, yes: bool) -> bool:
    """Show the files that would be deleted. Return True if the user agrees."""
    _show(chosen)
    if not chosen.items or yes:
        return bool(chosen.items)
    if not sys.stdin.isatty():
        echo("nothing was deleted: give --yes to delete them")
        return False
    agreed = typer.confirm("Delete them?")
    if not agreed:
        echo("nothing was deleted")
    return agreed


def _age(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return cleanings.parse_age(text)
    except ValueError as error:
        raise WrongWord(str(error), param_hint="--older-than") from None


def _show(chosen: Deletions) -> None:
    echo(
        columns(
            [
                (item.what, f"{item.path.parent.name}/{item.path.name}", size(item.bytes), item.why)
                for item in chosen.items
            ]
        )
        if chosen.items
        else "nothing to delete"
    )
    for reason in chosen.kept:
        echo(f"  stays: {reason}")
    if chosen.items:
        echo(f"{len(chosen.items)} to delete: {size(chosen.bytes)}")

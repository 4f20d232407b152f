"""What the commands share: overrides, JSON, columns, and how errors reach a person."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgrl import errors, lazy
from fgrl.errors import FgrlError

if TYPE_CHECKING:
    from fgrl.recipe import Recipe
recipes = lazy.load("fgrl.recipe")
registry = lazy.load("fgrl.registry")

WITH_OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Context settings of commands that take `a.b=1` after the recipe (and `--a.b=1`, as W&B sweeps write it)."""

RecipeFile = Annotated[
    Path, typer.Argument(metavar="RECIPE", help="A recipe (YAML), or a row of it: FILE::ROW.", show_default=False)
]
RunsFolder = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Where runs and cached stages live.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to stdout.")]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, help="At most N samples and steps in every stage, as a trial."),
]
RUNS = Path("runs")


def load(path: Path, extra: Sequence[str], context: typer.Context) -> Recipe:
    """The recipe with the overrides behind it. Raises `registry.Problems`."""
    return recipes.load(_existing(path), overrides(extra, context))


def addresses(word: str) -> list[str]:
    """The recipes that an argument names: `FILE`, `FILE::ROW`, or several rows by a pattern (`FILE::*`)."""
    return recipes.expand(_existing(Path(word)))


def _existing(recipe: Path) -> Path:
    file = recipes.Address.parse(recipe).file
    if not file.exists():
        raise typer.BadParameter(f"{file}: no such recipe{_near(file)}", param_hint="RECIPE")
    return recipe


def overrides(extra: Sequence[str], context: typer.Context) -> list[str]:
    """`a.b=1` and `--a.b=1`; anything else behind the recipe is a mistake."""
    found = []
    for text in extra:
        if "=" not in text.lstrip("-") or text.startswith("="):
            names = [name for parameter in context.command.params for name in parameter.opts if name.startswith("--")]
            if text.startswith("-"):
                raise typer.BadParameter(f"no such option: {text}{_guess(text, names)}")
            raise typer.BadParameter(f'"{text}" is neither an option nor an override; overrides are written a.b=value')
        name = text.lstrip("-").split("=", 1)[0]
        if text.startswith("-") and "." not in name:
            names = [name for parameter in context.command.params for name in parameter.opts if name.startswith("--")]
            if guess := _guess(f"--{name}", names):
                raise typer.BadParameter(f"no such option: --{name}{guess}")
        found.append(text.removeprefix("--"))
    return found


def emit(value: Any) -> None:
    """A result as JSON on stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def columns(rows: Iterable[Sequence[str]], indent: str = "  ") -> str:
    """Rows in left-aligned columns; the last column is as long as it likes."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*[row[:-1] for row in table], strict=True)] if table else []
    return "\n".join(
        (indent + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])).rstrip()
        for row in table
    )


def fail(error: Exception, *, as_json: bool = False) -> int:
    """Explain an error that a person can act on and return its exit code; a bug is raised again."""
    if isinstance(error, BrokenPipeError):
        sys.stdout = None  # type: ignore[assignment]  # the reader left: nothing to flush to
        return errors.FAILED
    if not isinstance(error, FgrlError) or error.exit_code == errors.FAILED:
        raise error
    typer.echo(error.at_terminal(), err=True)
    if as_json:
        emit(error.as_json())
    return error.exit_code


def _guess(text: str, names: Sequence[str]) -> str:
    return registry.did_you_mean(text.split("=")[0], names)


def _near(path: Path) -> str:
    folder = path.parent
    recipes = [file.name for file in folder.glob("*.yaml")] if folder.is_dir() else []
    wanted = path.name if path.suffix else f"{path.name}.yaml"
    guess = registry.nearest(wanted, recipes)
    return f'; did you mean "{folder / guess}"?' if guess else ""

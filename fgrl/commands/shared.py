"""Parts that the commands share: sources, overrides, seeds, JSON, and how errors reach a person."""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgrl.base import errors, files, foreign, lazy, replies
from fgrl.base.errors import FgrlError
from fgrl.base.visible import HIDDEN, visible
from fgrl.commands import completion

if TYPE_CHECKING:
    from fgrl.experiments.recipe import Recipe
    from fgrl.experiments.recipe.machines import Card
    from fgrl.runs.run import Run
    from fgrl.runs.source import Source
sanitizing = lazy.load("fgrl.base.sanitizing")
functions = lazy.load("fgrl.kinds.functions")
recipes = lazy.load("fgrl.experiments.recipe")
meanings = lazy.load("fgrl.library.words")
registry = lazy.load("fgrl.registry")
console = lazy.load("fgrl.base.console")
unfinished = lazy.load("fgrl.library.unfinished")

WITH_OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Context settings of commands that accept `a.b=1` after the recipe (and `--a.b=1`, the form of W&B sweeps)."""

RecipeFile = Annotated[
    Path,
    typer.Argument(
        metavar="RECIPE",
        help="A recipe (YAML), a row of it (FILE::ROW), or the name of a shipped recipe.",
        show_default=False,
        autocompletion=completion.recipe_names,
    ),
]
RunsFolder = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder of runs and cached stages.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to stdout.")]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, help="Maximum samples and steps in every stage, for a trial."),
]
Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="Recipes, or folders of runs; then overrides of the recipes.",
        show_default=False,
        autocompletion=completion.sources,
    ),
]
Seeds = Annotated[str | None, typer.Option("--seeds", metavar="K,K,...", help="Seeds with which every recipe is used.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what --run would run, and stop.")]
WandbProject = Annotated[
    str | None, typer.Option("--wandb", metavar="PROJECT", help="Log to this W&B project too.", envvar="FGRL_WANDB")
]
MLflowExperiment = Annotated[
    str | None, typer.Option("--mlflow", metavar="EXPERIMENT", help="Log to this MLflow experiment too.")
]
Numbers = Annotated[
    list[str] | None,
    typer.Option("--number", metavar="TEXT", help="Show only numbers whose name contains this text; may be repeated."),
]
RUNS = Path("runs")
_SET = "fgrl.set"
"""Key in a command's context for the values of `--set`."""


def _keep(context: typer.Context, values: list[str] | None) -> list[str] | None:
    context.meta[_SET] = list(values or [])
    return values


SetValues = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one value of the recipe; the same as a bare KEY=VALUE (may be repeated).",
        callback=_keep,
    ),
]
"""Definition for the help and the parser only: `overrides` reads the values from the context."""
MACHINES = "fgrl.machines"
"""Key in a command's context for the machine file."""


def _keep_file(context: typer.Context, file: Path | None) -> Path | None:
    context.meta[MACHINES] = file
    return file


MachineFile = Annotated[
    Path | None,
    typer.Option(
        "--machines", metavar="FILE", help="YAML file with the devices on which stages train, and the GPU for which a plan computes costs.", callback=_keep_file,
        show_default=False,
    ),
]  # fmt: skip
"""Definition for the help and the parser only: `load` reads the file."""


def load(path: Path, extra: Sequence[str], context: typer.Context) -> Recipe:
    """Return the recipe with the overrides that follow it, on the machines of `--machines`. Raise `registry.Problems`
    if it is invalid.
    """
    address, given = existing(path), overrides(extra, context)
    recipe = recipes.load(address, given)
    if (machines := context.meta.get(MACHINES)) is not None:
        recipe = recipes.load(address, [*recipes.placed(machines, recipe), *given])
    for note in recipe.notes:
        echo(f"note: {note}", err=True)
    return recipe


def card_of(context: typer.Context) -> Card | None:
    """Return the card described in the file of `--machines`; None without such a file."""
    machines = context.meta.get(MACHINES)
    return None if machines is None else recipes.read(machines).card


def addresses(word: str) -> list[str]:
    """Return the recipes that an argument refers to: `FILE`, `FILE::ROW`, or several rows by a pattern (`FILE::*`)."""
    return recipes.expand(existing(Path(word)))


def existing(recipe: Path) -> Path:
    """Return the address of a recipe: a file, or a name that `recipes.by_name` knows (`quickstart`)."""
    address = recipes.Address.parse(recipe)
    file = files.expanded(address.file)
    if files.exists(file):
        return Path(str(recipes.Address(file, address.row)))
    named = recipes.by_name(recipe)
    if named is not None:
        return named
    near = recipes.meant(file) or recipes.similar(recipe)
    guess = "" if near is None else f'; did you mean "{near}"?'
    raise WrongWord(f"{_brief(file)}: no such recipe{guess}", param_hint="RECIPE")


def read_sources(
    words: Sequence[str],
    seeds: str | None,
    runs: Path,
    context: typer.Context,
    *,
    vary: Sequence[Sequence[str]] = (),
    at_least: int = 1,
) -> list[Source]:
    """Return the finished recipes for a command that takes recipes and folders of runs, followed by overrides."""
    named, extra = named_and_overrides([*words, *context.args])
    extra = overrides(extra, context)
    paths = [Path(address) for word in named for address in ([word] if files.is_folder(word) else addresses(word))]
    if len(paths) < at_least:
        raise WrongWord(
            "wants at least two recipes or folders of runs: the one to compare with, and another", param_hint="SOURCE"
        )
    return meanings.read_sources(paths, runs, extra, seed_list(seeds, extra), vary)


def finish(lacking: Sequence[Run], machines: Path | None, *, dry_run: bool) -> None:
    """Run recipes as `fgrl run` does, or only print their commands if `dry_run`. Then exit with the exit code of the
    first recipe that fails, if one does.
    """
    words = ["fgrl", *sys.argv[1:]]
    code = unfinished.run_unfinished(lacking, words, console.Console(), machines, dry_run=dry_run)
    if code or dry_run:
        raise typer.Exit(code)


def named_and_overrides(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that refer to recipes or folders, and the words that set a value (`a.b=1`, `--a.b=1`). A name
    may contain "=".
    """
    named = [
        word
        for word in words
        if ("=" not in word and not word.startswith("-")) or files.exists(recipes.Address.parse(word).file)
    ]
    return named, [word for word in words if word not in named]


def seed_list(text: str | None, overrides: Sequence[str]) -> list[int]:
    """Return the seeds of `--seeds`; empty without it."""
    if text is None:
        return []
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise WrongWord(f'"{text}": wants whole numbers, as in 0,1,2', param_hint="--seeds") from None
    if min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise WrongWord(f'"{text}": wants different numbers >= 0', param_hint="--seeds")
    if any(override.startswith("seed=") for override in overrides):
        raise WrongWord("there is a seed among the overrides too: give one of the two", param_hint="--seeds")
    return seeds


def overrides(extra: Sequence[str], context: typer.Context) -> list[str]:
    """Return the overrides `a.b=1`, `--a.b=1` and `--set a.b=1`. Raise `WrongWord` for any other word after the recipe."""
    texts: list[str] = []
    given = [*extra, *context.meta.get(_SET, [])]
    names = [name for parameter in context.command.params for name in parameter.opts if name.startswith("--")]
    for number, text in enumerate(given):
        name, equals, _ = text.lstrip("-").partition("=")
        sets = bool(foreign.places(name)) if text.startswith("--") and "." not in name else False
        if sets and not equals and name != "seed" and "=" not in "".join(given[number + 1 : number + 2] or "="):
            return [
                *texts,
                f"--{name}={given[number + 1]}",
                *given[number + 2 :],
            ]  # the recipe's reader refuses it with a hint
        if not equals or not name:
            raise WrongWord(_no_override(given, number, names))
        if text.startswith("-") and "." not in name and not sets and (guess := _guess(f"--{name}", names)):
            raise WrongWord(f"no such option: --{name}{guess}")
        texts.append(text.removeprefix("--"))
    return texts


def _no_override(given: Sequence[str], number: int, options: Sequence[str]) -> str:
    """Return an error message for a word that is not an override, with the probable intention."""
    before, word, behind, value = ["", *given, "", "", ""][number : number + 4]
    name, colon, after = word.lstrip("-").partition(":")
    name = "seed" if name == "seeds" else name  # seed=0,1 is a run with each
    meant = f"{name}={after}" if colon and after else f"{before}{word}" if before.endswith("=") else ""
    if not meant and not re.match("[A-Za-z]", name) and "." in behind and "=" not in behind:
        meant = f"{behind}={name}"
    elif not meant and behind and not behind.startswith("-"):
        meant = f"{name}={value}" if behind == "=" else f"{name}={behind}" if "=" not in behind else ""
    if word.startswith("-"):
        said, guess = f"no such option: {_brief(word)}", "" if foreign.places(name) else _guess(word, options)
    else:
        said, guess = f'"{_brief(word)}" is neither an option nor an override; overrides are written a.b=value', ""
        if not meant and (option := next((name for name in ("--only", "--stage") if name in options), None)):
            guess = f"; one stage alone: {option} {_brief(word)}"
    return said + (guess or (f'; did you mean "{_brief(meant)}", without spaces?' if meant else ""))


def echo(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print text for people on stdout or stderr, without hidden characters, cursor movements and secrets."""
    typer.echo(visible(sanitizing.hide(text)) + end, err=err, nl=False)


def at_terminal() -> bool:
    """Return True if both input and output are a terminal; False for a pipe or a file on either side."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def emit(value: Any) -> None:
    """Print a result as JSON on stdout without secrets; characters that could move the cursor or hide are escaped. A
    point of a sweep writes the result to a file for the sweep instead.
    """
    value = sanitizing.hide_in(value)
    if replies.reply(value):
        return
    text = json.dumps(files.finite(value), indent=2, ensure_ascii=False, allow_nan=False, default=str)
    typer.echo(HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1], text))


class WrongWord(typer.BadParameter):
    """Error for a word of the command line that cannot be used."""

    def format_message(self) -> str:
        return visible(sanitizing.hide(super().format_message()))


def show_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unhandled error. The arguments are those of `sys.excepthook`."""
    echo("".join(traceback.format_exception(kind, error, trace)).rstrip(), err=True)


def as_text(value: Any) -> str:
    """Return a JSON value as text on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {as_text(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(as_text, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "unknown"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


def fail(error: Exception, *, as_json: bool = False) -> int:
    """Explain an error that the user can fix, and return its exit code. A bug is raised again."""
    if isinstance(error, BrokenPipeError):
        sys.stdout = None  # the reader left: nothing to flush to
        return errors.FAILED
    error = errors.disk_error(error) or functions.as_user_error(error) or error
    if not isinstance(error, FgrlError) or error.exit_code == errors.FAILED:
        raise error
    echo(error.at_terminal(), err=True)
    if as_json:
        emit(error.as_json())
    return error.exit_code


def _guess(text: str, names: Sequence[str]) -> str:
    return registry.did_you_mean(text.split("=")[0], names)


def _brief(value: Path | str) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."

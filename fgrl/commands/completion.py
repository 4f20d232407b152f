"""Tab completion: recipes and their rows, names of components, stages, and the keys that an override can set.

Each function gets the words typed so far (`context`) and the beginning of the word to complete. It returns candidates,
with a help text if there is one. typer drops candidates that do not begin with the typed text.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from fgrl.base import files, lazy

foreign_words = lazy.load("fgrl.commands.foreign_words")
problems = lazy.load("fgrl.registry.problems")
recipes = lazy.load("fgrl.experiments.recipe")
registry = lazy.load("fgrl.registry")

SEPARATOR = "::"
Candidate = str | tuple[str, str]


@dataclass(frozen=True)
class Item:
    """A candidate for completion in the form that typer's formatters read."""

    value: str
    help: str | None = None
    type: str = "plain"


class Commands(TyperGroup):
    """A command group whose `COMMAND --help` does not load pydantic, which would take a third of its time.

    typer gives `--help`, `--install-completion` and `--show-completion` the default None, and loads pydantic to check
    any flag that is not a bool.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        parameters = super().get_params(ctx)
        for option in parameters:
            if isinstance(option, TyperOption) and option.is_flag and option.default is None:
                option.default = False
        return parameters

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None and (meant := foreign_words.command_meant(args)):
            ctx.fail(f"No such command '{args[0]}'. Did you mean: {meant}")
        return super().resolve_command(ctx, args)


class StartCommand(TyperCommand):
    """A command whose options have other names in other toolkits."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = [*ctx.help_option_names, *(name for one in self.params for name in (*one.opts, *one.secondary_opts))]
        for word in args:
            option = word.partition("=")[0]
            if option.startswith("--") and option not in known and (meant := foreign_words.option_meant(option, known)):
                ctx.fail(f"No such option: {option}. Did you mean {meant}?")
        return super().parse_args(ctx, args)


class RecipeCommand(TyperCommand):
    """A command whose recipe may be followed by overrides."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        with lazy.uncollected():  # typer imports pydantic to parse a path
            return super().make_context(*args, **extra)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        recipe, words = ctx.params.get("recipe") or ctx.params.get("what"), ctx.args
        if recipe is None or incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        if incomplete == SEPARATOR or words[-1:] == [SEPARATOR]:  # bash splits words at colons
            before = incomplete if incomplete == SEPARATOR else ""
            return [Item(f"{before}{row}") for row in _rows(str(recipe)) if f"{before}{row}".startswith(incomplete)]
        return [
            Item(*(candidate if isinstance(candidate, tuple) else (candidate,)))
            for candidate in overrides(str(recipe), incomplete)
        ]


def recipe_names(incomplete: str) -> list[Candidate]:
    """Return recipe files, folders on the way to them, names of shipped recipes, and the rows after `FILE::`."""
    file, separator, _row = incomplete.partition(SEPARATOR)
    if separator:
        return [f"{file}{SEPARATOR}{row}" for row in _rows(file)]
    return [*_files(incomplete), *recipes.shipped_names()]


def sources(context: typer.Context, incomplete: str) -> list[Candidate]:
    """Return recipes and folders of runs, and overrides after the first recipe."""
    named = context.params.get("sources") or context.params.get("recipes") or []
    keys = [candidate for word in named[:1] for candidate in overrides(str(word), incomplete)]
    return [*recipe_names(incomplete), *keys]


def explained(incomplete: str) -> list[Candidate]:
    """Return the names that `fgrl show` explains."""
    recipes.know_components()
    components = [(name, kind) for kind in registry.kinds() for name in registry.names(kind)]
    fields = [(place.path, "block of settings") for place in registry.places() if place.blocks and "." in incomplete]
    return [*components, *fields, *_files(incomplete)]


def kinds() -> list[Candidate]:
    """Return the kinds of component."""
    recipes.know_components()
    return list(registry.kinds())


def stages(context: typer.Context) -> list[Candidate]:
    """Return the stages of the recipe in the command."""
    before = [word for word in context.args if not word.startswith("-")]  # where the option still lacks its value
    recipe = context.params.get("recipe") or next(iter(before), None)
    known = {} if recipe is None else _keys(str(recipe), ("stages",))
    return [(name, _line(settable.help)) for name, settable in known.items()]


def overrides(recipe: str, incomplete: str) -> Iterator[Candidate]:
    """Yield the keys that may follow the part before the last dot: `stages.policy.algorithm.kl_coef=`."""
    before, dot, last = incomplete.rpartition(".")
    path = tuple(before.split(".")) if dot else ()
    for key, settable in _keys(recipe, path).items():
        if key.startswith(last):
            yield f"{before}{dot}{key}{'.' if settable.has_keys else '='}", _line(settable.help)


def _line(text: str | None) -> str:
    """Return a help text that fits into a line: shells offer further lines as candidates."""
    return textwrap.shorten(text or "", 76, placeholder="...")


def _keys(recipe: str, path: tuple[str, ...]) -> dict[str, Any]:
    address = _address(recipe)
    return {} if address is None else recipes.keys_below(address, path)


def _rows(recipe: str) -> list[str]:
    address = _address(recipe)
    if address is None:
        return []
    try:
        return recipes.rows(recipes.Address.parse(address).file)
    except registry.Problems:  # a recipe with a mistake: `fgrl validate` reports it, a key press does not
        return []


def _address(recipe: str) -> Path | None:
    if files.is_file(recipes.Address.parse(recipe).file):
        return Path(recipe)
    return recipes.by_name(recipe)


def _files(incomplete: str) -> Iterator[str]:
    """Yield the recipes and subfolders of the folder that the typed path leads to."""
    folder, slash, start = incomplete.rpartition("/")
    where = Path(f"{folder}{slash}" or ".")
    for name in files.names_in(where):
        if name.startswith(start) and (start or not name.startswith(".")):
            if files.is_folder(where / name):
                yield f"{folder}{slash}{name}/"
            elif name.endswith((".yaml", ".yml")):
                yield f"{folder}{slash}{name}"

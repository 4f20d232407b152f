"""`fgrl new`: a component in one file, with a test that passes."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Annotated

import typer

from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.commands.shared import AsJson, echo, emit

recipes = lazy.load("fgrl.experiments.recipe")
resources = lazy.load("importlib.resources")
registry = lazy.load("fgrl.registry")

EXAMPLES = """
\b
Examples:
  fgrl new segmenter every_third        writes every_third.py and test_every_third.py here
  pytest test_every_third.py
  fgrl list                             the kinds

\b
Name the file in a recipe, then its component like any other:
  imports: [every_third.py]
  stages: {reward_model: {algorithm: {segmenter: every_third}}}
"""


def kinds() -> list[str]:
    """Kinds that there is a template for."""
    folder = resources.files(__package__) / "templates"
    return sorted(file.name.removesuffix(".txt") for file in folder.iterdir() if file.name.endswith(".txt"))


def new(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="What it is: segmenter, reward, stage, ...", show_default=False)
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name in recipes.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Write a component and a passing test for it into the current folder."""
    if kind not in kinds():
        raise UsageError(registry.unknown("kind", kind, kinds()))
    module = name.replace("-", "_")
    if not module.isidentifier():
        raise UsageError(f'"{name}" cannot be a file name and a class name; use letters, digits and _')
    taken = _taken(kind, name)
    if taken:
        raise UsageError(f'the name "{name}" is taken in kind {kind}: {taken}')
    paths = [Path(f"{module}.py"), Path(f"test_{module}.py")]
    for path in paths:
        if path.exists():
            raise UsageError(f"{path} is already there; nothing was written")
    text = (resources.files(__package__) / "templates" / f"{kind}.txt").read_text(encoding="utf-8")
    words = {"name": name, "module": module, "cls": _class_name(module)}
    for path, part in zip(paths, text.split("%%% test\n"), strict=True):
        path.write_text(Template(part).substitute(words), encoding="utf-8")
    if as_json:
        emit({"files": [str(path) for path in paths]})
        return
    echo(
        f"{paths[0]}: the {kind} {name}\n{paths[1]}: its test; run it with: pytest {paths[1]}\n"
        f"In a recipe: imports: [{paths[0]}], then name it where a {kind} is wanted."
    )


def _class_name(module: str) -> str:
    name = "".join(part.capitalize() for part in module.split("_"))
    return name if name.isidentifier() else f"Component{name}"


def _taken(kind: str, name: str) -> str | None:
    recipes.know_components()
    return registry.source(registry.get(kind, name)) if name in registry.names(kind) else None

"""`fgrl new`: a component in one file, with a test that passes."""

from __future__ import annotations

from typing import Annotated

import typer

from fgrl.base import lazy
from fgrl.commands.shared import AsJson, echo, emit

new_component = lazy.load("fgrl.library.new_component")

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


def new(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="Kind of component: segmenter, reward, stage, ...", show_default=False)
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the component in recipes.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Write a component and a passing test for it into the current folder."""
    paths = new_component.new(kind, name)
    if as_json:
        emit({"files": [str(path) for path in paths]})
        return
    echo(
        f"{paths[0]}: the {kind} {name}\n{paths[1]}: its test; run it with: pytest {paths[1]}\n"
        f"In a recipe: imports: [{paths[0]}], then name it where a {kind} is wanted."
    )
    if kind in ("reward", "online_algorithm", "offline_algorithm"):
        echo(f"Check it in a small training: fgrl check {paths[0]}; rank it among others: fgrl benchmark {paths[0]}")

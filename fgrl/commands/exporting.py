"""`fgrl export`: a trained model as a folder for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fgrl.base import lazy
from fgrl.commands.shared import RUNS, AsJson, RunsFolder, echo, emit, overrides

library = lazy.load("fgrl.library")

EXAMPLES = """
\b
Examples:
  fgrl export recipes/quickstart.yaml my-policy                   the final trained policy of what has run
  fgrl export recipes/quickstart.yaml:reward_model my-reward      one of its stages
  fgrl export policy my-policy                                    the only finished stage of this name (or run, or recipe)
  fgrl export runs/stages/policy-3fa9c1d2a0b14e5f my-policy --merge --dtype bfloat16
  fgrl export R my-policy --push OWNER/NAME                       upload it too: private, unless --public

\b
A LoRA adapter whose base is on the hub is exported alone; any other is merged into its base, because no other tool could find the
base. The folder is read back and compared with the stage's model before it appears. Overrides of a recipe may follow DIR.
"""


def export(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="STAGE|RUN",
            help="A recipe or a run, one of their stages (RUN:STAGE), or a stage; by its name or its folder.",
            show_default=False,
        ),
    ],
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder to write, which does not exist yet.", show_default=False),
    ],
    stage: Annotated[
        str | None, typer.Option("--stage", metavar="STAGE", help="Stage of the recipe or the run.")
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Export whole weights: the adapter is merged into its base.")
    ] = False,
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        typer.Option("--dtype", help="Data type of whole weights; default: the type in the stage.", show_default=False),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base", metavar="OWNER/NAME", help="Id of the base on the hub, if training read it from a folder."
        ),
    ] = None,
    license: Annotated[
        str | None,
        typer.Option("--license", metavar="ID", help="Model's license, for the card; default: the base's."),
    ] = None,
    push: Annotated[
        str | None, typer.Option("--push", metavar="OWNER/NAME", help="Upload the folder to the Hugging Face hub.")
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Make the repository public, with --push.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export in DIR.")] = False,
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Write a trained model as a folder that loads without fgrl: weights, tokenizer, model card. --push uploads it."""
    exported = library.export(
        source, folder, overrides(context.args, context), stage=stage, merge=merge, dtype=dtype, base=base,
        license=license, push=push, public=public, force=force, runs=runs,
    )  # fmt: skip
    if as_json:
        emit(exported.as_json() | {"pushed": exported.pushed})
    else:
        echo(str(folder) if exported.pushed is None else f"{folder}\n{exported.pushed}")

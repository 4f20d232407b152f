"""The command line: only parsing and printing. stdout carries the result (with `--json` nothing else), stderr
everything else.

`fgrl.base.errors` lists the exit codes. Each command has one short file. Large packages are imported only when a
command needs them.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from copy import copy
from typing import NoReturn

import typer

from fgrl.base import replies, stops
from fgrl.commands import (
    annotating,
    benchmarking,
    catalog,
    chatting,
    checking,
    cleaning,
    compare,
    curves,
    doctor,
    elo,
    exporting,
    frontier,
    inspecting,
    launching,
    new,
    report,
    running,
    runs,
    starting,
    sweeping,
    table,
    trying,
    watching,
)
from fgrl.commands.completion import Commands, RecipeCommand, StartCommand
from fgrl.commands.shared import WITH_OVERRIDES, echo, fail, show_bug

app = typer.Typer(
    name="fgrl",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="Experiments in fine-grained reinforcement learning of language models, written as recipes.",
    epilog="""
\b
Examples:
  fgrl validate recipes/small/segment_ppo.yaml     is the recipe right? (instant)
  fgrl plan recipes/small/segment_ppo.yaml         what would run, what is cached, and why
  fgrl run recipes/small/segment_ppo.yaml          run what is missing; after a kill: continue
  fgrl run R stages.policy.algorithm.kl_coef=0.1   change one value
  fgrl show ppo                                    fields of a component, with help
  fgrl COMMAND --help                              more examples
""",
)
_recipe_command = functools.partial(
    app.command, cls=RecipeCommand, context_settings=WITH_OVERRIDES, no_args_is_help=True
)
_recipe_command(epilog=running.EXAMPLES, options_metavar="[OPTIONS]")(running.run)
_recipe_command(epilog=launching.EXAMPLES)(launching.launch)
app.command(epilog=sweeping.EXAMPLES, no_args_is_help=True)(sweeping.sweep)
_recipe_command(epilog=checking.VALIDATE)(checking.validate)
_recipe_command(epilog=checking.PLAN)(checking.plan)
app.command("list", epilog=catalog.LIST)(catalog.list_)
_recipe_command(epilog=catalog.SHOW)(catalog.show)
app.command(epilog=catalog.SCHEMA)(catalog.schema)
_recipe_command(epilog=inspecting.EXAMPLES)(inspecting.inspect)
_recipe_command(epilog=trying.EXAMPLES)(trying.check)
_recipe_command("benchmark", epilog=benchmarking.EXAMPLES)(benchmarking.rank)
_recipe_command(epilog=table.EXAMPLES)(table.table)
_recipe_command(epilog=compare.EXAMPLES)(compare.compare)
_recipe_command(epilog=elo.EXAMPLES)(elo.elo)
_recipe_command(epilog=frontier.EXAMPLES)(frontier.frontier)
_recipe_command(epilog=curves.EXAMPLES)(curves.curves)
_recipe_command(epilog=report.EXAMPLES)(report.report)
_recipe_command(epilog=exporting.EXAMPLES)(exporting.export)
_recipe_command(epilog=chatting.EXAMPLES)(chatting.chat)
app.command(epilog=runs.EXAMPLES)(runs.runs)
app.command(epilog=watching.EXAMPLES)(watching.watch)
app.command(epilog=cleaning.EXAMPLES)(cleaning.clean)
app.add_typer(annotating.app, name="annotate")
app.command(epilog=doctor.EXAMPLES)(doctor.doctor)
app.command(epilog=new.EXAMPLES, no_args_is_help=True)(new.new)
app.command(cls=StartCommand, epilog=starting.EXAMPLES, no_args_is_help=True)(starting.init)


@app.callback()
def _top(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", is_eager=True, callback=lambda on: _version(on)
    ),
) -> None:
    pass


def _version(asked: bool) -> None:
    if asked:
        import fgrl

        echo(f"fgrl {fgrl.__version__}")
        raise typer.Exit


def _with_command(name: str) -> typer.Typer:
    """Return the application with only this command, or with all commands if there is no such command.

    typer builds every command before it parses a word, which takes a tenth of `fgrl validate`.
    """
    chosen = [
        info for info in app.registered_commands if info.callback and name == (info.name or info.callback.__name__)
    ]
    alone = copy(app)
    alone.registered_commands, alone.registered_groups = chosen, []
    return alone if chosen else app


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line. A user's mistake is explained and leads to its exit code; a bug leads to a traceback."""
    stops.end_with_parent()
    replies.expect()
    os.environ.setdefault(
        "PYDANTIC_DISABLE_PLUGINS", "__all__"
    )  # looking for them reads the metadata of every installed package
    arguments = sys.argv[1:] if arguments is None else arguments
    sys.excepthook = show_bug
    try:
        _with_command(next(iter(arguments), ""))(arguments, prog_name="fgrl")
    except Exception as error:
        sys.exit(fail(error, as_json="--json" in arguments))
    finally:
        gc.freeze()  # the interpreter's last search for garbage would go through every module
    sys.exit(0)

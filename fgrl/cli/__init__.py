"""The command line: parsing and printing only. stdout carries the result (with `--json` nothing else), stderr the rest.

Exit codes are those of `fgrl.errors`. One short file a command; nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from fgrl.cli import catalog, checking, compare, doctor, frontier, inspecting, new, report, running, table
from fgrl.cli.shared import fail

app = typer.Typer(
    name="fgrl",
    add_completion=False,
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
  fgrl run recipes/small/segment_ppo.yaml          run what is missing; after a kill: go on
  fgrl run R stages.policy.algorithm.kl_coef=0.1   change one value
  fgrl show ppo                                    fields of a component, with help
  fgrl COMMAND --help                              more examples
""",
)
running.add(app)
checking.add(app)
catalog.add(app)
inspecting.add(app)
table.add(app)
compare.add(app)
frontier.add(app)
report.add(app)
doctor.add(app)
new.add(app)


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

        typer.echo(f"fgrl {fgrl.__version__}")
        raise typer.Exit


def main(arguments: list[str] | None = None) -> NoReturn:
    """Entry point. A user's mistake is explained and exits with its code; a bug leaves with its traceback."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        app(arguments, prog_name="fgrl")
    except Exception as error:
        sys.exit(fail(error, as_json="--json" in arguments))
    sys.exit(0)

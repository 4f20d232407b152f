"""`fgrl annotate export`, `import` and `stats`: annotations as files and as numbers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from fgrl.base import lazy
from fgrl.base.visible import quantity
from fgrl.commands.shared import AsJson, echo, emit
from fgrl.pages.report.text_tables import columns

library = lazy.load("fgrl.library")
numbers = lazy.load("fgrl.pages.annotation.statistics")

EXPORT = """
\b
Examples:
  fgrl annotate export page.sqlite annotated.jsonl               samples with their annotations, which every reader takes
  fgrl annotate export page.sqlite tasks.json --format label-studio

\b
SOURCE is a store, or a JSONL file of annotated samples. With label-studio, OUT gets the tasks, and a file of the same name that ends
in .xml the labeling configuration of a project for them.
"""
IMPORT = """
\b
Examples:
  fgrl annotate import annotated.jsonl --store page.sqlite       add annotations to a store of the same samples
  fgrl annotate import tasks.json --out annotated.jsonl          Label Studio's JSON export as annotated samples

\b
FILE is a JSONL file of annotated samples, or a JSON export of Label Studio. A store that does not exist is created. Importing the
same file twice adds nothing.
"""
STATS = """
\b
Examples:
  fgrl annotate stats page.sqlite
  fgrl annotate stats full.sqlite ab_only.sqlite                 times of both settings of the page below each other
  fgrl annotate stats annotated.jsonl --json

\b
A source is a store, or a JSONL file of annotated samples; the same item in two sources counts as two items. N is the number of annotated responses, one for each annotator; H+ and
H- are liked and disliked spans. Intervals are bootstrapped over items.
"""


def export(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A store or a JSONL file.", show_default=False)],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.", show_default=False)],
    form: Annotated[Literal["jsonl", "label-studio"], typer.Option("--format", help="Format of OUT.")] = "jsonl",
    finished: Annotated[
        bool, typer.Option("--finished", help="Only items that the annotator has marked as done (of a store).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the annotated samples, or tasks for Label Studio."""
    exported = library.export_annotations(source, out, format=form, finished=finished)
    if as_json:
        emit(asdict(exported) | {"files": list(map(str, exported.files))})
        return
    for file in exported.files:
        echo(str(file))
    echo(f"{quantity(exported.items, 'item')}, {exported.annotated:,} of them with annotations", err=True)
    _say_skipped(exported.skipped)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Annotated samples.", show_default=False)],
    store: Annotated[
        Path | None, typer.Option("--store", metavar="FILE", help="Store to add to, or to create.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="JSONL file to write instead.")] = None,
    settings: Annotated[
        str | None,
        typer.Option("--settings", metavar="FILE", help="Settings of a new store's page (YAML), or a shipped name."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read annotated samples, or an export of Label Studio."""
    made = library.import_annotations(file, store=store, out=out, settings=settings)
    if as_json:
        emit(asdict(made) | {"place": str(made.place)})
        return
    new = " (new)" if made.created else ""
    added = "" if made.added is None else f", {made.added:,} of {made.revisions:,} revisions added"
    echo(f"{made.place}{new}: {quantity(made.items, 'item')}{added}")
    _say_skipped(made.skipped)


def stats(
    sources: Annotated[
        list[Path], typer.Argument(metavar="SOURCE...", help="Stores or JSONL files.", show_default=False)
    ],
    domain: Annotated[
        str | None, typer.Option("--domain", metavar="KEY", help="Entry of a sample's meta that names its domain.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print counts, times and agreement of annotators."""
    result = library.annotation_stats(sources, domain=domain)
    if as_json:
        emit(result.model_dump())
        return
    echo("\n\n".join(f"{title}\n{columns(rows)}" for title, rows in numbers.tables(result)))


def _say_skipped(count: int) -> None:
    if count:
        echo(f"skipped: {count:,} (spans, answers, critiques, verdicts or others that have no place there)", err=True)

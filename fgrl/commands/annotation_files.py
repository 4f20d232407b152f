"""`fgrl annotate export`, `import` and `stats`: what was annotated, as files and as numbers."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgrl.base import files, lazy
from fgrl.base.errors import DataError, UsageError
from fgrl.base.visible import quantity
from fgrl.commands.shared import AsJson, echo, emit
from fgrl.pages.report.text_tables import columns

if TYPE_CHECKING:
    from fgrl.feedback.page_settings import PageSettings
    from fgrl.types import Sample
exporting = lazy.load("fgrl.pages.annotation.export")
importing = lazy.load("fgrl.pages.annotation.importing")
label_studio = lazy.load("fgrl.pages.annotation.label_studio")
numbers = lazy.load("fgrl.pages.annotation.statistics")
page_settings = lazy.load("fgrl.feedback.page_settings")
stores = lazy.load("fgrl.pages.annotation.store")
types = lazy.load("fgrl.types")

SQLITE = b"SQLite format 3\x00"

EXPORT = """
\b
Examples:
  fgrl annotate export page.sqlite annotated.jsonl               samples with their annotations, which every reader takes
  fgrl annotate export page.sqlite copy.jsonl --revisions        a complete copy: `import` makes the same store of it
  fgrl annotate export page.sqlite tasks.json --format label-studio

\b
SOURCE is a store, or a JSONL file of annotated samples. With label-studio, OUT gets the tasks, and a file of the same name that ends
in .xml the labeling configuration of a project for them; what Label Studio has no place for is counted.
"""
IMPORT = """
\b
Examples:
  fgrl annotate import copy.jsonl --store new.sqlite             a store again, with every revision
  fgrl annotate import annotated.jsonl --store page.sqlite       add annotations to a store of the same samples
  fgrl annotate import tasks.json --out annotated.jsonl          Label Studio's JSON export as annotated samples

\b
FILE is a JSONL file of annotated samples, or a JSON export of Label Studio. A store that does not exist is created, with --settings
or the settings that the file contains. Importing the same file twice adds nothing.
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


class Format(StrEnum):
    """Formats of annotation files."""

    jsonl = "jsonl"
    label_studio = "label-studio"


class Units(StrEnum):
    """Units of offsets that are written."""

    code_points = "code_points"
    utf16 = "utf16"


class UnitsRead(StrEnum):
    """Units of offsets that are read."""

    auto = "auto"
    code_points = "code_points"
    utf16 = "utf16"


def export(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A store or a JSONL file.", show_default=False)],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.", show_default=False)],
    form: Annotated[Format, typer.Option("--format", help="Of OUT.")] = Format.jsonl,
    revisions: Annotated[
        bool, typer.Option("--revisions", help="With every revision and the settings of the page (jsonl, of a store).")
    ] = False,
    finished: Annotated[
        bool, typer.Option("--finished", help="Only items that the annotator has marked as done (of a store).")
    ] = False,
    offsets: Annotated[
        Units,
        typer.Option("--offsets", help="How label-studio counts characters; utf16 for versions of 2021 and earlier."),
    ] = Units.code_points,
    user: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="NAME=ID", help="Id of an annotator in Label Studio; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the annotated samples, or tasks for Label Studio."""
    if form is Format.label_studio and revisions:
        raise UsageError("--revisions: Label Studio has no place for revisions; use --format jsonl")
    written, notes = [out], ""
    if form is Format.label_studio:
        if out.suffix.lower() == ".xml":
            raise UsageError(
                f"{out}: the tasks are JSON; name OUT tasks.json, and tasks.xml gets the labeling configuration"
            )
        written.append(out.with_suffix(".xml"))
    for file in written:
        _keep(file, source)
    samples, settings, _names = _annotated(source, revisions=revisions, finished=finished)
    out.parent.mkdir(parents=True, exist_ok=True)
    if form is Format.jsonl:
        types.write_jsonl(out, samples)
    else:
        entries = {} if settings is None else {"document": settings.document, "query": settings.query}
        tasks, lost = label_studio.to_tasks(samples, **entries, offsets=offsets.value, users=_users(user))
        files.write_json(out, tasks)
        files.write_text(written[1], label_studio.labeling_config(samples, settings))
        notes = str(lost)
    annotated = sum(any(response.annotations for response in one.responses) or bool(one.verdicts) for one in samples)
    if as_json:
        emit({"files": list(map(str, written)), "items": len(samples), "annotated": annotated, "not kept": notes})
        return
    for file in written:
        echo(str(file))
    echo(f"{quantity(len(samples), 'item')}, {annotated:,} of them with annotations", err=True)
    if notes:
        echo(f"not kept: {notes}", err=True)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Annotated samples.", show_default=False)],
    store: Annotated[
        Path | None, typer.Option("--store", metavar="FILE", help="The store to add to, or to create.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Instead: a JSONL file to write.")] = None,
    settings: Annotated[
        str | None,
        typer.Option("--settings", metavar="FILE", help="Settings of a new store's page (YAML), or a shipped name."),
    ] = None,
    offsets: Annotated[
        UnitsRead, typer.Option("--offsets", help="How Label Studio counted characters; auto compares the quotes.")
    ] = UnitsRead.auto,
    as_json: AsJson = False,
) -> None:
    """Read annotated samples, or an export of Label Studio."""
    if (store is None) == (out is None):
        raise UsageError("wants either --store, a store of annotations, or --out, a JSONL file")
    if out is not None:
        _keep(out, file)
    samples, lost = _read(file, offsets.value)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        types.write_jsonl(out, samples)
        counted = {"items": len(samples), "not kept": str(lost)}
        line = f"{out}: {quantity(len(samples), 'item')}"
    else:
        assert store is not None
        own, created = _store(store, samples, settings)
        with own:
            result = importing.import_into(own, samples)
        lost.counts.update(result.not_kept.counts)
        counted = {"items": result.items, "revisions": result.revisions, "added": result.added, "not kept": str(lost)}
        line = (
            f"{store}{' (new)' if created else ''}: {result.added:,} of {result.revisions:,} revisions of "
            f"{result.items:,} items added"
        )
    if as_json:
        emit(counted)
        return
    echo(line)
    if str(lost):
        echo(f"not kept: {lost}", err=True)


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
    works: list[Any] = []
    for source in dict.fromkeys(source.resolve() for source in sources):
        samples, settings, names = _annotated(source)
        key = domain or (settings.domain if settings is not None else None)
        works += numbers.works(samples, key or "domain", source=str(source), of=names)
    result = numbers.statistics_of(works)
    if not result.works:
        raise DataError(f"{', '.join(map(str, sources))}: nobody has annotated anything yet")
    if as_json:
        emit(result.model_dump())
        return
    echo("\n\n".join(f"{title}\n{columns(rows)}" for title, rows in numbers.tables(result)))


def _annotated(
    source: Path, *, revisions: bool = False, finished: bool = False
) -> tuple[list[Sample], PageSettings | None, list[str] | None]:
    """Annotated samples of a store or a file, and where they are known the settings of the page and the annotators."""
    if _is_store(source):
        with stores.Store(source) as store:
            samples = list(exporting.exported(store, revisions=revisions, finished=finished))
            return samples, store.settings, store.annotators
    if revisions or finished:
        raise UsageError(f"{source}: --revisions and --finished need a store; this is a file of samples")
    samples = list(types.read_jsonl(source, types.Sample))
    return samples, importing.settings_of(samples), None


def _keep(out: Path, source: Path) -> None:
    """Raise `UsageError` where writing a file would destroy annotations."""
    if not out.is_file():
        return
    if source.exists() and out.samefile(source):
        raise UsageError(f"{out} is the file that is read; write to another file")
    if _is_store(out):
        raise UsageError(f"{out} is a store of annotations, which is never overwritten; write to another file")


def _is_store(source: Path) -> bool:
    try:
        with source.open("rb") as stream:
            return stream.read(len(SQLITE)) == SQLITE
    except OSError as error:
        raise DataError(f"{source}: {error.strerror or error}: wants a store or a JSONL file of samples") from None


def _read(file: Path, offsets: Any) -> tuple[list[Sample], Any]:
    """Return samples of our own file or of Label Studio's, and what was not understood."""
    if _is_store(file):
        raise UsageError(f"{file} is a store; `fgrl annotate export` comes first")
    with file.open("rb") as stream:
        start = stream.read(4096).decode("utf-8-sig", errors="ignore").lstrip()
    if start.startswith("["):
        return label_studio.from_tasks(label_studio.read_tasks(file), offsets=offsets)
    return list(types.read_jsonl(file, types.Sample)), importing.NotKept()


def _store(path: Path, samples: list[Sample], settings: str | None) -> tuple[Any, bool]:
    """Return the store to import into, and whether it was created."""
    if path.exists() and path.stat().st_size:
        if settings is not None:
            raise UsageError(f"--settings: {path} exists and has its own; `fgrl annotate serve` changes them")
        return stores.Store(path), False
    known = importing.settings_of(samples) if settings is None else None
    page = known if known is not None else page_settings.load_settings(settings or "retrieval")
    return importing.create_store(path, samples, page), True


def _users(pairs: list[str] | None) -> dict[str, int]:
    users = {}
    for pair in pairs or []:
        name, separator, number = pair.rpartition("=")
        if not separator or not number.isdecimal():
            raise UsageError(f"--user {json.dumps(pair)}: wants NAME=ID, as in --user ada=3")
        users[name] = int(number)
    return users

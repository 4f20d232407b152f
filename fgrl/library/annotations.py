"""Annotations by people: written to files, read back, and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fgrl.base import files, lazy
from fgrl.base.errors import DataError, UsageError
from fgrl.feedback.page_settings import PageSettings, load_settings
from fgrl.pages.annotation import label_studio
from fgrl.pages.annotation.statistics import Statistics, Work, statistics_of, works
from fgrl.types import Sample, read_jsonl, write_jsonl

exporting = lazy.load("fgrl.pages.annotation.export")
importing = lazy.load("fgrl.pages.annotation.importing")
stores = lazy.load("fgrl.pages.annotation.store")

SQLITE = b"SQLite format 3\x00"


@dataclass
class ExportedAnnotations:
    """Files of annotations that were written."""

    files: list[Path]
    items: int
    annotated: int
    """Number of items with an annotation or a verdict."""
    skipped: int = 0
    """Number of spans, answers, critiques and verdicts for which the format has no place."""


@dataclass
class ImportedAnnotations:
    """Annotations that were read."""

    place: Path
    """The store, or the file that was written."""
    items: int
    skipped: int
    """Number of spans, answers, critiques and verdicts for which the store or our format has no place."""
    revisions: int | None = None
    """Number of annotations as the store counts them; None for a file."""
    added: int | None = None
    """Number of these that the store did not have."""
    created: bool = False
    """True if the store is new."""


def export_annotations(
    source: Path | str, out: Path | str, *, format: Literal["jsonl", "label-studio"] = "jsonl", finished: bool = False
) -> ExportedAnnotations:
    """Write the annotated samples of a store, or of a JSONL file, as JSON lines or as tasks for Label Studio.

    With `label-studio`, a file of the same name that ends in .xml gets the labeling configuration. finished: only items
    that annotators have marked as done (of a store). Raises `UsageError` if a file of annotations would be overwritten.
    """
    source, out = Path(source), Path(out)
    written = [out]
    if format == "label-studio":
        if out.suffix.lower() == ".xml":
            raise UsageError(
                f"{out}: the tasks are JSON; name OUT tasks.json, and tasks.xml gets the labeling configuration"
            )
        written.append(out.with_suffix(".xml"))
    for file in written:
        _keep(file, source)
    samples, settings, _names = _annotated(source, finished=finished)
    out.parent.mkdir(parents=True, exist_ok=True)
    annotated = sum(any(response.annotations for response in one.responses) or bool(one.verdicts) for one in samples)
    exported = ExportedAnnotations(written, len(samples), annotated)
    if format == "jsonl":
        write_jsonl(out, samples)
        return exported
    entries = {} if settings is None else {"document": settings.document, "query": settings.query}
    tasks, exported.skipped = label_studio.to_tasks(samples, **entries)
    files.write_json(out, tasks)
    files.write_text(written[1], label_studio.labeling_config(samples, settings))
    return exported


def import_annotations(
    file: Path | str, *, store: Path | str | None = None, out: Path | str | None = None, settings: str | None = None
) -> ImportedAnnotations:
    """Read annotated samples, or Label Studio's JSON export, into a store (`store`) or a JSONL file (`out`).

    settings: settings of the page of a new store: a YAML file, or a shipped name. Raises `DataError` for a file that
    cannot be read, and for annotations that do not fit the store; nothing is added in this case.
    """
    file = Path(file)
    if (store is None) == (out is None):
        raise UsageError("wants either --store, a store of annotations, or --out, a JSONL file")
    if out is not None:
        _keep(Path(out), file)
    samples, skipped = _read(file)
    if store is None:
        place = Path(str(out))
        place.parent.mkdir(parents=True, exist_ok=True)
        write_jsonl(place, samples)
        return ImportedAnnotations(place, len(samples), skipped)
    place = Path(store)
    created = not place.exists() or not place.stat().st_size
    if created:
        bare = [importing.without_annotations(sample) for sample in samples]
        opened = stores.Store.create(place, bare, load_settings(settings or "retrieval"))
    elif settings is not None:
        raise UsageError(f"--settings: {place} exists and has its own; `fgrl annotate serve` changes them")
    else:
        opened = stores.Store(place)
    with opened as own:
        made = importing.import_into(own, samples)
    return ImportedAnnotations(place, made.items, skipped + made.skipped, made.revisions, made.added, created)


def annotation_stats(sources: Path | str | Sequence[Path | str], *, domain: str | None = None) -> Statistics:
    """Return counts, times and agreement of the annotators of stores and JSONL files.

    domain: entry of a sample's meta that names its domain; by default the one in the settings of the page. Raises
    `DataError` if there are no annotations.
    """
    given = [sources] if isinstance(sources, Path | str) else list(sources)
    found: list[Work] = []
    for source in dict.fromkeys(Path(each).resolve() for each in given):
        samples, settings, names = _annotated(source)
        key = domain or (settings.domain if settings is not None else "domain")
        found += works(samples, key, source=str(source), of=names)
    if not found:
        raise DataError(f"{', '.join(map(str, given))}: nobody has annotated anything yet")
    return statistics_of(found)


def _annotated(source: Path, *, finished: bool = False) -> tuple[list[Sample], PageSettings | None, list[str] | None]:
    """Return the annotated samples of a store or a file, and for a store the settings of the page and the
    annotators.
    """
    if _is_store(source):
        with stores.Store(source) as store:
            return list(exporting.exported(store, finished=finished)), store.settings, store.annotators
    if finished:
        raise UsageError(f"{source}: --finished needs a store; this is a file of samples")
    return list(read_jsonl(source, Sample)), None, None


def _keep(out: Path, source: Path) -> None:
    """Raise `UsageError` if writing a file would destroy annotations."""
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


def _read(file: Path) -> tuple[list[Sample], int]:
    """Return the samples of our own file or of Label Studio's, and the number of skipped entries."""
    if _is_store(file):
        raise UsageError(f"{file} is a store; `fgrl annotate export` comes first")
    with file.open("rb") as stream:
        start = stream.read(4096).decode("utf-8-sig", errors="ignore").lstrip()
    if start.startswith("["):
        return label_studio.from_tasks(label_studio.read_tasks(file))
    return list(read_jsonl(file, Sample)), 0

"""Table files with their finished runs: our numbers beside the published ones, curves and points for figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fgrl.base.errors import UsageError
from fgrl.experiments import recipe as recipes
from fgrl.experiments.recipe.tables import Column, Row, TableFile, read_table_file
from fgrl.library.named import NamedRecipe
from fgrl.library.words import read_sources
from fgrl.pages.annotation.statistics import Statistics, statistics
from fgrl.runs.reading import mapping
from fgrl.runs.results.comparing import RecipeNumber
from fgrl.runs.results.curves import Curve, curves_of
from fgrl.runs.results.differing import leaves
from fgrl.runs.results.evaluations import Evaluation, RecipeResults
from fgrl.runs.results.frontier import Frontier, frontier
from fgrl.runs.results.paper_table import Cell, PaperTable, TableRow, cell_of, derived_number, mark_best, measurement
from fgrl.runs.results.published import GROUP, Published, read_published
from fgrl.runs.results.table import evaluation_of, table_of
from fgrl.runs.run import Run
from fgrl.runs.source import Source
from fgrl.runs.stage import Stage
from fgrl.types import Sample, read_jsonl


@dataclass
class Place:
    """A row of a table file with its finished runs."""

    row: Row
    sources: dict[str, Source]
    """Sources by the recipe's name in the file, without recipes that wait for a value."""
    waiting: dict[str, str]
    """Values that recipes wait for, by the recipe's name."""

    @property
    def finished(self) -> list[Run]:
        return [finished for source in self.sources.values() for finished in source.by_seed().values()]


@dataclass
class OpenTable:
    """A table file, and its rows by name."""

    file: TableFile
    folder: Path
    places: dict[str, Place]
    annotations: Path | None = None
    """File with the annotations that are counted."""
    read: dict[Path, Evaluation] = field(default_factory=dict)

    def evaluation(self, stage: Stage) -> Evaluation:
        """Return the numbers of a stage; its file is read once. Raises `DataError`."""
        if stage.place not in self.read:
            self.read[stage.place] = evaluation_of(stage)
        return self.read[stage.place]

    @property
    def lacking(self) -> list[Run]:
        """Return the recipes of rows that lack a stage which the table reads."""
        every = {finished.command: finished for place in self.places.values() for finished in place.finished}
        return list(filter(self.unfinished, every.values()))

    @property
    def stages(self) -> list[str]:
        """Return the stages that the table or the figure reads."""
        numbers = [column.number for column in self.file.columns.values()]
        numbers += [number for row in self.file.rows.values() for number in row.numbers.values()]
        drawn = self.file.figure.stages if self.file.figure and self.file.figure.kind == "curves" else []
        return list(dict.fromkeys([*(number.partition("/")[0] for number in numbers if number), *drawn]))

    def unfinished(self, finished: Run) -> list[str]:
        """Return the stages of a recipe that the table reads and that have not run."""
        has = finished.stages if isinstance(finished, NamedRecipe) else ()
        return [name for name in self.stages if name in has and name not in finished.finished]


def open_table(
    path: Path, runs: Path, overrides: Sequence[str] = (), seeds: Sequence[int] = (), *, small: bool = False
) -> OpenTable:
    """Plan every row of a table file; nothing is run.

    overrides: overrides of all recipes, and `annotations=FILE`. A key that some recipes `need` is for these alone, and
    `stages.NAME...` for recipes that have the stage. seeds: seeds that replace the file's. Raises `Problems` of the
    file or a recipe, and `UsageError`.
    """
    table = read_table_file(path, small=small)
    files = [text.partition("=")[2] for text in overrides if _key(text) == "annotations"]
    overrides = [text for text in overrides if _key(text) != "annotations"]
    annotations = Path(files[-1]) if files else path.parent / table.annotations if table.annotations else None
    wanted = {key for keys in table.needs.values() for key in keys}
    planned: dict[tuple[str, ...], Source] = {}
    used: set[str] = set()

    def source(name: str, row: Row) -> Source:
        address = table.address(name, row, path.parent)
        key = (str(address), *row.set)
        if key not in planned:
            own = [text for text in overrides if _key(text) not in wanted or _key(text) in table.needs.get(name, ())]
            own = _of_its_stages(address, [*row.set, *own])
            used.update(own)
            (planned[key],) = read_sources([address], runs, own, list(seeds) or table.seeds)
        return planned[key]

    places = {}
    for title, row in table.rows.items():
        place = places[title] = Place(row, {}, {})
        for name in table.recipes_of(row):
            if absent := [key for key in table.needs.get(name, ()) if key not in map(_key, overrides)]:
                place.waiting[name] = f"needs {' '.join(f'{key}=...' for key in absent)}"
            else:
                place.sources[name] = source(name, row)
    if planned and (unused := [text for text in overrides if text not in used]):
        raise UsageError(f"{unused[0]}: no recipe of the table has this stage")
    return OpenTable(table, path.parent, places, annotations)


def _of_its_stages(address: Path, overrides: Sequence[str]) -> list[str]:
    """Return the overrides without those of stages that the recipe does not have."""
    if not any(text.startswith("stages.") for text in overrides):
        return list(overrides)
    plain = [text for text in overrides if not text.startswith("stages.")]
    known = recipes.load(address, plain).stages
    return [text for text in overrides if text in plain or text.split(".")[1].partition("=")[0] in known]


def paper_table(table: OpenTable) -> PaperTable:
    """Return our numbers and the published ones. Raises `DataError` if numbers cannot be read, and `UsageError` for a
    number that a finished evaluation does not have.
    """
    file = table.file
    published = read_published(file.published, table.folder) if file.published else None
    rows = {name: _table_row(name, table, published) for name in file.rows}
    made = PaperTable(about=file.about, columns=list(file.columns), rows=list(rows.values()))
    made.numbers = {name: text for name, column in file.columns.items() if (text := column.number or column.count)}
    every = [finished for place in table.places.values() for finished in place.finished]
    made.seeds = list(dict.fromkeys(finished.seed for finished in every))
    made.models = list(dict.fromkeys(base for finished in every for base in _bases(finished.settings)))
    counted = None if table.annotations is None else statistics(read_jsonl(table.annotations, Sample), resamples=1)
    for title, column in file.columns.items():
        if counted is not None and column.count is not None:
            _count(column, {name: row.cells[title] for name, row in rows.items()}, file, counted)
        made.notes += _fill(title, column, rows, table)
    _derive(rows, file)
    if published is not None:
        made.source = f"{published.title}, Table {published.number} ({published.table.where})"
        made.published_model, made.published_budget = published.table.model, published.table.budget
        made.notes += _unmatched(file, published)
    return made


def _table_row(name: str, table: OpenTable, published: Published | None) -> TableRow:
    place = table.places[name]
    printed = place.row.published if place.row.published is not None else name
    cells = {
        title: Cell(published=None if published is None else published.value(printed, column.published or title))
        for title, column in table.file.columns.items()
    }
    group, _, own = name.rpartition(GROUP) if published is None or name not in published.table.rows else ("", "", name)
    row = TableRow(group, own, "", place.row.model, cells, waiting=place.row.reason, x=place.row.x)
    if place.finished:
        row.recipe = ", ".join(str(source.path) for source in place.sources.values())
        row.commands = [finished.command for finished in place.finished if table.unfinished(finished)]
        row.budget = "; ".join(dict.fromkeys(filter(None, (_budget(finished.settings) for finished in place.finished))))
        if len(row.commands) == len(place.finished):
            row.waiting = "not run"
    elif place.row.domain is not None:
        row.waiting = "" if table.annotations else "needs annotations=FILE"
    elif not row.waiting:
        row.waiting = "; ".join(dict.fromkeys(place.waiting.values()))
    return row


def _fill(title: str, column: Column, rows: Mapping[str, TableRow], table: OpenTable) -> list[str]:
    """Set our numbers of a column, and mark the best. Return notes."""
    cells, measured, better = {}, {}, column.better
    for name, row in rows.items():
        place, own = table.places[name], table.places[name].row
        number = own.numbers.get(title, column.number)
        recipe = table.file.recipe_of(own, column) if table.file.recipes else ""
        if number is None or row.waiting or own.derived:
            continue
        if recipe in place.waiting:
            row.cells[title].missing = place.waiting[recipe]
            continue
        model = own.models.get(title, own.model)
        stage, runs = number.partition("/")[0], place.sources[recipe].by_seed()
        known = {str(seed): own.measured[stage] for seed, own in runs.items() if stage in own.measured}
        found = measurement({seed: {stage: table.evaluation(own)} for seed, own in known.items()}, number, model)
        if found is None:
            row.cells[title].missing = "not run"
            continue
        cell = cell_of(found, column.scale, f"no {number.partition('/')[2]} of {model}")
        cell.published = row.cells[title].published
        better = better or next((each.better for each in found.values()), None)
        row.cells[title] = cell
        cells[name], measured[name] = cell, found
    if better not in ("higher", "lower"):
        return []
    parts: dict[str, list[str]] = {}
    for name in cells:
        parts.setdefault(rows[name].group if table.file.best == "group" else "", []).append(name)
    whys = [mark_best({name: cells[name] for name in part}, measured, better) for part in parts.values()]
    return [f"{title}: none is marked: {why}" for why in whys if why]


def _derive(rows: Mapping[str, TableRow], file: TableFile) -> None:
    """Set the rows that are computed from other rows, if all of those have run."""
    for name, row in rows.items():
        if (derived := file.rows[name].derived) is None:
            continue
        for title, cell in row.cells.items():
            number = derived_number([rows[other].cells[title] for other in derived.of], derived.value)
            if number is not None:
                cell.ours, cell.over_seeds = number
        if not any(cell.ours for cell in row.cells.values()):
            row.waiting = "not run"


def _count(column: Column, cells: Mapping[str, Cell], file: TableFile, counted: Statistics) -> None:
    """Set a column to counts of annotations by domain."""
    domains = {name.lower(): own for name, own in counted.domains.items()} | {"total": counted.total}
    for name, cell in cells.items():
        domain = file.rows[name].domain
        if domain is not None and (own := domains.get(domain.lower())) is not None:
            cell.ours = RecipeNumber(mean=getattr(own, str(column.count)) * column.scale, seeds={})


def _unmatched(file: TableFile, published: Published) -> list[str]:
    """Return notes on rows and columns that only one side has."""
    printed = {column.published or title: title for title, column in file.columns.items()}
    without = [title for name, title in printed.items() if name not in published.table.columns]
    names = [row.published if row.published is not None else name for name, row in file.rows.items()]
    unknown = [name for name in names if name and name not in published.rows]
    left = [name for name in published.table.columns if name not in printed]
    left += [name for name in published.rows if name not in names]
    notes = [f"not in the paper's table: {', '.join([*without, *unknown])}"] if without or unknown else []
    return notes + ([f"only in the paper's table: {', '.join(left)}"] if left else [])


def _bases(data: Mapping[str, Any]) -> list[str]:
    """Return the models from which a recipe starts, without models that an endpoint serves."""
    return [
        value
        for path, value in leaves(data.get("stages", {})).items()
        if re.fullmatch(r"\w+\.(model|models\.\w+)(\.base)?", path) and isinstance(value, str) and "${out:" not in value
    ]


def _budget(data: Mapping[str, Any]) -> str:
    """Return the sizes of a recipe's trainings: `policy: iterations 16, batch_size 16, 32 responses in a rollout`."""
    parts = []
    for name, stage in data.get("stages", {}).items():
        train = mapping(mapping(stage).get("train"))
        length = [key for key in ("max_steps", "iterations", "epochs") if train.get(key) is not None][:1]
        sizes = [f"{key} {train[key]}" for key in (*length, "batch_size") if key in train]
        drawn = mapping(mapping(stage).get("rollout")).get("batch_size")
        sizes += [f"{drawn} responses in a rollout"] if drawn else []
        parts += [f"{name}: {', '.join(sizes)}"] if sizes else []
    return "; ".join(parts)


def _key(override: str) -> str:
    return override.partition("=")[0]


# -- figures -----------------------------------------------------------------------------------------------------------


def table_frontier(table: OpenTable) -> Frontier:
    """Return the second column against the first, for the rows that have run; a group is a series."""
    numbers = [column.number for column in table.file.columns.values()]
    if len(numbers) != 2 or None in numbers:
        raise UsageError("a frontier wants two columns with numbers: what it costs, and what is wanted")
    results = []
    for name, place in table.places.items():
        for run in place.finished:
            kept = {stage: table.evaluation(own) for stage, own in run.measured.items() if stage in table.stages}
            results.append(RecipeResults(name.partition(GROUP)[0], leaves(run.settings), kept))
    models = list(dict.fromkeys(place.row.model for place in table.places.values()))
    return frontier(table_of(results), str(numbers[0]), str(numbers[1]), models)


def table_curves(table: OpenTable, metric: str) -> list[Curve]:
    """Return a metric of the trainings of every row that logs it over their steps, with intervals over seeds.

    Raises `UsageError` if trainings have finished and none of them logs it.
    """
    assert table.file.figure is not None
    drawn: list[Curve] = []
    without: list[UsageError] = []
    for name, place in table.places.items():
        try:
            drawn += curves_of(name, {run.seed: run for run in place.finished}, metric, table.file.figure.stages)[0]
        except UsageError as error:
            without.append(error)
    if without and not drawn:
        raise without[0]
    return drawn

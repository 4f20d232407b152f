"""Table files: the recipes, models and numbers of a table or a figure of a paper, and its published numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from fgrl.base import files
from fgrl.base.errors import UsageError
from fgrl.registry import Settings
from fgrl.registry.explaining import nearby
from fgrl.registry.settings_file import Shelf, read_settings
from fgrl.registry.tree import TOO_LONG


class Column(Settings):
    """A column: a number of the evaluations of all rows."""

    number: str | None = None
    """Name of the number, `STAGE/METRIC.NUMBER`, as `fgrl table RECIPE` prints it; null: no evaluation has it, so only
    the published number is shown.
    """
    count: Literal["annotations", "likes", "dislikes", "attributes", "words"] | None = None
    """Item to count in the file of annotations, instead of a number."""
    scale: float = 1.0
    """Factor of our numbers, for a paper that prints percent."""
    better: Literal["higher", "lower", "neither"] | None = None
    """Values that are better; null: as the metric says."""
    recipe: str | None = None
    """Name of a recipe from `recipes`, instead of the rows' own; null: the rows' own."""
    published: str | None = None
    """Title in the paper; null: the title here."""

    @field_validator("number")
    @classmethod
    def _with_stage(cls, value: str | None) -> str | None:
        if value is not None and not all(value.partition("/")):
            raise ValueError("wants STAGE/METRIC.NUMBER")
        return value


class Derived(Settings):
    """A row that is computed from other rows of the table, column by column."""

    gain: str | None = None
    """Row whose change relative to `over` is computed, in percent."""
    over: str | None = None
    """Row that `gain` is compared with."""
    mean: list[str] = []
    """Rows whose mean is computed, instead of `gain` and `over`."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Derived:
        if bool(self.mean) == bool(self.gain and self.over):
            raise ValueError("wants `gain` and `over`, or `mean`")
        return self

    @property
    def of(self) -> list[str]:
        return self.mean or [str(self.gain), str(self.over)]

    def value(self, values: Sequence[float]) -> float | None:
        """Return the number of the row from the numbers of the rows `of`; None if it would divide by 0."""
        if self.mean:
            return math.fsum(values) / len(values)
        return 100 * (values[0] / values[1] - 1) if values[1] else None


class Row(Settings):
    """A row: a model that a recipe trains or measures."""

    recipe: str | None = None
    """Name of a recipe from `recipes`; null: the first recipe."""
    row: str | None = None
    """Row of that recipe; null: the recipe itself."""
    model: str = "policy"
    """Name of the model in its evaluations."""
    set: list[str] = []
    """Overrides of the recipe, `KEY=VALUE`."""
    numbers: dict[str, str | None] = {}
    """Names of numbers in this recipe, by column, if they differ from the column's; null: the recipe does not have the
    number.
    """
    models: dict[str, str] = {}
    """Names of models in the evaluation, by column, if they differ from `model`."""
    domain: str | None = None
    """Domain whose annotations are counted, or `total` for all domains, instead of a recipe."""
    derived: Derived | None = None
    """Other rows that it is computed from, instead of a recipe."""
    x: float | None = None
    """Place on the x axis of a figure."""
    reason: str = ""
    """Reason why there is no recipe for this row; only the published numbers are shown."""
    published: str | None = None
    """Name in the paper; null: the name here."""


class Figure(Settings):
    """A figure of the rows."""

    kind: Literal["lines", "bars", "frontier", "curves"]
    """Kind of figure. lines: each column against `x`, each in a figure. bars: rows side by side in each column.
    frontier: the second column against the first. curves: `metrics` of trainings over their steps, with bands over
    seeds.
    """
    x: str = ""
    """Title of the x axis."""
    y: str = ""
    """Title of the y axis; empty: the columns' titles."""
    metrics: list[str] = []
    """For curves: names of metrics in the logs of trainings; each is a figure."""
    stages: list[str] = ["policy"]
    """For curves: stages whose logs are read; each is a curve."""


class Smaller(Settings):
    """Changes for the small version of a table."""

    about: str
    """Description of the small version."""
    recipes: dict[str, str] = {}
    """Other files for the same names of recipes."""
    needs: dict[str, list[str]] = {}
    """Keys to set, instead of `needs` of the table."""
    columns: dict[str, Column] | None = None
    """Columns of our numbers, instead of all columns; null: the same columns."""
    rows: dict[str, Row | None] = {}
    """Rows that replace rows of the same names; null removes a row."""
    annotations: str | None = None
    """File of annotations, instead of the table's file."""
    seeds: list[int] | None = None
    """Seeds of every row, instead of the table's seeds; null: the same seeds."""
    figure: Figure | None = None
    """Figure, instead of the table's figure; null: the same figure."""


class TableFile(Settings):
    """A table or a figure of a paper."""

    about: str
    """Description of the table."""
    published: str | None = None
    """`FILE::TABLE` of the published numbers; null: there are none."""
    recipes: dict[str, str] = {}
    """`FILE` or `FILE::ROW` by the names that rows and columns use; files are relative to this one."""
    needs: dict[str, list[str]] = {}
    """Keys that only you can set, on the command line, by the name of the recipe (`vars.annotations`)."""
    annotations: str | None = None
    """File of JSON lines with annotations, for columns with `count`; null: `annotations=FILE` on the command line."""
    seeds: list[int] = []
    """Seeds of every row; empty: each recipe's own seed."""
    best: Literal["table", "group"] = "table"
    """Rows among which the best is looked for: the whole table, or each group."""
    columns: dict[str, Column] = {}
    """Columns by their titles in the paper."""
    rows: dict[str, Row] = Field(min_length=1)
    """Rows by their names in the paper, `GROUP / ROW` in a group."""
    figure: Figure | None = None
    """Figure of the rows; null: it is a table."""
    small: Smaller | None = None
    """Version of the table with small models; null: there is none."""

    @model_validator(mode="after")
    def _consistent(self) -> TableFile:
        self._check()
        if self.small is not None:
            self.smaller()._check("small: ")
        return self

    def _check(self, where: str = "") -> None:
        """Raise ValueError for a name of a recipe or a column that does not exist."""
        for column in self.columns.values():
            if column.recipe is not None and column.recipe not in self.recipes:
                raise ValueError(f'{where}columns: "{column.recipe}" is not among `recipes`')
        for name, row in self.rows.items():
            if row.recipe is not None and row.recipe not in self.recipes:
                raise ValueError(f'{where}rows.{name}: "{row.recipe}" is not among `recipes`')
            if not row.reason and row.domain is None and not self.recipes:
                raise ValueError(f"{where}rows.{name}: wants a recipe, a domain or a reason")
            for other in row.derived.of if row.derived else []:
                if other not in self.rows or self.rows[other].derived:
                    raise ValueError(f'{where}rows.{name}: "{other}" is no row that has numbers of its own')
        known = {*self.columns, *((self.small.columns or {}) if self.small else {})}
        for name, row in self.rows.items():
            for title in (*row.numbers, *row.models):
                if not where and title not in known:
                    raise ValueError(f'rows.{name}: no column "{title}"')

    def smaller(self) -> TableFile:
        """Return the small version. Raises `UsageError` if there is none."""
        if (small := self.small) is None:
            raise UsageError("it has no small version (`small`)")
        rows = {name: row for name, row in (self.rows | small.rows).items() if row is not None}
        changed: dict[str, Any] = {
            "about": small.about,
            "recipes": self.recipes | small.recipes,
            "needs": small.needs,
            "rows": rows,
            "small": None,
        }
        for name in ("columns", "seeds", "figure", "annotations"):
            if (value := getattr(small, name)) is not None:
                changed[name] = value
        if self.published and small.columns is not None:  # the paper's numbers stay, without ours
            left = {title: Column(published=column.published) for title, column in self.columns.items()}
            changed["columns"] = small.columns | {title: left[title] for title in left if title not in small.columns}
        return self.model_copy(update=changed)

    def recipe_of(self, row: Row, column: Column | None = None) -> str:
        """Return the name of the recipe of a row, or of its cell in a column."""
        return (column.recipe if column else None) or row.recipe or next(iter(self.recipes))

    def recipes_of(self, row: Row) -> list[str]:
        """Return the names of all recipes of a row; empty if it has none."""
        used = [self.recipe_of(row, column) for column in self.columns.values() if column.number is not None]
        if row.reason or row.derived or row.domain is not None:
            return []
        return list(dict.fromkeys(used or [self.recipe_of(row)]))

    def address(self, recipe: str, row: Row, folder: Path) -> Path:
        """Return a recipe of a row; `folder` is the folder of this file."""
        file = nearby(folder / self.recipes[recipe])
        return Path(f"{file}::{row.row}" if row.row else file)

    def sweep(self, folder: Path, seeds: Sequence[int] = ()) -> str:
        """Return the sweep (YAML, as W&B and `fgrl sweep` read it) that runs every row with every seed.

        Raises `UsageError` where rows have overrides of their own, which no grid of recipes has.
        """
        if self.needs or any(row.set for row in self.rows.values()):
            raise UsageError("rows with `set` or `needs` are no grid of recipes: --run runs them")
        used = [(name, row) for row in self.rows.values() for name in self.recipes_of(row)]
        addresses = list(dict.fromkeys(str(self.address(name, row, folder)) for name, row in used))
        parameters: dict[str, Any] = {"recipe": {"values": addresses}}
        if chosen := list(seeds or self.seeds):
            parameters["seed"] = {"values": chosen}
        command = ["${program}", "run", addresses[0], "${args_no_hyphens}"]
        sweep = {"program": "fgrl", "command": command, "method": "grid", "parameters": parameters}
        return str(yaml.safe_dump(sweep, sort_keys=False, width=1000)).rstrip()


def is_table_file(path: Path) -> bool:
    """Return True if a file looks like a table file: YAML with `rows`, with `columns` or `figure`, and without stages."""
    if path.suffix not in (".yaml", ".yml") or not files.is_file(path):
        return False
    with path.open(encoding="utf-8", errors="replace") as stream:
        keys = set(re.findall(r"^(\w+):", stream.read(TOO_LONG), re.MULTILINE))
    return "rows" in keys and bool(keys & {"columns", "figure"}) and not keys & {"stages", "extends"}


def read_table_file(path: Path, *, small: bool = False) -> TableFile:
    """Return the content of a table file. Raises `Problems` with every mistake, and `UsageError` if a small version is
    wanted and there is none.
    """
    table = read_settings(TableFile, str(path), Shelf(path.parent, "a table"))
    return table.smaller() if small else table

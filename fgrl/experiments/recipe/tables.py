"""Table files: which recipes, models and numbers make a table or a figure of a paper, and its published numbers."""

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
    """A column: a number that an evaluation of every row has."""

    number: str | None = None
    """`STAGE/METRIC.NUMBER`, as `fgrl table RECIPE` prints it; null: no evaluation has it, the published one stands alone."""
    count: Literal["annotations", "likes", "dislikes", "attributes", "words"] | None = None
    """What is counted in the file of annotations, instead of a number."""
    scale: float = 1.0
    """Factor of our numbers, for a paper that prints percent."""
    better: Literal["higher", "lower", "neither"] | None = None
    """Which values are better; null: as the metric says."""
    recipe: str | None = None
    """A name from `recipes`, instead of the rows' own; null: theirs."""
    published: str | None = None
    """Title in the paper; null: the same."""

    @field_validator("number")
    @classmethod
    def _with_stage(cls, value: str | None) -> str | None:
        if value is not None and not all(value.partition("/")):
            raise ValueError("wants STAGE/METRIC.NUMBER")
        return value


class Derived(Settings):
    """A row that is computed from other rows of the table, column by column."""

    gain: str | None = None
    """The row whose change relative to `over`, in percent, it is."""
    over: str | None = None
    """The row that `gain` is compared with."""
    mean: list[str] = []
    """Instead of both: the rows whose mean it is."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Derived:
        if bool(self.mean) == bool(self.gain and self.over):
            raise ValueError("wants `gain` and `over`, or `mean`")
        return self

    @property
    def of(self) -> list[str]:
        return self.mean or [str(self.gain), str(self.over)]

    def value(self, values: Sequence[float]) -> float | None:
        """Return its number, of those of the rows `of`; None where it would divide by 0."""
        if self.mean:
            return math.fsum(values) / len(values)
        return 100 * (values[0] / values[1] - 1) if values[1] else None


class Row(Settings):
    """A row: a model that a recipe trains or measures."""

    recipe: str | None = None
    """A name from `recipes`; null: the first."""
    row: str | None = None
    """Row of that recipe; null: the recipe itself."""
    model: str = "policy"
    """The model in its evaluations."""
    set: list[str] = []
    """Overrides of the recipe, `KEY=VALUE`."""
    numbers: dict[str, str | None] = {}
    """Numbers of columns that have another name in this recipe; null: it does not have the number."""
    models: dict[str, str] = {}
    """Models of columns whose evaluation calls it otherwise."""
    domain: str | None = None
    """Domain whose annotations are counted, `total` for all of them, instead of a recipe."""
    derived: Derived | None = None
    """Other rows that it is computed from, instead of a recipe."""
    x: float | None = None
    """Place on the axis of a figure."""
    reason: str = ""
    """Why there is no recipe for this row; the published numbers stand alone."""
    published: str | None = None
    """Name in the paper; null: the same."""


class Figure(Settings):
    """How the rows are drawn."""

    kind: Literal["lines", "bars", "frontier", "curves"]
    """lines: each column against `x`, each in a figure. bars: rows side by side in each column. frontier: the second column against the
    first. curves: `metrics` of trainings over their steps, with bands over seeds.
    """
    x: str = ""
    """Title of the axis across."""
    y: str = ""
    """Title of the axis upwards; empty: the columns' titles."""
    metrics: list[str] = []
    """Of curves: names in the logs of trainings; each is a figure."""
    stages: list[str] = ["policy"]
    """Of curves: whose logs are read; each is a curve."""


class Smaller(Settings):
    """What the small version of a table changes."""

    about: str
    """What it shows."""
    recipes: dict[str, str] = {}
    """Other files under the same names."""
    needs: dict[str, list[str]] = {}
    """Instead of `needs`."""
    columns: dict[str, Column] | None = None
    """Numbers of ours, instead of all columns; null: the same."""
    rows: dict[str, Row | None] = {}
    """Instead of rows of the same names; null leaves one out."""
    annotations: str | None = None
    """Instead of the file of annotations."""
    seeds: list[int] | None = None
    """Instead of the seeds; null: the same."""
    figure: Figure | None = None
    """Instead of the figure; null: the same."""


class TableFile(Settings):
    """A table or a figure of a paper."""

    about: str
    """What it shows."""
    published: str | None = None
    """`FILE::TABLE` of the published numbers; null: there are none."""
    recipes: dict[str, str] = {}
    """`FILE` or `FILE::ROW` by the names that rows and columns use; files are relative to this one."""
    needs: dict[str, list[str]] = {}
    """By name of a recipe the keys that only you can set, on the command line (`vars.annotations`)."""
    annotations: str | None = None
    """JSON lines with annotations, of which columns `count` something; null: `annotations=FILE` on the command line."""
    seeds: list[int] = []
    """Of every row; empty: each recipe's own."""
    best: Literal["table", "group"] = "table"
    """Whether the best row is looked for among all rows or in each group."""
    columns: dict[str, Column] = {}
    """By their titles in the paper."""
    rows: dict[str, Row] = Field(min_length=1)
    """By their names in the paper, `GROUP / ROW` in a group."""
    figure: Figure | None = None
    """How it is drawn; null: it is a table."""
    small: Smaller | None = None
    """The same on small models; null: there is none."""

    @model_validator(mode="after")
    def _consistent(self) -> TableFile:
        self._check()
        if self.small is not None:
            self.smaller()._check("small: ")
        return self

    def _check(self, where: str = "") -> None:
        """Raise ValueError for a name of a recipe or a column that there is not."""
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
        """Return the small version. Raises `UsageError` where there is none."""
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
        """Return the names of all recipes of a row; empty where it has none."""
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
    """Raise `Problems` with every mistake, and `UsageError` where a small version is wanted and there is none."""
    table = read_settings(TableFile, str(path), Shelf(path.parent, "a table"))
    return table.smaller() if small else table

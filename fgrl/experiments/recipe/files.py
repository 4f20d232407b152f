"""Reading a recipe's file and the files that it extends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import reduce
from pathlib import Path
from typing import Any

from fgrl.base import files, foreign
from fgrl.experiments.recipe.merging import ROW, TOP, merge
from fgrl.registry.annotations import described
from fgrl.registry.context import FAILED
from fgrl.registry.explaining import nearby
from fgrl.registry.problems import Key, Place, Problem, Problems, alternatives, nearest
from fgrl.registry.tree import Tree
from fgrl.registry.yaml_files import read_tree
from fgrl.runs.folders import RESERVED

ROW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
SEPARATOR = "::"
"""Separator between a recipe's file and the name of one of its rows: `recipes/rtt_qwen3.yaml::aon`."""
OTHER_RECIPE, OTHER_ROW = "recipe", "row"
"""Names of overrides that choose another recipe or row, instead of changing a value."""
_KINDS = (("about", str, "str"), ("vars", dict, "a mapping of variables"), ("stages", dict, "a mapping of stages"))
"""Types that are checked in each layer, since a wrong value cannot be merged or would hide inherited values; with words
for them.
"""
_ENTRIES = "write entries, name: ..., without the dashes or brackets of a list"


@dataclass(frozen=True)
class Address:
    """A recipe's file and the name of one of its rows (None: the file's own recipe)."""

    file: Path
    row: str | None = None

    @classmethod
    def parse(cls, text: Path | str) -> Address:
        file, separator, row = str(text).partition(SEPARATOR)
        return cls(Path(file), row if separator else None)

    def __str__(self) -> str:
        return str(self.file) if self.row is None else f"{self.file}{SEPARATOR}{self.row}"

    def resolved(self) -> Address:
        return Address(self.file.resolve(), self.row)

    @property
    def name(self) -> str:
        return self.file.name if self.row is None else f"{self.file.name}{SEPARATOR}{self.row}"


def recipe_name(address: Path | str) -> str:
    """Return a recipe's folder below `runs/`: its place below the nearest folder called `recipes`, else its file name.

    `recipes/small/dpo.yaml` is `small-dpo`, `dpo.yaml` is `dpo`, and its row `dpo.yaml::phi3` is `dpo-phi3`. It never
    begins with a dot: `...yaml` would lie beside the runs folder.
    """
    recipe = Address.parse(address)
    file = recipe.file.resolve()
    above = file.parent.parts
    first = len(above) - above[::-1].index("recipes") if "recipes" in above else len(above)
    rows = [] if recipe.row is None else [recipe.row.replace("/", "-")]
    name = "-".join([*above[first:], file.stem, *rows]).lstrip(".-") or "recipe"
    return f"{name}-recipe" if name in RESERVED else name


def read(address: Address) -> tuple[Tree | None, list[Tree], list[Problem]]:
    """Return (the merged recipe, each layer's own tree with the strongest (the recipe itself) first, problems).

    The merged recipe is None if a file is missing or is not YAML: then nothing can be reported about it.
    """
    reading = _Reading()
    layers = reading.layers(Address(files.expanded(address.file), address.row))
    if layers is None:
        return None, [], reading.problems
    merged = reduce(lambda below, above: merge(below, above), reversed(layers))
    entries = {key: inner for key, inner in merged.children.items() if key not in ("extends", "rows")}
    return Tree(entries, merged.place), layers, reading.problems


def chosen(address: Address, overrides: Sequence[str]) -> tuple[Address, list[str]]:
    """Return the recipe that is meant, which `recipe=FILE[::ROW]` or `row=ROW` among the overrides may change, and the
    other overrides. `row=null` is the file's own recipe.
    """
    other, rest = {OTHER_RECIPE: str(address), OTHER_ROW: ""}, []
    for text in overrides:
        name, _, value = text.partition("=")
        if name in other and value.strip():
            other[name] = value.strip()
        else:
            rest.append(text)
    address = Address.parse(other[OTHER_RECIPE])
    if row := other[OTHER_ROW]:
        address = Address(address.file, None if row in ("null", "None") else row)
    return address, rest


def expand(text: Path | str) -> list[str]:
    """Return the addresses that an address with a pattern stands for (`FILE::ngram*`, `FILE::*`), in the file's order;
    any other address is returned alone.

    Raises `Problems` if the file cannot be read or no row fits.
    """
    address = Address.parse(text)
    if address.row is None or not _is_pattern(address.row):
        return [str(text)]
    known = rows(address.file)
    fitting = [name for name in known if fnmatchcase(name, address.row)]
    if not fitting:
        raise Problems(
            [Problem((), f'{nearby(address.file)} has no row "{address.row}"', f"rows: {', '.join(known) or 'none'}")]
        )
    return [str(Address(address.file, name)) for name in fitting]


def meant(file: Path) -> Path | None:
    """Return the probable meaning of a recipe's file that does not exist: a file with a similar name, or `FILE::ROW`."""
    text, colon, row = str(file).rpartition(":")
    if colon and files.is_file(text):
        return Path(f"{text}{SEPARATOR}{row}")
    recipes = [name for name in files.names_in(file.parent) if name.endswith((".yaml", ".yml"))]
    near = nearest(file.name if file.suffix else f"{file.name}.yaml", recipes)
    return None if near is None else file.with_name(near)


def _is_pattern(row: str) -> bool:
    return bool(set(row) & set("*?["))


def rows(file: Path) -> list[str]:
    """Return the names of the rows of a recipe's file, inherited rows first. Raises `Problems` if it cannot be read."""
    reading = _Reading()
    source = Address(files.expanded(file))
    if reading.layers(source) is None:
        raise Problems(reading.problems)
    return reading.rows(source.file.resolve())


@dataclass(frozen=True)
class _File:
    """Content of a single file."""

    tree: Tree
    parent: Address | None = None
    """Recipe that it extends."""

    @property
    def extends(self) -> Place:
        """Place where it names that recipe."""
        return self.tree.children["extends"].place

    @property
    def rows(self) -> dict[str, Tree]:
        return self.tree.under("rows")


class _Reading:
    """Reader of every file, each once, and of the order in which files and rows lie over each other."""

    def __init__(self) -> None:
        self.files: dict[Path, _File | None] = {}
        self.orders: dict[Address, list[str]] = {}
        self.problems: list[Problem] = []

    def layers(self, source: Address, named: Place | None = None, below: tuple[Address, ...] = ()) -> list[Tree] | None:
        """Return the trees that a recipe consists of, the strongest first; None if one of them cannot be read.

        A row lies over the rows that it extends, the last of them first, and these over the file; each row over the
        row of the same name in the files that its file extends. `named` is where another recipe names this one.
        """
        source = source.resolved()
        if source.file not in self.files:
            self.files[source.file] = self._read(source.file, named)
        file = self.files[source.file]
        if file is None or self._is_endless(source, below, named or file.tree.place):
            return None
        below = (*below, source)
        if source.row is not None:
            whole = self.layers(Address(source.file), named, below)
            order: list[str] | None = None if whole is None else self._order(source, file, named, ())
            if whole is None or order is None:
                return None
            own = [each.rows[row] for row in reversed(order) for each in self._family(source.file) if row in each.rows]
            return [*own, *whole] if source.row in file.rows else [Tree({}, file.tree.place), *own, *whole]
        if "extends" not in file.tree.children:
            return [file.tree]
        above = None if file.parent is None else self.layers(file.parent, file.extends, below)
        return None if above is None else [file.tree, *above]

    def rows(self, file: Path) -> list[str]:
        """Return the names of the rows of a file that was read, inherited rows first."""
        return list(dict.fromkeys(name for each in reversed(self._family(file)) for name in each.rows))

    def _family(self, path: Path) -> list[_File]:
        """Return a file and the files whose rows it inherits. A file that extends a single row inherits no other."""
        family: list[_File] = []
        while (file := self.files[path]) is not None:
            family.append(file)
            if file.parent is None or file.parent.row is not None:
                break
            path = file.parent.file
        return family

    def _order(self, source: Address, file: _File, named: Place | None, below: tuple[Address, ...]) -> Any:
        """Return a row after all the rows that it extends; None if one of them cannot be read."""
        row, known = str(source.row), self.rows(source.file)
        if row not in known:
            return self._no_row(
                row, source.file, named or file.tree.children.get("rows", file.tree).place, named, below
            )
        own = [each.rows[row] for each in reversed(self._family(source.file)) if row in each.rows]
        if source in self.orders or self._is_endless(source, below, named or own[-1].place):
            return self.orders.get(source)
        order: list[str] = []
        extended = {str(item.value): item.place for tree in own for item in self._rows_named(tree)}
        for name, place in extended.items():
            if name in order:
                heir = next(other for other in extended if other in order)
                return self._problem(f"{name} must come before {heir}, which extends it", place)
            inner: list[str] | None = self._order(Address(source.file, name), file, place, (*below, source))
            if inner is None:
                return None
            order += [other for other in inner if other not in order]
        if len(own) == 1 and own[0].get("about") is None:
            hint = 'a row says what it is for: about: "..."'
            self._problem("missing; wants str", own[0].place, hint, ("rows", row, "about"))
        self.orders[source] = [*order, row]
        return self.orders[source]

    def _no_row(self, row: str, file: Path, place: Place, named: Place | None, below: tuple[Address, ...]) -> Any:
        message = f'{nearby(file)} has no row "{row}"'
        if _is_pattern(row):
            message += "; one recipe is wanted here, and not a pattern"
        known = self.rows(file)
        hint = alternatives(row, known) if known else "it has none"
        if below and SEPARATOR in row:
            hint = "a row extends rows of its own file, inherited ones too"
        return self._problem(message, place, hint, ("extends",) if named else ())

    def _rows_named(self, row: Tree) -> list[Tree]:
        """Return the rows that a row extends; anything except names is a problem."""
        extends = row.get("extends")
        items = [] if extends is None else extends.value if isinstance(extends.value, list) else [extends]
        for item in items:
            if not _is_name(item) and item.value is not FAILED:
                self._problem(f"wants the name of a row or a list of names, got {described(item.plain())}", item.place)
        return [item for item in items if _is_name(item)]

    def _read(self, path: Path, named: Place | None) -> _File | None:
        wants = f"a recipe (a mapping with {', '.join(TOP)})"
        tree, problems = read_tree(
            path, len(self.files), "a recipe", wants, named, _similar, "a recipe begins with `about:`"
        )
        self.problems += problems
        entries = None if tree is None else _top(tree, self.problems)
        if tree is None or entries is None:
            return None
        tree = Tree(entries, tree.place)
        extends = entries.get("extends")
        if extends is not None and _is_name(extends) and "\0" not in str(extends.value):
            address = Address.parse(str(extends.value))
            return _File(tree, Address(path.parent / files.expanded(address.file), address.row).resolved())
        if extends is not None and extends.value is not FAILED:
            hint = "a recipe extends one file, or one row of a file" if isinstance(extends.value, list) else None
            self._problem(f"wants a file, got {described(extends.plain())}", extends.place, hint)
        return _File(tree)

    def _is_endless(self, source: Address, below: tuple[Address, ...], place: Place) -> bool:
        """Report a recipe that refers to itself."""
        if source in below:
            circle = [*below[below.index(source) :], source]
            self._problem(f"refers to itself: {' -> '.join(address.name for address in circle)}", place)
        return source in below

    def _problem(self, message: str, place: Place, hint: str | None = None, path: Key = ("extends",)) -> Any:
        """Report a problem. Return None for the value with the problem; the type is Any, so that every caller can
        return it.
        """
        problem = Problem(path, message, hint, place)
        self.problems += [] if problem in self.problems else [problem]


def _similar(file: Path) -> str | None:
    near = meant(file)
    return None if near is None else f'did you mean "{nearby(near)}"?'


def _is_name(tree: Tree) -> bool:
    return isinstance(tree.value, str) and bool(tree.value.strip())


def _top(tree: Tree, problems: list[Problem]) -> dict[str, Tree] | None:
    """Return the entries of one file: known keys, `about`, mappings where mappings are required; the rows are checked
    in the same way.

    None if the entries cannot be merged with others.
    """
    entries, readable = _layer(tree, TOP, "a recipe", (), problems)
    if "about" not in entries:
        hint = 'the first key says what the recipe is for: about: "..."'
        problems.append(Problem(("about",), "missing; wants str", hint, tree.place))
    if "rows" in entries:
        entries["rows"] = _rows(entries["rows"], problems)
    return entries if readable else None


def _rows(tree: Tree, problems: list[Problem]) -> Tree:
    """Return the rows of one file, without rows that cannot be read."""
    if tree.value is not None and tree.value is not FAILED and not isinstance(tree.value, dict):
        wrong = f"wants a mapping of rows, got {described(tree.plain())}"
        problems.append(Problem(("rows",), wrong, _ENTRIES if isinstance(tree.value, list) else None, tree.place))
    rows: dict[str, Tree] = {}
    for name, row in tree.children.items():
        message: str | None = None
        if not ROW_NAME.fullmatch(name):
            message = f'"{name}" cannot be the name of a row; use at most 100 letters, digits, _ . and -'
        elif isinstance(row.value, dict):
            entries, readable = _layer(row, ROW, "a row", ("rows", name), problems)
            rows |= {name: Tree(entries, row.place)} if readable else {}
        elif row.value is not FAILED:
            message = f"wants a row (a mapping with {', '.join(ROW)}), got {described(row.plain())}"
        if message is not None:
            problems.append(Problem(("rows", name), message, None, row.place))
    return Tree(rows, tree.place)


def _moved(key: str, tree: Tree) -> str:
    """Return the place where a key belongs that is not a key of a recipe."""
    if "name" in tree.children:
        return f"a stage is written below stages, 2 spaces further in: stages.{key}  "
    meant = foreign.elsewhere(key)
    return f"{meant}  " if meant else ""


def _layer(
    tree: Tree, known: Sequence[str], what: str, path: Key, problems: list[Problem]
) -> tuple[dict[str, Tree], bool]:
    """Return the entries of a recipe or a row, and True if they can be merged with others.

    A misspelled key is reported and then used under the name that was meant, so that one mistake stays one problem.
    """
    entries: dict[str, Tree] = {}
    for key, inner in tree.children.items():
        meant: str | None = key
        if key not in known:
            free = [name for name in known if name not in tree.children]
            meant = foreign.among(key, free) or nearest(key, free)
            message = f'unknown key "{key}" of {what}'
            before = "" if meant else _moved(key, inner)
            problems.append(Problem((*path, key), message, alternatives(meant, known, before=before), inner.place))
        entries[meant or key] = inner
    readable = True
    for key, kind, words in _KINDS:
        part = entries.get(key)
        if part is None or isinstance(part.value, kind) or (part.value is None and key != "about"):
            continue
        entries[key] = Tree(FAILED, part.place)
        readable = readable and key == "about"
        if part.value is not FAILED:
            wrong = f"wants {words}, got {described(part.plain())}"
            hint = _ENTRIES if isinstance(part.value, list) else None
            problems.append(Problem((*path, key), wrong, hint, part.place))
    return entries, readable

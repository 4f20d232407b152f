"""Reading a recipe's file and the ones that it extends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from fgrl import files
from fgrl.recipe.merging import ROW, TOP, merge
from fgrl.registry.annotations import described
from fgrl.registry.context import FAILED
from fgrl.registry.explaining import nearby
from fgrl.registry.problems import Key, Place, Problem, Problems, alternatives, nearest
from fgrl.registry.tree import TOO_LONG, Text, Tree, parse

ROW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
SEPARATOR = "::"
"""Between a recipe's file and the name of one of its rows: `recipes/rtt_qwen3.yaml::aon`."""
_MOST_BELOW = 60


@dataclass(frozen=True)
class Address:
    """A recipe's file, and which of its rows is meant (None: the file's own recipe)."""

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


def read(address: Address) -> tuple[Tree | None, list[Tree], list[Problem]]:
    """(the merged recipe, each layer's own tree with the strongest (the recipe itself) first, problems).

    The merged recipe is None when nothing can be reported about it: a file is missing or is no YAML.
    """
    reading = _Reading()
    order = reading.lineage(Address(files.expanded(address.file), address.row), None, [])
    if order is None:
        return None, [], reading.problems
    layers = [reading.layer(source) for source in order]
    merged = layers[-1]
    for layer in reversed(layers[:-1]):
        merged = merge(merged, layer)
    entries = {key: inner for key, inner in merged.children.items() if key not in ("extends", "rows")}
    return Tree(entries, merged.place), layers, reading.problems


def expand(text: Path | str) -> list[str]:
    """The addresses that one with a pattern stands for (`FILE::ngram*`, `FILE::*`), in the file's order; any other is itself.

    Raises `Problems` when the file cannot be read or no row fits.
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
    """What was probably meant by a recipe's file that does not exist: one with a similar name, or `FILE::ROW`."""
    text, colon, row = str(file).rpartition(":")
    if colon and files.is_file(text):
        return Path(f"{text}{SEPARATOR}{row}")
    recipes = [name for name in files.names_in(file.parent) if name.endswith((".yaml", ".yml"))]
    near = nearest(file.name if file.suffix else f"{file.name}.yaml", recipes)
    return None if near is None else file.with_name(near)


def _is_pattern(row: str) -> bool:
    return bool(set(row) & set("*?["))


def rows(file: Path) -> list[str]:
    """Names of the rows that a recipe's file has, inherited ones first. Raises `Problems` when it cannot be read."""
    reading = _Reading()
    source = Address(files.expanded(file))
    if reading.lineage(source, None, []) is None:
        raise Problems(reading.problems)
    return reading.rows(source.file.resolve())


@dataclass
class _File:
    """One file by itself."""

    tree: Tree
    extends: list[tuple[Address | None, Place]]
    """The recipes that its `extends` names, the weakest first; None for what names no file."""

    @property
    def rows(self) -> dict[str, Tree]:
        rows = self.tree.get("rows")
        return {} if rows is None else rows.children

    @property
    def inherited(self) -> list[Path]:
        """The files whose rows it inherits. Who extends a single row inherits no other."""
        return list(
            dict.fromkeys(parent.file for parent, _ in self.extends if parent is not None and parent.row is None)
        )


class _Reading:
    """Every file once, and the order in which files and rows lie over each other."""

    def __init__(self) -> None:
        self.files: dict[Path, _File | None] = {}
        self.lineages: dict[Address, list[Address] | None] = {}
        self.known_rows: dict[Path, list[str]] = {}
        self.extended_rows: dict[Address, dict[str, Place]] = {}
        self.problems: list[Problem] = []

    def layer(self, source: Address) -> Tree:
        """What a file or a row contains by itself; nothing for a row that is only inherited."""
        file = self._file(source.file)
        return file.tree if source.row is None else file.rows.get(source.row) or Tree({}, file.tree.place)

    def lineage(self, source: Address, named: Place | None, below: list[Address]) -> list[Address] | None:
        """A recipe and all that it extends, the strongest first, each once; None when one of them cannot be read.

        With several parents (`extends: [small.yaml, ablation.yaml]`) later ones override earlier ones, and a shared parent
        has the lowest precedence: Python's order of base classes (C3), read from the right. A row extends its file, the rows
        that it names, and the rows of the same name in the files that its file extends.
        """
        source = source.resolved()
        if source in self.lineages:
            return self.lineages[source]
        if source.file not in self.files:
            self.files[source.file] = self._read(source.file, named)
        if self.files[source.file] is None:
            return None
        if len(below) > _MOST_BELOW:
            self._problem(
                f"more than {_MOST_BELOW} recipes extend each other in a row",
                named or self._file(source.file).tree.place,
            )
            return None
        if source in below:
            circle = [*below[below.index(source) :], source]
            assert named is not None
            self._problem(f"refers to itself: {' -> '.join(parent.name for parent in circle)}", named)
            return None
        self.lineages[source] = order = self._order(source, named, [*below, source])
        return order

    def rows(self, file: Path) -> list[str]:
        """Names of the rows of a file whose lineage was read, inherited ones first."""
        if file not in self.known_rows:
            inherited = [name for parent in self._file(file).inherited for name in self.rows(parent)]
            self.known_rows[file] = list(dict.fromkeys([*inherited, *self._file(file).rows]))
        return self.known_rows[file]

    def _file(self, path: Path) -> _File:
        """A file that could be read."""
        file = self.files[path]
        assert file is not None
        return file

    def _order(self, source: Address, named: Place | None, below: list[Address]) -> list[Address] | None:
        above: list[list[Address]] = []
        readable = True
        parents: dict[Address, Place] = {}
        for parent, place in self._parents(source, named):
            lineage = None if parent is None else self.lineage(parent, place, below)
            if parent is None or lineage is None:
                readable = False
                continue
            parents[parent] = place
            above.insert(0, lineage)
        if not readable:
            return None
        strongest = list(reversed(parents))
        order = _c3([*above, strongest])
        if order is None:
            first = next(parent for parent in strongest if any(parent in lineage[1:] for lineage in above))
            heir = next(lineage[0] for lineage in above if first in lineage[1:])
            self._problem(f"{first.name} must come before {heir.name}, which extends it", parents[first])
            return None
        return [source, *order]

    def _parents(self, source: Address, named: Place | None) -> list[tuple[Address | None, Place]]:
        """What a file or a row extends, the weakest first; None for what names nothing."""
        file = self._file(source.file)
        if source.row is None:
            return file.extends
        start = named or file.tree.place
        if self.lineage(Address(source.file), named, []) is None:  # its files are needed to know its rows
            return [(None, start)]
        known = self.rows(source.file)
        if source.row not in known:
            message = f'{nearby(source.file)} has no row "{source.row}"'
            if _is_pattern(source.row):
                message += "; one recipe is wanted here, and not a pattern"
            place = named or (file.tree.get("rows") or file.tree).place
            choices = alternatives(source.row, known) if known else "it has none"
            self._problem(message, place, choices, ("extends",) if named else ())
            return [(None, start)]
        parents: list[tuple[Address | None, Place]] = [(Address(source.file), start)]
        for name, place in self._rows_extended(source).items():
            if name not in known:
                only = "a row extends rows of its own file, inherited ones too" if SEPARATOR in name else None
                self._problem(f'{nearby(source.file)} has no row "{name}"', place, only or alternatives(name, known))
            parents.append((Address(source.file, name) if name in known else None, place))
        inherited = [Address(parent, source.row) for parent in file.inherited if source.row in self.rows(parent)]
        if not inherited and file.rows[source.row].get("about") is None:
            hint = 'a row says what it is for: about: "..."'
            path = ("rows", source.row, "about")
            self._problem("missing; wants str", file.rows[source.row].place, hint, path)
        return [*parents, *((parent, start) for parent in inherited)]

    def _rows_extended(self, source: Address) -> dict[str, Place]:
        """Names of the rows that a row extends, in this file or where it is inherited from."""
        if source not in self.extended_rows:
            file = self._file(source.file)
            names: dict[str, Place] = {}
            for parent in file.inherited:
                names |= self._rows_extended(Address(parent, source.row))
            own = file.rows.get(source.row or "")
            for item in [] if own is None else _items(own.get("extends")):
                if isinstance(item.value, str) and item.value.strip():
                    names[item.value] = item.place
                elif item.value is not FAILED:
                    self._problem(
                        f"wants the name of a row or a list of names, got {described(item.plain())}", item.place
                    )
            self.extended_rows[source] = names
        return self.extended_rows[source]

    def _read(self, path: Path, named: Place | None) -> _File | None:
        tree, problems = _read_tree(path, len(self.files), named)
        self.problems += problems
        if tree is None:
            return None
        file = _File(tree, [])
        for item in _items(tree.get("extends")):
            if isinstance(item.value, str) and item.value.strip() and "\0" not in item.value:
                address = Address.parse(item.value)
                parent = Address(path.parent / files.expanded(address.file), address.row).resolved()
                file.extends.append((parent, item.place))
            else:
                if item.value is not FAILED:
                    self._problem(f"wants a file or a list of files, got {described(item.plain())}", item.place)
                file.extends.append((None, item.place))
        return file

    def _problem(self, message: str, place: Place, hint: str | None = None, path: Key = ("extends",)) -> None:
        self.problems.append(Problem(path, message, hint, place))


def _items(extends: Tree | None) -> list[Tree]:
    if extends is None:
        return []
    return extends.value if isinstance(extends.value, list) else [extends]


def _c3(lineages: list[list[Address]]) -> list[Address] | None:
    """One order that keeps the order of every list; None when there is none."""
    order: list[Address] = []
    while lineages := [lineage for lineage in lineages if lineage]:
        head = next(
            (lineage[0] for lineage in lineages if not any(lineage[0] in other[1:] for other in lineages)), None
        )
        if head is None:
            return None
        order.append(head)
        lineages = [[address for address in lineage if address != head] for lineage in lineages]
    return order


def _read_tree(file: Path, rank: int, named: Place | None) -> tuple[Tree | None, list[Problem]]:
    """The tree of one file, and what is wrong with it; `named` is where the file is named, if another one names it."""
    label = nearby(file)
    try:
        content = _content(file, label, rank)
        tree, problems = parse(content)
        if tree is not None and tree.value is None:
            raise _Unreadable("is empty; a recipe begins with `about:`", None, content.start())
        if tree is not None and not isinstance(tree.value, dict):
            raise _Unreadable(_not_a_mapping(tree, "a recipe", TOP), None, tree.place)
    except _Unreadable as error:
        message, hint, place = error.args
        if place is None and named is not None:
            return None, [Problem(("extends",), f"{label}: {message}", hint, named)]
        return None, [Problem((), message, hint, place or Place(label, rank=rank))]
    if tree is None:
        return None, problems
    tree, wrong = _top(tree)
    return tree, [*problems, *wrong]


class _Unreadable(Exception):
    """A file that is no recipe: message, hint, and the place in it (None: there is no place)."""


def _content(file: Path, label: str, rank: int) -> Text:
    try:
        if files.exists(file) and not files.is_file(file):
            what = "a folder" if files.is_folder(file) else "a device or a pipe"
            raise _Unreadable(f"is {what}; a recipe is a YAML file", None, None)
        with file.open("rb") as stream:
            content = stream.read(TOO_LONG + 1)
        if len(content) > TOO_LONG:
            raise _Unreadable(f"is larger than {TOO_LONG:,} bytes; is it a recipe?", None, None)
    except FileNotFoundError:
        near = meant(file)
        raise _Unreadable("no such file", near and f'did you mean "{nearby(near)}"?', None) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _Unreadable(f"cannot be read: {getattr(error, 'strerror', None) or error}", None, None) from None
    try:
        return Text(content.decode("utf-8-sig"), label, file.resolve(), rank)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n")
        before = content[: error.start].rsplit(b"\n", 1)[-1]
        shown = Text(content.decode("utf-8", errors="replace"), label, file.resolve(), rank)
        place = shown.place(line, len(before.decode("utf-8", errors="replace")))
        raise _Unreadable(f"not UTF-8: byte {content[error.start]:#04x}", "save the file as UTF-8", place) from None


def _not_a_mapping(tree: Tree, what: str, keys: Sequence[str]) -> str:
    return f"wants {what} (a mapping with {', '.join(keys)}), got {described(tree.plain())}"


def _top(tree: Tree) -> tuple[Tree | None, list[Problem]]:
    """The top level of one file: known keys, `about` first, mappings where mappings must be; likewise each of its rows."""
    problems: list[Problem] = []
    entries, readable = _layer(tree, TOP, "a recipe", (), problems)
    about = entries.get("about")
    first = list(entries)[: 2 if next(iter(entries), None) == "extends" else 1]
    if about is None:
        hint = 'the first key says what the recipe is for: about: "..."'
        problems.append(Problem(("about",), "missing; wants str", hint, tree.place))
    elif "about" not in first:
        problems.append(Problem(("about",), "comes first in a recipe (or right behind extends)", None, about.place))
    if "rows" in entries:
        entries["rows"] = _rows(entries["rows"], problems)
    return (Tree(entries, tree.place) if readable and (about is None or about.value is not None) else None), problems


def _rows(tree: Tree, problems: list[Problem]) -> Tree:
    """The rows of one file; those that cannot be read are left out."""
    if tree.value is not None and tree.value is not FAILED and not isinstance(tree.value, dict):
        problems.append(Problem(("rows",), f"wants a mapping of rows, got {described(tree.plain())}", None, tree.place))
    rows: dict[str, Tree] = {}
    for name, row in tree.children.items():
        path: Key = ("rows", name)
        if not ROW_NAME.fullmatch(name):
            message = f'"{name}" cannot be the name of a row; use at most 100 letters, digits, _ . and -'
            problems.append(Problem(path, message, None, row.place))
        elif isinstance(row.value, dict):
            entries, readable = _layer(row, ROW, "a row", path, problems)
            if readable:
                rows[name] = Tree(entries, row.place)
        elif row.value is not FAILED:
            problems.append(Problem(path, _not_a_mapping(row, "a row", ROW), None, row.place))
    return Tree(rows, tree.place)


def _layer(
    tree: Tree, known: Sequence[str], what: str, path: Key, problems: list[Problem]
) -> tuple[dict[str, Tree], bool]:
    """The entries of a recipe or a row, and whether they can be merged with others.

    A misspelled key is reported and goes on under the name that was meant, so that one mistake stays one problem.
    """
    entries: dict[str, Tree] = {}
    for key, inner in tree.children.items():
        meant: str | None = key
        if key not in known:
            meant = nearest(key, [name for name in known if name not in tree.children])
            message = f'unknown key "{key}" of {what}'
            problems.append(Problem((*path, key), message, alternatives(meant, known), inner.place))
        entries[meant or key] = inner
    readable = True
    for key, wanted in (("vars", "a mapping of variables"), ("stages", "a mapping of stages")):
        part = entries.get(key)
        if part is not None and part.value is not None and not isinstance(part.value, dict):
            readable = False
            if part.value is not FAILED:
                message = f"wants {wanted}, got {described(part.plain())}"
                problems.append(Problem((*path, key), message, None, part.place))
    about = entries.get("about")
    if about is not None and about.value is not FAILED and not (isinstance(about.value, str) and about.value.strip()):
        empty = isinstance(about.value, str)
        message = "is empty; say what the recipe is for" if empty else f"wants str, got {described(about.plain())}"
        problems.append(Problem((*path, "about"), message, None, about.place))
    return entries, readable

"""Reading a recipe's file and the ones that it extends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from fgrl.recipe.merging import ROW, TOP, merge
from fgrl.recipe.tree import Text, Tree, parse
from fgrl.registry.annotations import described
from fgrl.registry.context import FAILED
from fgrl.registry.explaining import nearby
from fgrl.registry.problems import Key, Place, Problem, Problems, alternatives, nearest

ROW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
SEPARATOR = "::"
"""Between a recipe's file and the name of one of its rows: `recipes/rtt_qwen3.yaml::aon`."""


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

    @property
    def name(self) -> str:
        return self.file.name if self.row is None else f"{self.file.name}{SEPARATOR}{self.row}"


def read(address: Address) -> tuple[Tree | None, list[Tree], list[Problem]]:
    """(the merged recipe, each layer's own tree with the strongest (the recipe itself) first, problems).

    The merged recipe is None when nothing can be reported about it: a file is missing or is no YAML.
    """
    reading = _Reading()
    order = reading.lineage(Address(address.file.expanduser(), address.row), None, [])
    if order is None:
        return None, [tree for tree in reading.files.values() if tree is not None], reading.problems
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


def _is_pattern(row: str) -> bool:
    return bool(set(row) & set("*?["))


def rows(file: Path) -> list[str]:
    """Names of the rows that a recipe's file has, inherited ones first. Raises `Problems` when it cannot be read."""
    reading = _Reading()
    source = Address(file.expanduser())
    if reading.lineage(source, None, []) is None:
        raise Problems(reading.problems)
    return reading.rows(source.file.resolve())


class _Reading:
    """Every file once, and the order in which files and rows lie over each other."""

    def __init__(self) -> None:
        self.files: dict[Path, Tree | None] = {}
        self.lineages: dict[Address, list[Address] | None] = {}
        self.problems: list[Problem] = []

    def layer(self, source: Address) -> Tree:
        """What a file or a row contains by itself; nothing for a row that is only inherited."""
        tree = self.files[source.file]
        assert tree is not None
        if source.row is None:
            return tree
        return self._own_rows(source.file).get(source.row) or Tree({}, tree.place)

    def lineage(self, source: Address, named: Place | None, below: list[Address]) -> list[Address] | None:
        """A recipe and all that it extends, the strongest first, each once; None when one of them cannot be read.

        With several parents (`extends: [small.yaml, ablation.yaml]`) later ones override earlier ones, and a shared parent
        has the lowest precedence: Python's order of base classes (C3), read from the right. A row extends its file, the rows
        that it names, and the rows of the same name in the files that its file extends.
        """
        source = Address(source.file.resolve(), source.row)
        if source in self.lineages:
            return self.lineages[source]
        if source.file not in self.files:
            self.files[source.file], wrong = _read_one(source.file, rank=len(self.files), named=named)
            self.problems += wrong
        if self.files[source.file] is None:
            return None
        if source in below:
            circle = [*below[below.index(source) :], source]
            assert named is not None
            self._problem(f"goes round in a circle: {' -> '.join(parent.name for parent in circle)}", named)
            return None
        self.lineages[source] = order = self._order(source, named, [*below, source])
        return order

    def _order(self, source: Address, named: Place | None, below: list[Address]) -> list[Address] | None:
        above: list[list[Address]] = []
        readable = True
        parents: dict[Address, Place] = {}
        for parent, place in self._parents(source, named):
            lineage = None if parent is None else self.lineage(parent, place, below)
            if parent is None or lineage is None:
                readable = False
                continue
            parents[Address(parent.file.resolve(), parent.row)] = place
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

    def rows(self, file: Path) -> list[str]:
        """Names of the rows of a file whose lineage was read, inherited ones first."""
        inherited = [name for parent in self._files_extended(file) for name in self.rows(parent)]
        return list(dict.fromkeys([*inherited, *self._own_rows(file)]))

    def _parents(self, source: Address, named: Place | None) -> list[tuple[Address | None, Place]]:
        """What a file or a row extends, the weakest first; None for what names nothing."""
        tree = self.files[source.file]
        assert tree is not None
        if source.row is None:
            return self._named_files(source.file, tree)
        start = named or tree.place
        if self.lineage(Address(source.file), named, []) is None:  # its files are needed to know its rows
            return [(None, start)]
        known = self.rows(source.file)
        if source.row not in known:
            choices = alternatives(source.row, known) if known else "it has none"
            message = f'{nearby(source.file)} has no row "{source.row}"'
            if _is_pattern(source.row):
                message += "; one recipe is wanted here, and not a pattern"
            if named is not None:
                self._problem(message, named, choices)
            else:
                self.problems.append(Problem((), message, choices, (tree.get("rows") or tree).place))
            return [(None, start)]
        parents: list[tuple[Address | None, Place]] = [(Address(source.file), start)]
        for name, place in self._rows_extended(source.file, source.row).items():
            if name in known:
                parents.append((Address(source.file, name), place))
                continue
            only = "a row extends rows of its own file, inherited ones too" if SEPARATOR in name else None
            self._problem(f'{nearby(source.file)} has no row "{name}"', place, only or alternatives(name, known))
            parents.append((None, place))
        inherited = [parent for parent in self._files_extended(source.file) if source.row in self.rows(parent)]
        if not inherited and self._own_rows(source.file)[source.row].get("about") is None:
            place = self._own_rows(source.file)[source.row].place
            hint = 'a row says what it is for: about: "..."'
            self.problems.append(Problem(("rows", source.row, "about"), "missing; wants str", hint, place))
        return [*parents, *((Address(parent, source.row), start) for parent in inherited)]

    def _rows_extended(self, file: Path, row: str) -> dict[str, Place]:
        """Names of the rows that a row extends, in this file or where it is inherited from."""
        names: dict[str, Place] = {}
        for parent in self._files_extended(file):
            names |= self._rows_extended(parent, row)
        own = self._own_rows(file).get(row)
        for item in [] if own is None else _items(own.get("extends")):
            if isinstance(item.value, str) and item.value.strip():
                names[item.value] = item.place
            else:
                self._problem(f"wants the name of a row or a list of names, got {described(item.plain())}", item.place)
        return names

    def _own_rows(self, file: Path) -> dict[str, Tree]:
        tree = self.files[file]
        rows = None if tree is None else tree.get("rows")
        return {} if rows is None else rows.children

    def _files_extended(self, file: Path) -> list[Path]:
        """The files that a readable file extends, whose rows it inherits. Who extends a single row inherits no other."""
        tree = self.files[file]
        assert tree is not None
        parents = (
            parent for parent, _place in self._named_files(file, tree) if parent is not None and parent.row is None
        )
        return list(dict.fromkeys(parent.file.resolve() for parent in parents))

    def _named_files(self, file: Path, tree: Tree) -> list[tuple[Address | None, Place]]:
        """The recipes that a file's `extends` names; None for what is no file's name."""
        parents: list[tuple[Address | None, Place]] = []
        for item in _items(tree.get("extends")):
            if isinstance(item.value, str) and item.value.strip() and "\0" not in item.value:
                address = Address.parse(item.value)
                parents.append((Address(file.parent / address.file.expanduser(), address.row), item.place))
            else:
                self._problem(f"wants a file or a list of files, got {described(item.plain())}", item.place)
                parents.append((None, item.place))
        return parents

    def _problem(self, message: str, place: Place, hint: str | None = None) -> None:
        problem = Problem(("extends",), message, hint, place)
        if problem not in self.problems:
            self.problems.append(problem)


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


def _read_one(file: Path, rank: int, named: Place | None) -> tuple[Tree | None, list[Problem]]:
    label = nearby(file)

    def refused(message: str, hint: str | None = None) -> tuple[None, list[Problem]]:
        if named is not None:
            return None, [Problem(("extends",), f"{label}: {message}", hint, named)]
        return None, [Problem((), message, hint, Place(label, rank=rank))]

    try:
        content = file.read_bytes()
    except FileNotFoundError:
        folder = file.parent
        others = (
            sorted(other.name for other in folder.iterdir() if other.suffix in (".yaml", ".yml"))
            if folder.is_dir()
            else []
        )
        near = nearest(file.name, others)
        hint = (
            f'did you mean "{file.with_name(near)}"?'
            if near and named is None
            else f'did you mean "{near}"?'
            if near
            else None
        )
        return refused("no such file", hint)
    except IsADirectoryError:
        return refused("is a folder; a recipe is a YAML file")
    except OSError as error:
        return refused(f"cannot be read: {error.strerror or error}")
    except ValueError as error:  # a NUL in the name
        return refused(f"cannot be read: {error}")
    try:
        decoded = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n")
        before = content[: error.start].rsplit(b"\n", 1)[-1]
        shown = content.decode("utf-8", errors="replace")
        place = Text(shown, label, file.resolve(), rank).place(line, len(before.decode("utf-8", errors="replace")))
        return None, [Problem((), f"not UTF-8: byte {content[error.start]:#04x}", "save the file as UTF-8", place)]
    text = Text(decoded, label, file.resolve(), rank)
    tree, problems = parse(text)
    if tree is None:
        return None, problems
    if tree.value is None:
        return None, [*problems, Problem((), "is empty; a recipe begins with `about:`", None, text.start())]
    if not isinstance(tree.value, dict):
        message = f"wants a recipe (a mapping with {', '.join(TOP)}), got {described(tree.plain())}"
        return None, [*problems, Problem((), message, None, tree.place)]
    tree, wrong = _top(tree)
    return tree, [*problems, *wrong]


def _top(tree: Tree) -> tuple[Tree | None, list[Problem]]:
    """The top level of one file: known keys, `about` first, mappings where mappings must be; likewise each of its rows.

    A misspelled key is reported and goes on under the name that was meant, so that one mistake stays one problem.
    """
    entries, problems = _known_keys(tree, TOP, "a recipe")
    about = entries.get("about")
    first = list(entries)[: 2 if next(iter(entries), None) == "extends" else 1]
    if about is None:
        hint = 'the first key says what the recipe is for: about: "..."'
        problems.append(Problem(("about",), "missing; wants str", hint, tree.place))
    elif "about" not in first:
        problems.append(Problem(("about",), "comes first in a recipe (or right behind extends)", None, about.place))
    readable = _mappings(entries, (), problems)
    if about is not None:
        problems += _about(about, ("about",))
        readable = readable and about.value is not None
    if "rows" in entries:
        entries["rows"], wrong = _rows(entries["rows"])
        problems += wrong
    return (Tree(entries, tree.place) if readable else None), problems


def _known_keys(tree: Tree, known: Sequence[str], what: str, path: Key = ()) -> tuple[dict[str, Tree], list[Problem]]:
    problems: list[Problem] = []
    entries: dict[str, Tree] = {}
    for key, inner in tree.children.items():
        meant: str | None = key
        if key not in known:
            meant = nearest(key, [name for name in known if name not in tree.children])
            problems.append(
                Problem((*path, key), f'unknown key "{key}" of {what}', alternatives(meant, known), inner.place)
            )
        entries[meant or key] = inner
    return entries, problems


def _mappings(entries: dict[str, Tree], path: Key, problems: list[Problem]) -> bool:
    """Are the parts that must be mappings (or null) mappings? Adds a problem for each that is not."""
    readable = True
    for key, words in (("vars", "a mapping of variables"), ("stages", "a mapping of stages")):
        part = entries.get(key)
        if part is not None and part.value is not None and not isinstance(part.value, dict):
            readable = False
            if part.value is not FAILED:
                problems.append(
                    Problem((*path, key), f"wants {words}, got {described(part.plain())}", None, part.place)
                )
    return readable


def _about(about: Tree, path: Key) -> list[Problem]:
    if about.value is FAILED or (isinstance(about.value, str) and about.value.strip()):
        return []
    empty = isinstance(about.value, str)
    message = "is empty; say what the recipe is for" if empty else f"wants str, got {described(about.plain())}"
    return [Problem(path, message, None, about.place)]


def _rows(tree: Tree) -> tuple[Tree, list[Problem]]:
    """The rows of one file; those that cannot be read are left out."""
    if tree.value is None:
        return Tree({}, tree.place), []
    if not isinstance(tree.value, dict):
        misplaced = Problem(("rows",), f"wants a mapping of rows, got {described(tree.plain())}", None, tree.place)
        return Tree({}, tree.place), [] if tree.value is FAILED else [misplaced]
    rows: dict[str, Tree] = {}
    problems: list[Problem] = []
    for name, row in tree.children.items():
        path: Key = ("rows", name)
        if not ROW_NAME.fullmatch(name):
            message = f'"{name}" cannot be the name of a row; use letters, digits, _ . and -'
            problems.append(Problem(path, message, None, row.place))
        elif not isinstance(row.value, dict):
            if row.value is not FAILED:
                message = f"wants a row (a mapping with {', '.join(ROW)}), got {described(row.plain())}"
                problems.append(Problem(path, message, None, row.place))
        else:
            entries, wrong = _known_keys(row, ROW, "a row", path)
            problems += wrong
            if "about" in entries:
                problems += _about(entries["about"], (*path, "about"))
            if _mappings(entries, path, problems):
                rows[name] = Tree(entries, row.place)
    return Tree(rows, tree.place), problems

"""Reading a recipe's file and the ones that it extends."""

from __future__ import annotations

from pathlib import Path

from fgrl.recipe.merging import TOP, merge
from fgrl.recipe.tree import Text, Tree, parse
from fgrl.registry.annotations import found
from fgrl.registry.building import FAILED
from fgrl.registry.explaining import nearby
from fgrl.registry.problems import Place, Problem, alternatives, nearest


def read(path: Path) -> tuple[Tree | None, list[Tree], list[Problem]]:
    """(the merged recipe, each file's own tree with the strongest (the recipe itself) first, problems).

    The merged recipe is None when nothing can be said about it: a file is missing or is no YAML.
    """
    reading = _Reading()
    order = reading.lineage(path.expanduser(), None, [])
    layers = [reading.trees[file] for file in order or reading.trees if reading.trees[file] is not None]
    if order is None:
        return None, [layer for layer in layers if layer is not None], reading.problems
    known = [layer for layer in layers if layer is not None]
    merged = known[-1]
    for layer in reversed(known[:-1]):
        merged = merge(merged, layer)
    entries = {key: inner for key, inner in merged.children.items() if key != "extends"}
    return Tree(entries, merged.place), known, reading.problems


class _Reading:
    """Every file once, and the order in which they lie over each other."""

    def __init__(self) -> None:
        self.trees: dict[Path, Tree | None] = {}
        self.problems: list[Problem] = []

    def lineage(self, file: Path, named: Place | None, below: list[Path]) -> list[Path] | None:
        """A file and all that it extends, the strongest first, each once; None when one of them cannot be read.

        With several parents (`extends: [small.yaml, ablation.yaml]`) a later one is stronger, and what both extend is
        weaker than both: Python's order of base classes (C3), read from the right.
        """
        here = file.resolve()
        if here not in self.trees:
            self.trees[here], wrong = _read_one(file, rank=len(self.trees), named=named)
            self.problems += wrong
        tree = self.trees[here]
        if tree is None:
            return None
        above: list[list[Path]] = []
        readable = True
        parents: dict[Path, Place] = {}
        for parent, place in self._parents(tree):
            if parent is None:
                readable = False
                continue
            target = file.parent / parent
            if target.resolve() in [*below, here]:
                circle = [*below, here, target.resolve()]
                circle = circle[circle.index(target.resolve()) :]
                names = " -> ".join(one.name for one in circle)
                self._problem(f"goes round in a circle: {names}", place)
                readable = False
                continue
            parents[target.resolve()] = place
            lineage = self.lineage(target, place, [*below, here])
            if lineage is None:
                readable = False
            else:
                above.insert(0, lineage)
        if not readable:
            return None
        strongest = list(reversed(parents))
        order = _c3([*above, strongest])
        if order is None:
            first = next(one for one in strongest if any(one in lineage[1:] for lineage in above))
            heir = next(lineage[0] for lineage in above if first in lineage[1:])
            self._problem(f"{first.name} must come before {heir.name}, which extends it", parents[first])
            return None
        return [here, *order]

    def _parents(self, tree: Tree) -> list[tuple[Path | None, Place]]:
        """The files that `extends` names; None for what is no file's name."""
        extends = tree.get("extends")
        if extends is None:
            return []
        items = extends.value if isinstance(extends.value, list) else [extends]
        found_: list[tuple[Path | None, Place]] = []
        for item in items:
            if isinstance(item.value, str) and item.value.strip() and "\0" not in item.value:
                found_.append((Path(item.value).expanduser(), item.place))
            else:
                self._problem(f"wants a file or a list of files, got {found(item.plain())}", item.place)
                found_.append((None, item.place))
        return found_

    def _problem(self, message: str, place: Place) -> None:
        problem = Problem(("extends",), message, None, place)
        if problem not in self.problems:
            self.problems.append(problem)


def _c3(lineages: list[list[Path]]) -> list[Path] | None:
    """One order that keeps the order of every list; None when there is none."""
    order: list[Path] = []
    while lineages := [lineage for lineage in lineages if lineage]:
        head = next((one[0] for one in lineages if not any(one[0] in other[1:] for other in lineages)), None)
        if head is None:
            return None
        order.append(head)
        lineages = [[one for one in lineage if one != head] for lineage in lineages]
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
        message = f"wants a recipe (a mapping with {', '.join(TOP)}), got {found(tree.plain())}"
        return None, [*problems, Problem((), message, None, tree.place)]
    tree, wrong = _top(tree)
    return tree, [*problems, *wrong]


def _top(tree: Tree) -> tuple[Tree | None, list[Problem]]:
    """The top level of one file: known keys, `about` first, mappings where mappings must be.

    A misspelled key is reported and goes on under the name that was meant, so that one mistake stays one problem.
    """
    problems: list[Problem] = []
    entries: dict[str, Tree] = {}
    for key, inner in tree.children.items():
        meant: str | None = key
        if key not in TOP:
            meant = nearest(key, [name for name in TOP if name not in tree.children])
            hint = alternatives(meant, TOP)
            problems.append(Problem((key,), f'unknown key "{key}" of a recipe', hint, inner.place))
        entries[meant or key] = inner
    about = entries.get("about")
    first = list(entries)[: 2 if next(iter(entries), None) == "extends" else 1]
    if about is None:
        hint = 'the first key says what the recipe is for: about: "..."'
        problems.append(Problem(("about",), "missing; wants str", hint, tree.place))
    elif "about" not in first:
        problems.append(Problem(("about",), "comes first in a recipe (or right behind extends)", None, about.place))
    readable = True
    for key, words in (("vars", "a mapping of variables"), ("stages", "a mapping of stages")):
        part = entries.get(key)
        if part is not None and part.value is not None and not isinstance(part.value, dict):
            readable = False
            if part.value is not FAILED:
                message = f"wants {words}, got {found(part.plain())}"
                problems.append(Problem((key,), message, None, part.place))
    if about is not None and about.value is not FAILED and not (isinstance(about.value, str) and about.value.strip()):
        empty = isinstance(about.value, str)
        message = "is empty; say what the recipe is for" if empty else f"wants str, got {found(about.plain())}"
        problems.append(Problem(("about",), message, None, about.place))
        readable = readable and about.value is not None
    return (Tree(entries, tree.place) if readable else None), problems

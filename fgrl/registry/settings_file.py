"""Typed settings from a separate YAML file, with the position of every mistake, as in a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TypeVar, cast

from fgrl.base import files
from fgrl.registry.annotations import described
from fgrl.registry.building import build
from fgrl.registry.context import Context
from fgrl.registry.explaining import nearby
from fgrl.registry.problems import Problem, Problems, alternatives, nearest
from fgrl.registry.settings import Settings
from fgrl.registry.tree import Tree
from fgrl.registry.yaml_files import read_tree

S = TypeVar("S", bound=Settings)

EXTENDS = "extends"
"""Key that names the file whose settings the other keys change."""


@dataclass(frozen=True)
class Shelf:
    """Collection of settings that `extends` may name without a path."""

    folder: Path
    """Folder of the files NAME.yaml."""
    what: str = "a file of settings"
    """Kind of the files, in words."""

    @property
    def names(self) -> list[str]:
        """Return the names of the settings, sorted."""
        return [name.removesuffix(".yaml") for name in files.names_in(self.folder) if name.endswith(".yaml")]

    def find(self, text: str, folder: Path) -> Path:
        """Return the file that a text names: a file of this shelf, or a path relative to `folder`."""
        given = folder / files.expanded(text)
        return self.folder / f"{text}.yaml" if text in self.names and not files.is_file(given) else given


def read_settings(cls: type[S], name: str, shelf: Shelf) -> S:
    """Return the settings of a YAML file, or the settings with this name on the shelf.

    `extends` in it is another file (relative to it) or a name: mappings merge deeply, anything else replaces what
    that file has, and null drops an entry of a mapping. Raises `Problems` with every mistake in the file and in those
    that it extends.
    """
    tree = reduce(_over, [tree for _, tree in reversed(_chain(name, shelf))])
    context = Context(folder=lambda key: tree.at(key)[0].place.folder)
    try:
        return build(cls, _plain(tree), context=context)
    except Problems as problems:
        for problem in problems.problems:
            problem.place = problem.place or tree.at(problem.path)[0].place
        raise


def extended(name: str, shelf: Shelf) -> list[Path]:
    """Return the files that a file of settings extends, the nearest first; empty for a file that extends no other.
    Raises `Problems` as `read_settings` does.
    """
    return [path for path, _ in _chain(name, shelf)][1:]


def _chain(name: str, shelf: Shelf) -> list[tuple[Path, Tree]]:
    """Return a file and the files that it extends, the nearest first, each with its own settings."""
    path, origin = shelf.find(name, Path()), cast(Tree | None, None)
    chain: list[tuple[Path, Tree]] = []
    while True:
        tree = _read(path, shelf, len(chain), origin)
        chain.append((path, tree))
        origin = tree.children.pop(EXTENDS, None)
        if origin is None:
            return chain
        if not isinstance(origin.value, str):
            raise Problems([Problem((EXTENDS,), f"wants a file, got {described(origin.plain())}", place=origin.place)])
        path = shelf.find(origin.value, path.parent)
        if path.resolve() in {known.resolve() for known, _ in chain}:
            raise Problems([Problem((EXTENDS,), f"{nearby(path)} extends itself", place=origin.place)])


def _over(parent: Tree, child: Tree) -> Tree:
    """Return the entries of both; the child's entries take precedence."""
    if not isinstance(parent.value, dict) or not isinstance(child.value, dict):
        return child
    entries = dict(parent.value)
    for key, inner in child.value.items():
        entries[key] = _over(entries[key], inner) if key in entries else inner
        entries[key].dropped = inner.value is None and key in parent.value
    return Tree(entries, child.place)


def _plain(tree: Tree) -> object:
    """Return a tree as plain data, without dropped entries."""
    if isinstance(tree.value, dict):
        return {key: _plain(inner) for key, inner in tree.value.items() if not inner.dropped}
    return tree.plain()


def _read(path: Path, shelf: Shelf, rank: int, origin: Tree | None) -> Tree:
    """Return the tree of one file; `origin` is the value that names it in another file."""

    def similar(file: Path) -> str:
        near = nearest(file.name, files.names_in(file.parent))
        return f'did you mean "{near}"?' if near else alternatives(file.name, shelf.names)

    named = None if origin is None else origin.place
    tree, problems = read_tree(path, rank, shelf.what, "a mapping of settings", named, similar)
    if problems or tree is None:
        raise Problems(problems)
    return tree

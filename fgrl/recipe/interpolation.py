"""`${vars.x}` and `${stages.a.b}`: other values of the recipe, also whole mappings, also within a text.

OmegaConf resolves them. Before it does, each text is checked: what it names exists, nothing needs itself, and what all of
them come to is limited, so that no recipe takes long; OmegaConf then resolves each text once, after those that it needs.
`${out:stage}` is kept as text; it is a reference to a product, not to a value. A backslash (`\\${...}`) keeps a `${` as text.
"""

from __future__ import annotations

import re
from typing import Any, cast

from fgrl import lazy
from fgrl.recipe.merging import TOP
from fgrl.registry.annotations import described, shown
from fgrl.registry.building import BARE
from fgrl.registry.context import FAILED
from fgrl.registry.problems import Key, Problem, alternatives, dotted, nearest
from fgrl.registry.tree import TOO_DEEP, TOO_MANY, Tree

omegaconf = lazy.load("omegaconf")
_SIMPLE = re.compile(r"(?<!\\)\$\{\s*([^${}:\s]+)\s*\}")
_INNERMOST = re.compile(r"(?<!\\)\$\{([^${}]*)\}")
_PART = re.compile(r"[^\\${}()\[\]:.\s'\"]+")
"""A key that OmegaConf can be asked for."""
_WHAT = "${vars.x}, ${stages.a.b} and ${out:stage}"
_LONGEST_CHAIN = 100
_MOST_NESTED = 10
_ABSENT = object()
_KEPT = "$\0{"
"""Stands for a `${` that is text."""
_MISSING = "???"
"""What OmegaConf takes for a value that is still to be set."""


def mentions(text: str) -> list[Key]:
    """Paths of the values that a text asks for by an absolute name."""
    return [_path(name) for name in _SIMPLE.findall(text) if not name.startswith(".")]


def alone(value: Any) -> Key | None:
    """The path of a text that is one `${...}` and nothing else."""
    match = _SIMPLE.fullmatch(value.strip()) if isinstance(value, str) else None
    return _path(match[1]) if match and not match[1].startswith(".") else None


def _path(name: str) -> Key:
    parts = re.sub(r"\[(\w+)\]", r".\1", name).split(".")
    return tuple(int(part) if part.isdigit() else part for part in parts)


def find(recipe: Tree, path: Key) -> Tree | None:
    """The tree at a path, also when numbers in it are keys of mappings."""
    tree: Tree | None = recipe
    for part in path:
        inner = None if tree is None else _child(tree, part)
        tree = None if inner is None else inner[1]
    return tree


def origin(recipe: Tree, path: Key) -> Tree:
    """Where the value at a path was really written: through texts that are one `${...}`."""
    return source(recipe, path)[0]


def source(recipe: Tree, path: Key) -> tuple[Tree, Key]:
    """`origin`, and what of the path it does not have."""
    tree, rest = recipe.at(path)
    for _ in range(_LONGEST_CHAIN):
        target = alone(tree.value)
        if target is None or (find(recipe, target) is None and not isinstance(recipe.at(target)[0].value, str)):
            break
        tree, rest = recipe.at((*target, *rest))
    return tree, rest


def resolve(recipe: Tree) -> tuple[dict[str, Any], list[Problem]]:
    """The recipe as plain data with every `${...}` replaced. What cannot be is `FAILED`, and a problem."""
    if not any(isinstance(leaf.value, str) and "${" in leaf.value for _, leaf in recipe.leaves()):
        return recipe.plain(), []
    resolver = _Resolver(recipe)
    resolver.size((), recipe)
    return _readable(omegaconf.OmegaConf.to_container(resolver.config)), resolver.all_problems()


class _Refused(Exception):
    """A text that cannot be resolved: message and hint. Without them the cause is elsewhere and reported there."""


def _unreadable(text: str) -> _Refused:
    return _Refused(f"cannot read {shown(text)}", f"a recipe knows {_WHAT}; a backslash before ${{ keeps it as text")


def _without_references(tree: Tree) -> Any:
    """Plain data; `FAILED` stands for each text that has to be resolved."""
    if isinstance(tree.value, dict):
        return {key: _without_references(inner) for key, inner in tree.value.items()}
    if isinstance(tree.value, list):
        return [_without_references(inner) for inner in tree.value]
    return FAILED if isinstance(tree.value, str) and "${" in tree.value else tree.value


def _for_omegaconf(text: str) -> str:
    """A text in which `${out:...}` and what has a backslash mean nothing to OmegaConf."""
    return re.sub(
        r"\\(\\*)\$\{|\$\{\s*(out)\s*:", lambda found: f"{found[1] or ''}{_KEPT}{'out:' if found[2] else ''}", text
    )


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _readable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_readable(inner) for inner in value]
    return value.replace(_KEPT, "${") if isinstance(value, str) else value


class _Resolver:
    """Has OmegaConf resolve every text once, and before it what it needs."""

    def __init__(self, recipe: Tree) -> None:
        self.recipe = recipe
        self.config = omegaconf.OmegaConf.create(_without_references(recipe), flags={"allow_objects": True})
        self.sizes: dict[Key, tuple[int, int] | None] = {}
        """Number of values and characters, and depth, of what was resolved; None of what cannot be."""
        self.open: list[Key] = []
        """What is being resolved, each because the one before needs it."""
        self.problems: dict[Key, Problem] = {}
        self.empty: dict[Key, list[Key]] = {}
        """Variables without a value, and the texts that need them."""
        self.total = 0
        """Values and characters that references have given so far."""

    def all_problems(self) -> list[Problem]:
        for path, users in self.empty.items():
            name = dotted(path)
            needed = dotted(users[0]) + (f" and {len(users) - 1} more" if len(users) > 1 else "")
            message = f"has no value: set it with {name}=..."
            self.problems[path] = Problem(path, message, f"needed by {needed}", needs=name)
        for path, problem in self.problems.items():
            problem.place = self.recipe.at(path)[0].place
        return list(self.problems.values())

    def size(self, path: Key, tree: Tree) -> tuple[int, int] | None:
        """Resolve a value and all that it needs. Returns its size; None when it cannot be resolved."""
        if path in self.open:
            self._circle(path)
            return None
        if path not in self.sizes:
            if len(self.open) > _LONGEST_CHAIN:
                raise _Refused(f"needs more than {_LONGEST_CHAIN} values, one after the other")
            self.open.append(path)
            try:
                self.sizes[path] = self._size(path, tree.value)
            finally:
                self.open.pop()
        return self.sizes[path]

    def _size(self, path: Key, value: Any) -> tuple[int, int] | None:
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            inside = [self.size((*path, key), inner) for key, inner in items]
            known = [size for size in inside if size is not None]
            if len(known) < len(inside):
                return None
            return 1 + sum(count for count, _ in known), 1 + max((depth for _, depth in known), default=0)
        if value is FAILED or not isinstance(value, str) or "${" not in value:
            return None if value is FAILED else (1 + (len(value) if isinstance(value, str) else 0), 0)
        try:
            size, whole = self._text(value, path)
        except _Refused as refused:
            if refused.args:
                self.problems.setdefault(path, Problem(path, *refused.args))
            return None
        parent, last = self._at(path[:-1]), path[-1]
        parent[last] = _for_omegaconf(value) if whole is None else self._at(whole)
        if whole is None:
            parent[last] = parent[last]
        return size

    def _circle(self, path: Key) -> None:
        """One problem for a circle, at the text that the recipe has first."""
        needed = self.open[self.open.index(path) :]
        circle = [member for member in needed if isinstance(self.recipe.at(member)[0].value, str)]
        if not any(member in self.problems for member in circle):
            first = next(leaf for leaf, _ in self.recipe.leaves() if leaf in circle)
            turn = circle.index(first)
            names = " -> ".join(dotted(member) for member in [*circle[turn:], *circle[:turn], first])
            self.problems[first] = Problem(first, f"refers to itself: {names}")

    def _text(self, text: str, path: Key) -> tuple[tuple[int, int], Key | None]:
        """Resolve what a text names, innermost names first. Returns the size of what it becomes, and the path of the value
        that it stands for as a whole."""

        def written(found: re.Match[str]) -> str:
            name, _size = self._named(found[1], text, path)
            value = name if isinstance(name, str) else self._at(name)
            if value is None or omegaconf.OmegaConf.is_config(value):
                raise _Refused(f"{shown(text)}: {dotted(name)} is {described(_plain(value))}, it has no text")
            return re.sub(r"[$\\]", "\0", str(value))

        left = text
        for _ in range(_MOST_NESTED):
            if (alone := _INNERMOST.fullmatch(left)) is not None:
                name, size = self._named(alone[1], text, path)
                return size, None if isinstance(name, str) else name
            left, found = _INNERMOST.subn(written, left)
            if not found:
                break
        if re.search(r"(?<!\\)\$\{", left):
            raise _unreadable(text)
        return (1 + len(left), 0), None

    def _named(self, inside: str, text: str, path: Key) -> tuple[Key | str, tuple[int, int]]:
        """Path and size of what `${inside}` in a text at a path refers to; `${out:stage}` itself."""
        name, colon, _stage = inside.partition(":")
        name = name.strip()
        if colon and name != "out":
            raise _Refused(f"unknown ${{{name}:...}}", f"a recipe knows {_WHAT}")
        if colon:
            return f"${{{inside}}}", (4 + len(inside), 0)
        absolute = name.lstrip(".")
        if not absolute or "" in absolute.split("."):
            raise _unreadable(text)
        wanted = _path(absolute)
        around = path[: len(path) - (len(name) - len(absolute))] if absolute != name else ()
        found, size = self._found((*around, *wanted), path)
        if not all(_PART.fullmatch(str(part)) for part in wanted):
            raise _unreadable(text)
        self.total += size[0]
        if self.total > TOO_MANY or size[1] > TOO_DEEP:
            raise _Refused(f"the values of all ${{...}} are nested too deeply, or more than {TOO_MANY:,} characters")
        return found, size

    def _found(self, wanted: Key, user: Key) -> tuple[Key, tuple[int, int]]:
        tree, path = self.recipe, cast(Key, ())
        for index, part in enumerate(wanted):
            inner = _child(tree, part)
            if inner is None:
                if not isinstance(tree.value, str) or "${" not in tree.value:
                    raise self._unknown(wanted, tree, index)
                if (size := self.size(path, tree)) is None:
                    raise _Refused
                if omegaconf.OmegaConf.select(self.config, dotted(wanted), default=_ABSENT) is _ABSENT:
                    raise _Refused(f'unknown "${{{dotted(wanted)}}}"')
                return wanted, size
            tree, path = inner[1], (*path, inner[0])
        if tree.value == _MISSING or (tree.value is None and path[0] == "vars"):
            self.empty.setdefault(path, []).append(user)
            raise _Refused
        size = self.size(path, tree)
        if size is None:
            raise _Refused
        return path, size

    def _at(self, path: Key) -> Any:
        value: Any = self.config
        for part in path:
            value = value[str(part) if omegaconf.OmegaConf.is_dict(value) else part]
        return value

    def _unknown(self, wanted: Key, tree: Tree, depth: int) -> _Refused:
        """`${vars.cutof}`: `tree` is the last one on the path that exists."""
        message, name = f'unknown "${{{dotted(wanted)}}}"', str(wanted[depth])
        if wanted[0] not in TOP:
            if len(wanted) == 1 and name in _keys(self.recipe.get("vars")):
                return _Refused(message, f'did you mean "${{vars.{name}}}"?')
            return _Refused(message, alternatives(name, _keys(self.recipe)) + f"; a recipe knows {_WHAT}")
        if depth == 0:
            return _Refused(message, f"the recipe has no {name}")
        prefix, inside = dotted(wanted[:depth]), _keys(tree)
        guess = nearest(name, inside)
        hint = alternatives(guess and f"{prefix}.{guess}", [f"{prefix}.{key}" for key in inside])
        return _Refused(message, hint or f"{prefix} is {shown(tree.plain())}, there is nothing inside")


def _child(tree: Tree, part: str | int) -> tuple[str | int, Tree] | None:
    """A value inside another with its key, also when a number is the key of a mapping."""
    return next(((key, inner) for key in (part, str(part)) if (inner := tree.get(key)) is not None), None)


def _keys(tree: Tree | None) -> list[str]:
    return [key for key in tree.children if key != BARE] if tree is not None else []


def _plain(value: Any) -> Any:
    return omegaconf.OmegaConf.to_container(value) if omegaconf.OmegaConf.is_config(value) else value

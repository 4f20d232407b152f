"""`${vars.x}` and `${stages.a.b}`: other values of the recipe, also whole mappings, also within a text.

`${out:stage}` is kept as text; it is a reference to a product, not to a value. A backslash (`\\${...}`) keeps a `${` as text.
Each value is resolved once, and what they all come to is limited, so that no recipe takes long.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

from fgrl.recipe.merging import TOP
from fgrl.registry.annotations import described, shown
from fgrl.registry.building import BARE
from fgrl.registry.context import FAILED
from fgrl.registry.problems import Key, Problem, alternatives, dotted, nearest
from fgrl.registry.tree import TOO_DEEP, TOO_MANY, Tree

_SIMPLE = re.compile(r"(?<!\\)\$\{\s*([^${}:\s]+)\s*\}")
_TOKEN = re.compile(r"\\\$\{|\$\{|\}")
_WHAT = "${vars.x}, ${stages.a.b} and ${out:stage}"
_LONGEST_CHAIN = 100
_MOST_NESTED = 10


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
    resolver = _Resolver(recipe)
    plain = resolver.value((), recipe)
    return plain, resolver.all_problems()


@dataclass(frozen=True)
class _Reference:
    """A `${...}`: the text inside, which may contain further ones."""

    pieces: list[str | _Reference]


def _cut(text: str) -> list[str | _Reference]:
    """A text as its `${...}` and what is between them. Raises `_Refused` when one is not closed."""
    stack: list[list[str | _Reference]] = [[]]
    end = 0
    for token in _TOKEN.finditer(text):
        stack[-1].append(text[end : token.start()])
        end = token.end()
        if token[0] == "${":
            stack.append([])
        elif token[0] == "}" and len(stack) > 1:
            inside = _Reference(stack.pop())
            stack[-1].append(inside)
        else:
            stack[-1].append(token[0].removeprefix("\\"))
        if len(stack) > _MOST_NESTED:
            raise _unreadable(text)
    if len(stack) > 1:
        raise _unreadable(text)
    return [piece for piece in [*stack[0], text[end:]] if piece != ""]


class _Refused(Exception):
    """A text that cannot be resolved: message and hint. Without them the cause is elsewhere and reported there."""


def _unreadable(text: str) -> _Refused:
    return _Refused(f"cannot read {shown(text)}", f"a recipe knows {_WHAT}; a backslash before ${{ keeps it as text")


class _Resolver:
    """Resolves every value once, and before it what it needs."""

    def __init__(self, recipe: Tree) -> None:
        self.recipe = recipe
        self.values: dict[Key, Any] = {}
        self.open: list[Key] = []
        """What is being resolved, each because the one before needs it."""
        self.problems: dict[Key, Problem] = {}
        self.empty: dict[Key, list[Key]] = {}
        """Variables without a value, and the texts that need them."""
        self.size = 0
        """Values and characters that references have given so far."""

    def all_problems(self) -> list[Problem]:
        for path, users in self.empty.items():
            name = dotted(path)
            needed = dotted(users[0]) + (f" and {len(users) - 1} more" if len(users) > 1 else "")
            self.problems[path] = Problem(
                path, f"has no value: set it with {name}=...", f"needed by {needed}", needs=name
            )
        for path, problem in self.problems.items():
            problem.place = self.recipe.at(path)[0].place
        return list(self.problems.values())

    def value(self, path: Key, tree: Tree) -> Any:
        if path in self.values:
            return self.values[path]
        if path in self.open:
            self._circle(path)
            return FAILED
        if len(self.open) > _LONGEST_CHAIN:
            raise _Refused(f"needs more than {_LONGEST_CHAIN} values, one after the other")
        self.open.append(path)
        try:
            self.values[path] = value = self._resolved(path, tree.value)
        finally:
            self.open.pop()
        return value

    def _resolved(self, path: Key, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.value((*path, key), inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value((*path, index), inner) for index, inner in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        try:
            return self._text(value, path)
        except _Refused as refused:
            if refused.args:
                self.problems.setdefault(path, Problem(path, *refused.args))
            return FAILED

    def _circle(self, path: Key) -> None:
        """One problem for a circle, at the text that the recipe has first."""
        needed = self.open[self.open.index(path) :]
        circle = [member for member in needed if isinstance(self.recipe.at(member)[0].value, str)]
        if not any(member in self.problems for member in circle):
            first = next(leaf for leaf, _ in self.recipe.leaves() if leaf in circle)
            turn = circle.index(first)
            names = " -> ".join(dotted(member) for member in [*circle[turn:], *circle[:turn], first])
            self.problems[first] = Problem(first, f"refers to itself: {names}")

    def _text(self, text: str, path: Key) -> Any:
        pieces = _cut(text)
        if len(pieces) == 1 and isinstance(pieces[0], _Reference):
            return self._referred(pieces[0], text, path)[1]
        return self._joined(pieces, text, path)

    def _joined(self, pieces: list[str | _Reference], text: str, path: Key) -> str:
        words = []
        for piece in pieces:
            name, value = ("", piece) if isinstance(piece, str) else self._referred(piece, text, path)
            if value is None or isinstance(value, dict | list):
                raise _Refused(f"{shown(text)}: {name} is {described(value)}, it has no text")
            words.append(str(value))
        return "".join(words)

    def _referred(self, reference: _Reference, text: str, path: Key) -> tuple[str, Any]:
        """Name and value of what a reference in `text`, which is at `path`, refers to."""
        inside = self._joined(reference.pieces, text, path)
        name, colon, stage = inside.partition(":")
        name = name.strip()
        if colon and name != "out":
            raise _Refused(f"unknown ${{{name}:...}}", f"a recipe knows {_WHAT}")
        if colon:
            return inside, f"${{out:{stage}}}"
        absolute = name.lstrip(".")
        if not absolute or "" in absolute.split("."):
            raise _unreadable(text)
        around = path[: len(path) - (len(name) - len(absolute))] if absolute != name else ()
        wanted = (*around, *_path(absolute))
        return dotted(wanted), self._copy(self._value_at(wanted, path), 0)

    def _value_at(self, wanted: Key, user: Key) -> Any:
        tree, path = self.recipe, cast(Key, ())
        for index, part in enumerate(wanted):
            inner = _child(tree, part)
            if inner is None:
                if isinstance(tree.value, str) and "${" in tree.value:
                    return self._part(self.value(path, tree), wanted, index)
                raise self._unknown(wanted, tree, index)
            key, tree = inner
            path = (*path, key)
        if tree.value is None and path[0] == "vars":
            self.empty.setdefault(path, []).append(user)
            raise _Refused
        return self.value(path, tree)

    def _part(self, value: Any, wanted: Key, index: int) -> Any:
        """What `wanted[index:]` is in a value that an interpolation gave."""
        for part in wanted[index:]:
            if isinstance(value, dict) and str(part) in value:
                value = value[str(part)]
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                value = value[part]
            elif value is FAILED:
                raise _Refused
            else:
                raise _Refused(f'unknown "${{{dotted(wanted)}}}"')
        return value

    def _copy(self, value: Any, depth: int) -> Any:
        """A value that may be changed without changing the one that it comes from."""
        if value is FAILED or self.size > TOO_MANY:
            raise _Refused
        self.size += 1 + (len(value) if isinstance(value, str) else 0)
        if self.size > TOO_MANY or depth > TOO_DEEP:
            raise _Refused(f"the values of all ${{...}} are nested too deeply, or more than {TOO_MANY:,} characters")
        if isinstance(value, dict):
            return {key: self._copy(inner, depth + 1) for key, inner in value.items()}
        return [self._copy(inner, depth + 1) for inner in value] if isinstance(value, list) else value

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

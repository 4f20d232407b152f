"""Resolution of `${vars.x}` and `${stages.a.b}`: other values of the recipe, also whole mappings, also within a text.

OmegaConf's grammar reads the texts and composes them; the values that they name are looked up here, each resolved
once and before those that need it, and their total size is limited, so that no recipe takes long. A text that is one
plain `${name}` needs no grammar. `${out:stage}` is kept as text; it is a reference to a product, not to a value. A
backslash (`\\${...}`) keeps a `${` as text.
"""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any, cast

from fgrl.base import lazy
from fgrl.experiments.recipe.merging import TOP
from fgrl.registry.annotations import described, shown
from fgrl.registry.building import BARE
from fgrl.registry.context import FAILED
from fgrl.registry.explaining import holds
from fgrl.registry.problems import Key, Problem, alternatives, dotted, nearest
from fgrl.registry.tree import Tree

omegaconf = lazy.load("omegaconf")
grammar_parser = lazy.load("omegaconf.grammar_parser")
grammar_visitor = lazy.load("omegaconf.grammar_visitor")
_SIMPLE = re.compile(r"(?<!\\)\$\{\s*([^${}:\s]+)\s*\}")
_PLAIN = re.compile(r"\$\{\s*(\w[\w-]*(?:\.\w[\w-]*)*)\s*\}")
_OUT = re.compile(r"\$\{out:[^${}]*\}")
_WHAT = "${vars.x}, ${stages.a.b} and ${out:stage}"
_LONGEST_CHAIN = 100
_MISSING = "???"
"""OmegaConf's mark of a value that must still be set."""


def mentions(text: str) -> list[Key]:
    """Return the paths of the values that a text refers to by an absolute name."""
    return [_path(name) for name in _SIMPLE.findall(text) if not name.startswith(".")]


def alone(value: Any) -> Key | None:
    """Return the path in a text that consists of a single `${...}`; None for any other value."""
    match = _SIMPLE.fullmatch(value.strip()) if isinstance(value, str) else None
    return _path(match[1]) if match and not match[1].startswith(".") else None


def _path(name: str) -> Key:
    return tuple(map(_part, re.sub(r"\[(\w+)\]", r".\1", name).split(".")))


def _part(part: str | int) -> str | int:
    return int(part) if str(part).isdigit() else part


def find(recipe: Tree, path: Key) -> Tree | None:
    """Return the tree at a path."""
    tree, rest = recipe.at(path)
    return None if rest else tree


def origin(recipe: Tree, path: Key) -> Tree:
    """Return the tree where the value at a path was written: texts that consist of a single `${...}` are followed."""
    return source(recipe, path)[0]


def source(recipe: Tree, path: Key) -> tuple[Tree, Key]:
    """Return the tree of `origin`, and the part of the path that it does not have."""
    tree, rest = recipe.at(path)
    for _ in range(_LONGEST_CHAIN):
        target = alone(tree.value)
        if target is None or (find(recipe, target) is None and not isinstance(recipe.at(target)[0].value, str)):
            break
        tree, rest = recipe.at((*target, *rest))
    return tree, rest


def resolve(recipe: Tree) -> tuple[dict[str, Any], list[Problem]]:
    """Return the recipe as plain data with every `${...}` replaced. A text that cannot be replaced becomes `FAILED`,
    with a problem.
    """
    resolver = _Resolver(recipe)
    return resolver.value((), recipe), resolver.all_problems()


class _Refused(Exception):
    """Error for a text that cannot be resolved: message and hint. Without them the cause is elsewhere and reported
    there.
    """


class _Whole:
    """A value that can replace a whole text, but cannot be part of a text."""

    def __init__(self, value: Any, name: Key, text: str) -> None:
        self.value, self.refusal = value, f"{shown(text)}: {dotted(name)} is {described(value)}, it has no text"

    def __str__(self) -> str:
        raise _Refused(self.refusal)


class _Resolver:
    """Resolver of every value, each once, after the values that it needs."""

    def __init__(self, recipe: Tree) -> None:
        self.recipe = recipe
        self.values: dict[Key, Any] = {}
        self.open: list[Key] = []
        """Paths that are being resolved; each is needed by the path before it."""
        self.problems: dict[Key, Problem] = {}
        self.empty: dict[Key, list[Key]] = {}
        """Variables without a value, and the texts that need them."""

    def all_problems(self) -> list[Problem]:
        for path, users in self.empty.items():
            name = dotted(path)
            needed = dotted(users[0]) + (f" and {len(users) - 1} more" if len(users) > 1 else "")
            message = f"has no value: set it with {name}=..."
            self.problems[path] = Problem(path, message, f"needed by {needed}", needs=name)
        for path, problem in self.problems.items():
            problem.place = self.recipe.at(path)[0].place
        return list(self.problems.values())

    def value(self, path: Key, tree: Tree) -> Any:
        """Return a value as plain data; `FAILED` in place of each text that cannot be resolved."""
        if path in self.open:
            self._circle(path)
            return FAILED
        if path not in self.values:
            if len(self.open) > _LONGEST_CHAIN:
                raise _Refused(f"needs more than {_LONGEST_CHAIN} values, one after the other")
            self.open.append(path)
            try:
                self.values[path] = self._resolved(path, tree.value)
            finally:
                self.open.pop()
        return self.values[path]

    def _resolved(self, path: Key, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.value((*path, key), inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value((*path, index), inner) for index, inner in enumerate(value)]
        if not isinstance(value, str) or "${" not in value or _OUT.fullmatch(value):
            return value
        try:
            return self._text(value, path)
        except _Refused as refused:
            if refused.args:
                self.problems.setdefault(path, Problem(path, *refused.args))
            return FAILED

    def _circle(self, path: Key) -> None:
        """Report a circle once, at the first of its texts in the recipe."""
        needed = self.open[self.open.index(path) :]
        circle = [member for member in needed if isinstance(self.recipe.at(member)[0].value, str)]
        if not any(member in self.problems for member in circle):
            first = next(leaf for leaf, _ in self.recipe.leaves() if leaf in circle)
            turn = circle.index(first)
            names = " -> ".join(dotted(member) for member in [*circle[turn:], *circle[:turn], first])
            self.problems[first] = Problem(first, f"refers to itself: {names}")

    def _text(self, text: str, path: Key) -> Any:
        if (plain := _PLAIN.fullmatch(text)) is not None:
            return self._named(_path(plain[1]), path)

        def named(key: Any, _memo: Any) -> Any:
            name = (*path[: max(0, len(path) - key.relative_dots)], *key.parts) if key.relative_dots else key.parts
            value = self._named(tuple(map(_part, name)), path)
            return _Whole(value, name, text) if value is None or isinstance(value, dict | list) else value

        def called(name: str, args: tuple[Any, ...], args_str: tuple[str, ...]) -> str:
            if name != "out":
                raise _Refused(f"unknown ${{{name}:...}}", f"a recipe knows {_WHAT}")
            given = (arg if "$" in written else written for arg, written in zip(args, args_str, strict=True))
            return f"${{out:{', '.join(map(str, given))}}}"

        escaped = re.sub(
            r"(\\+)\$\{", lambda found: "\\" * (2 * len(found[1]) - 1) + "${", text
        )  # as OmegaConf escapes
        try:
            value = grammar_visitor.GrammarVisitor(named, called, None).visit(grammar_parser.parse(escaped))
        except (omegaconf.errors.OmegaConfBaseException, RecursionError):
            hint = f"a recipe knows {_WHAT}; a backslash before ${{ keeps it as text"
            raise _Refused(f"cannot read {shown(text)}", hint) from None
        return value.value if isinstance(value, _Whole) else value

    def _named(self, wanted: Key, user: Key) -> Any:
        """Return a copy of the value that the text at `user` names."""
        value = self._found(wanted, user)
        if holds(value, FAILED):
            raise _Refused
        return deepcopy(value)

    def _found(self, wanted: Key, user: Key) -> Any:
        tree, path = self.recipe, cast(Key, ())
        for index, part in enumerate(wanted):
            inner = tree.get(part)
            if inner is None:
                if not isinstance(tree.value, str) or "${" not in tree.value:
                    raise self._unknown(wanted, tree, index)
                return self._inside(self.value(path, tree), wanted, index)
            path = (*path, str(part) if isinstance(tree.value, dict) else part)
            tree = inner
        if len(path) == 2 and path[0] == "stages" and len(user) > 2 and "name" in tree.children:
            hint = f"what the stage makes is ${{out:{path[1]}}}"
            raise _Refused(f"${{{dotted(wanted)}}} is a whole stage, which has no place inside another", hint)
        if tree.value == _MISSING or (tree.value is None and path[0] == "vars"):
            self.empty.setdefault(path, []).append(user)
            raise _Refused
        return self.value(path, tree)

    def _inside(self, value: Any, wanted: Key, depth: int) -> Any:
        """Return the entry of a resolved value at the rest of a path."""
        for part in wanted[depth:]:
            if value is FAILED:
                raise _Refused
            try:
                value = value[str(part) if isinstance(value, dict) else part]
            except (KeyError, IndexError, TypeError):
                raise _Refused(f'unknown "${{{dotted(wanted)}}}"') from None
        return value

    def _unknown(self, wanted: Key, tree: Tree, depth: int) -> _Refused:
        """Return the error for an unknown name such as `${vars.cutof}`: `tree` is the last existing tree on the path."""
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


def _keys(tree: Tree | None) -> list[str]:
    return [key for key in tree.children if key != BARE] if tree is not None else []

"""`${vars.x}` and `${stages.a.b}`: OmegaConf resolves them, one at a time, so that every mistake is reported with its place.

`${out:stage}` is kept as text; it is a reference to a product, not to a value. A backslash (`\\${...}`) keeps any `${`
as text.
"""

from __future__ import annotations

import re
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import GrammarParseError, OmegaConfBaseException

from fgrl.recipe.merging import TOP
from fgrl.recipe.tree import Tree
from fgrl.registry.annotations import shown
from fgrl.registry.building import BARE
from fgrl.registry.context import FAILED
from fgrl.registry.problems import Key, Problem, alternatives, dotted, nearest

_SIMPLE = re.compile(r"(?<!\\)\$\{\s*([^${}:\s]+)\s*\}")
_RESOLVER = re.compile(r"(?<!\\)\$\{\s*([^${}:\s]+)\s*:")
_OUT = re.compile(r"(?<!\\)\$\{\s*out\s*:")
_WHAT = "${vars.x}, ${stages.a.b} and ${out:stage}"


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
        if tree is None:
            return None
        tree = tree.get(part) or tree.get(str(part))
    return tree


def origin(recipe: Tree, path: Key) -> Tree:
    """Where the value at a path was really written: through texts that are one `${...}`."""
    return source(recipe, path)[0]


def source(recipe: Tree, path: Key, depth: int = 0) -> tuple[Tree, Key]:
    """`origin`, and what of the path it does not have."""
    tree, rest = recipe.at(path)
    target = alone(tree.value)
    if target is None or depth > 20:
        return tree, rest
    if find(recipe, target) is None and not isinstance(recipe.at(target)[0].value, str):
        return tree, rest
    return source(recipe, (*target, *rest), depth + 1)


def resolve(recipe: Tree) -> tuple[dict[str, Any], list[Problem]]:
    """The recipe as plain data with every `${...}` replaced. What cannot be is `FAILED`, and a problem."""
    plain = recipe.plain()
    texts = {path: tree.value for path, tree in recipe.leaves() if isinstance(tree.value, str) and "${" in tree.value}
    if not texts:
        return plain, []
    problems: dict[Key, Problem] = {}
    for path, text in texts.items():
        problem = _unreadable(path, text) or _unknown(recipe, path, text)
        if problem is not None:
            problems[path] = problem
    circles = _circles({path: text for path, text in texts.items() if path not in problems})
    problems |= circles
    empty = _without_value(recipe, texts, problems)
    failed = {path for path, tree in recipe.leaves() if tree.value is FAILED}
    broken = _spread(texts, {*problems, *empty, *failed})
    ready = _masked(plain, (), broken)
    config = OmegaConf.create(ready)
    assert isinstance(config, DictConfig)
    for path, text in texts.items():
        if path in broken:
            continue
        try:
            value: Any = config
            for part in path:
                value = value[part]
            if OmegaConf.is_config(value):
                value = OmegaConf.to_container(value, resolve=True)
        except OmegaConfBaseException as error:
            problems[path] = Problem(path, f"{shown(text)}: {str(error).splitlines()[0].rstrip('.')}")
            value = FAILED
        except RecursionError:
            problems[path] = Problem(path, f"{shown(text)} goes round in a circle")
            value = FAILED
        _put(plain, path, value)
    for path in broken:
        _put(plain, path, FAILED)
    for path, tree in empty.items():
        where = [dotted(user) for user, text in texts.items() if path in mentions(text)]
        users = where[0] + (f" and {len(where) - 1} more" if len(where) > 1 else "")
        name = dotted(path)
        problems[path] = Problem(path, f"has no value: set it with {name}=...", f"needed by {users}", tree.place, name)
    for path, problem in problems.items():
        problem.place = problem.place or recipe.at(path)[0].place
    return plain, list(problems.values())


def _unreadable(path: Key, text: str) -> Problem | None:
    for name in _RESOLVER.findall(text):
        if name != "out":
            return Problem(path, f"unknown ${{{name}:...}}", f"a recipe knows {_WHAT}")
    try:
        OmegaConf.create({"text": _escaped(text)})
    except GrammarParseError:
        return Problem(
            path, f"cannot read {shown(text)}", f"a recipe knows {_WHAT}; a backslash before ${{ keeps it as text"
        )
    return None


def _unknown(recipe: Tree, path: Key, text: str) -> Problem | None:
    """`${vars.cutof}`: a name that is nowhere."""
    for wanted in mentions(text):
        if wanted[0] not in TOP:
            variables = _keys(recipe.get("vars"))
            name = str(wanted[0])
            if len(wanted) == 1 and nearest(name, variables) == name:
                return Problem(path, f'unknown "${{{name}}}"', f'did you mean "${{vars.{name}}}"?')
            known = [key for key in TOP if recipe.get(key) is not None]
            return Problem(
                path, f'unknown "${{{dotted(wanted)}}}"', alternatives(name, known) + f"; a recipe knows {_WHAT}"
            )
        if find(recipe, wanted) is not None:
            continue
        if recipe.get(wanted[0]) is None:
            return Problem(path, f'unknown "${{{dotted(wanted)}}}"', f"the recipe has no {wanted[0]}")
        tree, depth = recipe, 0
        while (inner := tree.get(wanted[depth]) or tree.get(str(wanted[depth]))) is not None:
            tree, depth = inner, depth + 1
        if isinstance(tree.value, str) and "${" in tree.value:  # goes on inside another interpolation
            continue
        inside, prefix = _keys(tree), dotted(wanted[:depth])
        guess = nearest(str(wanted[depth]), inside)
        choices = [f"{prefix}.{key}" for key in inside]
        hint = alternatives(guess and f"{prefix}.{guess}", choices)
        hint = hint or f"{prefix} is {shown(tree.value)}, there is nothing inside"
        return Problem(path, f'unknown "${{{dotted(wanted)}}}"', hint)
    return None


def _keys(tree: Tree | None) -> list[str]:
    return [key for key in tree.children if key != BARE] if tree is not None else []


def _circles(texts: dict[Key, str]) -> dict[Key, Problem]:
    """`${vars.a}` that needs `${vars.b}` that needs `${vars.a}`: one problem a circle, at its first text."""
    needs = {
        path: [other for wanted in mentions(text) for other in texts if _touches(wanted, other)]
        for path, text in texts.items()
    }
    problems: dict[Key, Problem] = {}
    done: set[Key] = set()

    def visit(path: Key, chain: list[Key]) -> None:
        if path in chain:
            circle = chain[chain.index(path) :]
            if not any(member in problems for member in circle):
                first = min(circle, key=list(texts).index)
                turn = circle.index(first)
                names = " -> ".join(dotted(member) for member in [*circle[turn:], *circle[:turn], first])
                problems[first] = Problem(first, f"goes round in a circle: {names}")
            return
        if path not in done:
            for other in needs[path]:
                visit(other, [*chain, path])
            done.add(path)

    for path in texts:
        visit(path, [])
    return problems


def _touches(wanted: Key, other: Key) -> bool:
    """Does the value at `wanted` need the text at `other`: is one inside the other?"""
    size = min(len(wanted), len(other))
    return wanted[:size] == other[:size]


def _without_value(recipe: Tree, texts: dict[Key, str], problems: dict[Key, Problem]) -> dict[Key, Tree]:
    """Variables that are used but null."""
    empty = {}
    for path, text in texts.items():
        for wanted in mentions(text):
            tree = find(recipe, wanted)
            if tree is None or tree.value is not None or path in problems:
                continue
            if wanted[0] == "vars":
                empty[wanted] = tree
            elif alone(text) is None:
                problems[path] = Problem(path, f"{shown(text)}: {dotted(wanted)} is null, it has no text")
    return empty


def _spread(texts: dict[Key, str], bad: set[Key]) -> set[Key]:
    """The texts that cannot be resolved because something they need, or they themselves, is bad."""
    broken = {path for path in texts if path in bad}
    while True:
        more = {
            path
            for path, text in texts.items()
            if path not in broken
            and any(_touches(wanted, other) for wanted in mentions(text) for other in broken | bad)
        }
        if not more:
            return broken
        broken |= more


def _escaped(text: str) -> str:
    """`${out:x}` as text for OmegaConf, which then still resolves what is inside of it."""
    return _OUT.sub(r"\\${out:", text)


def _masked(value: Any, path: Key, broken: set[Key]) -> Any:
    if path in broken or value is FAILED:
        return None
    if isinstance(value, dict):
        return {key: _masked(item, (*path, key), broken) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, (*path, index), broken) for index, item in enumerate(value)]
    return _escaped(value) if isinstance(value, str) and "${" in value else value


def _put(data: Any, path: Key, value: Any) -> None:
    for part in path[:-1]:
        data = data[part]
    data[path[-1]] = value

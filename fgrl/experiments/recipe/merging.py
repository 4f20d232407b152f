"""Merging of `extends` and overrides: trees are laid over each other; every value keeps its place.

Mappings merge deeply, anything else replaces; a mapping whose `name` changes replaces its parent whole; null drops.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import reduce

from fgrl.base import foreign
from fgrl.experiments.recipe.top import Row, Top
from fgrl.registry.annotations import described
from fgrl.registry.building import BARE
from fgrl.registry.problems import Key, Place, Problem, alternatives, nearest
from fgrl.registry.tree import COMMAND_LINE, Text, Tree, parse

TOP, ROW = tuple(Top.model_fields), tuple(Row.model_fields)
"""Keys of a recipe and of a row, in the order in which they are usually written."""


def merge(below: Tree, above: Tree) -> Tree:
    """Return `above` laid over `below`."""
    if above.value is None:
        return replace(above, dropped=True)
    if not isinstance(above.value, dict):
        return above
    commanded = above.place.rank >= COMMAND_LINE  # what is not set is where it was
    place = below.place if commanded else above.place
    if isinstance(below.value, list) and commanded:
        return Tree(_changed(below.value, above.value), place)
    if commanded and isinstance(below.value, int | float):
        raise _Refused(f"{described(below.value)} has no keys to set", None)
    if isinstance(below.value, str) and not above.value:
        return below
    if isinstance(below.value, str) and "name" not in above.value:
        return Tree({BARE: below, **_marked(above).children}, place)
    if not isinstance(below.value, dict) or _renamed(below.value, above.value):
        return _marked(above)
    entries = dict(below.value)
    for key, inner in above.value.items():
        entries[key] = merge(entries[key], inner) if key in entries else _marked(inner)
    if BARE in entries and "name" in above.value:
        del entries[BARE]
    return Tree(entries, place)


def _changed(items: list[Tree], changes: dict[str, Tree]) -> list[Tree]:
    """Return a list in which the items at some numbers are replaced."""
    changed = list(items)
    for key, inner in changes.items():
        if not key.isdigit() or int(key) >= len(items):
            raise _Refused(f'a list of {len(items)} has no item "{key}"', None)
        changed[int(key)] = merge(items[int(key)], inner)
    return changed


def _renamed(below: dict[str, Tree], above: dict[str, Tree]) -> bool:
    if "name" not in above:
        return False
    before = below.get("name") or below.get(BARE)
    return before is not None and before.value != above["name"].value


def _marked(tree: Tree) -> Tree:
    """Return the tree with its nulls marked: in a tree that is laid over another, a null drops."""
    if isinstance(tree.value, dict):
        return replace(tree, value={key: _marked(inner) for key, inner in tree.value.items()})
    return replace(tree, dropped=True) if tree.value is None else tree


def override(recipe: Tree, arguments: list[str]) -> tuple[Tree, list[Problem]]:
    """Lay `a.b=value` arguments over a recipe. Changes of `name` go first, so their order does not matter."""
    problems: list[Problem] = []
    changes: list[tuple[Key, Tree]] = []
    for number, argument in enumerate(arguments):
        change = _parse(argument, COMMAND_LINE + number)
        if isinstance(change, list):
            problems += change
        else:
            changes.append(change)
    changes.sort(key=lambda change: (change[0][-1] != "name", len(change[0]) if change[0][-1] == "name" else 0))
    for path, value in changes:
        try:
            _check_place(recipe, path, value)
            recipe = merge(recipe, reduce(lambda inner, key: Tree({str(key): inner}, value.place), path[::-1], value))
        except _Refused as refused:
            message, hint = refused.args
            problems.append(Problem(path, message, hint, value.place))
    return recipe, problems


class _Refused(Exception):
    """Error for an override that cannot be laid over the recipe: message and hint."""


def _parse(argument: str, rank: int) -> tuple[Key, Tree] | list[Problem]:
    key, equals, value = argument.partition("=")
    place = Place("command line", 0, 1, argument, None, rank)
    parts = re.sub(r"\[(\d+)\]", r".\1", key.strip()).split(".")
    if not equals or not all(part.strip() for part in parts):
        return [Problem((), f'"{argument}": wants key=value', "for example stages.policy.algorithm.kl_coef=0.1", place)]
    if not value.strip():
        hint = f"{key}=null drops it, {key}='\"\"' is the empty text"
        return [Problem(tuple(parts), "has no value", hint, place)]
    tree, problems = parse(Text(value, "command line", None, rank, len(key) + 1, argument))
    if tree is None or problems:
        for problem in problems:
            problem.path = (*parts, *problem.path)
        return problems
    return tuple(parts), Tree(tree.value, place)


def _check_place(recipe: Tree, path: Key, value: Tree) -> None:
    """Refuse an override of something that the recipe does not have, if this can be known without the components."""
    top = str(path[0])
    if top in ("extends", "imports"):
        raise _Refused(f"{top} cannot be set on the command line", "write a recipe that extends this one")
    if top == "rows":
        message = "rows cannot be set on the command line"
        raise _Refused(message, "run the row with FILE::ROW, and set its values directly: stages.x.y=...")
    if top not in TOP:
        wanted = value.place.text.partition("=")[2]
        others = alternatives(top, ["vars", "seed", "dtype", "stages", "about"])
        whole = f"vars.{top}" if path[0] in recipe.under("vars") else _in_a_stage(recipe, path)
        raise _Refused(f'unknown key "{top}"', f'did you mean "{whole}={wanted}"?' if whole else others)
    below, rest = recipe.at(path)
    if value.value == {} and not rest and (below.children or isinstance(below.value, str)):
        raise _Refused("an empty mapping changes nothing here", "null removes what is there")
    if len(path) == 1 and top in ("vars", "stages") and value.value is not None and not isinstance(value.value, dict):
        raise _Refused(f"wants a mapping, got {described(value.plain())}", f"to set one: {top}.name=...")
    if len(path) > 1 and top in ("vars", "stages"):
        known, second = list(recipe.under(top)), str(path[1])
        adds = top == "stages" and len(path) == 2 and "name" in value.children
        if second not in known and not adds:
            what = "stage" if top == "stages" else "variable"
            near = nearest(second, known)
            hint = alternatives(second, known) if near or known else None
            raise _Refused(f'the recipe has no {what} "{second}"', hint)


def _in_a_stage(recipe: Tree, path: Key) -> str | None:
    """Return the place in a stage that a path without `stages`, or with a name of another toolkit, means."""
    stages, name = recipe.under("stages"), ".".join(map(str, path))
    if str(path[0]) in stages:
        return f"stages.{name}"
    for meant in (name, *foreign.places(name.lstrip("-+")), *foreign.places(str(path[-1]).lstrip("-"))):
        parts = tuple(meant.split("."))
        for stage, tree in stages.items():
            _, rest = tree.at(parts)
            if len(rest) <= (len(parts) > 1):
                return f"stages.{stage}.{meant}"
    return None

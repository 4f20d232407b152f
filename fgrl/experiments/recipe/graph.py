"""Checks of references between stages (existence and type), and the order of the stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from fgrl.kinds import Stage
from fgrl.registry.context import PlacedRef
from fgrl.registry.problems import Place, Problem, alternatives

Graph = dict[str, list[str]]


def check(
    stages: Mapping[str, type[Stage] | None], dropped: Mapping[str, Place], refs: Sequence[PlacedRef]
) -> tuple[list[PlacedRef], list[Problem]]:
    """Return (references that fit, problems of the others).

    `stages` has every stage's class, or None if its `name` is wrong (then its product is not checked). `dropped` has
    the stages of the recipe's parents that were set to null, with the place of the null.
    """
    fitting: list[PlacedRef] = []
    problems: list[Problem] = []
    for reference in refs:
        target = reference.ref.stage
        if target not in stages:
            why = f"was dropped {dropped[target].in_words()}" if target in dropped else "the recipe does not have"
            hint = alternatives(target, list(stages))
            problems.append(Problem(reference.path, f'refers to stage "{target}", which {why}', hint))
            continue
        cls = stages[target]
        if cls is None or issubclass(cls.makes, reference.products):
            fitting.append(reference)
            continue
        wanted = " or ".join(product.__name__ for product in reference.products)
        others = [
            name for name, other in stages.items() if other is not None and issubclass(other.makes, reference.products)
        ]
        hint = f"stages that make {wanted}: {', '.join(others)}" if others else f"no stage makes {wanted}"
        message = f'needs {wanted}, but stage "{target}" makes {cls.makes.__name__}'
        problems.append(Problem(reference.path, message, hint))
    return fitting, problems


def circle(graph: Graph, refs: Sequence[PlacedRef]) -> list[Problem]:
    """Return the problem of stages that need each other in a circle, placed at a reference of the first of them in the
    recipe; empty if there is no circle.
    """
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        around = error.args[1][:0:-1]
        turn = around.index(min(around, key=list(graph).index))
        around = [*around[turn:], *around[: turn + 1]]
        place = next(ref.path for ref in refs if ref.path[1] == around[0] and ref.ref.stage == around[1])
        names = " -> ".join(around)
        message = f"stages need each other in a circle: {names}" if len(around) > 2 else "refers to the stage itself"
        return [Problem(place, message, "name another stage, a folder or a hub id")]
    return []


def order(graph: Graph) -> list[str]:
    """Return the stages in an order in which each comes after the stages that it needs; otherwise in the order of the
    recipe. `graph` has no circle.
    """
    done: list[str] = []
    while len(done) < len(graph):
        done.append(next(name for name in graph if name not in done and all(up in done for up in graph[name])))
    return done

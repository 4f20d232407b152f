"""References between stages: do they exist, do they fit, and in which order can the stages run?"""

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

    `stages` has every stage's class, None when its `name` is wrong (then its product is not checked); `dropped` has the
    stages that the recipe's parents have and where they were set to null.
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


def circles(graph: Graph, refs: Sequence[PlacedRef]) -> list[Problem]:
    """One problem for each circle of stages, at the reference of its first stage."""
    problems: list[Problem] = []
    remaining: dict[str, list[str]] = dict(graph)
    while (circle := _circle(remaining)) is not None:
        turn = circle.index(min(circle, key=list(graph).index))
        circle = [*circle[turn:], *circle[:turn]]
        around = [*circle, circle[0]]
        place = next(ref.path for ref in refs if ref.path[1] == around[0] and ref.ref.stage == around[1])
        names = " -> ".join(around)
        message = f"stages need each other in a circle: {names}" if len(circle) > 1 else "refers to the stage itself"
        problems.append(Problem(place, message, "name another stage, a folder or a hub id"))
        remaining = {stage: [] if stage in circle else needs for stage, needs in remaining.items()}
    return problems


def _circle(graph: Graph) -> list[str] | None:
    """Stages of which each needs the next, and the last the first; None when there are none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1][1:]))
    return None


def order(graph: Graph) -> list[str]:
    """Stages so that each comes after what it needs; otherwise in the order of the recipe. `graph` has no circle."""
    done: list[str] = []
    while len(done) < len(graph):
        done.append(next(name for name in graph if name not in done and all(up in done for up in graph[name])))
    return done

"""References between stages: do they exist, do they fit, and in which order can the stages run?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fgrl.kinds import Stage
from fgrl.registry.context import PlacedRef
from fgrl.registry.problems import Key, Place, Problem, alternatives

Graph = dict[str, list[str]]


def check(
    stages: Mapping[str, type[Stage] | None], dropped: Mapping[str, Place], refs: Sequence[PlacedRef]
) -> tuple[list[PlacedRef], list[Problem]]:
    """(references that fit, problems of the others).

    `stages` has every stage's class, None when its `name` is wrong (then its product is not checked); `dropped` has the
    stages that the recipe's parents have and where they were set to null.
    """
    fitting: list[PlacedRef] = []
    problems: list[Problem] = []
    for reference in refs:
        target = reference.ref.stage
        if target not in stages:
            why = (
                f"which was dropped {dropped[target].in_words()}"
                if target in dropped
                else "which the recipe does not have"
            )
            hint = alternatives(target, list(stages))
            problems.append(Problem(reference.path, f'refers to stage "{target}", {why}', hint))
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
    done: set[str] = set()
    reported: set[str] = set()

    def where(stage: str, upstream: str) -> Key:
        return next(
            reference.path for reference in refs if reference.path[1] == stage and reference.ref.stage == upstream
        )

    def visit(stage: str, chain: list[str]) -> None:
        if stage in chain:
            circle = chain[chain.index(stage) :]
            if not reported & set(circle):
                reported.update(circle)
                turn = circle.index(min(circle, key=list(graph).index))
                circle = [*circle[turn:], *circle[:turn]]
                message = (
                    "refers to its own stage"
                    if len(circle) == 1
                    else f"stages need each other in a circle: {' -> '.join([*circle, circle[0]])}"
                )
                problems.append(Problem(where(circle[0], [*circle, circle[0]][1]), message))
            return
        if stage not in done:
            for upstream in graph[stage]:
                visit(upstream, [*chain, stage])
            done.add(stage)

    for stage in graph:
        visit(stage, [])
    return problems


def order(graph: Graph) -> list[str]:
    """Stages so that each comes after what it needs; otherwise in the order of the recipe. `graph` has no circle."""
    done: list[str] = []
    while len(done) < len(graph):
        done.append(next(name for name in graph if name not in done and all(up in done for up in graph[name])))
    return done

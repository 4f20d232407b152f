"""Every import of fgrl's own modules, however it is written, and what the layout forbids among them.

`python tests/support/import_walk.py` prints the violations.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FLOORS = [
    ["__main__"], ["cli"], ["commands"], ["library"], ["exchange.publishing", "exchange.starting"], ["exchange"], ["experiments.pipeline"], ["experiments.recipe"],
    ["experiments.stages"], ["experiments"], ["components"], ["pages.annotation", "pages.report"], ["pages"], ["runs.cleaning"], ["runs.results"], ["runs"], ["training"], ["measuring"], ["data"],
    ["rollouts.serving"], ["rollouts"], ["feedback"], ["feedback.llm"], ["feedback.rules"],
    ["feedback.page_settings", "feedback.quotes", "feedback.sandbox", "feedback.templates"], ["feedback.suggestions"], ["models"], ["kinds"],
    ["kinds.functions", "kinds.specs"], ["types"], ["registry"], ["base.ops"], ["feedback.similar_stretch"], ["base"],
]  # fmt: skip
"""From the top down. A room imports itself and the rooms of the floors below; rooms of one floor do not know each other. A package
that is named with a part of it has more than one floor."""
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

MODULE_NAME = re.compile(r"fgrl(\.[A-Za-z_]\w*)+")
REGISTERS = ("register",)


def module_of(file: Path, root: Path = ROOT) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(root: Path = ROOT) -> dict[str, str]:
    """The source of every module of fgrl, by the module's name."""
    return {module_of(file, root): file.read_text(encoding="utf-8") for file in sorted((root / "fgrl").rglob("*.py"))}


def imports(source: str, modules: Iterable[str]) -> Iterator[tuple[int, str]]:
    """(line, fgrl module) of every import: statements anywhere in the file, under TYPE_CHECKING too, and every text that is
    the name of a module (what `lazy.load`, `import_module`, `__import__` and tables of names are given)."""
    yield from _imports(source, frozenset(modules))


@cache
def _imports(source: str, known: frozenset[str]) -> list[tuple[int, str]]:
    """Kept, because the tests walk the same files many times."""
    return list(_walked(source, known))


def _walked(source: str, known: frozenset[str]) -> Iterator[tuple[int, str]]:
    nodes = list(ast.walk(ast.parse(source)))
    groups = {  # `entry_points(group="fgrl.components")` names no module
        id(keyword.value)
        for node in nodes
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "group"
    }
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "fgrl")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            if (node.module or "").split(".")[0] == "fgrl":
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    yield node.lineno, whole if whole in known or node.module == "fgrl" else str(node.module)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE_NAME.fullmatch(node.value):
            named = _nearest(node.value, known)
            if named != "fgrl" and id(node) not in groups:
                yield node.lineno, named


def _nearest(name: str, known: frozenset[str]) -> str:
    """`fgrl.models.load` is the module `fgrl.models`."""
    while name not in known and "." in name:
        name = name.rpartition(".")[0]
    return name


def room(module: str) -> str:
    """`components` of `fgrl.components.algorithms.ppo`; fgrl itself belongs to no room."""
    parts = module.split(".")[1:]
    rooms = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((own for own in rooms if own in FLOOR), parts[0] if parts else "")


def violations(modules: Mapping[str, str]) -> list[str]:
    """What breaks the layout, one line each: upward imports, components that import components, files of the catalogue that
    register nothing, circles."""
    graph = {module: sorted(set(imports(source, modules))) for module, source in modules.items()}
    return [
        *_upward(graph), *_between_components(graph), *_silent_components(modules), *_circles(graph)
    ]  # fmt: skip


def _upward(graph: Mapping[str, list[tuple[int, str]]]) -> Iterator[str]:
    for module, imported in graph.items():
        here = room(module)
        if here and here not in FLOOR:
            yield f"{module}: the room {here!r} stands on no floor"
            continue
        for line, other in imported:
            there = room(other)
            if other == "fgrl":  # its version
                continue
            if not here:
                if there == "cli":  # all else is exported, at the first use of each name
                    yield f"{module}:{line}: fgrl itself imports {other}"
            elif there not in FLOOR:
                yield f"{module}:{line}: imports {other}, which belongs to no room"
            elif here != there and FLOOR[there] <= FLOOR[here]:
                yield f"{module}:{line}: {here} imports {other}, which is not below it"


def _in_catalogue(module: str) -> bool:
    return module.startswith("fgrl.components.")


def _between_components(graph: Mapping[str, list[tuple[int, str]]]) -> Iterator[str]:
    """No file of the catalogue imports another one: recipes name them, and the index says where they are."""
    for module, imported in graph.items():
        if not _in_catalogue(module):
            continue
        for line, other in imported:
            if other.startswith("fgrl.components"):
                yield f"{module}:{line}: a component imports the component {other}"


def _silent_components(modules: Mapping[str, str]) -> Iterator[str]:
    packages = {module.rpartition(".")[0] for module in modules}
    for module, source in modules.items():
        if not _in_catalogue(module) or module in packages or module.count(".") == 2:  # the package of a kind
            continue
        if not _called(source) & set(REGISTERS):
            yield f"{module}: registers nothing that `fgrl list` shows"


@cache
def _called(source: str) -> frozenset[str]:
    """The functions that a file calls by their bare names."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return frozenset(call.func.id for call in calls if isinstance(call.func, ast.Name))


def _circles(graph: Mapping[str, list[tuple[int, str]]]) -> Iterator[str]:
    """Groups of files that import each other in a loop (strongly connected, by Tarjan's algorithm)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for _line, other in graph.get(module, []):
            if other == "fgrl":  # its version, which it has before it imports anything
                continue
            if other not in number:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], number[other])
        if lowest[module] == number[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1 or any(other == module for _line, other in graph.get(module, [])):
                circles.append(sorted(group))

    for module in graph:
        if module not in number:
            visit(module)
    for group in sorted(circles):
        yield f"{group[0]}: imports itself through {', '.join(group[1:]) or 'nothing else'}"


if __name__ == "__main__":
    print("\n".join(violations(sources())) or "no violations")

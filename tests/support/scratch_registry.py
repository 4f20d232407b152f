"""A registry that forgets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from fgrl.registry import outside
from fgrl.registry.names import _announced, _components, _kinds, _names


@contextmanager
def scratch() -> Iterator[None]:
    """Kinds and names declared inside are forgotten afterwards."""
    kinds, names = dict(_kinds), dict(_names)
    components = {kind: dict(by_name) for kind, by_name in _components.items()}
    announced = {kind: dict(by_name) for kind, by_name in _announced.items()}
    try:
        yield
    finally:
        for table in (_kinds, _names, _components, _announced):
            table.clear()
        _kinds.update(kinds)
        _names.update(names)
        _components.update(components)
        _announced.update(announced)


@contextmanager
def scratch_imports() -> Iterator[None]:
    """`scratch`, as in a process in which no recipe has imported a file yet."""
    with (
        scratch(),
        mock.patch.object(outside, "_imported", {}),
        mock.patch("fgrl.experiments.recipe.loading._by_recipes", set()),
    ):
        yield

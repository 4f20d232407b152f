"""A registry that forgets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fgrl.registry.names import _absent, _components, _kinds, _names


@contextmanager
def scratch() -> Iterator[None]:
    """Kinds and names declared inside are forgotten afterwards."""
    kinds, names = dict(_kinds), dict(_names)
    components = {kind: dict(by_name) for kind, by_name in _components.items()}
    absent = {kind: dict(by_name) for kind, by_name in _absent.items()}
    try:
        yield
    finally:
        for table in (_kinds, _names, _components, _absent):
            table.clear()
        _kinds.update(kinds)
        _names.update(names)
        _components.update(components)
        _absent.update(absent)

"""Trainings that crash where a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fgrl.training import callbacks


class Bomb(Exception):
    """Stands for a crash."""


def crash_around_saving(patch: pytest.MonkeyPatch, call: int, *, before: bool) -> None:
    """Crash right before or right after the `call`-th checkpoint of this process."""
    whole, calls = callbacks.save, iter(range(10_000))

    def save(trainer: Any, folder: Path) -> None:
        this = next(calls) == call
        if this and before:
            raise Bomb
        whole(trainer, folder)
        if this:
            raise Bomb

    patch.setattr(callbacks, "save", save)


@contextmanager
def crashing(patcher: pytest.MonkeyPatch, crash: Callable[[pytest.MonkeyPatch], None]) -> Iterator[None]:
    """The block has to crash."""
    with patcher.context() as patch:
        crash(patch)
        with pytest.raises(Bomb):
            yield

"""Facts about the data from which the builder builds, and the problems and references that it collects."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fgrl.base import native
from fgrl.base.references import Product, Ref
from fgrl.registry.problems import Key, Problem
from fgrl.registry.settings import ByDevice


class _Failed:
    """Mark in place of a value that has problems; no field takes it."""

    def __repr__(self) -> str:
        return "<a value with problems>"


FAILED: Any = _Failed()


@dataclass(frozen=True)
class PlacedRef:
    """A `${out:stage}` with its path, and the products that its slot takes."""

    path: Key
    ref: Ref[Any]
    products: tuple[type[Product], ...]


@dataclass
class Context:
    """Origin of the data, and the problems and references in it."""

    folder: Callable[[Key], Path] = lambda path: Path.cwd()
    """Function that returns the folder that a `File` at this path is relative to."""
    dropped: Callable[[Key], bool] = lambda path: False
    """Function that returns True if the value at a path was set to null to drop the inherited value: the field then has
    its default.
    """
    stages: Collection[str] = ()
    """Names of the recipe's stages, for hints."""
    auto: Callable[[Key, ByDevice], str] = lambda path, values: values.value(native.here().dtype)
    """Function that returns the value of `auto` at this path."""
    component: tuple[Key, str] = ((), "")
    """The innermost component that is being built: its path and its name."""
    problems: list[Problem] = field(default_factory=list)
    refs: list[PlacedRef] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    """Remarks on values that are valid, but perhaps not intended."""

    def problem(self, path: Key, message: str, hint: str | None = None, *, written: bool = False) -> Any:
        """Record a problem. written: the value is wrong in every place. Returns `FAILED`, for the value with the
        problem.
        """
        self.problems.append(Problem(path, message, hint or None, written=written))
        return FAILED

    def note(self, path: Key, message: str, hint: str | None = None) -> None:
        """Record a remark on a valid value that is perhaps not intended."""
        self.notes.append(Problem(path, message, hint))

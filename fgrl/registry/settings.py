"""What every component and every group of settings is: a strict pydantic model whose fields document themselves."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Unkeyed:
    """Marks a field that cannot change results: `batch_size: Annotated[int, Unkeyed] = 64` is left out of cache keys."""


class File:
    """Marks a path: `words: Annotated[str, File]`.

    In a recipe it is relative to the recipe that names it. The builder makes it absolute and reports a missing file; the
    file's content, not its place, counts for cache keys. Works for `str | None` and for items of lists and mappings too.
    """


class Settings(BaseModel):
    """Typed settings. The docstring under a field is its help (`fgrl.registry.docstrings` reads it); unknown keys and
    wrong types are refused.

    Strict: `1` fits a float, `1.5` and `true` do not fit an int, numbers must be finite.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        frozen=False,
        validate_default=False,
    )


class Component(Settings):
    """Settings with behaviour, which a recipe picks by name. Constructing one is cheap."""

    version: ClassVar[int] = 1
    """Raise it when the same settings begin to give other results: cached stages are then done anew."""

    def setup(self, run: Any) -> None:
        """Ask for what costs time or memory (models, files): called once, before the first use in a running stage."""

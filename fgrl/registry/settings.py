"""Base of every component and group of settings: a strict pydantic model whose fields document themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, PrivateAttr
from pydantic_core.core_schema import CoreSchema, no_info_after_validator_function

from fgrl.base import native
from fgrl.base.errors import Requires
from fgrl.registry.problems import Problem


class Unkeyed:
    """Mark of a field that cannot change results: `batch_size: Annotated[int, Unkeyed] = 64` never counts for cache
    keys.
    """


class File:
    """Mark of a path: `words: Annotated[str, File]`.

    In a recipe it is relative to the recipe that names it. The builder makes it absolute and reports a missing file;
    the file's content, not its place, counts for cache keys. Works for `str | None` and for items of lists and
    mappings too.
    """

    word: ClassVar[str] = "file"

    @classmethod
    def parts(cls, value: str) -> tuple[str, str]:
        """Return the path in a field's value, and the text after it (a marker for `rewards.py:score` has both)."""
        return value, ""

    @classmethod
    def problems(cls, value: str) -> Sequence[Problem]:
        """Return the problems inside the existing file that a field names; `value` has the absolute path."""
        return ()


class Folder(File):
    """Mark of the path of a folder, as `File` is for files."""

    word: ClassVar[str] = "folder"


@dataclass(frozen=True)
class FolderOrName:
    """Mark of a text that names a folder or something else: `base: Annotated[str, FolderOrName()]`, a folder or a hub
    id.

    In a recipe a folder is relative to the recipe that names it: if the folder exists, the builder makes the path
    absolute. A text that can only be a folder (`names_folder`) and does not exist is reported. Any other text is not
    changed.
    """

    names: tuple[str, ...] = ()
    """Texts that never mean a folder."""


AUTO = "auto"


@dataclass(frozen=True)
class ByDevice:
    """Mark of a field whose value `auto` depends on the data types that the device multiplies natively
    (`fgrl.base.native`).

    In a recipe the builder replaces `auto`, so that the plan, the log, the key and the stage's files have the value
    that is used. In settings that are made in Python, `auto` is replaced when they are checked.
    """

    float32: str = "float32"
    bfloat16: str = "bfloat16"
    whole: str = "float32"
    """Value in place of `bfloat16` if all weights of a model are trained: steps in bfloat16 would round most updates
    away.
    """

    def value(self, dtype: native.DType, *, whole: bool = False) -> str:
        """Return the meaning of `auto` on a device for which `dtype` is right."""
        return self.float32 if dtype == "float32" else self.whole if whole else self.bfloat16

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def settled(value: Any) -> Any:
            return self.value(native.here().dtype) if value == AUTO else value

        return no_info_after_validator_function(settled, handler(source))


def names_folder(text: str) -> bool:
    """Return True if the name of a model or of a data set can only be a folder, whether the folder exists or not;
    `owner/name` is a hub id.
    """
    return text.startswith((".", "/", "~")) or text.count("/") > 1


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
        defer_build=True,  # validators are built at first use: a start needs few of the classes
    )

    def behind(self) -> list[str]:
        """Return the further facts that count for cache keys, besides the fields and the contents of the files that
        they name: the function that is taken from a file, and the contents of files that a named file refers to.
        """
        return []

    requires: ClassVar[Requires | None] = None
    """Optional package that the settings need."""

    def check_machine(self) -> None:
        """Raise `Unavailable` if this machine lacks something that these settings need: a package, a key, a GPU, a
        sandbox. It is called for every part of a recipe before the first stage of a run, so it is quick and imports no
        torch.
        """
        if self.requires is not None:
            self.requires.check()

    def remarks(self) -> list[str]:
        """Return remarks on values that are valid, but perhaps not intended: notes that are shown when a recipe is
        read.
        """
        return []

    def setup(self, run: Any) -> None:
        """Set up everything that the fields hold: called once, before the first use in a running stage. A component
        that needs models or files overrides it to ask `run` for them, and calls `super().setup(run)` if it holds
        components.
        """
        for name in type(self).model_fields:
            for part in _held(getattr(self, name)):
                part.setup(run)


class Component(Settings):
    """Settings with behaviour, which a recipe selects by name. Creating a component is cheap."""

    version: ClassVar[int] = 1
    """Version of the results. Raise it when the same settings begin to give other results, or when a default of a field
    of this class or of a group of settings in it changes: cached stages are then run again.
    """

    _run: Any = PrivateAttr(None)
    """The running stage, from `setup` on; for a reader in a plan, the `fgrl.kinds.Peek`."""

    def setup(self, run: Any) -> None:
        self._run = run
        super().setup(run)

    @classmethod
    def contradiction(cls) -> str | None:
        """Return the reason why the declarations of the class do not fit its definitions; None if they fit. With a
        reason, registering it is refused.
        """
        return None


def _held(value: Any) -> Iterator[Settings]:
    """Yield the settings that a field's value is or contains, but not the settings inside these."""
    if isinstance(value, Settings):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _held(item)

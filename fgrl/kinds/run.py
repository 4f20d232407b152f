"""Services that a running stage may ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fgrl.kinds.specs import ModelSpec, Sampling
from fgrl.types import AlarmRecord, Ref

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


C = TypeVar("C", bound="Closable")


class Closable(Protocol):
    """An object that holds a resource of the machine."""

    def close(self) -> None:
        """Release it."""


class Ticker(Protocol):
    """A progress line: `advance(8, reward=0.3)`."""

    def advance(self, steps: int = 1, **shown: float | str) -> None: ...


class Run(Protocol):
    """Services that a running stage may ask for. `fgrl.experiments.pipeline.run` has the implementation."""

    seed: int
    dir: Path
    """The stage's own folder, with `last.ckpt`, `log.jsonl`, and the files that it needs to resume."""
    out: Path
    """Folder of the product."""
    cache: Path
    """Folder shared by all stages, for files named by a hash of their inputs."""
    device: Any
    """Device of this process's models."""
    rank: int
    limit: int | None
    """Limit of a quick trial (`--limit`): read at most this many samples, take at most this many steps."""
    interrupted: bool
    """True after a Ctrl-C: the stage should save and stop."""
    sampling: Sampling | None
    """Settings with which the stage draws responses, with their limits; None if it draws none."""

    def path(self, ref: Ref[Any]) -> Path:
        """Return the product folder of another stage."""

    def model(self, spec: ModelSpec, *, head: str = "lm", trainable: bool = False, shards: bool = False) -> Any:
        """Return a loaded `fgrl.models.LanguageModel`; frozen ones are shared within the stage. shards: the training
        will divide the model's weights among its processes; until then only rank 0 reads them.
        """

    def forget_models(self) -> None:
        """Free the frozen models that nothing else holds."""

    def shared(self, name: str, make: Callable[[], C]) -> C:
        """Return an object that several components of the stage share. It is made at the first call and closed when the
        stage ends.
        """

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Append to the stage's log (JSONL, CSV, W&B)."""

    def say(self, text: str) -> None:
        """Print one line for the person at the terminal (stderr)."""

    def record_alarms(self, alarms: Sequence[AlarmRecord]) -> None:
        """Record the alarms of a training so far, for the stage's record."""

    def stop_if_interrupted(self) -> None:
        """Raise `KeyboardInterrupt` after a Ctrl-C. All results so far are on disk."""

    def progress(self, what: str, total: int, done: int = 0) -> AbstractContextManager[Ticker]:
        """Show a progress line with ETA."""

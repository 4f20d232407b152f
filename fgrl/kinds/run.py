"""What a running stage may ask for."""

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
    """What holds something of the machine."""

    def close(self) -> None:
        """Give it back."""


class Ticker(Protocol):
    """A progress line: `advance(8, reward=0.3)`."""

    def advance(self, steps: int = 1, **shown: float | str) -> None: ...


class Run(Protocol):
    """What a running stage may ask for. `fgrl.experiments.pipeline.run` has the real one."""

    seed: int
    dir: Path
    """The stage's own folder: `last.ckpt`, `log.jsonl`, and what it needs to resume."""
    out: Path
    """Folder of the product."""
    cache: Path
    """Folder shared by all stages, for files named by a hash of what they were computed from."""
    device: Any
    """Device of this process's models."""
    rank: int
    limit: int | None
    """`--limit`, a quick trial: read at most this many samples, take at most this many steps."""
    interrupted: bool
    """True after a Ctrl-C: save and leave."""
    sampling: Sampling | None
    """How the stage draws responses, with their limits; None: it draws none."""

    def path(self, ref: Ref[Any]) -> Path:
        """Return the product folder of another stage."""

    def model(self, spec: ModelSpec, *, head: str = "lm", trainable: bool = False, shards: bool = False) -> Any:
        """Return a loaded `fgrl.models.LanguageModel`; frozen ones are shared within the stage. shards: the training will share
        its weights out, which rank 0 alone reads until then.
        """

    def forget_models(self) -> None:
        """Free the frozen models that nothing else holds."""

    def shared(self, name: str, make: Callable[[], C]) -> C:
        """Return what several components of the stage share: made at the first call, closed when the stage ends."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Append to the stage's log (JSONL, CSV, W&B)."""

    def say(self, text: str) -> None:
        """Print one line for the person at the terminal (stderr)."""

    def record_alarms(self, alarms: Sequence[AlarmRecord]) -> None:
        """Put down the alarms of a training so far, for the stage's record."""

    def stop_if_interrupted(self) -> None:
        """Raise `KeyboardInterrupt` after a Ctrl-C: everything up to here is on disk."""

    def progress(self, what: str, total: int, done: int = 0) -> AbstractContextManager[Ticker]:
        """Show a progress line with ETA."""

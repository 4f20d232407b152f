"""Interface of a kind of training, which lets `TrainingModule` run it with Lightning.

A training is a sequence of rounds. A round is one Lightning epoch, and checkpoints are written between rounds: it is an
iteration of online training, or some optimizer steps of offline training. All random numbers inside a round are seeded
by its number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from fgrl import models
from fgrl.kinds import Numbers, Run
from fgrl.kinds.functions import checked_loss
from fgrl.training.trainer import TrainSettings
from fgrl.types import Batch


@dataclass(frozen=True)
class Process:
    """One of the processes that train together."""

    rank: int
    world: int
    """Number of processes."""
    forward_context: Callable[[], AbstractContextManager[Any]]
    """Context with the precision of forward passes in training steps."""


class Rounds(ABC):
    """The rounds of one training."""

    unit: ClassVar[str]
    """Label of the progress line."""
    reports: ClassVar[Literal["step", "round"]]
    """Time when `report` is called: after each optimizer step, or after each round."""

    model: Any
    algorithm: Any
    """An `OnlineAlgorithm` or an `OfflineAlgorithm`."""
    settings: TrainSettings
    run: Run
    count: int
    """Number of rounds."""
    total_steps: int
    """Optimizer steps of all rounds."""
    micro_batches: int
    """Number of micro-batches of an optimizer step on each device; `start` sets it for its round."""
    resumable: int = 0
    """Earliest round with which a checkpoint continues."""
    frozen: Sequence[models.LanguageModel] = ()
    """Models in addition to `model` whose weights may be sharded over the processes."""

    @property
    def language_models(self) -> list[models.LanguageModel]:
        """Return the language models in `model`."""
        return [part for part in self.model.modules() if isinstance(part, models.LanguageModel)]

    @abstractmethod
    def start(self, number: int, process: Process) -> Iterable[Batch]:
        """Return the micro-batches of a round. The random generators of all libraries have been seeded for it."""

    def loss(self, batch: Batch) -> tuple[Tensor, Numbers]:
        """Return the loss and the metrics of a micro-batch."""
        return models.gathering(
            self.language_models, lambda: checked_loss(self.algorithm, self.algorithm.loss(self.model, batch))
        )

    @abstractmethod
    def report(self, metrics: dict[str, float], number: int) -> dict[str, float]:
        """Log the training's metrics of optimizer step or round `number`. Return the metrics for the progress line."""

    @abstractmethod
    def progress(self, number: int) -> tuple[int, int]:
        """Return the number of finished units of progress before round `number`, and the total."""

    @abstractmethod
    def position(self, number: int, done: int) -> float:
        """Return the place in the learning-rate schedule, of `total_steps`, after `done` optimizer steps of round
        `number`.
        """

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return groups with their own peak learning rates; each network is clipped separately."""
        return [{"params": [p for p in self.model.parameters() if p.requires_grad], "lr": self.settings.lr}]

    def state_dict(self) -> dict[str, Any]:
        """Return the contents of a checkpoint besides the trained weights."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027
        """Restore the result of `state_dict`; `state` also has the rest of the checkpoint."""

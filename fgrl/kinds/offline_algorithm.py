"""Offline algorithms: losses on a fixed data set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from fgrl.kinds.run import Run
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import Component, kind
from fgrl.types import Batch, Column, Numbers, Sample

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Encoded:
    """A sample as token ids, with the columns that an algorithm needs."""

    prompt: list[int]
    response: list[int]
    columns: dict[str, Tensor]
    """One value, or one value per response token, by column; each is declared in the algorithm's `columns`."""


@kind("offline_algorithm")
class OfflineAlgorithm(Component, ABC):
    """Offline algorithm: a loss on a fixed data set."""

    data: ClassVar[str]
    """"pairs" (rows 2i chosen, 2i+1 rejected) or "samples"."""
    head: ClassVar[str] = "lm"
    columns: ClassVar[Mapping[str, Column]] = {}
    """Columns that `encode` and `prepare` add or that come with the data (`reads`), e.g.
    `{"segment": per_token(fill=-1)}` (see `fgrl.types.columns`)."""

    def reads(self) -> frozenset[str]:
        """Return the `columns` that come with the data. Each is a number, or a list of one number per token, under this
        name in the `meta` of each sample or pair. For a pair, {chosen: ..., rejected: ...} has a value for each
        response.
        """
        return frozenset()

    def encode(self, sample: Sample, model: Any, max_tokens: int) -> Encoded | None:
        """Return the ids and columns of a sample that is not read as a chat, at most `max_tokens` together.

        Return None to read it as a chat: the prompt goes through the chat template, and the response (or the reference)
        is closed with an end-of-sequence token.
        """
        return None

    def prepare(self, rows: Sequence[Mapping[str, Any]], run: Run, model: Any) -> None:
        """Make one-time passes before training, and add columns: `row["columns"][name] = tensor` (see
        `fgrl.rollouts.rows`). Each column must be declared in `columns`.
        """

    def begin(self, model: Any, units: Sequence[Batch], run: Run, rank: int = 0, world: int = 1) -> None:
        """Make one-time passes right before the first step of this process. The model is then on its device, in its
        type and inside its precision. Each of `world` processes calls it. units: all units of the training, each as a
        separate batch.
        """

    def unit_by_unit(self) -> bool:
        """Return True if `loss` reads each unit in a separate pass, so that larger micro-batches only take more
        memory.
        """
        return False

    def frozen_models(self, model: ModelSpec) -> dict[str, ModelSpec]:
        """Return the models that the algorithm loads besides the trained one (`model`), by role; `fgrl plan` counts
        them.
        """
        return {}

    @abstractmethod
    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Numbers]:
        """Return the scalar loss and the metrics of a micro-batch.

        A metric is a plain number, averaged over rows, a `fgrl.types.Mean` (over tokens, segments), or a `Most`.
        """

    def describe(self) -> dict[str, Any]:
        """Return the facts that a user of the trained checkpoint must know (stored in `fgrl.json`)."""
        return {}


@runtime_checkable
class CreditsTokens(Protocol):
    """An offline algorithm that tells what each token contributes; `fgrl inspect` and the report draw it."""

    def token_credit(self, model: Any, batch: Batch) -> Mapping[str, Tensor]:
        """Return numbers [B,T] of the response tokens by name, such as implicit rewards. The columns of the data are
        drawn in any case. Called without gradients, for one unit at a time.
        """

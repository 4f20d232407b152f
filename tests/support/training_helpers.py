"""Rows, tiny models and fake models for the tests of losses and training."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from fgrl import models
from fgrl.experiments.pipeline.run import Run
from fgrl.kinds.specs import ModelSpec
from fgrl.training.steps import Step, StepLoader
from fgrl.training.tally import Tally
from fgrl.training.units import EncodedUnits
from fgrl.types import Batch, Column, Number, Ref, per_response, per_token

PAD, EOS = 0, 2


def tiny(base: Path | Ref[Any], *, head: str = "lm", trainable: bool = False, seed: int = 0, **spec: Any) -> Any:
    """A `LanguageModel` on the tiny folder; `seed` draws its head and adapter."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        base = str(base) if isinstance(base, Path) else base
        return models.load(ModelSpec(base=base, **spec), head=head, trainable=trainable)


def a_run(folder: Path, **options: Any) -> Run:
    """A stage's run without a pipeline around it."""
    (folder / "out").mkdir(parents=True, exist_ok=True)
    return Run("test", folder, cache=folder / "cache", **options)


def row(length: int, seed: int = 0, prompt: int | None = None) -> dict[str, Any]:
    """A random prompt and a random response of `length` tokens that ends with EOS when `length` is even."""
    draw = random.Random(f"{length} {seed}")
    response = [draw.randrange(10, 300) for _ in range(length)]
    if length % 2 == 0:
        response[-1] = EOS
    return {
        "prompt": [1] + [draw.randrange(10, 300) for _ in range(prompt or draw.randrange(1, 7))],
        "response": response,
        "finished": length % 2 == 0,
        "columns": {},
    }


def whole(units: Sequence[Any], pieces: int = 1, world: int = 1) -> list[Batch]:
    """The micro-batches of one optimizer step that takes all units, of all ranks."""
    step = Step(list(range(len(units))))
    encoded = EncodedUnits(units, pad_id=PAD, eos_ids={EOS, 3}, columns=declared(units[0][0]))
    return [
        batch
        for rank in range(world)
        for batch in StepLoader(encoded, [step], micro_batches=pieces, rank=rank, world=world)
    ]


def declared(row: Mapping[str, Any]) -> dict[str, Column]:
    """The columns of a row, with the fills that the library's algorithms declare."""
    return {
        name: per_response() if value.ndim == 0 else per_token(fill=-1 if value.dtype == torch.int64 else 0)
        for name, value in row["columns"].items()
    }


def joined(parts: Sequence[tuple[Mapping[str, Number], int]]) -> dict[str, float]:
    """Metrics of several parts, each with its number of rows, as those of the whole."""
    tally = Tally()
    for metrics, rows in parts:
        tally.add(metrics, rows)
    return tally.take()


def step_gradient(
    module: nn.Module, loss_of: Callable[[Batch], Tensor], batches: Sequence[Batch]
) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradient of an optimizer step, accumulated over micro-batches and ranks as Lightning and DDP do."""
    module.zero_grad()
    total = 0.0
    for batch in batches:
        loss = loss_of(batch) / len(batches)
        loss.backward()
        total += float(loss.detach())
    return total, {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def distance(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """Norm of the difference of two gradients over the norm of the first."""
    assert a.keys() == b.keys()
    far = sum(float((a[name] - b[name]).square().sum()) for name in a)
    return (far / sum(float(value.square().sum()) for value in a.values())) ** 0.5


@dataclass
class Said:
    """Stands for `models.Scores`."""

    logp: Tensor
    entropy: Tensor | None = None


class FakeModel(nn.Module):
    """Says what it is told, whatever it is asked about: `score` log-probs, `values` and `rewards`. `reference` are the log-probs
    with the adapter switched off."""

    adapted = True

    def __init__(
        self,
        logp: Tensor | None = None,
        numbers: Tensor | None = None,
        entropy: Tensor | None = None,
        reference: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.logp, self.numbers, self.entropy, self.reference = logp, numbers, entropy, reference

    def score(
        self,
        batch: Batch,
        *,
        temperature: float = 1.0,
        entropy: bool = False,
        adapter: bool = True,
        gradient: bool | None = None,
        pairs: bool = False,
    ) -> Said:
        logp = self.logp if adapter else self.reference
        assert logp is not None
        return Said(logp, self.entropy if entropy else None)

    def low_precision(self) -> AbstractContextManager[None]:
        return nullcontext()

    def values(self, batch: Batch) -> Tensor:
        assert self.numbers is not None
        return self.numbers

    rewards = values


def fake_actor_critic(logp: Tensor, values: Tensor, entropy: Tensor | None = None) -> Any:
    return SimpleNamespace(actor=FakeModel(logp=logp, entropy=entropy), critic=FakeModel(numbers=values))


def fake_batch(lengths: Sequence[int], columns: dict[str, Tensor], finished: Sequence[bool] | None = None) -> Batch:
    """A batch of zeros with responses of these lengths; it is the whole optimizer step."""
    ends = finished or [False] * len(lengths)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    eos = torch.zeros_like(mask)
    for i, (length, end) in enumerate(zip(lengths, ends, strict=True)):
        eos[i, length - 1] = end
    zeros = torch.zeros(mask.shape, dtype=torch.long)
    return Batch(
        prompt_ids=zeros[:, :1], prompt_mask=torch.ones_like(mask[:, :1]), response_ids=zeros, mask=mask, eos=eos,
        columns=columns, total_tokens=float(sum(lengths)), total_rows=float(len(lengths)),
    )  # fmt: skip

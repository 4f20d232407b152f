"""Log-probabilities of whole responses under a frozen reference, each computed once.

Every unit (the rows of a pair) is computed in a separate pass, so that its numbers do not depend on other units. They
are stored under a hash of the reference's weights, of every token id and of all settings that affect rounding: all
epochs, a resumed training, and trainings with another loss or learning rate read the same file.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fgrl import rollouts
from fgrl.kinds import Run
from fgrl.kinds.specs import ModelSpec
from fgrl.rollouts import passes
from fgrl.types import Tokens

VERSION = 1
"""Version of the computation. It is increased when the pass computes something else, so that older files are not found."""
STORED_EVERY = 256
"""Number of units after which a single process stores its results, in case it is killed."""

Compute = Callable[[Tokens], Tensor]
"""Function from the rows of a unit to the nats of each response, float64 [rows]."""


def units_of(tokens: Tokens, each: int) -> Iterator[Tokens]:
    """Yield rows `each * i` to `each * i + each - 1`, without the padding that only other rows need."""
    for first in range(0, len(tokens.mask), each):
        yield rollouts.trim(rollouts.select(tokens, slice(first, first + each)))


def digest(unit: Tokens) -> bytes:
    """Return a hash of the token ids of a unit that are read and summed, independent of its padding."""
    hashed = hashlib.blake2b(digest_size=16)
    parts = zip(unit.prompt_ids, unit.prompt_mask, unit.response_ids, unit.mask, unit.drawn, strict=True)
    for prompt, prompt_mask, response, mask, drawn in parts:
        summed = [] if torch.equal(mask, drawn) else [drawn.nonzero().flatten().tolist()]
        for ids in (prompt[prompt_mask].tolist(), response[mask].tolist(), *summed):
            hashed.update(array("q", [len(ids), *ids]).tobytes())
    return hashed.digest()


def file_for(units: Sequence[Tokens], spec: ModelSpec, run: Run, conditions: str) -> Path:
    """Return the file with the numbers of these units. spec: the reference. conditions: settings that affect rounding."""
    hashed = hashlib.sha256(
        f"{VERSION}:{passes.identity(spec, run)}:{spec.dtype}:{spec.quantize}:{conditions}".encode()
    )
    for unit in units:
        hashed.update(digest(unit))
    return run.cache / f"reference-{hashed.hexdigest()[:16]}.safetensors"


class ReferenceSums:
    """Numbers that this process knows, by unit and conditions."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], list[float]] = {}

    def of(self, unit: Tokens, compute: Callable[[], Tensor], conditions: str) -> Tensor:
        """Return the nats of each response of a unit, float64 [rows]. They are computed if this process does not know
        them.
        """
        key = conditions, digest(unit)
        if key not in self._known:
            self._known[key] = compute().tolist()
        return torch.tensor(self._known[key], dtype=torch.float64, device=unit.mask.device)

    def fill(
        self, units: Sequence[Tokens], compute: Compute, conditions: str, file: Path, run: Run, rank: int, world: int
    ) -> None:
        """Load the numbers of all units from `file`. If it does not exist, the processes compute them together and
        store them there.
        """
        if not len(units):
            return
        stored: Any = [passes.kept(file, run) if rank == 0 else None]
        if world > 1:
            torch.distributed.broadcast_object_list(stored)
        values = stored[0]
        if values is None:
            values = torch.full((len(units), len(units[0].mask)), torch.nan, dtype=torch.float64)
        missing = values.isnan().any(1).nonzero().flatten().tolist()
        if missing:
            self._compute([*missing[rank::world]], values, units, compute, file, run, world)
            if rank == 0:
                passes.keep(values, file)
        else:
            run.say(f"reference log-probabilities of {len(units)} pairs from {file.name}")
        for unit, numbers in zip(units, values.tolist(), strict=True):
            self._known[conditions, digest(unit)] = numbers

    def _compute(
        self,
        mine: list[int],
        values: Tensor,
        units: Sequence[Tokens],
        compute: Compute,
        file: Path,
        run: Run,
        world: int,
    ) -> None:
        with run.progress("reference log-probabilities", len(mine)) as ticker:
            try:
                for done, number in enumerate(mine, 1):
                    values[number] = compute(units[number]).cpu()
                    ticker.advance()
                    if world == 1 and done % STORED_EVERY == 0:
                        passes.keep(values, file)
            except KeyboardInterrupt:  # every pass of the model may stop
                if world == 1:
                    passes.keep(values, file)
                raise
        if world > 1:
            parts: list[Any] = [None] * world
            torch.distributed.all_gather_object(parts, (mine, values[mine]))
            for numbers, part in parts:
                values[numbers] = part

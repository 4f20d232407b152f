"""One-time forward passes over a fixed data set, kept on disk by content.

A pass is named by a hash of the model's weights and of every token id it reads, so every epoch and every recipe that
shares model and data shares the file; the entropy cutoff is no part of the name. While a pass is under way its parts
lie in a folder of that name: whoever is killed goes on from the last whole one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fgrl import models, rollouts
from fgrl.kinds import Run, Segmenter
from fgrl.models import sources
from fgrl.rollouts.rows import Ragged, Table
from fgrl.specs import ModelSpec
from fgrl.types import Ref, Segmentable

Row = Mapping[str, Any]
VERSION = 1
"""Raised when a pass begins to compute something else: kept ones are then not found."""
PART = 32
"""Batches in a part: what a kill costs at most."""


def identity(spec: ModelSpec, run: Run) -> str:
    """What names the weights: the bytes of the files when another stage made them."""
    if isinstance(spec.base, Ref):
        return sources.digest_of_folder(run.path(spec.base))
    return models.fingerprint(spec)


def lengths(rows: Sequence[Row], what: str) -> list[int]:
    """Tokens of every row's "prompt" or "response"."""
    return rows.lengths(what) if isinstance(rows, Table) else [len(row[what]) for row in rows]


def batches(rows: Sequence[Row], size: int) -> list[list[int]]:
    """Indices of rows in groups of similar length."""
    whole = [
        prompt + response for prompt, response in zip(lengths(rows, "prompt"), lengths(rows, "response"), strict=True)
    ]
    order = sorted(range(len(rows)), key=whole.__getitem__)
    return [order[i : i + size] for i in range(0, len(order), size)]


def tokens_of(rows: Sequence[Row], model: Any) -> Any:
    """`Tokens` of some rows."""
    return rollouts.pad(
        [row["prompt"] for row in rows], [row["response"] for row in rows], pad_id=model.pad_id, eos_ids=model.eos_ids
    )


def cached_pass(name: str, field: str, rows: Sequence[Row], run: Run, spec: ModelSpec, size: int = 16) -> Ragged:
    """A field of `rollouts.score` under a frozen model for all rows: one tensor [length of response] each."""
    path = run.cache / f"{name}-{_digest(name, rows, run, spec)}.safetensors"
    found = Ragged(lengths(rows, "response"))
    if path.exists():
        run.say(f"{name}: {len(rows)} responses from {path.name}")
        found.flat.copy_(load_file(path)["values"])
        return found
    folder, groups = path.with_suffix(""), batches(rows, size)
    parts = [groups[i : i + PART] for i in range(0, len(groups), PART)]
    with run.progress(name, len(rows)) as ticker:
        for number, part in enumerate(parts):
            file = folder / f"{size}x{PART}-{number:06d}.safetensors"
            chosen = [i for group in part for i in group]
            values = _kept(file)
            if values is None:
                values = torch.cat(list(_scores(part, rows, run.model(spec), field, size)))
                _keep(values, file, run)
            for i, one in zip(chosen, values.split([len(found[i]) for i in chosen]), strict=True):
                found[i] = one
            ticker.advance(len(chosen))
            run.stop_if_interrupted()
    _keep(found.flat, path, run)
    if run.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _digest(name: str, rows: Sequence[Row], run: Run, spec: ModelSpec) -> str:
    how = f"{VERSION}:{name}:{identity(spec, run)}:{spec.dtype}:{spec.quantize}"
    digest = hashlib.sha256(how.encode())
    for row in rows:
        for ids in (row["prompt"], row["response"]):
            digest.update(array("q", [len(ids), *ids]).tobytes())
    return digest.hexdigest()[:16]


@torch.no_grad()
def _scores(
    groups: Sequence[Sequence[int]], rows: Sequence[Row], model: Any, field: str, size: int
) -> Iterator[Tensor]:
    """The field of each row, group after group."""
    for group in groups:
        some = [rows[i] for i in group]
        values = rollouts.score(model, model, tokens_of(some, model), frozenset({field}), micro_batch=size)[field]
        yield from (value[:length] for value, length in zip(values, lengths(some, "response"), strict=True))


def _kept(file: Path) -> Tensor | None:
    try:
        return load_file(file)["values"]
    except FileNotFoundError:  # not computed yet, or put together and removed by another process just now
        return None


def _keep(values: Tensor, file: Path, run: Run) -> None:
    """Finished by rename; two stages may want the same pass at the same time."""
    if run.rank == 0:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(f".{os.getpid()}.partial")
        save_file({"values": values}, temporary)
        temporary.replace(file)


def entropies(rows: Sequence[Row], run: Run, spec: ModelSpec) -> Ragged:
    """Entropy in nats of the distribution each response token was predicted by (segment paper, section 2.2)."""
    return cached_pass("entropy", "ref_entropy", rows, run, spec)


def add_segments(rows: Sequence[Row], segmenter: Segmenter, run: Run, spec: ModelSpec, *, tokenizer: Any) -> None:
    """Adds the column "segment": for each response token the index of its segment, -1 for none."""
    entropy = entropies(rows, run, spec) if "entropy" in segmenter.needs else None
    for i, row in enumerate(rows):
        ids = torch.tensor(row["response"])[None]
        eos = torch.zeros_like(ids, dtype=torch.bool)
        eos[0, -1] = bool(row["finished"])
        view = Segmentable(
            ids=ids, mask=torch.ones_like(eos), eos=eos, entropy=entropy[i][None] if entropy is not None else None
        )
        if "text" in segmenter.needs:
            view.texts = [rollouts.decode(tokenizer, row["response"])]
            view.offsets = [rollouts.offsets(tokenizer, row["response"])]
        row["columns"]["segment"] = segmenter.segment_ids(view)[0]


def add_reference_logp(rows: Sequence[Row], run: Run, spec: ModelSpec) -> None:
    """Adds the column "ref_logp": log-probability of the whole response under a frozen model, in nats."""
    for row, logp in zip(rows, cached_pass("logp", "old_logp", rows, run, spec), strict=True):
        row["columns"]["ref_logp"] = logp.sum()

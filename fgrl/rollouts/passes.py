"""One-time forward passes over a fixed data set, stored in the cache by content.

The file's name is a hash of the model's weights and of every token id that the pass reads. All epochs and all recipes
with the same model and data share the file; the entropy cutoff is not part of the name. While a pass is running, its
finished parts are in a folder with the same name, so that a killed pass resumes after the last complete part.
"""

from __future__ import annotations

import hashlib
import shutil
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fgrl import models, rollouts
from fgrl.base import ranks
from fgrl.base.files import atomically
from fgrl.kinds import Run, Segmenter
from fgrl.kinds.specs import ModelSpec
from fgrl.models import digests
from fgrl.rollouts.padding import FROZEN_MICRO_BATCH_SIZE
from fgrl.rollouts.rows import EncodedRow, Ragged, TokenTable
from fgrl.types import Ref, Segmentable

VERSION = 1
"""Version of the computation. It is increased when a pass computes something else, so that older stored results are not
found.
"""
PART = 32
"""Number of groups of rows in one part: the most that a killed process has to compute again."""


def identity(spec: ModelSpec, run: Run) -> str:
    """Return a text that identifies the weights: the digest of the files if another stage made them."""
    if isinstance(spec.base, Ref):
        digest = digests.digest_of_folder(run.path(spec.base))
        parts = {"step": spec.step, "auxiliary": spec.auxiliary}
        return " ".join([digest, *(f"{name} {value}" for name, value in parts.items() if value is not None)])
    return models.fingerprint(spec)


def lengths(rows: Sequence[EncodedRow], what: str) -> list[int]:
    """Return the number of tokens of every row's "prompt" or "response"."""
    return rows.lengths(what) if isinstance(rows, TokenTable) else [len(row[what]) for row in rows]


def groups_by_length(rows: Sequence[EncodedRow], micro_batch_size: int) -> list[list[int]]:
    """Return indices of rows in groups of similar length, the shortest first. Parts on disk are numbered in this
    order.
    """
    total_lengths = [
        prompt + response for prompt, response in zip(lengths(rows, "prompt"), lengths(rows, "response"), strict=True)
    ]
    order = sorted(range(len(rows)), key=total_lengths.__getitem__)
    return [order[i : i + micro_batch_size] for i in range(0, len(order), micro_batch_size)]


def cached_pass(
    name: str, field: str, rows: Sequence[EncodedRow], run: Run, spec: ModelSpec,
    micro_batch_size: int = FROZEN_MICRO_BATCH_SIZE,
) -> Ragged:  # fmt: skip
    """Return a field of `rollouts.score` under a frozen model for all rows: one tensor [length of response] for each
    row.

    Every process of a stage calls this with the same rows, and computes a share of the parts.
    """
    path = run.cache / f"{name}-{_digest(name, rows, run, spec)}.safetensors"
    values = Ragged(lengths(rows, "response"))
    if (stored := kept(path, run)) is not None:
        run.say(f"{name}: {len(rows)} responses from {path.name}")
        values.flat.copy_(stored)
        return values
    folder, groups = path.with_suffix(""), groups_by_length(rows, micro_batch_size)
    parts = {
        folder / f"{micro_batch_size}x{PART}-{number:06d}.safetensors": groups[i : i + PART]
        for number, i in enumerate(range(0, len(groups), PART))
    }
    mine = list(parts)[ranks.place() :: ranks.connected()]
    with run.progress(name, sum(len(group) for file in mine for group in parts[file])) as ticker:
        for file in mine:
            if kept(file, run) is None:
                part_values = torch.cat(list(_scores(parts[file], rows, run.model(spec), field, micro_batch_size)))
                keep(part_values, file)
            ticker.advance(sum(map(len, parts[file])))
            run.stop_if_interrupted()
    ranks.meet()  # all parts are there
    for file, part in parts.items():
        chosen = [i for group in part for i in group]
        with safe_open(file, "pt") as stored_part:
            row_values = torch.split(stored_part.get_tensor("values"), [len(values[i]) for i in chosen])
        for i, one in zip(chosen, row_values, strict=True):
            values[i] = one
    ranks.meet()  # all have read them
    if ranks.place() == 0:
        keep(values.flat, path)
        shutil.rmtree(folder, ignore_errors=True)
    return values


def _digest(name: str, rows: Sequence[EncodedRow], run: Run, spec: ModelSpec) -> str:
    how = f"{VERSION}:{name}:{identity(spec, run)}:{spec.dtype}:{spec.quantize}"
    digest = hashlib.sha256(how.encode())
    for row in rows:
        for ids in (row["prompt"], row["response"]):
            digest.update(array("q", [len(ids), *ids]).tobytes())
    return digest.hexdigest()[:16]


@torch.no_grad()
def _scores(
    groups: Sequence[Sequence[int]], rows: Sequence[EncodedRow], model: Any, field: str, micro_batch_size: int
) -> Iterator[Tensor]:
    """Yield the field of each row, group after group."""
    for group in groups:
        chosen = [rows[i] for i in group]
        tokens = rollouts.pad_rows(chosen, model.pad_id, model.eos_ids)
        values = rollouts.score(model, model, tokens, frozenset({field}), micro_batch_size=micro_batch_size)[field]
        yield from (value[:length] for value, length in zip(values, lengths(chosen, "response"), strict=True))


def kept(file: Path, run: Run) -> Tensor | None:
    """Return the stored values; None if they must be computed, because the file is missing or has changed since."""
    try:
        with safe_open(file, "pt") as stored:
            values: Tensor = stored.get_tensor("values")
            checksum = (stored.metadata() or {}).get("sha256")
    except FileNotFoundError:  # not computed yet, or merged and removed by another process just now
        return None
    except SafetensorError as error:
        run.say(f"{file.name} is damaged ({error}) and is computed again")
        return None
    if checksum != _sha256(values):
        run.say(f"{file.name} is damaged (its sha256 differs) and is computed again")
        return None
    return values


def _sha256(values: Tensor) -> str:
    return hashlib.sha256(values.cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def keep(values: Tensor, file: Path) -> None:
    """Store values by rename, because two stages may compute the same pass at the same time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomically(file) as partial:
        save_file({"values": values}, partial, {"sha256": _sha256(values)})


def entropies(rows: Sequence[EncodedRow], run: Run, spec: ModelSpec) -> Ragged:
    """Return the entropy in nats of the distribution that each response token was predicted by (segment paper, section
    2.2).
    """
    return cached_pass("entropy", "ref_entropy", rows, run, spec)


def add_segments(
    rows: Sequence[EncodedRow], segmenter: Segmenter, run: Run, spec: ModelSpec, *, tokenizer: Any
) -> None:
    """Add the column "segment": the index of the segment of each response token, -1 if it is in none."""
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

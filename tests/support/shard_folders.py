"""Checkpoints in shards, written by one process and without a training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed import checkpoint as dcp

from fgrl.training import shards


def write_shards(folder: Path, weights: Mapping[str, Tensor], *, sealed: bool = True) -> None:
    """The checkpoint of a training in shards, as `last.ckpt`. sealed: False leaves it as a kill would before its end."""
    partial = folder / "writing.ckpt"
    partial.mkdir()
    torch.save({"round": 1}, partial / shards.REST)
    moments = {name: {"step": torch.tensor(1.0)} for name in weights}
    writer = shards.ShardWriter(partial)
    if not sealed:
        writer.finish = lambda metadata, results: None  # type: ignore[method-assign]
    dcp.save({shards.WEIGHTS: dict(weights), shards.MOMENTS: moments}, storage_writer=writer, no_dist=True)

"""Models without weights, in processes that are to get a part of them from rank 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from training_helpers import a_run, tiny

from fgrl import models
from fgrl.base import ranks
from fgrl.kinds.specs import ModelSpec

LORA = {"r": 4, "alpha": 8}


@pytest.fixture(scope="module")
def adapted(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model with an adapter."""
    folder = tmp_path_factory.mktemp("adapted")
    models.save(tiny(tiny_model_dir, trainable=True, lora=LORA), folder, {})
    return folder


def outline(model: Any) -> dict[str, Any]:
    weights = {name: (each.shape, each.dtype, each.requires_grad) for name, each in model.named_parameters()}
    return weights | {name: (each.shape, each.dtype) for name, each in model.named_buffers()}


@pytest.mark.parametrize(
    ("start", "head", "lora"),
    [
        ("plain", "lm", None), ("plain", "scalar", LORA), ("adapted", "lm", LORA), ("adapted", "lm", None),
        ("adapted", "scalar", None),
    ],
)  # fmt: skip
def test_a_skeleton_is_the_model_without_its_weights(
    start: str, head: str, lora: Any, tiny_model_dir: Path, adapted: Path
) -> None:
    spec = ModelSpec(base=str(tiny_model_dir if start == "plain" else adapted), lora=lora)
    skeleton = models.load(spec, head=head, trainable=True, skeleton=True)
    assert outline(skeleton) == outline(models.load(spec, head=head, trainable=True))
    assert all(each.is_meta for each in (*skeleton.parameters(), *skeleton.buffers()))


def test_a_skeleton_packs_rows_as_the_process_with_the_weights_does(tiny_model_dir: Path) -> None:
    skeleton = models.load(ModelSpec(base=str(tiny_model_dir)), skeleton=True)
    skeleton.pack_rows(64)
    assert skeleton.packed_tokens == 64


def test_rank_0_alone_reads_a_model_that_is_shared_out(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, run = ModelSpec(base=str(tiny_model_dir)), a_run(tmp_path)
    for rank in (0, 1):
        monkeypatch.setattr(ranks, "place", lambda rank=rank: rank)
        assert run.model(spec, shards=True).device == torch.device("meta" if rank else "cpu")
        assert run.model(spec).device != torch.device("meta"), "others stay whole"

"""Model folders that are odd and whole: they are used as they are."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import torch

from fgrl.kinds.specs import ModelSpec
from fgrl.models import fingerprint, load


def test_a_config_that_asks_for_tuples_changes_nothing(tmp_path: Path, tiny_model_dir: Path) -> None:
    folder = shutil.copytree(tiny_model_dir, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"return_dict": False}))
    ids = torch.tensor([[1, 2, 3]])
    odd, usual = (load(ModelSpec(base=str(base))).net(input_ids=ids).logits for base in (folder, tiny_model_dir))
    assert torch.equal(odd, usual)


def test_a_file_name_that_is_not_utf8_counts_for_the_key(tmp_path: Path, tiny_model_dir: Path) -> None:
    folder = shutil.copytree(tiny_model_dir, tmp_path / "model")
    (folder / os.fsdecode(b"\xff.txt")).write_text("notes")
    assert fingerprint(ModelSpec(base=str(folder))) != fingerprint(ModelSpec(base=str(tiny_model_dir)))

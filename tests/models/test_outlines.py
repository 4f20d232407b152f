"""The outline of a model is compared with its files once for each content of them, and what changed is refused as before."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from fgrl.errors import DataError
from fgrl.models import pretrained
from fgrl.models.pretrained import pretrained_model


class Counted:
    """A class of transformers that counts how often it made an outline and how often a model."""

    def __init__(self, auto: Any) -> None:
        self.auto, self.outlines, self.models = auto, 0, 0

    def from_pretrained(self, name: Any, **options: Any) -> Any:
        outline = options.get("device_map") == "meta"
        self.outlines += outline
        self.models += not outline
        return self.auto.from_pretrained(name, **options)


@pytest.fixture
def folder(tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pretrained, "_FITTING", set())
    return Path(shutil.copytree(tiny_model_dir, tmp_path / "model"))


def change_weights(folder: Path, name: str, weight: torch.Tensor) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {name: weight}, folder / "model.safetensors", {"format": "pt"})


def test_the_same_files_have_one_outline(folder: Path) -> None:
    auto = Counted(transformers.AutoModelForCausalLM)
    for _ in range(3):
        pretrained_model(auto, folder)
    assert (auto.outlines, auto.models) == (1, 3)
    pretrained_model(auto, folder, dtype=torch.bfloat16)
    assert (auto.outlines, auto.models) == (2, 4)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 512}))
    pretrained_model(auto, folder)
    assert (auto.outlines, auto.models) == (3, 5)


def test_weights_that_no_longer_fit_are_refused_before_a_model_is_made(folder: Path) -> None:
    auto = Counted(transformers.AutoModelForCausalLM)
    pretrained_model(auto, folder)
    change_weights(folder, "model.norm.weight", torch.ones(7))
    for _ in range(2):
        with pytest.raises(DataError, match=r"model.norm.weight is \[7\] in its files, and \[32\] by its architecture"):
            pretrained_model(auto, folder)
    assert (auto.outlines, auto.models) == (3, 1), "what does not fit is looked at again"


def test_a_config_that_no_longer_fits_is_refused_before_a_model_is_made(folder: Path) -> None:
    auto = Counted(transformers.AutoModelForCausalLM)
    pretrained_model(auto, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 48}))
    with pytest.raises(DataError, match=r"is \[32, 64\] in its files, and \[32, 48\] by its architecture"):
        pretrained_model(auto, folder)
    assert auto.models == 1


def test_numbers_that_are_not_finite_are_seen_though_names_and_shapes_stay(folder: Path) -> None:
    auto = Counted(transformers.AutoModelForCausalLM)
    pretrained_model(auto, folder)
    change_weights(folder, "model.norm.weight", torch.full([32], torch.nan))
    with pytest.raises(DataError, match=r"not finite .*model.norm.weight"):
        pretrained_model(auto, folder)
    assert auto.outlines == 1

"""Weights are written without a progress bar, and without importing DeepSpeed, unless something else has imported it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import torch
from accelerate.utils import other
from transformers import LlamaConfig, LlamaForCausalLM

from fgrl.models.writing import write_weights


@pytest.fixture
def net() -> Any:
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    )


def written(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_deepspeed_that_nothing_has_imported_stays_so(
    net: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "deepspeed", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "deepspeed.py").write_text("raise AssertionError('it was imported')\n")
    installed = mock.Mock(return_value=True)
    monkeypatch.setattr(other, "is_deepspeed_available", installed)
    write_weights(net, tmp_path / "saved")
    assert written(tmp_path / "saved") == ["config.json", "generation_config.json", "model.safetensors"]
    assert capfd.readouterr() == ("", "")
    assert other.is_deepspeed_available is installed
    with pytest.raises(AssertionError, match="it was imported"):
        net.save_pretrained(tmp_path / "as usual")


def test_an_engine_of_deepspeed_is_unwrapped(net: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = net

        def save_pretrained(self, folder: Path) -> None:
            other.extract_model_from_parallel(self).save_pretrained(folder)

    deepspeed = ModuleType("deepspeed")
    deepspeed.DeepSpeedEngine = Engine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "deepspeed", deepspeed)
    monkeypatch.setattr(other, "is_deepspeed_available", lambda: True)
    write_weights(Engine(), tmp_path / "saved")
    assert written(tmp_path / "saved") == ["config.json", "generation_config.json", "model.safetensors"]


def test_what_is_installed_is_known_again_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "deepspeed", raising=False)
    before = other.is_deepspeed_available
    with pytest.raises(OSError, match="full"):
        write_weights(mock.Mock(save_pretrained=mock.Mock(side_effect=OSError("full"))), tmp_path)
    assert other.is_deepspeed_available is before

"""The tokenizer and end tokens of a model without its weights are those of the loaded model."""

from __future__ import annotations

import shutil
from pathlib import Path

from fgrl import models
from fgrl.kinds.specs import LoraSpec, ModelSpec
from fgrl.models.vocabulary import Vocabulary


def assert_same(light: Vocabulary, spec: ModelSpec) -> None:
    whole = models.load(spec)
    assert (light.eos_ids, light.end_id, light.pad_id) == (whole.eos_ids, whole.end_id, whole.pad_id)
    assert light.tokenizer.get_vocab() == whole.tokenizer.get_vocab()
    assert light.tokenizer.chat_template == whole.tokenizer.chat_template


def test_of_a_model_with_and_without_generation_settings(tiny_model_dir: Path, tmp_path: Path) -> None:
    with_settings = ModelSpec(base=str(tiny_model_dir))
    assert len(models.read_vocabulary(with_settings).eos_ids) > 1
    assert_same(models.read_vocabulary(with_settings), with_settings)
    shutil.copytree(tiny_model_dir, tmp_path / "bare")
    (tmp_path / "bare" / "generation_config.json").unlink()
    without = ModelSpec(base=str(tmp_path / "bare"))
    assert_same(models.read_vocabulary(without), without)


def test_of_a_saved_model(tiny_model_dir: Path, tmp_path: Path) -> None:
    trained = models.load(ModelSpec(base=str(tiny_model_dir), lora=LoraSpec(r=2)), trainable=True)
    models.save(trained, tmp_path / "saved", about={"stage": "policy"})
    saved = ModelSpec(base=str(tmp_path / "saved"))
    assert_same(models.read_vocabulary(saved), saved)

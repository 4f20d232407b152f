"""Weights of heads, encoders and trunks are those of the folder: none is random, and all are numbers."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from conftest import train_tokenizer
from hostile_folders import both, code, drop, put, rename, trap, without
from model_helpers import LORA, tiny, tokens
from tiny_recipe import a_run
from torch import nn

from fgrl import models
from fgrl.base.console import Console
from fgrl.base.errors import DataError, Stopped
from fgrl.components.engines.hf import HF
from fgrl.kinds import DrawRequest
from fgrl.kinds.specs import ModelSpec, Sampling
from fgrl.models.embeddings import SentenceEncoder
from fgrl.models.finite import non_finite
from fgrl.models.token_embeddings import TokenEncoder
from fgrl.types import Prompt


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_weights_that_are_not_finite_are_named(dtype: torch.dtype) -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    net[2].weight = net[0].weight
    net.register_buffer("mask", torch.full((2,), -torch.inf), persistent=False)
    net.register_buffer("counts", torch.ones(2, dtype=torch.int64))
    largest = torch.finfo(dtype).max
    with torch.no_grad():
        net[0].weight.fill_(largest)  # finite numbers, whose sum is not
        net.to(dtype)
        assert non_finite(net) == []
        net[1].bias.data = torch.tensor([0.0] * 7 + [float("nan")]).to(dtype)
        assert non_finite(net) == ["1.bias"]
        net[0].weight.data = torch.full((8, 8), float("nan")).to(dtype)
        net[2].weight = net[0].weight
        assert non_finite(net) == ["0.weight", "1.bias"], "a tied weight is named once"
    assert non_finite(nn.Linear(2, 2, device="meta")) == []


def test_a_trunk_leaves_the_head_of_a_language_model_alone_and_nothing_else(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    config = transformers.AutoConfig.from_pretrained(tiny_model_dir, tie_word_embeddings=False)
    folder = shutil.copytree(tiny_model_dir, tmp_path / "untied")
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    assert tiny(folder, head="scalar").head == "scalar"
    rename("lm_head", "model.layers.2.mlp.up_proj")(folder)
    with pytest.raises(DataError, match=r"1 tensors that its architecture does not use: model\.layers\.2"):
        tiny(folder, head="scalar")
    drop("layers.")(folder)
    with pytest.raises(DataError, match=r"no weights for 18 tensors .*: layers\.0.* and 15 more"):
        tiny(folder, head="token")


def test_a_new_head_is_announced_and_a_saved_one_is_not(tiny_model_dir: Path, tmp_path: Path) -> None:
    shown = io.StringIO()
    run = a_run(tmp_path / "stage", console=Console(stream=shown))
    model = run.model(ModelSpec(base=str(tiny_model_dir), lora=LORA), head="scalar", trainable=True)
    assert f"{tiny_model_dir} has no scalar head: a new one starts from random weights\n" in shown.getvalue()
    run.model(ModelSpec(base=str(tiny_model_dir)), head="token")
    assert "has no token head: a new one starts from random weights, which nothing trains here" in shown.getvalue()
    models.save(model, tmp_path / "out", {})
    before = shown.getvalue()
    run.model(ModelSpec(base=str(tmp_path / "out")), head="scalar")
    assert shown.getvalue() == before


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT without a pooler, as a sentence encoder."""
    folder = tmp_path_factory.mktemp("encoder") / "bert"
    tokenizer = train_tokenizer()
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        '{"word_embedding_dimension": 16, "pooling_mode_mean_tokens": true}'
    )
    return folder


def test_an_encoder_needs_no_pooler(encoder: Path, tmp_path: Path) -> None:
    assert SentenceEncoder(ModelSpec(base=str(encoder)), tmp_path).embed(["rivers"]).shape == (1, 16)
    assert [*TokenEncoder(ModelSpec(base=str(encoder)), 1).embed(["rivers"])]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (drop("layer.1."), r"no weights for 16 tensors.*encoder\.layer\.1"),
        (put(float("nan"), "layer.1.output.dense.weight"), r"not finite.*layer\.1\.output\.dense\.weight"),
        (rename("layer.1.", "layer.5."), r"does not use: encoder\.layer\.5"),
        (both(without("model.safetensors"), trap("pytorch_model.bin")), "never read: convert it to safetensors"),
        (code("config.json"), r"config\.json: it is not JSON"),
    ],
)
def test_a_broken_encoder_is_refused(encoder: Path, tmp_path: Path, change: object, says: str) -> None:
    folder = shutil.copytree(encoder, tmp_path / "broken")
    change(folder)  # type: ignore[operator]
    for read in (
        lambda: SentenceEncoder(ModelSpec(base=str(folder)), tmp_path).embed(["rivers"]),
        lambda: TokenEncoder(ModelSpec(base=str(folder)), 1),
    ):
        with pytest.raises(DataError, match=rf"model {folder}: .*{says}"):
            read()
    assert not (folder / "it_ran").exists()


def test_parts_of_a_sentence_encoder_are_no_pickles(encoder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(encoder, tmp_path / "broken")
    trap("pytorch_model.bin")(folder / "1_Pooling")
    with pytest.raises(DataError, match="1_Pooling: its weights are a pickle"):
        SentenceEncoder(ModelSpec(base=str(folder)), tmp_path).embed(["rivers"])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("norm", [3e38, float("nan")])
def test_numbers_that_are_not_finite_stop_the_first_pass(tiny_model_dir: Path, norm: float, temperature: float) -> None:
    """Each weight of a folder is finite, and what they compute is not."""
    model, scorer = tiny(tiny_model_dir), tiny(tiny_model_dir, head="scalar")
    said = f"model {re.escape(str(tiny_model_dir))} computes numbers that are not finite"
    for one in (model, scorer):
        one.trunk.norm.weight.data.fill_(norm)
        one.trunk.embed_tokens.weight.data.mul_(1e6)
    request = DrawRequest(Prompt((1, 20, 30)), Sampling(max_new_tokens=4, temperature=temperature), seed=0, row=0)
    with pytest.raises(Stopped, match=said):
        HF().open(model).draw([request])
    with pytest.raises(Stopped, match=said):
        next(HF().open(model).stream(request))
    with torch.no_grad(), pytest.raises(Stopped, match=said):
        model.score(tokens())
    scorer.number.weight.data.fill_(norm)
    with torch.no_grad(), pytest.raises(Stopped, match=said):
        scorer.rewards(tokens())
    model.score(tokens())  # with a gradient the loss is checked, which knows the learning rate

"""Counts of parameters from a config alone, against the models that transformers and peft make of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl.kinds.specs import LoraSpec, ModelSpec
from fgrl.models import load, packaged
from fgrl.models.shapes import LIKE_LLAMA, Unknown, _known, architecture, find


def config_of(kind: str, **more: Any) -> Any:
    import transformers

    classes = {
        "llama": "LlamaConfig", "mistral": "MistralConfig", "qwen2": "Qwen2Config", "qwen3": "Qwen3Config",
        "phi3": "Phi3Config", "gemma": "GemmaConfig", "smollm3": "SmolLM3Config",
    }  # fmt: skip
    small = {
        "vocab_size": 91, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    return getattr(transformers, classes[kind])(**small | more)


def made_of(config: Any) -> torch.nn.Module:
    import transformers

    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


def as_file(config: Any, folder: Path) -> dict[str, Any]:
    """What `save_pretrained` leaves of a config."""
    config.save_pretrained(folder)
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", LIKE_LLAMA)
def test_closed_forms_are_what_transformers_builds(kind: str, tied: bool, tmp_path: Path) -> None:
    config = config_of(kind, tie_word_embeddings=tied)
    net = made_of(config)
    shapes = {name: tuple(value.shape) for name, value in net.named_parameters()}
    assert architecture(as_file(config, tmp_path)).tensors == shapes


@settings(deadline=None, max_examples=20)
@given(
    kind=st.sampled_from(LIKE_LLAMA), heads=st.sampled_from([1, 2, 4]), groups=st.sampled_from([1, 2]),
    head_dim=st.sampled_from([6, 10]), biased=st.booleans(),
)  # fmt: skip
def test_closed_forms_hold_for_other_sizes(kind: str, heads: int, groups: int, head_dim: int, biased: bool) -> None:
    groups = min(groups, heads)
    more: dict[str, Any] = (
        {"head_dim": head_dim} if kind not in ("qwen2", "phi3", "smollm3") else {"hidden_size": head_dim * heads}
    )
    if kind in ("llama", "qwen3", "gemma", "smollm3"):
        more["attention_bias"] = biased
    if kind in ("llama", "smollm3"):
        more["mlp_bias"] = biased
    config = config_of(kind, num_attention_heads=heads, num_key_value_heads=heads // groups, **more)
    net = made_of(config)
    assert architecture(config.to_dict()).tensors == {n: tuple(v.shape) for n, v in net.named_parameters()}


LORAS = [
    None,
    LoraSpec(r=4),
    LoraSpec(r=3, last_blocks=1),
    LoraSpec(r=2, targets=["q_proj", "down_proj"]),
    LoraSpec(r=2, targets=["v_proj"], last_blocks=1),
]


@pytest.mark.parametrize("head", ["lm", "scalar", "token"])
@pytest.mark.parametrize("lora", LORAS)
def test_heads_and_adapters_are_counted_as_they_are_loaded(
    head: str, lora: LoraSpec | None, tiny_model_dir: Path
) -> None:
    model = load(ModelSpec(base=str(tiny_model_dir), lora=lora), head=head, trainable=True)
    counted = architecture(*find(str(tiny_model_dir)))
    adapter = counted.adapter(lora) if lora else 0
    own = 0 if model.number is None else sum(p.numel() for p in model.number.parameters())
    assert counted.parameters(head) + adapter == sum(p.numel() for p in model.parameters())
    trained = counted.parameters(head) if lora is None else adapter + own
    assert trained == sum(p.numel() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (
            {
                "model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
                "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
            },
            3_821_079_552,
        ),
        (
            {
                "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
                "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            },
            8_030_261_248,
        ),
    ],
)  # fmt: skip
def test_published_counts(config: dict[str, Any], count: int) -> None:
    """Phi-3-mini and Llama-3-8B, as their model cards' safetensors count them."""
    assert architecture(config).parameters("lm") == count


def test_smollm2(smollm2_dir: Path) -> None:
    config, folder = find("smollm2-135m-instruct")
    counted = architecture(config, folder)
    assert counted.parameters("lm") == 134_515_008
    assert counted.tensors == {
        n: tuple(v.shape) for n, v in load(ModelSpec(base="smollm2-135m-instruct")).net.named_parameters()
    }
    assert packaged("smollm2-135m-instruct") == folder


def test_what_is_known_of_a_packaged_model_before_it_is_converted(smollm2_dir: Path) -> None:
    config = json.loads((smollm2_dir / "config.json").read_text())
    for name, value in _known()["HuggingFaceTB/SmolLM2-135M-Instruct"].items():
        assert config[name] == value, name


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 7.62),
        ("Qwen/Qwen3-4B-Base", 4.02),
        ("Qwen/Qwen3-4B-Instruct-2507", 4.02),
        ("meta-llama/Llama-3.1-8B-Instruct", 8.03),
        ("meta-llama/Llama-3.2-3B", 3.21),
        ("meta-llama/Llama-3.2-3B-Instruct", 3.21),
        ("meta-llama/Meta-Llama-3-8B-Instruct", 8.03),
        ("RLHFlow/LLaMA3-SFT-v2", 8.03),
        ("microsoft/Phi-3-mini-4k-instruct", 3.82),
        ("codellama/CodeLlama-34b-Instruct-hf", 33.74),
        ("sentence-transformers/all-MiniLM-L6-v2", 0.02),
        ("roberta-large", 0.36),
        ("openai-community/gpt2", 0.12),
        ("mistralai/Mistral-7B-Instruct-v0.2", 7.24),
    ],
)
def test_models_of_the_recipes_are_counted_without_the_hub(
    model: str, billions: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers of parameters are those that the models' pages state."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    config, folder = find(model)
    assert folder is None
    assert round(architecture(config).parameters("lm") / 1e9, 2) == billions
    with pytest.raises(Unknown):
        find(model, "another-revision")


def test_other_architectures_are_counted_from_the_heads_of_their_files(tmp_path: Path) -> None:
    import transformers

    config = transformers.GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    net = transformers.GPT2LMHeadModel(config)
    net.save_pretrained(tmp_path)
    counted = architecture(*find(str(tmp_path)))
    assert counted.parameters("lm") == sum(p.numel() for p in net.parameters())
    assert (counted.layers, counted.hidden, counted.intermediate, counted.heads) == (2, 16, 64, 2)
    for file in tmp_path.glob("*.safetensors"):
        file.unlink()
    with pytest.raises(Unknown, match="no closed form for gpt2"):
        architecture(*find(str(tmp_path)))


def test_what_is_not_here_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for base in ("owner/name", "./nowhere", "/no/such/folder", "name", str(tmp_path)):
        with pytest.raises(Unknown):
            find(base)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(Unknown, match=r"no readable config\.json"):
        find(str(tmp_path))
    for heads in ({}, {"num_attention_heads": 0}, {"num_attention_heads": "4"}):
        with pytest.raises(Unknown, match="its config has no num_attention_heads"):
            architecture({"model_type": "llama", "hidden_size": 8, **heads})
    for broken in (b"\x04\0\0\0\0\0\0\0{{{{", b"\xff\0\0\0\0\0\0\0{}"):
        (tmp_path / "model.safetensors").write_bytes(broken)
        sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 5}
        with pytest.raises(Unknown, match="not a whole safetensors file"):
            architecture({"model_type": "other", **sizes}, tmp_path)


@pytest.mark.parametrize("revision", [None, "v1", "abc123"])
def test_the_hubs_cache_is_looked_into(
    revision: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_model_dir: Path
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--owner--name"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("abc123")
    (model / "refs" / "v1").write_text("abc123")
    snapshot = model / "snapshots" / "abc123"
    snapshot.mkdir(parents=True)
    shutil.copy(tiny_model_dir / "config.json", snapshot)
    config, folder = find("owner/name", revision)
    assert folder == snapshot
    assert architecture(config).layers == 2
    with pytest.raises(Unknown):
        find("owner/name", "other")

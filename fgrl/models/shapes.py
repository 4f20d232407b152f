"""The size of a model from its `config.json` alone: no torch, no network, no weights.

Architectures like Llama are counted in closed form. For other architectures, the headers of the safetensors files in a
local folder list every tensor and its shape, or `known_sizes.json` has them under "tensors". If neither is possible,
the size is `Unknown`, with the reason.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fgrl.kinds.specs import LoraSpec
from fgrl.models.wheels import PACKAGES, cache_folder

Tensors = dict[str, tuple[int, ...]]
"""Shapes by name; tied weights are listed once."""


FEW_SCORES = 2**20
"""Maximum number of attention scores of a layer for which unfused attention is faster on a CPU than the fused kernel,
whose backward pass is slow there. It takes about ten bytes per score and layer until the backward pass.
"""


class Unknown(Exception):
    """The size cannot be determined; the message is the reason."""


@dataclass(frozen=True)
class Architecture:
    """Sizes of a causal language model."""

    tensors: Tensors
    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    head_dim: int
    vocabulary: int

    def parameters(self, head: str) -> int:
        """Return the number of parameters with an `lm`, `scalar` or `token` head (`fgrl.models.heads`)."""
        trunk = sum(_size(shape) for name, shape in self.tensors.items() if not _is_output(name))
        if head == "lm":
            return trunk + sum(_size(shape) for name, shape in self.tensors.items() if _is_output(name))
        return trunk + self.hidden + (head == "token")

    def in_layers(self) -> int:
        """Return the number of parameters of the linear layers inside the transformer blocks, which nf4 stores in four
        bits.
        """
        return sum(_size(shape) for name, shape in self.tensors.items() if _block(name) is not None and len(shape) == 2)

    def adapter(self, lora: LoraSpec) -> int:
        """Return the number of parameters of a LoRA adapter: r (inputs + outputs) for each adapted linear layer."""
        return sum(lora.r * sum(shape) for shape in self.adapted(lora))

    def adapted(self, lora: LoraSpec) -> list[tuple[int, ...]]:
        """Return the shapes of the linear layers that get an adapter."""
        first = 0 if lora.last_blocks is None else self.layers - lora.last_blocks
        found: list[tuple[int, ...]] = []
        for name, shape in self.tensors.items():
            block = _block(name)
            if len(shape) != 2 or (block is None and (lora.last_blocks is not None or lora.targets == "all-linear")):
                continue
            if block is not None and block < first:
                continue
            if lora.targets == "all-linear" or name.removesuffix(".weight").rsplit(".", 1)[-1] in lora.targets:
                found.append(shape)
        return found


def find(base: str, revision: str | None = None) -> tuple[dict[str, Any], Path | None]:
    """Return the `config.json` of a model and its folder: a local folder, a packaged model, or the hub's cache. For a
    model of `known_sizes.json` that is in none of them, return the numbers there, without a folder.

    Raises `Unknown` if it is not on this machine.
    """
    folder = cache_folder() / base if base in PACKAGES else Path(base).expanduser()
    found = folder if folder.is_dir() else _in_hub_cache(base, revision)
    if found is not None:
        return _read(found), found
    known = _known().get(PACKAGES[base].origin if base in PACKAGES else base)
    if revision is None and known is not None:
        return known, None
    raise Unknown("config not on this machine")


@functools.cache
def _known() -> dict[str, dict[str, Any]]:
    models: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("known_sizes.json").read_text())["models"]
    return models


def is_here(base: str) -> bool:
    """Return True if `find` finds the model's `config.json`."""
    try:
        find(base)
    except Unknown:
        return False
    return True


def architecture(config: Mapping[str, Any], folder: Path | None = None) -> Architecture:
    """Return the sizes in a `config.json`; `folder` may contain the weights. Raises `Unknown`."""
    kind = config.get("model_type", "")
    hidden = _number(config, "hidden_size", "n_embd", "d_model")
    heads = _number(config, "num_attention_heads", "n_head", "num_heads")
    sizes = {
        "layers": _number(config, "num_hidden_layers", "n_layer", "num_layers"),
        "hidden": hidden,
        "intermediate": _number(config, "intermediate_size", "n_inner", "ffn_dim", default=4 * hidden),
        "heads": heads,
        "key_value_heads": _number(config, "num_key_value_heads", default=8 if kind == "mistral" else heads),
        "head_dim": _number(config, "head_dim", default=hidden // heads),
        "vocabulary": _number(config, "vocab_size"),
    }
    if sizes["layers"] > MOST_LAYERS:
        raise Unknown(f"its config has {sizes['layers']:,} layers")
    if kind in LIKE_LLAMA:
        tensors = _like_llama(kind, config, Architecture({}, **sizes))
    else:
        listed = {name: tuple(shape) for name, shape in config.get("tensors", {}).items()}
        tensors = dict(_in_files(folder)) if folder is not None else listed
        if not tensors:
            raise Unknown(f"no closed form for {kind or 'its architecture'}, and no weights on this machine")
    return Architecture(tensors, **sizes)


MOST_LAYERS = 10_000
"""Maximum number of layers. A larger number is a mistake in the config, and its tensors are not listed."""
LIKE_LLAMA = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "smollm3")
"""Values of `model_type` that are counted in closed form."""


def _like_llama(kind: str, config: Mapping[str, Any], sizes: Architecture) -> Tensors:
    """Return tensors for grouped-query attention, a gated feed-forward layer, two norms per block and one at the end."""
    queries, keys = sizes.heads * sizes.head_dim, sizes.key_value_heads * sizes.head_dim
    attention_bias = config.get("attention_bias", False) and kind not in ("mistral", "qwen2", "phi3")
    biased = {"q_proj", "k_proj", "v_proj"} if kind == "qwen2" else set()
    biased |= {"q_proj", "k_proj", "v_proj", "o_proj"} if attention_bias else set()
    biased |= (
        {"gate_proj", "up_proj", "down_proj"} if kind in ("llama", "smollm3") and config.get("mlp_bias") else set()
    )
    if kind == "phi3":
        linear = {
            "self_attn.qkv_proj": (queries + 2 * keys, sizes.hidden),
            "mlp.gate_up_proj": (2 * sizes.intermediate, sizes.hidden),
        }
    else:
        linear = {
            "self_attn.q_proj": (queries, sizes.hidden), "self_attn.k_proj": (keys, sizes.hidden),
            "self_attn.v_proj": (keys, sizes.hidden), "mlp.gate_proj": (sizes.intermediate, sizes.hidden),
            "mlp.up_proj": (sizes.intermediate, sizes.hidden),
        }  # fmt: skip
    linear |= {"self_attn.o_proj": (sizes.hidden, queries), "mlp.down_proj": (sizes.hidden, sizes.intermediate)}
    vectors = {"input_layernorm": sizes.hidden, "post_attention_layernorm": sizes.hidden}
    if kind == "qwen3":
        vectors |= {"self_attn.q_norm": sizes.head_dim, "self_attn.k_norm": sizes.head_dim}
    tensors: Tensors = {
        "model.embed_tokens.weight": (sizes.vocabulary, sizes.hidden),
        "model.norm.weight": (sizes.hidden,),
    }
    for block in range(sizes.layers):
        for name, shape in linear.items():
            tensors[f"model.layers.{block}.{name}.weight"] = shape
            if name.rsplit(".", 1)[-1] in biased:
                tensors[f"model.layers.{block}.{name}.bias"] = shape[:1]
        tensors |= {f"model.layers.{block}.{name}.weight": (size,) for name, size in vectors.items()}
    if not config.get("tie_word_embeddings", kind in ("gemma", "smollm3")):
        tensors["lm_head.weight"] = (sizes.vocabulary, sizes.hidden)
    return tensors


def _in_files(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield names and shapes in the headers of a folder's safetensors files."""
    for file in sorted(file for file in folder.glob("*.safetensors") if file.is_file()):
        with file.open("rb") as content:
            length = int.from_bytes(content.read(8), "little")
            if length > file.stat().st_size:
                raise Unknown(f"{file.name} is not a whole safetensors file")
            try:
                header = json.loads(content.read(length))
                shapes = {
                    name: tuple(map(int, entry["shape"])) for name, entry in header.items() if name != "__metadata__"
                }
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise Unknown(f"{file.name} is not a whole safetensors file") from error
        yield from shapes.items()


def _in_hub_cache(base: str, revision: str | None) -> Path | None:
    """Return the folder of a downloaded snapshot with a config in it."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    hub = os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or home) / "hub"
    model = Path(hub).expanduser() / f"models--{base.replace('/', '--')}"
    named = model / "refs" / (revision or "main")
    commit = named.read_text(encoding="utf-8").strip() if named.is_file() else revision
    folder = model / "snapshots" / commit if commit else None
    return folder if folder is not None and (folder / "config.json").is_file() else None


def _read(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Unknown(f"no readable config.json in {folder.name}") from error
    if isinstance(config, dict):
        config = config.get("text_config") or config
    if not isinstance(config, dict):
        raise Unknown(f"no readable config.json in {folder.name}")
    return config


def _number(config: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    number = next((config[name] for name in names if config.get(name) is not None), default)
    if not isinstance(number, int) or number < 1:
        raise Unknown(f"its config has no {names[0]}")
    return number


def _size(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def _is_output(name: str) -> bool:
    return name.split(".")[0] == "lm_head"


def _block(name: str) -> int | None:
    """Return the transformer block that a tensor belongs to."""
    number = re.search(r"\.(\d+)\.", name)
    return int(number[1]) if number else None

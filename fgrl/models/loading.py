"""`load`: from a `ModelSpec` to a `LanguageModel`."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
import transformers
from safetensors.torch import load_file
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.pytorch_utils import Conv1D

from fgrl.base.errors import DataError
from fgrl.kinds.specs import LoraSpec, ModelSpec
from fgrl.models import adapters, attention_masks, folders, packed_rows
from fgrl.models.decoding.cache import ARGUMENTS
from fgrl.models.finite import is_finite
from fgrl.models.heads import NumberHead
from fgrl.models.language_model import NEWEST, LanguageModel
from fgrl.models.pretrained import pretrained, pretrained_model, reading, refuse_others, tokenizer_of
from fgrl.models.sources import Resolve, Source, base_of, foreign_adapter, locate

attention_masks.install()
packed_rows.install()
Head = Literal["lm", "scalar", "token"]


def load(
    spec: ModelSpec,
    *,
    head: str = "lm",
    trainable: bool = False,
    resolve: Resolve | None = None,
    skeleton: bool = False,
) -> LanguageModel:
    """Load a backbone with a head, and with a new adapter if `spec.lora` asks for one and the model is to be trained.

    `spec.head` overrides `head`. A frozen model has no trainable parameter; a trainable one trains its adapter and its
    head, or everything. The module is returned in evaluation mode (no dropout).

    A folder that `save` wrote is restored: base, adapters, head, and the type and quantization of its weights unless
    the spec names them. A new adapter is added to those that the model has, which do not change: switching the new one
    off gives exactly the loaded model. Adapters are merged into the weights only if all weights are trained. A skeleton
    only has the shapes of its weights, on the meta device: it gets the weights from another process, which has read
    them.

    Raises `DataError` if a folder lacks weights or has weights that do not fit its architecture, if they are not
    finite, and if its settings, its tokenizer or its chat template cannot be used. Only the weights of a new adapter or
    head are random.
    """
    kind = cast(Head, spec.head or head)
    if kind not in ("lm", "scalar", "token"):
        raise ValueError(f'unknown head "{kind}"; there are: lm, scalar, token')
    source = locate(spec, resolve)
    saved = source.saved_model()
    quantize = spec.quantize or saved.get("spec", {}).get("quantize")
    spec = spec.model_copy(update={"quantize": None if quantize == "none" else quantize})
    if spec.quantize and trainable and spec.lora is None:
        raise ValueError("a quantized base cannot be trained itself: add lora, or set quantize: none")
    dtype = getattr(torch, spec.dtype or saved.get("dtype", "float32"))
    lora = spec.lora if trainable else None
    tokenizer = tokenizer_of(source.name, source.revision, spec.templating)
    given: dict[str, Any] = {"dtype": dtype} | ({"device_map": "meta"} if skeleton else {})
    net = _backbone(source, kind, spec, given, NEWEST if lora is None else f"before_{NEWEST}")
    if lora is not None:
        net = _adapted(net, lora)
    elif trainable:
        net = _merged(net, spec)
    net.requires_grad_(False)
    if trainable:
        for name, parameter in net.named_parameters():
            parameter.requires_grad_(lora is None or ("lora_" in name and NEWEST in name.split(".")))
    number = _number(source, kind, net, saved)
    if number is not None:
        number.requires_grad_(trainable)
    _check_ids(source.name, tokenizer, net)
    generation = getattr(net, "generation_config", None) or net.config
    eos_ids = set(saved["eos_ids"]) if saved else end_tokens(tokenizer, generation)
    end_id = end_of_answer(tokenizer, eos_ids)
    base = source if trainable or not saved.get("adapter") else base_of(source)
    model = LanguageModel(net, tokenizer, spec, base=base, eos_ids=eos_ids, end_id=end_id, number=number)
    if spec.gradient_checkpointing and trainable:
        checkpoint_layers(model.trunk)
    return model.to("meta").eval() if skeleton else model.eval()


def _backbone(source: Source, kind: Head, spec: ModelSpec, given: dict[str, Any], name: str) -> nn.Module:
    """Return the model in `source`; its adapter, if it has one, is called `name`."""
    saved = source.saved_model()
    if kind == "lm" and saved and saved["head"] != "lm":
        raise DataError(f"{source.name}: was trained with a {saved['head']} head and gives no next-token probabilities")
    if saved.get("adapter"):
        folder, below = Path(source.name), base_of(source)
    elif not saved and (found := foreign_adapter(source)) is not None:
        (folder, below), saved = found, {"adapter": True, "head": "lm"}
    else:
        return _pretrained(source, kind, spec, given)
    if kind != "lm" and saved["head"] == "lm":  # a language model's adapter names layers inside the language model
        net = _merged(_backbone(source, "lm", spec, given, name), spec)
        return getattr(net, net.base_model_prefix, net)
    net = adapters.add(_backbone(below, saved["head"], spec, given, f"before_{name}"), folder, name)
    return _all_active(net)


def _pretrained(source: Source, kind: Head, spec: ModelSpec, given: dict[str, Any]) -> nn.Module:
    auto = transformers.AutoModelForCausalLM if kind == "lm" else transformers.AutoModel
    options: dict[str, Any] = {"attn_implementation": spec.attention_here(), "return_dict": True} | given
    if kind == "lm":
        made = pretrained(transformers.AutoConfig, source.name, revision=source.revision).architectures or []
        if any(name.endswith("ForMaskedLM") for name in made):  # it would be loaded, and each token see what follows
            raise DataError(
                f"model {source.name}: {made[0]} is an encoder; a policy needs a causal language model, which predicts the next token: name another one"
            )
    spec.check_machine()
    if spec.quantize:
        options["quantization_config"] = _four_bits()
    return pretrained_model(auto, source.name, revision=source.revision, **options)


def _four_bits() -> Any:
    return transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def _adapted(net: Any, lora: LoraSpec) -> nn.Module:
    """Return `net` with a new LoRA adapter, stored in float32, in addition to its other adapters."""
    import peft

    stacked = hasattr(net, "peft_config")
    inner = net.get_base_model() if stacked else net
    targets = lora.targets if lora.last_blocks is None else _in_last_blocks(inner, lora, lora.last_blocks)
    settings: dict[str, Any] = {"r": lora.r, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout}
    config = peft.LoraConfig(**settings, target_modules=targets, bias="none")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about names in transformers that peft uses
        if not stacked:
            return peft.get_peft_model(net, config)
        net.add_adapter(NEWEST, config)
    return _all_active(net)


def _in_last_blocks(net: nn.Module, lora: LoraSpec, count: int) -> list[str]:
    """Return the full names of the linear layers to adapt inside the last `count` transformer blocks."""
    blocks = [name for name, module in net.named_modules() if isinstance(module, GradientCheckpointingLayer)]
    if len(blocks) < count:
        raise DataError(f"lora.last_blocks is {count}, but the model has {len(blocks)} transformer blocks")
    chosen = tuple(f"{block}." for block in blocks[-count:])
    named = [(name, module) for name, module in net.named_modules() if name.startswith(chosen)]
    if lora.targets == "all-linear":
        adapted = [name for name, module in named if hasattr(module, "base_layer")]
        plain = [name for name, module in named if isinstance(module, nn.Linear | Conv1D)]
        return adapted + [name for name in plain if not name.startswith(tuple(f"{outer}." for outer in adapted))]
    return [name for name, _ in named if name.rsplit(".", 1)[-1] in lora.targets]


def _all_active(net: Any) -> nn.Module:
    """Activate every adapter, and return `net`."""
    net.base_model.set_adapter(list(net.peft_config))
    return net


def _merged(net: Any, spec: ModelSpec) -> Any:
    if not hasattr(net, "peft_config"):
        return net
    if spec.quantize:
        raise DataError(
            f"the adapter of {spec.base} would have to be merged into weights of 4 bits, which would lose most of it: set "
            "quantize: none, or train this model with the head that its adapter was trained with"
        )
    device = net.device.type.replace("meta", "cpu")  # autocast knows no meta device
    with torch.autocast(device, enabled=False):  # a training step may be what loads the model
        return net.merge_and_unload()


def _number(source: Source, kind: Head, net: Any, saved: dict[str, Any]) -> NumberHead | None:
    if kind == "lm":
        return None
    head = NumberHead(net.config.get_text_config().hidden_size, bias=kind == "token")
    if saved and saved["head"] != "lm":
        if saved["head"] != kind:
            raise DataError(f"{source.name}: has a {saved['head']} head, and a {kind} head is needed here")
        _restore(head, source.name)
        head.trained = True
    return head


def _restore(head: NumberHead, folder: str) -> None:
    folders.check_weights(Path(folder), "head.safetensors")
    has = load_file(Path(folder) / "head.safetensors")
    refuse_others(folder, infinite=[name for name, weight in has.items() if weight.numel() and not is_finite(weight)])
    with reading(folder, "head.safetensors"):
        head.load_state_dict(has)


def _check_ids(name: str, tokenizer: Any, net: Any) -> None:
    """Raise `DataError` if the tokenizer produces a token for which the model has no embedding."""
    rows = net.get_input_embeddings().weight.shape[0]
    token, highest = max(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    if highest >= rows:
        raise DataError(
            f"model {name}: its tokenizer has the token {token!r} with the id {highest:,}, and the model has embeddings for {rows:,} "
            "tokens: take the tokenizer that the model was trained with, or give the model embeddings for all of them "
            "(resize_token_embeddings)"
        )


def end_tokens(tokenizer: Any, generation: Any) -> set[int]:
    """Return every token that ends a response: those of the generation settings, of the tokenizer, and of the chat
    template.

    Raises `DataError` if there is none, and for an id that is not a token.
    """
    named = getattr(generation, "eos_token_id", None)
    ends = list(named) if isinstance(named, list | tuple | set) else [named]
    highest = max(tokenizer.get_vocab().values())
    for token in ends:
        if token is not None and (type(token) is not int or not 0 <= token <= highest):
            raise DataError(
                f"model {tokenizer.name_or_path}: its settings (generation_config.json or config.json) say that answers end with "
                f"eos_token_id {token!r}, which is no token of its tokenizer; correct it, or {folders.AGAIN}"
            )
    ids = {token for token in (*ends, tokenizer.eos_token_id, _after_an_answer(tokenizer)) if token is not None}
    if not ids:
        raise DataError(
            f"model {tokenizer.name_or_path}: it defines no end-of-sequence token, neither in its settings nor in its tokenizer: name "
            "one as eos_token_id in generation_config.json"
        )
    return ids


def end_of_answer(tokenizer: Any, eos_ids: set[int]) -> int:
    """Return the token that ends an answer: the one that the chat template puts after it, else the tokenizer's own end
    token.
    """
    after = _after_an_answer(tokenizer)
    if after in eos_ids:
        return int(after)
    return int(tokenizer.eos_token_id) if tokenizer.eos_token_id in eos_ids else min(eos_ids)


def _after_an_answer(tokenizer: Any) -> int | None:
    """Return the special token that the chat template puts directly after an assistant's turn, or None."""
    if not tokenizer.chat_template:
        return None
    answer = "0"
    turns = [{"role": "user", "content": "1"}, {"role": "assistant", "content": answer}]
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    tail = text.rpartition(answer)[2].strip() if answer in text else ""
    ids = tokenizer(tail, add_special_tokens=False).input_ids if tail else []
    return ids[0] if ids and ids[0] in tokenizer.all_special_ids else None


def checkpoint_layers(model: nn.Module) -> int:
    """Make every transformer layer of `model` discard its activations and recompute them. Return the number of layers.

    This works in training mode and in evaluation mode: transformers' own switch works only in training mode, with
    dropout. Reinforcement learning needs checkpointing without dropout: the ratio of new to old probabilities must be 1
    before the first step.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no layers that can be checkpointed; set gradient_checkpointing: false"
        )
    for layer in layers:
        layer.forward = partial(_forward, layer.forward)
    return len(layers)


def _forward(forward: Any, *args: Any, **kwargs: Any) -> Any:
    if torch.is_grad_enabled() and all(kwargs.get(name) is None for name in ARGUMENTS):
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)
    return forward(*args, **kwargs)

"""Model folders that are broken, or were made to do harm: each is a copy of a sound tiny model with one change."""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file

Change = Callable[[Path], object]
Base = Literal["whole", "sharded", "adapter", "peft", "scalar", "encoder"]
"""A language model in one file; in two; an adapter that fgrl saved; one that peft saved; a model with a scalar head; a sentence
encoder."""

WEIGHTS, INDEX, ADAPTER = "model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors"
REFUSED = ""
"""Expected of a folder that is refused, whatever the words."""


@dataclass(frozen=True)
class Case:
    """A folder, and what a run with it is to say."""

    kind: str
    """What is wrong: weights, file, index, pickle, config, size, tokenizer, template, adapter, head, record, code, encoder."""
    name: str
    change: Change
    says: str | None = REFUSED
    """Regular expression that the refusal matches; None: the model is read, and has exactly the weights of the sound one."""
    base: Base = "whole"


# -- changes -----------------------------------------------------------------------------------------------------------


def both(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]


def text(file: str, content: str | bytes) -> Change:
    return lambda folder: (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)


def without(*names: str) -> Change:
    return lambda folder: [(folder / name).unlink() for name in names]


def cut(file: str, share: float) -> Change:
    return lambda folder: os.truncate(folder / file, int((folder / file).stat().st_size * share))


def as_json(file: str, change: Callable[[Any], Any]) -> Change:
    """`change` works in place, or returns what takes the place of the whole."""

    def changed(folder: Path) -> None:
        value = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
        other = change(value)
        (folder / file).write_text(json.dumps(value if other is None else other))

    return changed


def fields(file: str, /, **values: Any) -> Change:
    return as_json(file, lambda value: value.update(values))


def config(**values: Any) -> Change:
    return fields("config.json", **values)


def tokenizer(**values: Any) -> Change:
    return fields("tokenizer.json", **values)


def named(**values: Any) -> Change:
    return fields("tokenizer_config.json", **values)


def model_of_tokenizer(**values: Any) -> Change:
    return as_json("tokenizer.json", lambda value: value["model"].update(values))


def record(**values: Any) -> Change:
    return as_json("fgrl.json", lambda value: value["model"].update(values))


def peft_settings(**values: Any) -> Change:
    return fields("adapter_config.json", **values)


def template(source: str) -> Change:
    return text("chat_template.jinja", source)


def tensors(change: Callable[[dict[str, torch.Tensor]], Any], file: str = WEIGHTS) -> Change:
    def changed(folder: Path) -> None:
        weights = load_file(folder / file)
        other = change(weights)
        kept = other if isinstance(other, dict) else weights
        save_file({name: weight.contiguous() for name, weight in kept.items()}, folder / file, {"format": "pt"})

    return changed


def drop(part: str, file: str = WEIGHTS) -> Change:
    return tensors(lambda weights: {name: weight for name, weight in weights.items() if part not in name}, file)


def put(number: float, part: str, file: str = WEIGHTS) -> Change:
    def changed(weights: dict[str, torch.Tensor]) -> None:
        name = next(name for name in weights if part in name)
        weights[name].view(-1)[-1] = number

    return tensors(changed, file)


def every(make: Callable[[torch.Tensor], torch.Tensor], part: str = "", file: str = WEIGHTS) -> Change:
    return tensors(lambda weights: {n: make(w) if part in n else w for n, w in weights.items()}, file)


def more(file: str = WEIGHTS, **extra: torch.Tensor) -> Change:
    return tensors(
        lambda weights: {**weights, **{name.replace("__", "."): value for name, value in extra.items()}}, file
    )


def rename(old: str, new: str, file: str = WEIGHTS) -> Change:
    return tensors(lambda weights: {name.replace(old, new): weight for name, weight in weights.items()}, file)


def header(change: Callable[[dict[str, Any]], Any], file: str = WEIGHTS) -> Change:
    """Rewrite the header of a safetensors file; `change` returns the new one (text, or what becomes JSON)."""

    def changed(folder: Path) -> None:
        content = (folder / file).read_bytes()
        size = struct.unpack("<Q", content[:8])[0]
        old = json.loads(content[8 : 8 + size])
        new = change(old)
        raw = (new if isinstance(new, str) else json.dumps(old if new is None else new)).encode()
        (folder / file).write_bytes(struct.pack("<Q", len(raw)) + raw + content[8 + size :])

    return changed


def entry(**values: Any) -> Change:
    """Fields of the entry of the first tensor in the header."""

    def changed(old: dict[str, Any]) -> None:
        next(value for name, value in old.items() if name != "__metadata__").update(values)

    return header(changed)


def link(file: str, target: str) -> Change:
    def changed(folder: Path) -> None:
        (folder / file).unlink(missing_ok=True)
        (folder / file).symlink_to(target)

    return changed


def directory(file: str) -> Change:
    return lambda folder: ((folder / file).unlink(missing_ok=True), (folder / file).mkdir())


class Trap:
    """Leaves a trace when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return Path.touch, (self.folder / "it_ran",)


def trap(file: str) -> Change:
    return lambda folder: (folder / file).write_bytes(pickle.dumps(Trap(folder)))


def code(file: str) -> Change:
    """Python that leaves a trace when it is run."""
    return lambda folder: (folder / file).write_text(
        f"import pathlib\npathlib.Path({str(folder / 'it_ran')!r}).touch()\n"
    )


def shards(change: Callable[[Any], Any]) -> Change:
    return as_json(INDEX, change)


def pickled(file: str) -> Change:
    """All tensors in one pickle without code, which the index of shards names."""

    def changed(folder: Path) -> None:
        parts = sorted(folder.glob("model-*.safetensors"))
        torch.save({name: value for part in parts for name, value in load_file(part).items()}, folder / file)
        shards(lambda index: index.update(weight_map=dict.fromkeys(index["weight_map"], file)))(folder)

    return changed


def in_index(**values: Any) -> Change:
    return shards(lambda index: index["weight_map"].update({k.replace("__", "."): v for k, v in values.items()}))


def more_tokens(count: int) -> Change:
    new = [
        {"id": 320 + i, "content": f"<extra_{i}>", "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i in range(count)
    ]  # fmt: skip
    return as_json("tokenizer.json", lambda value: value["added_tokens"].extend(new))


NORM = "model.norm.weight"

CASES = [
    # -- weights that are missing, unexpected, misshapen, or no numbers ----------------------------------------------
    *(Case("weights", f"without {part}", drop(part), rf"has no weights? .*{part}") for part in (
        "layers.1.", "layers.0.self_attn.q_proj", "mlp.down_proj", "model.norm", "embed_tokens", "input_layernorm")),
    Case("weights", "no tensor at all", tensors(lambda weights: {}), r"no weights for 21 tensors"),
    Case("weights", "tensors of another model", rename("model.", "transformer.h."), "has no weight"),
    Case("weights", "one tensor renamed", rename(NORM, "model.normal.weight"), r"model\.norm\.weight"),
    Case("weights", "a third layer", more(model__layers__2__mlp__up_proj__weight=torch.ones(64, 32)), r"not use.*layers\.2"),
    Case("weights", "a value head", more(v_head__summary__weight=torch.ones(1, 32)), r"not use.*v_head"),
    Case("weights", "a bias that nobody adds", more(model__norm__bias=torch.ones(32)), r"not use.*norm\.bias"),
    Case("weights", "wider embeddings", every(lambda w: torch.cat([w, w], 1), "embed_tokens"), r"embed_tokens.*\[320, 64\].*\[320, 32\]"),
    Case("weights", "fewer rows", every(lambda w: w[:300], "embed_tokens"), r"\[300, 32\]"),
    Case("weights", "a matrix as a vector", every(lambda w: w.reshape(-1), "q_proj"), r"\[1024\]"),
    Case("weights", "a transposed matrix", every(lambda w: w.T, "up_proj"), r"\[32, 64\]"),
    Case("weights", "scalars", every(lambda w: w.reshape(-1)[0], "norm"), "norm"),
    Case("weights", "empty tensors", every(lambda w: w[:0], "q_proj"), r"\[0, 32\]"),
    *(Case("weights", f"{number} in {part}", put(number, part), rf"not finite.*{part}")
      for number in (float("nan"), float("inf"), -float("inf")) for part in ("layers.1.mlp.up_proj", "model.norm", "embed_tokens")),
    Case("weights", "only NaN", every(lambda w: w * float("nan")), "not finite"),
    Case("weights", "NaN in bfloat16", every(lambda w: (w * float("nan")).bfloat16(), "k_proj"), r"not finite.*k_proj"),
    Case("weights", "1e39 in float64", every(lambda w: w.double() * 0 + 1e39, "k_proj"), r"not finite.*k_proj"),
    # -- files that are no safetensors ----------------------------------------------------------------------------------
    Case("file", "empty", text(WEIGHTS, ""), r"model\.safetensors"),
    Case("file", "seven bytes", text(WEIGHTS, b"1234567"), r"model\.safetensors"),
    Case("file", "a web page", text(WEIGHTS, "<html><body>404 not found</body></html>" * 40), r"model\.safetensors"),
    Case("file", "a pointer of git lfs", text(WEIGHTS, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"), "git lfs pull"),
    Case("file", "zeros", text(WEIGHTS, bytes(4096)), r"model\.safetensors"),
    *(Case("file", f"cut to {share:.0%}", cut(WEIGHTS, share), r"model\.safetensors") for share in (0.001, 0.05, 0.5, 0.999)),
    *(Case("file", f"a header of {size} bytes", text(WEIGHTS, struct.pack("<Q", size) + b"{}" * 40), r"model\.safetensors")
      for size in (2**60, 2**64 - 1, 2**31, 10**8 + 1, 3)),
    Case("file", "more bytes at the end", lambda folder: (folder / WEIGHTS).open("ab").write(b"0" * 100), r"model\.safetensors"),
    Case("file", "a header that is a list", header(lambda old: []), r"model\.safetensors"),
    Case("file", "a header that is no JSON", header(lambda old: "{" * 100), r"model\.safetensors"),
    Case("file", "a deep header", header(lambda old: '{"a":' * 100_000), r"model\.safetensors"),
    Case("file", "offsets behind the end", entry(data_offsets=[10**15, 10**15 + 4]), r"model\.safetensors"),
    Case("file", "offsets in reverse", entry(data_offsets=[4096, 0]), r"model\.safetensors"),
    Case("file", "negative offsets", entry(data_offsets=[-4096, 0]), r"model\.safetensors"),
    Case("file", "an unknown type", entry(dtype="F7"), r"model\.safetensors"),
    Case("file", "a shape of terabytes", entry(shape=[10**6, 10**6]), r"model\.safetensors"),
    Case("file", "a shape beyond 64 bits", entry(shape=[2**40, 2**40]), r"model\.safetensors"),
    Case("file", "a negative shape", entry(shape=[-320, -32]), r"model\.safetensors"),
    Case("file", "a shape of text", entry(shape="320x32"), r"model\.safetensors"),
    Case("file", "two tensors on the same bytes", header(lambda old: old[NORM].update(old["model.layers.0.input_layernorm.weight"])), r"model\.safetensors"),
    Case("file", "a folder", directory(WEIGHTS), r"model\.safetensors"),
    Case("file", "a link to nowhere", link(WEIGHTS, "/nowhere/at/all"), r"model\.safetensors"),
    Case("file", "none", without(WEIGHTS), "weights"),
    # -- shards -----------------------------------------------------------------------------------------------------------
    Case("index", "sound", lambda folder: None, None, "sharded"),
    Case("index", "a shard is missing", without("model-00002-of-00002.safetensors"), "model-00002-of-00002", "sharded"),
    Case("index", "a shard is cut", cut("model-00002-of-00002.safetensors", 0.5), "model-00002-of-00002", "sharded"),
    Case("index", "a shard lacks a tensor", drop("norm", "model-00002-of-00002.safetensors"), "norm", "sharded"),
    Case("index", "a shard that is a pickle", both(trap("shard.bin"), in_index(model__norm__weight="shard.bin")), r"index\.json", "sharded"),
    Case("index", "a first shard that is a harmless pickle", pickled("a.bin"), r"index\.json", "sharded"),
    Case("index", "no JSON", text(INDEX, "{"), r"index\.json", "sharded"),
    Case("index", "a list", text(INDEX, "[]"), r"index\.json", "sharded"),
    Case("index", "no map", text(INDEX, "{}"), r"index\.json", "sharded"),
    Case("index", "an empty map", text(INDEX, '{"metadata": {}, "weight_map": {}}'), REFUSED, "sharded"),
    Case("index", "no metadata", shards(lambda index: index.pop("metadata") and None), REFUSED, "sharded"),
    Case("index", "the map is a list", shards(lambda index: index.update(weight_map=["a"])), r"index\.json", "sharded"),
    # -- pickles ----------------------------------------------------------------------------------------------------------
    Case("pickle", "in place of the weights", both(without(WEIGHTS), trap("pytorch_model.bin")), "safetensors"),
    Case("pickle", "with an index", both(without(WEIGHTS), trap("a.bin"), text(
        "pytorch_model.bin.index.json", '{"metadata": {}, "weight_map": {"model.norm.weight": "a.bin"}}')), "safetensors"),
    Case("pickle", "named as safetensors", trap(WEIGHTS), r"model\.safetensors"),
    Case("pickle", "beside the weights", trap("pytorch_model.bin"), None),
    Case("pickle", "named by the configuration", both(trap("own.bin"), config(transformers_weights="own.bin"))),
    Case("pickle", "of an adapter", both(without(ADAPTER), trap("adapter_model.bin")), "safetensors", "adapter"),
    Case("pickle", "of tensorflow", both(without(WEIGHTS), text("tf_model.h5", "x")), "weights"),
    Case("pickle", "of a checkpoint", both(without(WEIGHTS), trap("consolidated.00.pth")), "weights"),
    # -- config.json --------------------------------------------------------------------------------------------------------
    *(Case("config", f"the file is {content[:12]!r}", text("config.json", content), r"config\.json") for content in (
        "", "{", "[]", "null", "7", '"llama"', "{}", "\x00\x01", "{'model_type': 'llama'}", "[" * 100_000)),
    Case("config", "bytes that are no text", text("config.json", b"\xff\xfe\xfa" * 9), r"config\.json"),
    *(Case("config", f"model_type {kind!r}", config(model_type=kind), r"config\.json|architecture")
      for kind in ("nothing_known", "", 7, None, ["llama"], {"a": 1}, "t5", "clip")),
    *(Case("config", f"{name} {value!r}", config(**{name: value}), r"config\.json|\[") for name in (
        "vocab_size", "hidden_size", "num_attention_heads") for value in ("many", None, -1, 0, 2.5, [1], {})),
    *(Case("config", f"num_hidden_layers {value!r}", config(num_hidden_layers=value), r"config\.json|not use") for value in ("2", None, -1, 0, 1)),
    Case("config", "three heads", config(num_attention_heads=3)),
    Case("config", "no heads for the keys", config(num_key_value_heads=0)),
    Case("config", "an unknown activation", config(hidden_act="wishful"), r"config\.json"),
    Case("config", "unknown positions", config(rope_parameters={"rope_type": "none such", "rope_theta": 1e4}), r"config\.json"),
    Case("config", "positions of text", config(rope_parameters="linear"), r"config\.json"),
    Case("config", "unknown quantization", config(quantization_config={"quant_method": "magic"}), None),
    Case("config", "quantization of text", config(quantization_config="yes"), r"config\.json"),
    Case("config", "an unknown type of weights", config(dtype="float17"), r"config\.json"),
    Case("config", "tied to what is not there", config(tie_word_embeddings=False), "lm_head"),
    Case("config", "padding outside", config(pad_token_id=10**9), r"config\.json|padding"),
    Case("config", "generation: no JSON", text("generation_config.json", "{"), r"generation_config\.json"),
    Case("config", "generation: a list", text("generation_config.json", "[1]"), r"generation_config\.json"),
    *(Case("config", f"generation: end {end!r}", fields("generation_config.json", eos_token_id=end), r"generation_config\.json|eos_token_id")
      for end in ("stop", [["a"]], -5, 10**9, 1.5, {"a": 1})),
    Case("config", "generation: a hot model", fields("generation_config.json", temperature=-5, top_p=7, num_beams=0), None),
    # -- sizes ---------------------------------------------------------------------------------------------------------------
    Case("size", "infinite layers", text("config.json", '{"model_type": "llama", "num_hidden_layers": Infinity}'), r"config\.json"),
    Case("size", "no limit of positions", config(max_position_embeddings=10**18), None),
    # -- the tokenizer ---------------------------------------------------------------------------------------------------------
    *(Case("tokenizer", f"the file is {content[:12]!r}", text("tokenizer.json", content), r"tokenizer\.json") for content in (
        "", "{", "[]", "null", "{}", "\x00\x01", "[" * 100_000)),
    Case("tokenizer", "cut", cut("tokenizer.json", 0.5), r"tokenizer\.json"),
    Case("tokenizer", "none", without("tokenizer.json"), "tokenizer"),
    Case("tokenizer", "an unknown model", model_of_tokenizer(type="Guess"), r"tokenizer\.json"),
    Case("tokenizer", "ids of text", model_of_tokenizer(vocab={"a": "one"}), r"tokenizer\.json"),
    Case("tokenizer", "negative ids", model_of_tokenizer(vocab={"a": -1}), r"tokenizer\.json"),
    Case("tokenizer", "merges of nothing", model_of_tokenizer(merges=[["x1", "x2"]]), r"tokenizer\.json"),
    Case("tokenizer", "an id behind the embeddings", as_json(
        "tokenizer.json", lambda value: value["model"]["vocab"].update(zz=4000)), r"4,?000.*320|320.*4,?000"),
    Case("tokenizer", "an id of 2^31", as_json("tokenizer.json", lambda value: value["model"]["vocab"].update(zz=2**31)), "tokenizer"),
    Case("tokenizer", "one more token", more_tokens(1), r"320.*320|<extra_0>"),
    Case("tokenizer", "200,000 more tokens", more_tokens(200_000), "tokenizer"),
    Case("tokenizer", "the same id twice", as_json(
        "tokenizer.json", lambda value: value["added_tokens"].append({**value["added_tokens"][0], "content": "<twin>"}))),
    Case("tokenizer", "an added token without an id", as_json("tokenizer.json", lambda value: value["added_tokens"][0].pop("id") and None), r"tokenizer\.json"),
    Case("tokenizer", "an unknown normalizer", tokenizer(normalizer={"type": "Nothing"}), r"tokenizer\.json"),
    Case("tokenizer", "a broken expression", tokenizer(pre_tokenizer={
        "type": "Split", "pattern": {"Regex": "((("}, "behavior": "Isolated", "invert": False}), r"tokenizer\.json"),
    Case("tokenizer", "a wrong decoder", tokenizer(decoder={"type": "Nothing"}), r"tokenizer\.json"),
    *(Case("tokenizer", f"settings: {content[:12]!r}", text("tokenizer_config.json", content), r"tokenizer_config\.json") for content in ("", "{", "[]", "null", "7")),
    *(Case("tokenizer", f"tokenizer_class {value!r}", named(tokenizer_class=value)) for value in (7, ["a"], {})),
    Case("tokenizer", "settings: no end", both(named(eos_token=None), fields("generation_config.json", eos_token_id=None), config(eos_token_id=None)), "end-of-sequence"),
    *(Case("tokenizer", f"settings: eos_token {value!r}", named(eos_token=value), "tokenizer") for value in (7, ["a"], {"content": 7}, {})),
    Case("tokenizer", "settings: an end that is not in it", named(eos_token="<none such>"), "<none such>|320"),
    Case("tokenizer", "settings: added tokens of text", named(added_tokens_decoder="x"), "tokenizer"),
    Case("tokenizer", "special tokens: a list", text("special_tokens_map.json", "[]")),
    Case("tokenizer", "added tokens: text", both(without("tokenizer.json"), text("added_tokens.json", '"x"')), r"added_tokens\.json"),
    # -- templates ------------------------------------------------------------------------------------------------------------
    *(Case("template", f"syntax: {source}", template(source), "chat template") for source in (
        "{% for", "{{", "{% if x %}", "{% endfor %}", "{{ a b }}", "{% unknown %}", "{{ '" + "(" * 9)),
    Case("template", "a very deep expression", template("{{ " + "(" * 20_000 + ")" * 20_000 + " }}"), "chat template"),
    *(Case("template", f"fails: {source}", template(source), "chat template") for source in (
        "{{ 1 / 0 }}", "{{ messages.nothing.at.all }}", "{{ messages[99].content }}", "{{ messages + 1 }}", "{{ nothing() }}",
        "{{ raise_exception('never') }}", "{{ 'x' | unknown }}", "{% include 'x' %}", "{% import '/etc/passwd' as x %}",
        "{{ range(10**9) | list }}", "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}")),
    *(Case("template", f"harmful: {source[:40]}", template(source), "chat template") for source in (
        "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ cycler.__init__.__globals__.os.system('touch it_ran') }}",
        "{{ self.__init__.__globals__ }}", "{{ messages.append(1) }}")),
    Case("template", "bytes that are no text", text("chat_template.jinja", b"\xff\xfe"), "codec"),
    Case("template", "nothing", template("{{ '' }}"), "prompt|chat template"),
    # -- adapters -------------------------------------------------------------------------------------------------------------
    Case("adapter", "without a tensor", drop("layers.0.self_attn.q_proj.lora_A", ADAPTER), r"has no weight.*q_proj", "adapter"),
    Case("adapter", "no tensor at all", tensors(lambda weights: {}, ADAPTER), "has no weight", "adapter"),
    Case("adapter", "a tensor of a third layer", rename("layers.1.mlp.up_proj", "layers.2.mlp.up_proj", ADAPTER), r"layers\.[12]", "adapter"),
    Case("adapter", "a wider tensor", every(lambda w: torch.cat([w, w], 1), "q_proj.lora_A", ADAPTER), "q_proj", "adapter"),
    Case("adapter", "NaN", put(float("nan"), "lora_B", ADAPTER), "not finite.*lora_B", "adapter"),
    Case("adapter", "infinity", put(float("inf"), "lora_A", ADAPTER), "not finite.*lora_A", "adapter"),
    Case("adapter", "cut", cut(ADAPTER, 0.5), ADAPTER, "adapter"),
    Case("adapter", "none", without(ADAPTER), "weights", "adapter"),
    Case("adapter", "no settings", without("adapter_config.json"), "adapter_config", "adapter"),
    *(Case("adapter", f"settings: {content}", text("adapter_config.json", content), r"adapter_config\.json", "adapter") for content in ("", "{", "[]", "null", "{}")),
    *(Case("adapter", f"peft_type {value!r}", peft_settings(peft_type=value), "adapter_config", "adapter") for value in ("MAGIC", None, 7, ["LORA"])),
    *(Case("adapter", f"r {value!r}", peft_settings(r=value), "adapter", "adapter") for value in (0, -4, 8, 10**12, "four", None)),
    Case("adapter", "alpha is text", peft_settings(lora_alpha="big"), "adapter", "adapter"),
    Case("adapter", "layers that are not there", peft_settings(target_modules=["nothing"]), "adapter", "adapter"),
    Case("adapter", "a broken expression", peft_settings(target_modules="((("), "adapter", "adapter"),
    *(Case("adapter", f"peft: {name}", change, says, "peft") for name, change, says in (
        ("sound", lambda folder: None, None),
        ("without a tensor", drop("layers.0.self_attn.q_proj.lora_A", ADAPTER), "q_proj"),
        ("NaN", put(float("nan"), "lora_A", ADAPTER), "not finite"),
        ("an unknown base", peft_settings(base_model_name_or_path="/nowhere/at/all"), "/nowhere/at/all"),
        ("no base", peft_settings(base_model_name_or_path=None), "adapter_config"),
        ("a base of numbers", peft_settings(base_model_name_or_path=7), "adapter_config"),
        ("its own base", lambda folder: peft_settings(base_model_name_or_path=str(folder))(folder), "adapter_config"),
    )),
    # -- heads and what fgrl wrote down ---------------------------------------------------------------------------------------
    Case("head", "none", without("head.safetensors"), r"head\.safetensors", "scalar"),
    Case("head", "cut", cut("head.safetensors", 0.5), r"head\.safetensors", "scalar"),
    Case("head", "no tensor", tensors(lambda weights: {}, "head.safetensors"), r"head\.safetensors.*Missing key", "scalar"),
    Case("head", "a bias too many", more("head.safetensors", bias=torch.ones(())), r"head\.safetensors.*Unexpected key.*bias", "scalar"),
    Case("head", "of another width", every(lambda w: w[:7], "", "head.safetensors"), r"\[7\]", "scalar"),
    Case("head", "NaN", put(float("nan"), "weight", "head.safetensors"), "not finite", "scalar"),
    *(Case("record", f"the file is {content[:12]!r}", text("fgrl.json", content), r"fgrl\.json", "scalar")
      for content in ("", "{", "[]", "null", "7", "\x00", '{"model": 7}', '{"model": []}', "[" * 100_000)),
    *(Case("record", f"{name} {value!r}", record(**{name: value}), r"fgrl\.json", "scalar") for name, value in (
        ("head", "magic"), ("head", None), ("dtype", "float17"), ("dtype", "load"), ("dtype", 7), ("eos_ids", "x"), ("eos_ids", ["x"]),
        ("eos_ids", []), ("adapter", "yes"), ("spec", None))),
    *(Case("record", f"base {value!r}", record(base=value), r"fgrl\.json", "adapter") for value in (
        None, 7)),
    Case("record", "base: gone", record(base={
        "name": "/nowhere", "packaged": None, "local": True, "relative": "nowhere", "revision": None}), "gone", "adapter"),
    # -- code -------------------------------------------------------------------------------------------------------------------
    Case("code", "its own class", both(code("own.py"), config(
        model_type="own", auto_map={"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"})), "code"),
    Case("code", "its own class for a known type", both(code("own.py"), config(
        auto_map={"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"})), None),
    Case("code", "its own tokenizer", both(code("own.py"), named(
        tokenizer_class="Own", auto_map={"AutoTokenizer": ["own.T", "own.T"]}))),
    Case("code", "its own way to generate", both(
        lambda folder: (folder / "custom_generate").mkdir(), code("custom_generate/generate.py")), None),
    Case("code", "modules in the folder", both(code("transformers.py"), code("torch.py"), code("__init__.py")), None),
]  # fmt: skip

"""A model folder brings data. What it brings as code is never run, whatever is answered to a library's question."""

from __future__ import annotations

import ast
import builtins
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from import_walk import sources as modules
from training_helpers import tiny

from fgrl import models
from fgrl.base.errors import DataError
from fgrl.feedback.llm.tokens import load_tokenizer
from fgrl.kinds.specs import ModelSpec
from fgrl.models.embeddings import SentenceEncoder

READERS = ("from_pretrained", "from_config", "SentenceTransformer", "CrossEncoder", "pipeline")
"""What reads a model, and runs its code if it is allowed to."""


def calls(source: str) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def trusting(source: str) -> list[str]:
    """Calls that do not say `trust_remote_code=False`. peft's classes take no such argument: adapters bring no classes."""
    return [
        name
        for name, call in calls(source)
        if name.rpartition(".")[2] in READERS
        and not name.startswith("peft.")
        and not any(
            keyword.arg == "trust_remote_code"
            and isinstance(keyword.value, ast.Constant)
            and keyword.value.value is False
            for keyword in call.keywords
        )
    ]


def unpickling(source: str) -> list[str]:
    """Calls that may run code which lies in a file of data."""
    indexes = ("FileSystemReader", "dcp_to_torch_save")  # of torch's checkpoints in shards
    whole = {"pickle.load", "pickle.loads", "dill.load", "joblib.load", "cloudpickle.load", "yaml.unsafe_load"}
    return [
        name
        for name, call in calls(source)
        if name in whole
        or (name == "torch.load" and "weights_only=True" not in ast.unparse(call))
        or "allow_pickle=True" in ast.unparse(call)
        or name.endswith(indexes)
        or (name == "dcp.load" and "storage_reader=dcp.HuggingFaceStorageReader" not in ast.unparse(call))
    ]


def test_nothing_in_fgrl_trusts_a_model_or_unpickles_a_file() -> None:
    sources = modules()
    assert {name: trusting(source) for name, source in sources.items() if trusting(source)} == {}
    assert {name: unpickling(source) for name, source in sources.items() if unpickling(source)} == {}
    readers = {
        name for source in sources.values() for name, _call in calls(source) if name.rpartition(".")[2] in READERS
    }
    assert len(readers) >= 3, "the walk sees the calls"


def test_the_walk_finds_what_is_planted() -> None:
    assert trusting("AutoModel.from_pretrained(x, revision=None)") == ["AutoModel.from_pretrained"]
    assert trusting("SentenceTransformer(x, trust_remote_code=flag)") == ["SentenceTransformer"]
    assert trusting("auto.from_pretrained(x, trust_remote_code=False)") == []
    assert unpickling("torch.load(p)\npickle.loads(b)\nnumpy.load(p, allow_pickle=True)\ndcp.load(s, checkpoint_id=p)") == [
        "torch.load", "pickle.loads", "numpy.load", "dcp.load"
    ]  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Questions at the terminal, each of which is answered with yes."""
    questions: list[str] = []
    monkeypatch.setattr(builtins, "input", lambda question="": questions.append(question) or "y")
    return questions


def folder_with_code(base: Path, folder: Path, model_type: str) -> Path:
    """A copy of a model whose config names classes in a file beside it; that file leaves a trace when it is run."""
    shutil.copytree(base, folder)
    code = f"from pathlib import Path\nPath({str(folder / 'it_ran')!r}).touch()\n" + "\n".join(
        f"from transformers import {known} as {own}"
        for known, own in (("LlamaConfig", "OwnConfig"), ("LlamaForCausalLM", "OwnModel"), ("LlamaModel", "OwnTrunk"))
    )
    (folder / "own.py").write_text(code)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": model_type, "architectures": ["OwnModel"]}
    config["auto_map"] = {
        "AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel", "AutoModel": "own.OwnTrunk",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


READ: dict[str, Callable[[Path], Any]] = {
    "lm": lambda folder: models.load(ModelSpec(base=str(folder))),
    "scalar": lambda folder: models.load(ModelSpec(base=str(folder)), head="scalar", trainable=True),
    "tokenizer": lambda folder: load_tokenizer(ModelSpec(base=str(folder))),
}


@pytest.mark.parametrize("way", ["lm", "scalar"])
def test_a_model_that_brings_its_class_is_refused(
    way: str, tiny_model_dir: Path, tmp_path: Path, asked: list[str]
) -> None:
    folder = folder_with_code(tiny_model_dir, tmp_path / "own", "own_architecture")
    with pytest.raises(DataError, match=r"own: it can only be read by running code that comes with it.*architecture"):
        READ[way](folder)
    assert not (folder / "it_ran").exists()
    assert asked == []


@pytest.mark.parametrize("way", READ)
def test_a_known_architecture_is_read_by_the_known_class(
    way: str, tiny_model_dir: Path, tmp_path: Path, asked: list[str]
) -> None:
    folder = folder_with_code(tiny_model_dir, tmp_path / "own", "llama")
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer["auto_map"] = {"AutoTokenizer": ["own.OwnTokenizer", "own.OwnTokenizer"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    read = READ[way](folder)
    assert not (folder / "it_ran").exists()
    assert asked == []
    if way == "lm":
        pairs = zip(read.parameters(), tiny(tiny_model_dir).parameters(), strict=True)
        assert all(torch.equal(one, two) for one, two in pairs)


def test_a_sentence_encoder_that_brings_its_class_is_refused(
    tiny_model_dir: Path, tmp_path: Path, asked: list[str]
) -> None:
    folder = folder_with_code(tiny_model_dir, tmp_path / "own", "llama")
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "own.OwnModel"}]))
    with pytest.raises(DataError, match="running code that comes with it"):
        SentenceEncoder(ModelSpec(base=str(folder)), tmp_path).embed(["a text"])
    assert not (folder / "it_ran").exists()
    assert asked == []

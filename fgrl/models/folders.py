"""Checks of the files of a model folder before a library reads them, so that a mistake is reported with its file. Does
not import torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors

from fgrl.base.errors import DataError

AGAIN = "download or save the model again, or name another one"
SETTINGS: Mapping[str, type] = {
    "config.json": dict,
    "generation_config.json": dict,
    "tokenizer_config.json": dict,
    "special_tokens_map.json": dict,
    "added_tokens.json": dict,
    "adapter_config.json": dict,
    "fgrl.json": dict,
    "modules.json": list,
}
"""Files of settings, with the type of their content. tokenizer.json is left to its reader, which is fast."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the contents of the files of settings by name. Raises `DataError` for a file with other content."""
    return {name: _json(folder / name, kind) for name, kind in SETTINGS.items() if (folder / name).is_file()}


def _json(file: Path, kind: type) -> Any:
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise refusal(file, f"it is not JSON ({str(error)[:200]})") from None
    if not isinstance(content, kind):
        raise refusal(file, f"it holds {type(content).__name__}, and {kind.__name__} is expected")
    return content


def check_weights(folder: Path, names: str = "model*.safetensors") -> None:
    """Open a folder's safetensors files. Raises `DataError` if there are none, for pickles in their place or in the
    index of shards, and for a damaged file.
    """
    if (index := folder / "model.safetensors.index.json").is_file():
        shards = _json(index, dict).get("weight_map")
        if not isinstance(shards, dict) or not all(str(shard).endswith(".safetensors") for shard in shards.values()):
            raise refusal(index, "its weight_map has to name a safetensors file for each tensor")
    files = [file for file in sorted(folder.glob(names)) if file.is_file()]
    if not files and (pickles := [found.name for pattern in PICKLES for found in folder.glob(pattern)]):
        raise DataError(
            f"model {folder}: its weights are a pickle ({some(pickles)}), which can run code and is never read: convert it to "
            "safetensors where you trust it (save_pretrained writes safetensors), or name a model that has them"
        )
    if not files:
        raise DataError(f"model {folder}: it has no weights: no {names.replace('*', '')}; {AGAIN}")
    for file in files:
        try:
            with safetensors.safe_open(file, framework="pt"):
                pass
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            with file.open("rb") as raw:
                if raw.read(40).startswith(b"version https://git-lfs"):
                    why = "is a pointer of git lfs, not the weights: run git lfs pull"
                    raise DataError(f"model {folder}: {file.name} {why}") from None
            raise refusal(file, f"it is no safetensors file, or damaged ({str(error)[:200]})") from None


def some(names: Iterable[str], shown: int = 3) -> str:
    """Return the first names, and the number of further ones."""
    ordered = sorted(names)
    return ", ".join(ordered[:shown]) + (f" and {len(ordered) - shown:,} more" if len(ordered) > shown else "")


def refusal(file: Path, why: str) -> DataError:
    """Return the error about a file that cannot be used."""
    return DataError(f"model {file.parent}: {file.name}: {why}; {AGAIN}")

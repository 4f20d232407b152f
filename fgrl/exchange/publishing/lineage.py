"""The base that a trained model goes back to: its name elsewhere, and its license."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fgrl.base import lazy
from fgrl.kinds.specs import names_folder, stage_of
from fgrl.models.sources import Source, base_of
from fgrl.models.wheels import PACKAGES
from fgrl.runs.stage import Stage

huggingface_hub = lazy.load("huggingface_hub")

LICENSE_KEYS = ("license", "license_name", "license_link")


@dataclass(frozen=True)
class Base:
    """A model that was not trained with fgrl."""

    name: str
    """Name for people: a hub id, the name of a packaged model, or the name of a folder."""
    hub: str | None = None
    """Its id on the hub; None if it is not known to be there."""
    revision: str | None = None
    license: dict[str, str] = field(default_factory=dict)
    """`license`, `license_name` and `license_link` of its own model card; empty if they are not known."""
    note: str = ""
    """Differences of its weights from those on the hub."""


@dataclass(frozen=True)
class Lineage:
    """Models that a model's folder needs to be loaded, and the model that training began with."""

    adapters: int
    """Number of adapters on top of each other that `below` does not contain."""
    below: Source
    """Weights that the adapters belong to; without adapters the folder itself."""
    root: Source | None
    """The model that training began with, through every earlier stage; None if it is not known."""


def lineage(folder: Path, chain: Sequence[Stage] = ()) -> Lineage:
    """Return the lineage of a folder that `fgrl.models.save` wrote. chain: the stages that it was made from.

    Raises `DataError` if the base of an adapter is gone.
    """
    source = Source(str(folder), local=True)
    adapters = 0
    while source.saved_model().get("adapter"):
        source, adapters = base_of(source), adapters + 1
    return Lineage(adapters, source, _root(source, chain))


def _root(source: Source, chain: Sequence[Stage]) -> Source | None:
    """Return the source that training began with: for each fully trained model, follow the model that it was trained
    from.
    """
    for _ in range(len(chain) + 1):
        saved = source.saved_model()
        if not saved:
            return source
        if saved.get("adapter"):
            source = base_of(source)
            continue
        earlier = _trained_from(saved.get("spec", {}), chain)
        if earlier is None:
            return None
        source = earlier
    return source if not source.saved_model() else None


def _trained_from(spec: dict[str, Any], chain: Sequence[Stage]) -> Source | None:
    base = str(spec.get("base") or "")
    made_by = stage_of(base)
    if made_by is not None:
        keys = {stage.record.upstream.get(made_by) for stage in chain}
        folders = [stage.out for stage in chain if stage.key in keys]
        return Source(str(folders[0]), local=True) if len(folders) == 1 else None
    if base in PACKAGES:
        return Source(base, local=True, packaged=base)
    if names_folder(base) or Path(base).is_dir():
        return Source(str(Path(base).expanduser()), local=True)
    return Source(base, revision=spec.get("revision")) if base else None


def base_model(root: Source | None, hub: str | None = None) -> Base | None:
    """Return the root with the name that a card gives it. hub: its id there, if it was loaded from a folder."""
    if root is None:
        return None if hub is None else Base(hub, hub)
    if root.packaged is not None and root.packaged in PACKAGES:
        package = PACKAGES[root.packaged]
        weights = f"The weights are those of the Python package {package.distribution}: {package.origin}"
        if package.is_gguf:
            weights += f", quantized to {package.file.rpartition('.')[0].rpartition('.')[2]} and dequantized again"
        return Base(root.packaged, package.origin, None, {"license": package.license}, f"{weights}.")
    if not root.local:
        return Base(root.name, root.name, root.revision, _license_on_hub(root))
    card = Path(root.name) / "README.md"
    return Base(hub or Path(root.name).name, hub, root.revision, _license_of(card) if card.is_file() else {})


def _license_on_hub(base: Source) -> dict[str, str]:
    """Return the license from the base's model card, if this machine has the card."""
    for name in (base.revision, None):
        card = huggingface_hub.try_to_load_from_cache(base.name, "README.md", revision=name)
        if isinstance(card, str):
            return _license_of(Path(card))
    return {}


def _license_of(card: Path) -> dict[str, str]:
    try:
        data = huggingface_hub.ModelCard.load(card, ignore_metadata_errors=True).data.to_dict()
    except (OSError, ValueError):  # a card that cannot be read names no license
        return {}
    values = {key: data.get(key) for key in LICENSE_KEYS}
    return {key: value for key, value in values.items() if isinstance(value, str) and value}

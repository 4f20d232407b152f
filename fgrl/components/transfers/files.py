"""Transfer of all weights as files, which the servers read again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.kinds import Parcel, Serving, Transfer
from fgrl.registry import register

if TYPE_CHECKING:
    from fgrl.rollouts.serving import parcels
else:
    parcels = lazy.load("fgrl.rollouts.serving.parcels")


@register("files")
class Files(Transfer):
    """Writes all weights, with adapters merged, into safetensors files in the folder of the stage, which the servers
    read. The files contain their version, and the servers report the version that they have read. Needs disk space for
    two versions.
    """

    def serving(self, model: Any, dtype: str, folder: Path) -> Serving:
        return parcels.without_weights(model, folder / "architecture")

    def pack(self, model: Any, version: str, dtype: str, folder: Path, *, keep: bool) -> Parcel:
        return parcels.FileParcel(
            version, folder / "weights" / version, parcels.of_model(model, version, dtype, keep=False)
        )

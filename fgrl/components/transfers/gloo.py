"""Transfer of all weights through the memory of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.kinds import Parcel, Serving, Transfer
from fgrl.registry import register

if TYPE_CHECKING:
    from fgrl.rollouts.serving import broadcasts, parcels
else:
    broadcasts = lazy.load("fgrl.rollouts.serving.broadcasts")
    parcels = lazy.load("fgrl.rollouts.serving.parcels")


@register("gloo")
class Gloo(Transfer):
    """Broadcasts all weights, with adapters merged, to the servers through the memory of the CPU (torch's gloo), which
    needs no GPU. The servers receive the version after the last tensor, and report it.
    """

    def serving(self, model: Any, dtype: str, folder: Path) -> Serving:
        return parcels.without_weights(
            model, folder / "architecture", "--weight-transfer-config", '{"backend": "fgrl_gloo"}'
        )

    def pack(self, model: Any, version: str, dtype: str, folder: Path, *, keep: bool) -> Parcel:
        sent = parcels.of_model(model, version, dtype, keep=keep)
        group = self._run.shared("broadcasts", broadcasts.Broadcasts)
        return broadcasts.BroadcastParcel(version, sent, "gloo", "cpu", group)

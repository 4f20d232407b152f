"""Transfer of all weights from GPU to GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.kinds import Parcel, Serving, Transfer
from fgrl.registry import register

if TYPE_CHECKING:
    from fgrl.rollouts.serving import broadcasts, parcels, weights
else:
    broadcasts = lazy.load("fgrl.rollouts.serving.broadcasts")
    parcels = lazy.load("fgrl.rollouts.serving.parcels")
    weights = lazy.load("fgrl.rollouts.serving.weights")


@register("nccl")
class Nccl(Transfer):
    """Broadcasts all weights, with adapters merged, from the trainer's GPU to those of the servers (torch's NCCL),
    otherwise as `gloo`. Trainer and servers need different GPUs and compatible versions of NCCL. It has not been run
    yet.
    """

    def serving(self, model: Any, dtype: str, folder: Path) -> Serving:
        weights.need_gpu("nccl")
        return parcels.without_weights(
            model, folder / "architecture", "--weight-transfer-config", '{"backend": "fgrl_nccl"}'
        )

    def pack(self, model: Any, version: str, dtype: str, folder: Path, *, keep: bool) -> Parcel:
        sent = parcels.of_model(model, version, dtype, keep=keep)
        group = self._run.shared("broadcasts", broadcasts.Broadcasts)
        return broadcasts.BroadcastParcel(version, sent, "nccl", model.device, group)

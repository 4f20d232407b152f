"""All weights in the memory of one GPU, which trainer and server share."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.kinds import Parcel, Serving, Transfer
from fgrl.registry import register

if TYPE_CHECKING:
    import torch

    from fgrl.rollouts.serving import parcels, weights
else:
    parcels = lazy.load("fgrl.rollouts.serving.parcels")
    torch = lazy.load("torch")
    weights = lazy.load("fgrl.rollouts.serving.weights")


@register("ipc")
class Ipc(Transfer):
    """Gives the server handles of the weights in the memory of the GPU that it shares with the trainer (vLLM's `ipc`), with
    adapters merged. One server with `tensor_parallel: 1` on the trainer's own GPU. The handles are pickled, which vLLM reads only
    since it is told that this machine's processes are trusted. It has not been run yet.
    """

    def serving(self, model: Any, dtype: str, folder: Path) -> Serving:
        weights.need_gpu("ipc")
        own = ("--weight-transfer-config", '{"backend": "ipc"}')
        return parcels.without_weights(model, folder / "architecture", *own, VLLM_ALLOW_INSECURE_SERIALIZATION="1")

    def pack(self, model: Any, version: str, dtype: str, folder: Path, *, keep: bool) -> Parcel:
        tensors = parcels.of_model(model, version, dtype, keep=keep)

        class Handles(parcels.FullParcel):
            """Handles of the tensors, which live until the server has copied them."""

            def deliver(self, server: Any, limit: float) -> None:
                held = [(name, tensor.to(model.device)) for name, tensor in self._tensors()]
                gpu = str(torch.cuda.get_device_properties(model.device).uuid)
                handles = [{gpu: torch.multiprocessing.reductions.reduce_tensor(each)[1]} for _, each in held]
                info = {
                    "names": [name for name, _ in held],
                    "dtype_names": [str(each.dtype).removeprefix("torch.") for _, each in held],
                    "shapes": [list(each.shape) for _, each in held],
                    "ipc_handles_pickled": base64.b64encode(pickle.dumps(handles)).decode(),
                }
                server.call("/init_weight_transfer_engine", {"init_info": {"packed": False}}, limit=limit)
                send = {"update_info": info}
                parcels.in_phases(
                    server, self.version, lambda: server.call("/update_weights", send, limit=limit), limit
                )
                torch.cuda.ipc_collect()

        return Handles(version, tensors)

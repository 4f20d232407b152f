"""Transfer of a LoRA adapter alone, as a folder that the servers load in addition to their base model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.base.files import atomically, sha256_of_file
from fgrl.kinds import Parcel, Serving, Transfer
from fgrl.registry import register

if TYPE_CHECKING:
    from fgrl import models
    from fgrl.models.decoding import copies
    from fgrl.rollouts.serving import weights
else:
    copies = lazy.load("fgrl.models.decoding.copies")
    models = lazy.load("fgrl.models.language_model")
    weights = lazy.load("fgrl.rollouts.serving.weights")

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Buffer sizes for adapters that vLLM supports."""
AT_ONCE = 2
"""Maximum number of adapters with which a server computes answers at the same time."""


@register("adapter")
class Adapter(Transfer):
    """Writes the LoRA adapter into a folder, which servers load within a moment; the base model is not transferred. The
    adapter's name is a hash of its content and is never reused, so that cached data of an earlier adapter cannot be
    confused with it. The list of loaded adapters (`/v1/models`) shows the version of the servers.
    """

    def serving(self, model: Any, dtype: str, folder: Path) -> Serving:
        if not model.adapted:
            raise UsageError(
                "the transfer adapter sends a LoRA adapter, and this model has none: all of its weights are trained; use gloo or files"
            )
        if stacked := [name for name in model.net.peft_config if name != models.NEWEST]:
            raise UsageError(
                f"the model has {len(stacked) + 1} adapters on top of each other, and servers apply one: use gloo or files, which merge them"
            )
        rank = model.net.peft_config[models.NEWEST].r
        if rank > RANKS[-1]:
            raise UsageError(f"vLLM serves adapters up to rank {RANKS[-1]}, and this one has {rank}: use gloo or files")
        size = next(known for known in RANKS if known >= rank)
        own = [
            "--enable-lora",
            "--max-lora-rank",
            str(size),
            "--max-loras",
            str(AT_ONCE),
            "--max-cpu-loras",
            str(2 * AT_ONCE),
        ]
        own += ["--served-model-name", "base"]
        if model.spec.quantize:
            own += ["--quantization", "bitsandbytes", "--load-format", "bitsandbytes"]
        if model.base.revision:
            own += ["--revision", model.base.revision]
        return Serving(model.base.name, tuple(own), {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"})

    def pack(self, model: Any, version: str, dtype: str, folder: Path, *, keep: bool) -> Parcel:
        return AdapterParcel(model, dtype, folder / "adapters")


class AdapterParcel(Parcel):
    """An adapter on the disk."""

    def __init__(self, model: Any, dtype: str, folder: Path) -> None:
        self._model, self._dtype = model, dtype
        folder.mkdir(parents=True, exist_ok=True)
        written = folder / f"new-{os.getpid()}"
        state = None
        if model.sharded:
            state = {name: copies.whole(each) for name, each in model.net.state_dict().items() if ".lora_" in name}
        with atomically(written) as partial:
            model.net.save_pretrained(partial, selected_adapters=[models.NEWEST], state_dict=state)
        settings = model.net.peft_config[models.NEWEST]
        content = sha256_of_file(written / "adapter_model.safetensors")
        self.name = self.version = f"fgrl-{content[:32]}-{settings.r}-{settings.lora_alpha:g}"
        self.folder = folder / self.name
        try:
            written.rename(self.folder)
        except OSError:
            if not self.folder.exists():
                raise
            shutil.rmtree(written)  # another process has written the same
        self._matrices = list(weights.adapter(model, dtype))

    def deliver(self, server: Any, limit: float) -> None:
        if not self.arrived(server, limit):
            server.call("/v1/load_lora_adapter", {"lora_name": self.name, "lora_path": str(self.folder)}, limit=limit)

    def arrived(self, server: Any, limit: float) -> str:
        cards = server.get("/v1/models", limit=limit).get("data", [])
        loaded = any(card.get("id") == self.name and card.get("root") == str(self.folder) for card in cards)
        return self.version if loaded else ""

    def differing(self, server: Any, limit: float) -> list[str]:
        below: list[str] = []
        # bytes of 4-bit weights are each library's own; of shards this process has not all
        if not self._model.spec.quantize and not self._model.sharded:
            names = [name for name, _ in weights.shapes(self._model)]
            below = weights.differing(server, names, weights.sent(self._model, self._dtype, merge=False), limit)
        return below + weights.differing_adapter(server, self.name, self._matrices, limit)

    def discard(self, servers: Iterable[Any], limit: float) -> None:
        for server in servers:
            if self.arrived(server, limit):
                server.call("/v1/unload_lora_adapter", {"lora_name": self.name}, limit=limit)
        shutil.rmtree(self.folder, ignore_errors=True)

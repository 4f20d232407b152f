"""Training in shards (`strategy: fsdp`): each process writes its own part of a checkpoint, while the training
continues.

torch decides which process writes which tensors, and reads for any number of processes. The files are safetensors,
because the index of torch's own format is a pickle.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from fgrl.base.files import remove
from fgrl.training import checkpoints

REST = "rest.ckpt"
"""File with the contents of a checkpoint other than tensors in shards: counts, schedules, settings of the optimizer."""
WEIGHTS, MOMENTS = "weights", "moments"
"""Prefixes of the names of the trained weights, and of the optimizer's moments of each."""


class Shards(ModelParallelStrategy):
    """Lightning's strategy, with checkpoints that are written in a thread of each process."""

    _group: Any = None
    _writing: Future[Any] | None = None
    _partial = Path()

    def setup_environment(self) -> None:
        super().setup_environment()
        self._group = torch.distributed.new_group(backend="gloo")  # the training goes on in the other one

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.model is not None
        return get_model_state_dict(self.model)

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        assert self.model is not None
        return get_optimizer_state_dict(self.model, self.optimizers)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Copy the tensors and start writing them; `finish` waits for the end."""
        self._partial = Path(filepath)
        (optimizer,) = checkpoint["optimizer_states"]
        tensors = {WEIGHTS: checkpoint.pop("state_dict"), MOMENTS: optimizer.pop("state")}
        if self.is_global_zero:
            self._partial.mkdir(exist_ok=True)  # another process may have begun
            torch.save(checkpoint, self._partial / REST)
        saving: Any = dcp.async_save(tensors, storage_writer=ShardWriter(self._partial), process_group=self._group)
        self._writing = saving

    def finish(self) -> None:
        """Wait until a checkpoint that is being written has its final name. Raises the error of any process that
        failed.
        """
        writing, self._writing = self._writing, None
        try:
            if writing is not None:
                writing.result()
        except CheckpointException as failed:
            if self.is_global_zero:
                remove(self._partial)
            raise next(iter(failed.failures.values()))[0] from None

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Read this process's part of a checkpoint, which may have been written by any number of processes."""
        assert self.model is not None
        rest: dict[str, Any] = torch.load(Path(checkpoint_path) / REST, map_location="cpu", weights_only=True)
        trained = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        weights = {name: value for name, value in self.lightning_module_state_dict().items() if name in trained}
        (optimizer,) = rest["optimizer_states"]
        optimizer["state"] = self.optimizer_state(self.optimizers[0])["state"]
        read(Path(checkpoint_path), {WEIGHTS: weights, MOMENTS: optimizer["state"]})
        set_optimizer_state_dict(self.model, self.optimizers, optimizer)
        return rest


class ShardWriter(dcp.HuggingFaceStorageWriter):
    """Writer of the part of this process; rank 0 seals the folder when all processes have written their parts."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), save_distributed=True)
        self._folder = folder

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Return the sizes and sums of this process's files, which `finish` gets from all processes."""
        written = super().write_data(plan, planner).wait()
        names = {part.storage_data.relative_path for part in written}
        sums: Any = torch.futures.Future()
        sums.set_result([{name: checkpoints.size_and_sum(self._folder / name) for name in names}])
        return sums

    def finish(self, metadata: Any, results: Any) -> None:
        sums = {name: each for (part,) in results for name, each in part.items()}
        checkpoints.seal_folder(self._folder, sums | {REST: checkpoints.size_and_sum(self._folder / REST)})
        checkpoints.install(self._folder, keep=True)


def hand_out(model: Any, whole: dict[str, Any], device: torch.device) -> None:
    """Give each process its part of the weights `whole`, which only rank 0 has, and the buffers."""
    if torch.distributed.get_rank() > 0:
        model.to_empty(device=device)
        whole = {}
    how = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, whole, options=how)
    for buffer in model.buffers():
        torch.distributed.broadcast(buffer, 0)


def read(folder: Path, tensors: dict[str, Any]) -> None:
    """Read tensors, whole ones or shards, from a checkpoint."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)  # each process reads for itself
        dcp.load(tensors, storage_reader=dcp.HuggingFaceStorageReader(str(folder)), no_dist=True)


def whole_weights(folder: Path) -> Mapping[str, Tensor]:
    """Return the trained weights in a checkpoint by name."""
    known: Mapping[str, Any] = dcp.HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    prefix = f"{WEIGHTS}."
    state = {name: torch.empty(known[name].size) for name in known if name.startswith(prefix)}
    read(folder, state)
    return {name.removeprefix(prefix): value for name, value in state.items()}

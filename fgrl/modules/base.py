"""What offline and online training share: optimizer, schedule, clipping, seeds, slim checkpoints, logging."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from fgrl.components.kinds import Run
from fgrl.modules.trainer import TrainSettings, schedule
from fgrl.types import Batch, Stopped


class RoundModule(LightningModule):
    """A model trained in rounds. Subclasses give the loader of each round and the loss of a micro-batch."""

    def __init__(self, model: Any, settings: TrainSettings, run: Run, *, rounds: int, total_steps: int) -> None:
        super().__init__()
        self.model = model
        self.settings, self.run, self.rounds, self.total_steps = settings, run, rounds, total_steps
        self.strict_loading = False  # checkpoints hold only what training changes
        self.round = 0
        self._extra: dict[str, float] = {}
        self._sums: dict[str, float] = defaultdict(float)
        self._count = 0.0

    # -- to be filled in ----------------------------------------------------------------------------------------------

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        raise NotImplementedError

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Each group has its own peak learning rate and is clipped for itself."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        return [{"params": parameters, "lr": self.settings.lr}]

    # -- Lightning's hooks --------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> Any:
        settings = self.settings
        optimizer = torch.optim.AdamW(
            self.parameter_groups(),
            lr=settings.lr,
            betas=(settings.betas[0], settings.betas[1]),
            eps=settings.eps,
            weight_decay=settings.weight_decay,
        )
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule(settings, self.total_steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        networks: dict[str, list[Any]] = defaultdict(list)
        for group in optimizer.param_groups:
            networks[group.get("name", "").removesuffix("_no_decay")] += group["params"]
        limit = gradient_clip_val if gradient_clip_val is not None else float("inf")
        self._extra = {
            "critic_grad_norm" if name == "critic" else "grad_norm": float(torch.nn.utils.clip_grad_norm_(group, limit))
            for name, group in networks.items()
        }

    def training_step(self, batch: Batch, index: int) -> Tensor:
        loss, metrics = self.loss(batch)
        if not torch.isfinite(loss):
            raise Stopped(
                f"the loss is {float(loss)} at step {self.trainer.global_step}; the last good checkpoint is kept. "
                "Lower train.lr, or look at the curves with `fgrl report`."
            )
        self.note(metrics, weight=len(batch.mask))
        return loss

    def seed_round(self) -> None:
        """Every library's generator, set from the seed and the round: nothing of it has to be saved."""
        seed = (self.run.seed * 1_000_003 + self.round * 7919 + self.run.rank) % 2**31
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what training changes: frozen weights come back with the model itself."""
        trained = {name for name, parameter in self.named_parameters() if parameter.requires_grad}
        checkpoint["state_dict"] = {k: v for k, v in checkpoint["state_dict"].items() if k in trained}
        checkpoint["round"] = self.round + 1

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.round = checkpoint["round"]
        self.run.say(f"going on from round {self.round} of {self.rounds}")

    # -- logging ------------------------------------------------------------------------------------------------------

    def note(self, metrics: dict[str, float], weight: float) -> None:
        """Average metrics over the micro-batches of an optimizer step."""
        for name, value in metrics.items():
            self._sums[name] += value * weight
        self._count += weight

    def noted(self) -> dict[str, float]:
        """The averages since the last call."""
        found = {name: total / self._count for name, total in self._sums.items()} if self._count else {}
        found |= self._extra
        self._sums.clear()
        self._count = 0.0
        return found

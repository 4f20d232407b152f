"""The Lightning module that runs rounds: optimizer, schedule, clipping, seeds, slim checkpoints, metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from fgrl.base import seeds
from fgrl.base.errors import DataError
from fgrl.kinds import Ticker
from fgrl.kinds.functions import written_at
from fgrl.training import finite, launching, shards, strategies
from fgrl.training.callbacks import BetweenRounds
from fgrl.training.evaluations import Evaluations
from fgrl.training.rounds import Process, Rounds
from fgrl.training.tally import Tally
from fgrl.training.trainer import fit, schedule, trainer
from fgrl.types import Batch


class TrainingModule(LightningModule):
    """Training of `rounds.model`: Lightning calls the hooks below, in this order, and `rounds` supplies the data and
    the loss.
    """

    def __init__(
        self, rounds: Rounds, evaluations: Evaluations | None = None, save: Callable[[Path], None] | None = None
    ) -> None:
        """Create the module. `save` writes the present model into a folder, on rank 0, for `evaluations` that store it."""
        super().__init__()
        self.evaluations, self.save = evaluations, save
        self.rounds, self.settings, self.run = rounds, rounds.settings, rounds.run
        self.model = rounds.model
        for part in self.rounds.language_models:
            part.sharded = self.settings.sharded
            part.pack_rows(self.settings.micro_batch_tokens)
        trained = {value.dtype for value in self.model.parameters() if value.requires_grad}
        if trained != {torch.float32} and not self.settings.deepspeed:
            raise DataError(  # where the recipe names the type, the stage has refused it
                f"the checkpoint that this training starts from is stored in {trained.pop()}, in which most updates would be "
                "rounded away: set dtype: float32 of the model to train, or train lora"
            )
        self.strict_loading = False  # checkpoints hold only what training changes
        self.round = 0
        self.ticker: Ticker | None = None
        self._stack = ExitStack()
        self.tally = Tally()
        self._step_metrics: dict[str, float] = {}
        self._loss = 0.0
        self.interrupted = False
        """True if the training was left unfinished, because one of the processes was asked to stop."""
        self._steps = 0  # since the last report
        self._done = 0  # in this round

    def fit(self, checkpoint_every: int) -> None:
        """Train, resuming from `last.ckpt` if it exists, with a checkpoint every `checkpoint_every` rounds."""
        engine = trainer(
            self.settings, self.run, rounds=self.rounds.count, micro_batches=self.rounds.micro_batches,
            between=BetweenRounds(
                self.run, checkpoint_every, self.settings.minutes_between_checkpoints, self.evaluation_is_due, self.evaluate
            ),
            parallel=strategies.arguments(self.settings),
        )  # fmt: skip
        alone = not torch.distributed.is_initialized()  # one process, without a launcher
        if self.settings.strategy != "auto" and alone:
            launching.join(self.run.device, store=torch.distributed.HashStore(), rank=0, world_size=1)
        with self._stack:
            fit(engine, self, self.run, self.settings)
        self.ticker = None

    # -- before the first round ---------------------------------------------------------------------------------------

    def configure_model(self) -> None:
        if self.settings.strategy == "fsdp":
            mesh: Any = self.device_mesh
            for model in dict.fromkeys([*self.rounds.language_models, *self.rounds.frozen]):
                skeletons = self.trainer.strategy.reduce_boolean_decision(model.device.type == "meta", all=False)
                whole = model.state_dict() if skeletons else None
                strategies.shard(model, mesh["data_parallel"], self.settings.precision)
                if whole is not None:
                    shards.hand_out(model, whole, self.run.device)

    def configure_optimizers(self) -> Any:
        settings = self.settings
        optimizer = torch.optim.AdamW(
            self.rounds.parameter_groups(),
            lr=settings.lr,
            betas=(settings.betas[0], settings.betas[1]),
            eps=settings.eps,
            weight_decay=settings.weight_decay,
        )
        factor = schedule(settings, self.rounds.total_steps)
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda _steps: factor(self.rounds.position(self.round, self._done))
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.round = checkpoint["round"]
        self.rounds.load_state_dict(checkpoint)
        if self.settings.strategy != "fsdp":  # of which an older checkpoint may be there
            self.rounds.resumable = self.round
        self.run.say(f"continuing from round {self.round} of {self.rounds.count}")

    # -- one round ----------------------------------------------------------------------------------------------------

    def train_dataloader(self) -> Iterable[Batch]:
        if self.trainer.current_epoch != self.round:  # the seeds follow the round, the end follows Lightning's count
            raise RuntimeError(
                f"Lightning is in epoch {self.trainer.current_epoch}, this training in round {self.round}"
            )
        if self.ticker is None:
            launching.limit_waits(self.settings.wait_limit)  # of groups that a strategy has made, too
            done, total = self.rounds.progress(self.round)
            self.ticker = self._stack.enter_context(self.run.progress(self.rounds.unit, total, done))
            if self.evaluations is not None:
                self.evaluations.resume(done)
            if self.evaluate():
                return []
        if self.round == self.rounds.count:  # Lightning asks before it sees that nothing is left to do
            return []
        self.seed_round()
        self._done = 0
        batches = self.rounds.start(self.round, self._process())
        self.trainer.accumulate_grad_batches = self.rounds.micro_batches
        return batches

    def when(self, taken: int = 0) -> str:
        """Return the present position of the training for messages: `iteration 3, step 12`, both from 0. taken: number
        of steps that are already counted.
        """
        iteration = f"iteration {self.round}, " if self.rounds.reports == "round" else ""
        return f"{iteration}step {self.trainer.global_step - taken}"

    def _process(self) -> Process:
        context = self.trainer.strategy.precision_plugin.forward_context
        return Process(self.global_rank, self.trainer.world_size, context)

    def seed_round(self) -> None:
        """Seed every library's generator from the seed and the round, so that no generator's state has to be saved."""
        seeds.seed_libraries(seeds.of_round(self.run.seed, self.round * 7919 + self.run.rank) % 2**31)

    def training_step(self, batch: Batch, index: int) -> Tensor:
        loss, metrics = self.rounds.loss(batch)
        finite.check_loss(
            loss, self.when(), self.settings.lr, self.trainer.strategy.reduce_boolean_decision,
            written_at=lambda: written_at(self.rounds.algorithm, "loss"),
        )  # fmt: skip
        self.tally.add(metrics, rows=len(batch.mask) if batch.scale else 0)
        if batch.scale:
            self._loss += float(loss.detach()) / batch.scale
        return loss

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        if self.accumulated():
            self._step_metrics["lr"] = optimizer.param_groups[0]["lr"]
            self._done += 1

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        if not self.accumulated():
            return
        for name, parameters in self.networks.items():
            norm = strategies.clip(self.settings, parameters)
            if norm is not None:
                finite.check_gradient(norm, name, self.when(), self.settings.clip_norm)
                self._step_metrics["grad_norm" if name in ("", "actor") else f"{name}_grad_norm"] = norm

    def accumulated(self) -> bool:
        """Return True if all micro-batches of the optimizer step are finished. DeepSpeed has the hooks of a step called
        after each of them.
        """
        engine: Any = self.trainer.model
        return not self.settings.deepspeed or engine.is_gradient_accumulation_boundary()

    @cached_property
    def networks(self) -> dict[str, list[Any]]:
        """Return the trained weights of each network; each network is clipped separately."""
        networks: dict[str, list[Any]] = defaultdict(list)
        for group in self.rounds.parameter_groups():
            networks[group.get("name", "").removesuffix("_no_decay")] += group["params"]
        return networks

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        if (batch_idx + 1) % self.rounds.micro_batches:
            return  # the optimizer step goes on
        self._steps += 1
        if self.settings.strategy == "deepspeed_stage_3":  # it clips by itself
            engine: Any = self.trainer.model
            norm = float(engine.get_global_grad_norm())
            finite.check_gradient(norm, "", self.when(taken=1), self.settings.clip_norm)
            self._step_metrics["grad_norm"] = norm
        if self.rounds.reports == "step":
            self._report(self.trainer.global_step)

    def on_train_epoch_end(self) -> None:
        trained = [(name, weight) for name, weight in self.named_parameters() if weight.requires_grad]
        finite.check_weights(trained, self.when(), self.trainer.strategy.reduce_boolean_decision)
        if self.rounds.reports == "round":
            self._report(self.round)
        self.round += 1

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep only the trained weights; frozen weights are loaded with the model itself."""
        trained = {name for name, parameter in self.named_parameters() if parameter.requires_grad}
        checkpoint["state_dict"] = {k: v for k, v in checkpoint["state_dict"].items() if k in trained}
        checkpoint["round"] = self.round
        checkpoint.update(self.rounds.state_dict())
        # Lightning saves before it counts the epoch as completed, and would then ask for the next round's data twice
        for counts in checkpoint["loops"]["fit_loop"]["epoch_progress"].values():
            counts["completed"] = counts["processed"]
        checkpoint["epoch"] = self.round

    # -- between two rounds -------------------------------------------------------------------------------------------

    def evaluation_is_due(self) -> bool:
        """Return True if the model is to be evaluated after the finished rounds."""
        return self.evaluations is not None and self.evaluations.due(*self.rounds.progress(self.round))

    def evaluate(self) -> bool:
        """Make the evaluation after the finished rounds, if it is due. Return True if training may stop, because no
        better model is in sight.
        """
        if self.evaluations is None:
            return False
        if self.evaluation_is_due():
            done, _total = self.rounds.progress(self.round)
            assert self.save is not None
            self.evaluations.take(done, self._process(), self.model, self.save)
        return self.evaluations.enough()

    # -- metrics ------------------------------------------------------------------------------------------------------

    def _report(self, number: int) -> None:
        shown = self.rounds.report(self.metrics(), number)
        if self.ticker is not None:
            self.ticker.advance(1, **shown)

    def metrics(self) -> dict[str, float]:
        """Return the metrics since the last call, over all micro-batches and processes; every process must call this.

        "loss" is the mean loss of an optimizer step, independent of its division into micro-batches.
        """
        reduce = self._over_processes if self.trainer.world_size > 1 else None
        metrics = self.tally.take(reduce) | self._step_metrics
        loss = self._loss if reduce is None else reduce([self._loss], "sum")[0]
        if self._steps:
            metrics["loss"] = loss / self._steps
        self._loss, self._steps = 0.0, 0
        return metrics

    def _over_processes(self, numbers: list[float], how: str) -> list[float]:
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        return self.trainer.strategy.reduce(tensor, reduce_op=how).tolist()

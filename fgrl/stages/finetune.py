"""Train a model on fixed data: reward models, DPO, supervised fine-tuning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import Field

from fgrl import lazy
from fgrl.errors import DataError
from fgrl.files import write_json
from fgrl.kinds import Accelerator, OfflineAlgorithm, Peek, Reader, Run, Stage
from fgrl.modules.trainer import OfflineSettings
from fgrl.registry import dump, register
from fgrl.specs import ModelSpec
from fgrl.types import Checkpoint

encoding = lazy.load("fgrl.rollouts.encoding")
models = lazy.load("fgrl.models")
offline = lazy.load("fgrl.modules.offline")
previews = lazy.load("fgrl.stages.previews")
sizes = lazy.load("fgrl.stages.sizes")
training = lazy.load("fgrl.modules.trainer")
training_module = lazy.load("fgrl.modules.training_module")
weights = lazy.load("fgrl.modules.weights")


@register("finetune")
class FinetuneStage(Stage):
    """An offline algorithm over a data set."""

    makes = Checkpoint

    data: Reader
    """Pairs or samples, as the algorithm wants."""
    model: ModelSpec
    """What to train."""
    algorithm: OfflineAlgorithm
    """The loss."""
    train: OfflineSettings
    """Optimizer, schedule, hardware."""
    max_prompt_tokens: int = Field(1024, ge=1)
    """Longer prompts lose their beginning."""
    max_tokens: int = Field(2048, ge=2)
    """Prompt and response together; longer responses lose their end and are closed with an end-of-sequence token."""
    holdout: float = Field(0.0, ge=0, lt=1)
    """Share of the data, from its end, that is not trained on but measured before and after."""

    def processes(self) -> int:
        return self.train.devices

    def accelerator(self) -> Accelerator:
        return self.train.accelerator

    def trains(self) -> ModelSpec | None:
        return self.model

    def estimate(self, peek: Peek) -> dict[str, Any]:
        return sizes.finetune(self, peek)

    def run(self, run: Run) -> dict[str, Any]:
        # 1. the data as token ids
        training.check(self.train)
        self.data.setup(run)
        self.algorithm.setup(run)
        model = run.model(self.model, head=self.algorithm.head, trainable=True)
        units = encoding.units(self, model, limit=run.limit)
        # 2. one-time passes: segmentation, reference log-probabilities
        self.algorithm.prepare(units.rows, run, model)
        # 3. training on all units but the held-out ones, which are measured before and after
        kept = len(units) - round(self.holdout * len(units))
        training_units, held_out = units[:kept], units[kept:]
        settings = self.train
        if run.limit is not None:
            settings = settings.model_copy(update={"max_steps": min(settings.max_steps or run.limit, run.limit)})
        rounds = offline.OfflineRounds(model, self.algorithm, training_units, settings, run)
        if not rounds.steps:
            raise DataError(f"{kept} rows do not fill one step of train.batch_size {self.train.batch_size}")
        summary: dict[str, Any] = {"rows": kept, "steps": len(rounds.steps)} | units.rows.cut_counts()
        before = run.dir / "holdout_before.json"
        if held_out and not before.exists() and run.rank == 0:
            write_json(before, rounds.measure(held_out))
        module = training_module.TrainingModule(rounds)
        module.fit(checkpoint_every=1)  # a round is `train.checkpoint_every` optimizer steps
        run.stop_if_interrupted()
        # 4. the product
        if run.rank == 0:
            state = weights.full_state(module)
            if state is not None:
                model = run.model(self.model, head=self.algorithm.head, trainable=True)
                rounds.model = weights.fill(model, state)
            if held_out:
                rounds.model.to(run.device)  # Lightning leaves it on the CPU
                summary["holdout"] = {
                    "rows": len(held_out),
                    "before": json.loads(before.read_text(encoding="utf-8")),
                    "after": rounds.measure(held_out),
                }
            models.save(model, run.out, {"algorithm": dump(self.algorithm)} | self.algorithm.describe())
        return summary

    def inspect(self, run: Run, count: int) -> Iterator[Any]:
        """Rows as the model sees them, with segments when the algorithm cuts any."""
        self.data.setup(run)
        model = run.model(self.model.model_copy(update={"lora": None}), head="lm")
        units = encoding.units(self, model, limit=count)
        self.algorithm.prepare(units.rows, run, model)
        yield from (previews.of_row(row, model.tokenizer) for row in units.rows)

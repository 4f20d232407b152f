"""Training of a model on fixed data: reward models, DPO, supervised fine-tuning."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from fgrl.base import lazy
from fgrl.base.errors import DataError
from fgrl.base.files import write_json
from fgrl.experiments.stages.training import TrainingStage
from fgrl.kinds import CreditsTokens, MadeModel, OfflineAlgorithm, Peek, Reader, Run, stated
from fgrl.kinds.specs import ModelSpec, check_lengths
from fgrl.measuring.overlap import HeldOutItem, OverlapPolicy, settle
from fgrl.registry import Key, Unkeyed, dump, name_of, register
from fgrl.training.evaluations import HOLDOUT, HeldOutUnits, TrainingEvaluation
from fgrl.training.trainer import OfflineSettings

if TYPE_CHECKING:
    from fgrl.experiments.stages.counting import Work
    from fgrl.rollouts.rows import RowGroups
    from fgrl.training.evaluations import Evaluations
    from fgrl.training.memory import Role
    from fgrl.training.offline import OfflineRounds
    from fgrl.training.training_module import TrainingModule
encoding = lazy.load("fgrl.rollouts.encoding")
estimating = lazy.load("fgrl.feedback.llm.estimating")
counting = lazy.load("fgrl.experiments.stages.counting")
memory = lazy.load("fgrl.training.memory")
models = lazy.load("fgrl.models")
offline = lazy.load("fgrl.training.offline")
overlaps = lazy.load("fgrl.experiments.stages.overlaps")
previews = lazy.load("fgrl.experiments.stages.previews")
sizes = lazy.load("fgrl.experiments.stages.sizes")
stored_rollouts = lazy.load("fgrl.training.stored_rollouts")
training = lazy.load("fgrl.training.trainer")


@register("finetune")
class FinetuneStage(TrainingStage):
    """Training with an offline algorithm on a data set."""

    data: Reader
    """Reader of pairs or samples, as the algorithm requires."""
    model: ModelSpec
    """Model to train."""
    algorithm: OfflineAlgorithm
    """Algorithm that computes the loss."""
    train: OfflineSettings
    """Optimizer, schedule, hardware."""
    max_prompt_tokens: int = Field(1024, ge=1, le=10_000_000)
    """Maximum number of tokens of a prompt. Longer prompts lose their beginning."""
    max_tokens: int = Field(2048, ge=2, le=10_000_000)
    """Maximum number of tokens of prompt and response together. Longer responses lose their end and are closed with an
    end-of-sequence token.
    """
    holdout: float = Field(0.0, ge=0, le=0.5)
    """Share of the data, from its end, that is not used for training but measured before and after it, and in
    evaluations.
    """
    overlap: OverlapPolicy = "warn"
    """Treatment of rows of `holdout` whose prompt is also trained on, word for word or up to case, white space and
    final punctuation: `warn` reports them, `refuse` stops, `drop` leaves them out.
    """
    stored_credit: Annotated[int, Unkeyed] = Field(4, ge=0, le=1_000_000)
    """Number of pairs or samples stored in the product with the credit of their tokens under the trained model
    (credit.jsonl), which the report draws. They are taken from `holdout`, or without it from all data. 0 stores none.
    Only for algorithms that compute the contribution of a token, and strategies in which each device has all weights.
    """
    evaluate: TrainingEvaluation | None = None
    """Evaluation of the model during training, on held-out prompts and on `holdout`; null: no evaluation."""

    @model_validator(mode="after")
    def _known_columns(self) -> FinetuneStage:
        undeclared = sorted(self.algorithm.reads() - self.algorithm.columns.keys())
        if undeclared:
            raise ValueError(
                f'{name_of(self.algorithm)[1]} reads "{undeclared[0]}" of the data without declaring the column: name it in its `columns`, '
                "with per_token(fill=...) or per_response()"
            )
        return self

    @model_validator(mode="after")
    def _check(self) -> FinetuneStage:
        if self.evaluate is None:
            return self
        every, saved = self.evaluate.every, self.train.checkpoint_every
        if every % saved:
            raise ValueError(
                f"evaluate.every {every} is not a multiple of train.checkpoint_every {saved}: a model is evaluated where a "
                "checkpoint is written"
            )
        head = self.model.head or self.algorithm.head
        if self.evaluate.sets and head != "lm":
            raise ValueError(
                f"evaluate.sets: a model with a {head} head cannot answer prompts: set `holdout`, which is measured by "
                f"{name_of(self.algorithm)[1]}'s own metrics"
            )
        if not self.evaluate.sets and not self.holdout:
            raise ValueError("evaluate: nothing to evaluate: set `holdout`, or name held-out prompts under `sets`")
        return self

    @model_validator(mode="after")
    def _lengths(self) -> FinetuneStage:
        if "max_prompt_tokens" in self.model_fields_set:
            check_lengths(self.max_prompt_tokens, self.max_tokens)
        return self

    def makes_model(self) -> MadeModel:
        return replace(super().makes_model(), head=self.model.head or self.algorithm.head)

    def heads(self) -> dict[Key, tuple[ModelSpec, str]]:
        return {("model",): (self.model, self.algorithm.head)}

    def estimate(self, peek: Peek) -> dict[str, Any]:
        roles = [self._role()]
        roles += [memory.Role(name, spec) for name, spec in self.algorithm.frozen_models(self.model).items()]
        notes = {}
        if self.evaluate is not None and self.evaluate.reads_reference():
            if self.model.lora:
                notes = {"reference": "policy without its adapter"}
            else:
                roles.append(memory.Role("reference", self.model.frozen()))
        roles += self.models_of_evaluations()
        each = 2 if self.algorithm.data == "pairs" else 1
        sampled = max(self.drawn_in_evaluations(), key=lambda shape: shape.rows * shape.tokens, default=None)
        workload = memory.Workload(
            roles, self.train, sampled=sampled, sampler="policy",
            trained=sizes.trained(self.train, self.max_tokens, each, unit_by_unit=self.algorithm.unit_by_unit()), notes=notes,
        )  # fmt: skip
        return memory.estimate(workload, peek) | self._calls(peek) | overlaps.in_training(self, peek)

    def work(self, peek: Peek) -> Iterator[Work]:
        """Yield the work of one pass of each frozen model of the algorithm, and of the training."""
        left = max(self.max_tokens - self.max_prompt_tokens, self.max_tokens // 2)
        train = self.limited("max_steps", peek.limit)
        read = counting.texts(self.data, peek, self.max_prompt_tokens, left)
        of_unit = 2 if self.algorithm.data == "pairs" else 1
        units = read.rows - round(self.holdout * read.rows)
        steps = min(units * train.epochs // train.batch_size, train.max_steps or math.inf)
        for name, spec in self.algorithm.frozen_models(self.model).items():
            yield counting.passing(f"pass of {name}", memory.Role(name, spec), read, peek, train.world, of_unit)
        trained, saved = replace(read, rows=round(steps * train.batch_size)), steps // train.checkpoint_every
        yield counting.training(self._role(), trained, peek, train, saved, of_unit)

    def _role(self) -> Role:
        """Return the trained model."""
        head = self.model.head or self.algorithm.head
        return memory.Role("policy" if head == "lm" else "reward_model", self.model, head, trained=True)

    def total_steps(self) -> int | None:
        return self.train.max_steps

    def _calls(self, peek: Peek) -> dict[str, Any]:
        """Return an upper bound on the number of questions that the evaluations ask in the whole training, for a plan."""
        evaluation = self.evaluate
        if evaluation is None or not evaluation.asks():
            return {}

        def compute() -> dict[str, Any] | None:
            steps = self.limited("max_steps", peek.limit).max_steps
            if steps is None:
                expected = stated(self.data, "expects", peek)
                if expected is None:
                    self.data.setup(peek)
                    rows = sum(1 for _ in (self.data.pairs() if self.algorithm.data == "pairs" else self.data.read()))
                else:
                    rows = expected.samples
                steps = -(-rows // self.train.batch_size) * self.train.epochs
            return estimating.bill(evaluation.loads(steps, peek), bound=True)

        return estimating.section(compute)

    def run(self, run: Run) -> dict[str, Any]:
        # 1. the data as token ids
        self.train.check_machine()
        self.setup(run)
        model = run.model(self.model, head=self.algorithm.head, trainable=True)
        units = encoding.units(self, model, limit=run.limit)
        if warning := units.rows.cut_warning():
            run.say(warning)
        # 2. one-time passes: segmentation, reference log-probabilities
        self.algorithm.prepare(units.rows, run, model)
        run.forget_models()
        # 3. training on all units but the held-out ones, which are measured before and after
        kept = len(units) - round(self.holdout * len(units))
        digests = units.rows.prompt_digests[: 2 * kept]
        known = self.trained_before(run).union(digests)
        training_units, held_out = units[:kept], self._held_out(run, units, kept, known)
        settings = self.limited("max_steps", run.limit)
        rounds = offline.OfflineRounds(model, self.algorithm, training_units, settings, run)
        if not rounds.steps:
            raise DataError(f"{kept} rows do not fill one step of train.batch_size {self.train.batch_size}")
        summary: dict[str, Any] = {"rows": kept, "steps": len(rounds.steps)} | units.rows.cut_counts()
        before = run.dir / "holdout_before.json"
        if held_out and not before.exists() and run.rank == 0:
            write_json(before, rounds.measure(held_out))
        made = self._evaluations(run, rounds, held_out, known)
        # a round is `train.checkpoint_every` optimizer steps
        module = self.fit(run, rounds, 1, made)
        self.record_prompts(run, digests)
        summary["steps"], _total = rounds.progress(module.round)
        credits = bool(self.stored_credit and isinstance(self.algorithm, CreditsTokens) and not self.train.sharded)
        if (held_out or credits) and run.rank == 0:
            rounds.model = self._product(run, module, made).to(run.device)  # Lightning leaves it on the CPU
        if credits and run.rank == 0:
            self._store_credit(run, rounds, held_out or training_units)
        if held_out and run.rank == 0:
            summary["holdout"] = {
                "rows": len(held_out),
                "before": json.loads(before.read_text(encoding="utf-8")),
                "after": rounds.measure(held_out),
            }
        return summary | (made.summary() if made else {})

    def _held_out(self, run: Run, units: RowGroups, kept: int, known: Collection[int]) -> Any:
        """Return the units that are measured before and after the training: those of `holdout` without those that
        `overlap` leaves out.
        """
        if kept == len(units):
            return units[kept:]
        digests = units.rows.prompt_digests
        items = [
            HeldOutItem(place, (digests[2 * place], digests[2 * place + 1]), f"that of row {place + 1}")
            for place in range(kept, len(units))
        ]
        places = settle(self.overlap, {"the model of `holdout`": known}, items, run.say)
        return units[kept:] if len(places) == len(items) else [units[place] for place in places]

    def _evaluations(
        self, run: Run, rounds: OfflineRounds, held_out: Any, known: Collection[int]
    ) -> Evaluations | None:
        """Return the evaluations of the training, with the metrics of the held-out units."""
        reference = None
        if self.evaluate is not None and self.evaluate.reads_reference() and not self.model.lora:
            reference = run.model(self.model.frozen())
        made = self.evaluations(run, rounds.model, reference, known)
        if made is not None and held_out:
            made.data[HOLDOUT] = HeldOutUnits(name_of(self.algorithm)[1], len(held_out), rounds.metrics_of(held_out))
        return made

    def _store_credit(self, run: Run, rounds: OfflineRounds, units: Any) -> None:
        """Write the credit of the tokens of some evenly spaced units into the product."""
        count = min(self.stored_credit, len(units))
        chosen = [i * len(units) // count for i in range(count)]
        rows = rounds.credited([units[place] for place in chosen])
        named = ((str(place + 1), each) for place, each in zip(chosen, rows, strict=True))
        stored_rollouts.write_credit(run.out, named, rounds.model.tokenizer)

    def _product(self, run: Run, module: TrainingModule, made: Evaluations | None) -> Any:
        """Return the model that is the product of this stage."""
        if made is None or made.best is None:
            return self.trained(run, module, module.model)
        best = self.model.model_copy(update={"base": str(run.out), "lora": None})
        return run.model(best, head=module.model.head)

    def save(self, run: Run, module: TrainingModule, folder: Path) -> None:
        """Save the model, with the facts about the algorithm that its users need."""
        model = self.trained(run, module, module.model)
        models.save(model, folder, {"algorithm": dump(self.algorithm)} | self.algorithm.describe())

    def inspect(self, run: Run, count: int) -> Iterator[Any]:
        """Yield rows as the model sees them, with segments if the algorithm makes any, and the credit of their tokens
        before training if it computes any.
        """
        self.setup(run)
        if isinstance(self.algorithm, CreditsTokens):
            model = run.model(self.model, head=self.algorithm.head, trainable=True)
        else:
            model = run.model(self.model.model_copy(update={"lora": None}), head="lm")
        units = encoding.units(self, model, limit=count)
        self.algorithm.prepare(units.rows, run, model)
        encoded = offline.encode(units, model, self.algorithm)
        for rows in offline.credited(model, self.algorithm, encoded):
            yield from (previews.of_row(row, model.tokenizer, credit) for row, credit in rows)

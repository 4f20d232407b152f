"""Common parts of the stages that train a model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import model_validator

from fgrl.base import lazy
from fgrl.kinds import Accelerator, Engine, Environment, MadeModel, Run, Stage
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import Key, alternatives, name_of, walk
from fgrl.registry.problems import dotted
from fgrl.training.evaluations import TrainingEvaluation
from fgrl.types import Checkpoint, Ref

if TYPE_CHECKING:
    from fgrl.training.evaluations import Evaluations
    from fgrl.training.memory import PassShape, Role
    from fgrl.training.rounds import Rounds
    from fgrl.training.trainer import TrainSettings
    from fgrl.training.training_module import TrainingModule
checkpoints = lazy.load("fgrl.training.checkpoints")
evaluations = lazy.load("fgrl.training.evaluations")
trained_prompts = lazy.load("fgrl.rollouts.trained_prompts")
training_module = lazy.load("fgrl.training.training_module")
shapes = lazy.load("fgrl.models.shapes")
sizes = lazy.load("fgrl.experiments.stages.sizes")
weights = lazy.load("fgrl.training.weights")


class TrainingStage(Stage):
    """Training of `model` with the settings `train`, and evaluation with the settings `evaluate`; these are fields of
    its subclasses.
    """

    makes = Checkpoint

    if TYPE_CHECKING:
        model: ModelSpec
        train: TrainSettings
        evaluate: TrainingEvaluation | None

    @model_validator(mode="after")
    def _check_shards(self) -> TrainingStage:
        gathers = self.train.strategy == "fsdp"
        whole = [
            f"the engine {name_of(engine)[1]} ({field})" for field, engine in self.engines().items()
            if not gathers or engine.elsewhere() is None
        ]  # fmt: skip
        whole += ["evaluate"] * (self.evaluate is not None and not gathers)
        if self.train.sharded and whole:
            raise ValueError(
                f"train.strategy {self.train.strategy} leaves each device with a part of the weights, and {whole[0]} needs all of "
                "them: use ddp or deepspeed_stage_2, or fsdp with an engine whose servers have whole weights (vllm)"
            )
        return self

    @model_validator(mode="after")
    def _check_nodes(self) -> TrainingStage:
        for path, part in walk(self) if self.train.nodes > 1 else ():
            if isinstance(part, Engine) and part.elsewhere() is not None:
                what = "its servers get weights from processes of the same machine; let the engine hf draw"
            elif isinstance(part, Environment) and part.asked_client() is not None:
                what = "every process would store the answers of its model in one SQLite file, which only one machine may write to"
            else:
                continue
            where = f"train.nodes {self.train.nodes} with {dotted(path)} {name_of(part)[1]}"
            raise ValueError(f"{where}: {what}, or train on one node")
        return self

    def engines(self) -> dict[str, Engine]:
        """Return the engines that draw from the model in training, by field."""
        sets = {} if self.evaluate is None else self.evaluate.sets
        return {f"evaluate.sets.{name}.engine": held_out.engine for name, held_out in sets.items()}

    @model_validator(mode="after")
    def _check_types(self) -> Any:
        self.check_type("model", self.model)
        return self

    @model_validator(mode="after")
    def _tell_engines(self) -> Any:
        for _path, part in walk(self):
            if isinstance(part, Engine):
                part._beside = 0 if self.train.accelerator == "cpu" else self.train.world
        return self

    def check_type(self, field: str, model: ModelSpec) -> None:
        """Raise ValueError for 4-bit weights in shards, and if the optimizer would step in bfloat16, whose numbers are
        0.4% to 0.8% apart: most updates would be rounded away. Adapters and heads are float32, and DeepSpeed keeps
        float32 weights.
        """
        if model.quantize == "nf4" and self.train.sharded:
            raise ValueError(
                f"{field}.quantize with train.strategy {self.train.strategy}: 4-bit weights are not shared out over processes; use "
                "ddp or deepspeed_stage_2"
            )
        if model.lora is not None or self.train.deepspeed:
            return
        instead = (
            f"use {field}.dtype float32 with train.precision bf16-mixed (which computes in bfloat16), {field}.lora, or "
            "train.strategy deepspeed_stage_2"
        )
        if model.dtype == "bfloat16":
            raise ValueError(
                f"{field}.dtype bfloat16 without lora: train.strategy {self.train.strategy} would change bfloat16 weights, "
                f"which rounds most updates away; {instead}"
            )
        if self.train.precision == "bf16-true":
            raise ValueError(
                f"train.precision bf16-true converts frozen weights only, and without {field}.lora there are none; {instead}"
            )

    def processes(self) -> int:
        return self.train.world

    def nodes(self) -> int:
        return self.train.nodes

    def accelerator(self) -> Accelerator:
        return self.train.accelerator

    @classmethod
    def computes(cls, settings: Mapping[str, Any], path: Key) -> tuple[Accelerator, bool]:
        def mapping(name: str) -> Mapping[str, Any]:
            return value if isinstance(value := settings.get(name), Mapping) else {}

        train, field = mapping("train"), path[0]
        trained = [name for name in ("model", "critic") if settings.get(name) is not None]
        whole = [] if "deepspeed" in str(train.get("strategy")) else [n for n in trained if not mapping(n).get("lora")]
        return train.get("accelerator", "auto"), field in whole if field in trained else field == "train" and bool(
            whole
        )

    def temporary(self) -> Sequence[str]:
        return () if self.train.keep_checkpoint else checkpoints.NAMES

    def makes_model(self) -> MadeModel:
        return MadeModel(self.model, lacks=self._lacks)

    def _lacks(self, step: int) -> str | None:
        if self.evaluate is None or self.evaluate.keep != "all":
            return "it keeps no models of earlier steps; set its evaluate: {keep: all}"
        every, total = self.evaluate.every, self.total_steps()
        if total is not None and (step > total or (step % every and step != total)):
            return f"it keeps no model of step {step}, but those of every {every} steps, from 0 to {total}"
        return None

    @abstractmethod
    def total_steps(self) -> int | None:
        """Return the number of iterations or optimizer steps of the training; None if it does not follow from the
        recipe alone.
        """

    def drawn_in_evaluations(self) -> list[PassShape]:
        """Return the passes over answers that evaluations draw at the same time, on the devices of the training."""
        sets = self.evaluate.sets.values() if self.evaluate else ()
        return [sizes.drawn(held_out.sampling) for held_out in sets if held_out.engine.elsewhere() is None]

    def models_of_evaluations(self) -> list[Role]:
        """Return the models that metrics of held-out answers load in addition to the trained one."""
        sets = self.evaluate.sets if self.evaluate else {}
        return [role for name, held_out in sets.items() for role in sizes.of_metrics(held_out.metrics, name)]

    def misfits(self, stages: Mapping[str, Stage]) -> Iterator[tuple[Key, str]]:
        yield from super().misfits(stages)
        targets = self.model.lora.targets if self.model.lora is not None else "all-linear"
        known = self._layers(stages) if isinstance(targets, list) else ()
        for index, target in enumerate(targets if known else ()):
            if not any(f".{layer}".endswith(f".{target}") for layer in known):
                names = sorted({layer.rpartition(".")[2] for layer in known})
                message = f'no linear layer of the model is called "{target}"; {alternatives(target, names)}'
                yield ("model", "lora", "targets", index), message

    def _layers(self, stages: Mapping[str, Stage]) -> list[str]:
        """Return the linear layers of the model that training starts from; empty if its configuration is not on this
        machine.
        """
        spec: ModelSpec | None = self.model
        while spec is not None and isinstance(spec.base, Ref):
            made = stages[spec.base.stage].makes_model()
            made = made and made.named(spec)
            spec = None if made is None else made.start
        if spec is None:
            return []
        try:
            tensors = shapes.architecture(*shapes.find(str(spec.base), spec.revision)).tensors
        except shapes.Unknown:
            return []
        return [name.removesuffix(".weight") for name, shape in tensors.items() if len(shape) == 2]

    def limited(self, counted: str, limit: int | None) -> Any:
        """Return `train`, with the setting `counted` (a number of repetitions) reduced to at most `--limit`."""
        if limit is None:
            return self.train
        return self.train.model_copy(update={counted: min(getattr(self.train, counted) or limit, limit)})

    def evaluations(self, run: Run, trained: Any, reference: Any, known: Collection[int] = ()) -> Evaluations | None:
        """Return the evaluations of the language model `trained` during training; None if the recipe has none.

        If `reference` is None, the reference is `trained` with its adapter switched off. known: digests of the prompts
        that it is trained on.
        """
        if self.evaluate is None:
            return None
        made = evaluations.Evaluations(self.evaluate, run)
        for name in self.evaluate.sets:
            made.add_set(name, trained, reference, known)
        return made

    def fit(self, run: Run, rounds: Rounds, checkpoint_every: int, made: Evaluations | None) -> TrainingModule:
        """Train, with a checkpoint every `checkpoint_every` rounds, and save the product: the last model, or the best."""
        module: TrainingModule = training_module.TrainingModule(
            rounds, made, lambda folder: self.save(run, module, folder)
        )
        module.fit(checkpoint_every=checkpoint_every)
        run.stop_if_interrupted()
        if module.interrupted:
            raise KeyboardInterrupt
        if run.rank == 0:
            if made is None or made.best is None:
                self.save(run, module, run.out)
            if made is not None:
                made.hand_on(run.out)
        return module

    def trained_before(self, run: Run) -> frozenset[int]:
        """Return the digests of the prompts that other stages of the recipe trained the model on."""
        base = self.model.base
        return trained_prompts.read(run.path(base)) if isinstance(base, Ref) else frozenset()

    def record_prompts(self, run: Run, digests: Iterable[int]) -> None:
        """Record in the product the prompts that it was trained on, with those of the model that it started from."""
        if run.rank == 0:
            base = self.model.base
            trained_prompts.write(run.out, digests, run.path(base) if isinstance(base, Ref) else None)

    @abstractmethod
    def save(self, run: Run, module: TrainingModule, folder: Path) -> None:
        """Save the product: the trained part of `module`, as a model's folder. Called on rank 0."""

    def trained(self, run: Run, module: Any, model: Any, prefix: str = "", start: ModelSpec | None = None) -> Any:
        """Return `model` with the weights that `module` has trained; their names begin with `prefix` in `module`.
        start: the model that training started from, if that is not the stage's `model`.
        """
        start = start or self.model
        if module.round == 0 and not weights.complete(self.train.strategy):  # there is no checkpoint to take them from
            return run.model(start, head=model.head, trainable=True)
        state = weights.full_state(module)
        if state is None:
            return model
        own = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        return weights.fill(run.model(start, head=model.head, trainable=True), own)

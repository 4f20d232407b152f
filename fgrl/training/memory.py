"""Parameters and memory of the models that a stage loads, computed from their configs without torch, for `fgrl plan`.

Memory is an estimate per device of weights, gradients, optimizer states, keys and values of the longest responses, and
the activations of a full micro-batch. Not included: the memory of the device's own libraries, and fragmentation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fgrl.base.errors import NotYet
from fgrl.kinds import Peek
from fgrl.kinds.specs import ModelSpec
from fgrl.models import shapes
from fgrl.models.shapes import FEW_SCORES, Architecture, Unknown
from fgrl.training.trainer import BUCKET, TrainSettings
from fgrl.types import Ref

BYTES = {"float32": 4, "bfloat16": 2}
NF4 = 0.5 + 0.127 / 8
"""Bytes of a four-bit weight, including its share of the doubly quantized scales (Dettmers et al. 2023, section 3)."""
CHUNK = {"cpu": 16 * 2**20, "gpu": 128 * 2**20}
"""Bytes of the largest chunk of logits (`fgrl.models.chunked`)."""
BUFFERS = 3
"""Buffers of the size of a chunk that exist at a time."""


@dataclass
class Role:
    """A model that a stage loads."""

    name: str
    spec: ModelSpec
    head: str = "lm"
    trained: bool = False
    divisible: bool = False
    """True if under `fsdp` each process has a part of it, although it is not trained."""

    @property
    def output(self) -> str:
        """Return the head that is loaded."""
        return self.spec.head or self.head


@dataclass
class PassShape:
    """Largest batch of one forward pass."""

    rows: int
    tokens: int
    """Tokens per row, prompt and response together."""
    scored: int = 0
    """Maximum number of these tokens that belong to the response, for which logits are computed."""
    prompts: int = 0
    """Number of different prompts of the rows; each is computed only once in a pass without gradient."""

    @property
    def read(self) -> int:
        """Return the tokens of all rows, with equal prompts counted once."""
        return self.prompts * (self.tokens - self.scored) + self.rows * self.scored


@dataclass
class Workload:
    """Models that a stage loads, and passes that it runs."""

    roles: list[Role]
    train: TrainSettings | None = None
    sampled: PassShape | None = None
    """Responses that are drawn at the same time."""
    sampler: str = ""
    """Role that draws them; if empty, every role in turn."""
    trained: PassShape | None = None
    """A micro-batch of training."""
    passed: PassShape | None = None
    """A micro-batch of a pass without gradients."""
    copies: bool | Literal["rounded"] = False
    """True if the engine keeps a second copy of the weights while it samples; "rounded": only if passes are in another
    type.
    """
    notes: dict[str, str] = field(default_factory=dict)
    """Roles that need no separate weights."""


@dataclass(frozen=True)
class Loaded:
    """A model in memory."""

    size: Architecture
    dtype: str
    parameters: int
    trainable: int
    quantized: bool
    own: int
    """Number of parameters that are float32 whatever the base is: adapters and number heads."""
    adapted: int
    """Number of linear layers with an adapter, counted once for each adapter."""


def estimate(workload: Workload, peek: Peek) -> dict[str, Any]:
    """Return `{"parameters": {role: {"total", "trainable"}}, "memory": {role: {"weights", ...}, ..., "peak"}}`.

    The values are counts of parameters, and bytes on each device. For a model of unknown size, a text gives the reason,
    and `peak` is None.
    """
    parameters: dict[str, Any] = {}
    memory: dict[str, Any] = {}
    known: dict[str, Loaded] = {}
    seen: dict[str, str] = {}
    for role in workload.roles:
        key = f"{role.head} {role.spec.model_dump_json()}"
        if not role.trained and key in seen:  # frozen models are shared within a stage
            parameters[role.name] = f"shared with {seen[key]}"
            continue
        try:
            known[role.name] = loaded(role, peek)
        except Unknown as reason:
            parameters[role.name] = memory[role.name] = f"unknown ({reason})"
            continue
        except NotYet as stage:
            parameters[role.name] = memory[role.name] = f"after {stage}"
            continue
        if not role.trained:
            seen[key] = role.name
        model = known[role.name]
        parameters[role.name] = {"total": model.parameters} | ({"trainable": model.trainable} if role.trained else {})
        memory[role.name] = _of_role(role, model, workload.train)
    memory |= _of_work(workload, known)
    whole = all(
        isinstance(value, dict) for name, value in memory.items() if name in {role.name for role in workload.roles}
    )
    memory["peak"] = _peak(memory) if whole else None
    return {"parameters": parameters | workload.notes, "memory": memory}


def loaded(role: Role, peek: Peek) -> Loaded:
    """Return a model, as `fgrl.models.load` would make it. Raises `Unknown` or `NotYet`."""
    origin = _origin(role.spec, peek)
    last = origin[-1]
    config, folder = shapes.find(str(peek.path(last.base)) if isinstance(last.base, Ref) else last.base, last.revision)
    size = shapes.architecture(config, folder)
    dtype = next((spec.dtype for spec in origin if spec.dtype), "float32")
    quantize = next((spec.quantize for spec in origin if spec.quantize), None)
    number = {"lm": 0, "scalar": size.hidden, "token": size.hidden + 1}[role.output]
    own = [role.spec.lora] if role.spec.lora is not None and role.trained else []
    # adapters of earlier trainings stay beside a new one; they are merged where all weights are trained
    kept = [spec.lora for spec in origin[1:] if spec.lora is not None] if own or not role.trained else []
    new, added = sum(map(size.adapter, own)), sum(map(size.adapter, own + kept))
    total = size.parameters(role.output) + added
    trainable = 0 if not role.trained else new + number if own else total
    adapted = sum(len(size.adapted(lora)) for lora in own + kept)
    return Loaded(size, dtype, total, trainable, quantize == "nf4", added + number, adapted)


def _origin(spec: ModelSpec, peek: Peek) -> list[ModelSpec]:
    """Return the spec, the spec of the stage which makes its base, and so on to weights that no stage makes."""
    chain = [spec]
    while isinstance(chain[-1].base, Ref):
        made = peek.stage(chain[-1].base).makes_model()
        made = made and made.named(chain[-1])
        if made is None:
            break
        chain.append(made.start)
    return chain


def _of_role(role: Role, model: Loaded, train: TrainSettings | None) -> dict[str, int]:
    """Return the bytes on each device.

    AdamW keeps two numbers per weight in the weight's own type. DeepSpeed keeps them in float32, with a float32 copy of
    the weights and sums of gradients in float32, and stores weights in bfloat16 in both of Lightning's bfloat16
    precisions; DDP copies gradients into buckets. ZeRO-1 shards optimizer states over the devices, ZeRO-2 gradients,
    too, ZeRO-3 and FSDP also the weights.
    """
    width, own_width = BYTES[model.dtype], 4
    if role.trained and train is not None and train.precision != "32-true":
        if train.deepspeed:
            width, own_width = 2, 2
        elif train.precision == "bf16-true":
            width = 2
    weights = bytes_of_weights(model, width, own_width)
    if not role.trained or train is None:
        divided = train is not None and train.strategy == "fsdp" and role.divisible
        return {"weights": round(weights / train.world if train and divided else weights)}
    trained_width = own_width if model.trainable <= model.own else width
    copies = 2 if train.strategy == "ddp" and train.world > 1 else 1
    gradients = model.trainable * (4 if train.deepspeed else copies * trained_width)
    states = model.trainable * (12 if train.deepspeed else 2 * trained_width)
    replicated_by = {
        "deepspeed_stage_1": (1, 1, 0),
        "deepspeed_stage_2": (1, 0, 0),
        "deepspeed_stage_3": (0, 0, 0),
        "fsdp": (0, 0, 0),
    }
    replicated = replicated_by.get(train.strategy, (1, 1, 1))
    parts = dict(zip(("weights", "gradients", "optimizer"), (weights, gradients, states), strict=True))
    return {
        name: round(value if on_each else value / train.world)
        for (name, value), on_each in zip(parts.items(), replicated, strict=True)
    }


def bytes_of_weights(model: Loaded, width: int | None = None, own_width: int = 4) -> float:
    """Return the bytes of weights. width: bytes of a number; None: as loaded. own_width: bytes of a number in adapters
    and number heads.
    """
    base = model.parameters - model.own
    four = min(base, model.size.in_layers()) if model.quantized else 0
    return (base - four) * (width or BYTES[model.dtype]) + four * NF4 + model.own * own_width


def _of_work(workload: Workload, known: dict[str, Loaded]) -> dict[str, int]:
    """Return temporary bytes: `kv_cache`, `drawing`, `decoding_copy`, `activations`, `buckets`, `passes`; of the
    largest model if there are several.
    """
    temporary: dict[str, int] = {}
    roles, train = {role.name: role for role in workload.roles}, workload.train
    if workload.sampled is not None:
        drawing = [model for name, model in known.items() if workload.sampler in ("", name)]
        if drawing:
            sizes = [_drawn(model, workload.sampled, _number_bytes(model, train)) for model in drawing]
            temporary["kv_cache"], temporary["drawing"] = map(max, zip(*sizes, strict=True))
        widths = [(model, _number_bytes(model, train)) for model in drawing]
        copied = [(m, width) for m, width in widths if workload.copies is True or width != BYTES[m.dtype]]
        if workload.copies and copied:
            temporary["decoding_copy"] = max(model.size.in_layers() * width for model, width in copied)
    if workload.trained is not None:
        trained = {name: model for name, model in known.items() if roles[name].trained}
        held = (_activations(model, roles[name], workload.trained, train) for name, model in trained.items())
        temporary["activations"] = sum(held)
    if train is not None and train.deepspeed and workload.trained is not None:
        width = 4 if train.precision == "32-true" else 2
        temporary["buckets"] = BUCKET * width * (1 if train.strategy == "deepspeed_stage_3" else 2)
    if (passed := workload.passed) is not None and known:
        temporary["passes"] = max(
            max(
                _pass_activations(model, passed.read, _number_bytes(model, train)),
                _logits(model, passed, train) if train is None and roles[name].output == "lm" else 0,
            )  # a training passes language models in its own micro-batches, whose logits are among its activations
            for name, model in known.items()
        )
    return temporary


def _peak(memory: dict[str, Any]) -> int:
    """Return the peak: sampling and training alternate, with keys and values in one, and gradients and activations in
    the other.
    """
    roles = [value for value in memory.values() if isinstance(value, dict)]
    stays = sum(role["weights"] + role.get("optimizer", 0) for role in roles)
    held = sum(memory.get(part, 0) for part in ("activations", "buckets"))
    training = held + sum(role.get("gradients", 0) for role in roles)
    drawing = sum(memory.get(part, 0) for part in ("kv_cache", "drawing", "decoding_copy"))
    return int(stays + max(training, drawing, memory.get("passes", 0)))


def _number_bytes(model: Loaded, train: TrainSettings | None) -> int:
    """Return the bytes of a number in activations."""
    return 2 if train is not None and train.precision != "32-true" else BYTES[model.dtype]


def keys_and_values(model: Loaded, batch: PassShape, width: int) -> int:
    """Return the bytes of the keys and values of a batch, with numbers of `width` bytes."""
    size = model.size
    return batch.rows * batch.tokens * 2 * size.layers * size.key_value_heads * size.head_dim * width


def _drawn(model: Loaded, batch: PassShape, width: int) -> tuple[int, int]:
    """Return the bytes of keys and values, and of the larger of the prompts' activations and of one step's probabilities."""
    prompts = batch.prompts * (batch.tokens - batch.scored)
    probabilities = BUFFERS * batch.rows * model.size.vocabulary * 4
    return keys_and_values(model, batch, width), max(_pass_activations(model, prompts, width), probabilities)


def _activations(model: Loaded, role: Role, batch: PassShape, train: TrainSettings | None) -> int:
    """Return the bytes that a full micro-batch, with rows of the maximum length, holds when its backward pass begins,
    or later.

    A block keeps its input, the inputs and outputs of two norms, queries, keys, values, and the outputs of attention
    and of each step of the gated feed-forward layer; with checkpointing only its input, and one block at a time is
    recomputed. Unfused attention keeps every attention weight: in float32, and in a narrower type, too.
    """
    size, spec, tokens, width = model.size, role.spec, batch.rows * batch.tokens, _number_bytes(model, train)
    blocks = size.layers if spec.lora is None or spec.lora.last_blocks is None else spec.lora.last_blocks
    queries, keys = size.heads * size.head_dim, size.key_value_heads * size.head_dim
    block = (6 * size.hidden + 3 * queries + 3 * keys + 4 * size.intermediate) * tokens * width
    scores = batch.rows * size.heads * batch.tokens**2
    padded = train is None or train.micro_batch_tokens is None
    short = scores <= FEW_SCORES and _device(train) == "cpu" and padded and not spec.gradient_checkpointing
    if spec.attention == "eager" or (spec.attention == "sdpa" and short):
        block += scores * (4 if width == 4 else 4 + width)
    logits = _logits(model, batch, train) if role.output == "lm" else 0
    if logits and model.trainable == model.parameters:  # the gradient of the output layer, and what is added to it
        logits += size.vocabulary * size.hidden * (4 + width)
    if spec.gradient_checkpointing:
        return blocks * size.hidden * tokens * width + max(block, logits)
    return blocks * block + logits


def _logits(model: Loaded, batch: PassShape, train: TrainSettings | None) -> int:
    """Return the bytes of the logits that a pass holds at a time."""
    return BUFFERS * min(CHUNK[_device(train)], batch.rows * batch.scored * model.size.vocabulary * 4)


def _pass_activations(model: Loaded, tokens: int, width: int) -> int:
    """Return the bytes of a pass without gradients: one block at a time."""
    return tokens * (4 * model.size.hidden + 3 * model.size.intermediate) * width


def _device(train: TrainSettings | None) -> str:
    if train is not None and train.accelerator != "auto":
        return train.accelerator
    return "gpu" if any(Path("/dev").glob("nvidia[0-9]*")) else "cpu"

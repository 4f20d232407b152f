"""What `fgrl plan` says of a stage's models: parameters, and memory of one device. From configs alone, without torch.

Memory is an estimate of what stays: weights, gradients, optimizer states, keys and values of the longest responses,
what the backward pass of a full micro-batch keeps. Left out: what the device's own libraries take, and fragmentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fgrl.errors import NotYet
from fgrl.kinds import Engine, Peek
from fgrl.models import shapes
from fgrl.models.shapes import Architecture, Unknown
from fgrl.modules.trainer import TrainSettings
from fgrl.registry import Settings, walk
from fgrl.specs import ModelSpec, Sampling
from fgrl.types import Ref

BYTES = {"float32": 4, "bfloat16": 2}
NF4 = 0.5 + 0.127 / 8
"""Bytes of a weight in four bits, with its share of the doubly quantized scales (Dettmers et al. 2023, section 3)."""
CHUNK = {"cpu": 4 * 16 * 2**20, "gpu": 4 * 128 * 2**20}
"""Buffers of logits that a pass in chunks has alive (`fgrl.models.chunked`)."""


@dataclass
class Role:
    """A model that a stage loads."""

    name: str
    spec: ModelSpec
    head: str = "lm"
    trained: bool = False


@dataclass
class Passing:
    """The widest batch that goes through a model at once."""

    rows: int
    tokens: int
    """Of a row, prompt and response together."""


@dataclass
class Plan:
    """What a stage loads and does with it."""

    roles: list[Role]
    train: TrainSettings | None = None
    sampled: Passing | None = None
    """Responses that are drawn at the same time."""
    sampler: str = ""
    """The role that draws them; every role in turn when it is empty."""
    trained: Passing | None = None
    """A micro-batch of training."""
    passed: Passing | None = None
    """A batch of a pass without gradients."""
    copies: bool = False
    """The engine keeps a second copy of the weights while it samples."""
    notes: dict[str, str] = field(default_factory=dict)
    """Roles that need no weights of their own."""


@dataclass(frozen=True)
class Loaded:
    """A model as it stands in memory."""

    size: Architecture
    dtype: str
    parameters: int
    trainable: int
    own: int
    """Parameters that stay float32 on any base: adapters and number heads."""


def estimate(plan: Plan, peek: Peek) -> dict[str, Any]:
    """`{"parameters": {role: {"total", "trainable"}}, "memory": {role: {"weights", ...}, ..., "peak"}}`.

    Counts of parameters, and bytes on each device. Where a model cannot be told, a text says why, and `peak` is None.
    """
    parameters: dict[str, Any] = {}
    memory: dict[str, Any] = {}
    known: dict[str, Loaded] = {}
    seen: dict[str, str] = {}
    for role in plan.roles:
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
        one = known[role.name]
        parameters[role.name] = {"total": one.parameters} | ({"trainable": one.trainable} if role.trained else {})
        memory[role.name] = _of_role(role, one, plan.train)
    memory |= _of_work(plan, known)
    whole = all(isinstance(value, dict) for name, value in memory.items() if name in {role.name for role in plan.roles})
    memory["peak"] = _peak(memory) if whole else None
    return {"parameters": parameters | plan.notes, "memory": memory}


def loaded(role: Role, peek: Peek) -> Loaded:
    """A model, as `fgrl.models.load` would make it. Raises `Unknown` or `NotYet`."""
    origin = _origin(role.spec, peek)
    last = origin[-1]
    config, folder = shapes.find(str(peek.path(last.base)) if isinstance(last.base, Ref) else last.base, last.revision)
    size = shapes.architecture(config, folder)
    said = next((one.dtype for one in origin if "dtype" in one.model_fields_set), last.dtype)
    head = role.spec.head or role.head
    number = {"lm": 0, "scalar": size.hidden, "token": size.hidden + 1}[head]
    # an adapter of an earlier training is merged before a new one starts, and otherwise stays what it is
    lora = role.spec.lora if role.trained else origin[1].lora if len(origin) > 1 else None
    adapter = 0 if lora is None else size.adapter(lora)
    total = size.parameters(head) + adapter
    trainable = 0 if not role.trained else total if lora is None else adapter + number
    return Loaded(size, said, total, trainable, adapter + number)


def _origin(spec: ModelSpec, peek: Peek) -> list[ModelSpec]:
    """The spec, that of the stage which makes its base, and so on to weights that no stage makes."""
    chain = [spec]
    while isinstance(chain[-1].base, Ref):
        maker = peek.stage(chain[-1].base)
        made = maker.trains()
        if made is None:
            break
        chain.append(made)
    return chain


def _of_role(role: Role, one: Loaded, train: TrainSettings | None) -> dict[str, int]:
    """Bytes on each device.

    AdamW keeps two numbers a weight in the weight's own type. DeepSpeed keeps them in float32 beside a float32 copy of
    the weights, and halves weights and gradients to bfloat16 in both of Lightning's bfloat16 precisions; DDP copies
    gradients into buckets. ZeRO-2 spreads gradients and optimizer over the devices, ZeRO-3 and FSDP the weights, too.
    """
    width = BYTES[one.dtype]
    base = one.parameters - one.own
    four = min(base, one.size.in_layers()) if role.spec.quantize else 0
    own_width = 4.0
    if role.trained and train is not None and _all_narrow(train):
        width, own_width = 2, 2.0
    weights = (base - four) * width + four * NF4 + one.own * own_width
    if not role.trained or train is None:
        return {"weights": round(weights)}
    trained_width = own_width if one.trainable <= one.own else width
    gradients = one.trainable * trained_width * (2 if train.strategy == "ddp" and train.devices > 1 else 1)
    deepspeed = train.strategy.startswith("deepspeed")
    states = one.trainable * (12 if deepspeed else 2 * trained_width)
    spread = {"deepspeed_stage_2": (1, 0, 0), "deepspeed_stage_3": (0, 0, 0), "fsdp": (0, 0, 0)}
    whole = spread.get(train.strategy, (1, 1, 1))
    parts = dict(zip(("weights", "gradients", "optimizer"), (weights, gradients, states), strict=True))
    return {
        name: round(value if one_each else value / train.devices)
        for (name, value), one_each in zip(parts.items(), whole, strict=True)
    }


def _all_narrow(train: TrainSettings) -> bool:
    """Are trained weights turned into bfloat16, whatever they were loaded as?"""
    return train.precision == "bf16-true" or (
        train.strategy.startswith("deepspeed") and train.precision == "bf16-mixed"
    )


def _of_work(plan: Plan, known: dict[str, Loaded]) -> dict[str, int]:
    """Bytes that come and go: `kv_cache`, `decoding_copy`, `activations`; of the largest model where there are several."""
    found: dict[str, int] = {}
    roles = {role.name: role for role in plan.roles}
    if plan.sampled is not None:
        drawing = [one for name, one in known.items() if plan.sampler in ("", name)]
        sizes = [_keys_and_values(one, plan.sampled, _computing(one, plan.train)) for one in drawing]
        if sizes:
            found["kv_cache"] = max(sizes)
        if plan.copies and drawing:
            found["decoding_copy"] = max(one.size.in_layers() * _computing(one, plan.train) for one in drawing)
    kept = 0
    if plan.trained is not None:
        for name, one in known.items():
            if roles[name].trained:
                kept += _kept(one, roles[name].spec, plan.trained, _computing(one, plan.train))
    if plan.passed is not None and known:
        kept = max(kept, *(_passing(one, plan.passed, _computing(one, plan.train)) for one in known.values()))
    if kept:
        found["activations"] = kept + CHUNK[_device(plan.train)]
    return found


def _peak(memory: dict[str, Any]) -> int:
    """Sampling and training take turns: gradients and activations in one, keys and values in the other."""
    roles = [value for value in memory.values() if isinstance(value, dict)]
    stays = sum(role["weights"] + role.get("optimizer", 0) for role in roles)
    training = sum(role.get("gradients", 0) for role in roles) + memory.get("activations", 0)
    return stays + max(training, memory.get("kv_cache", 0) + memory.get("decoding_copy", 0))


def _computing(one: Loaded, train: TrainSettings | None) -> int:
    """Bytes of a number that goes through the model."""
    return 2 if train is not None and train.precision != "32-true" else BYTES[one.dtype]


def _keys_and_values(one: Loaded, batch: Passing, width: int) -> int:
    size = one.size
    return batch.rows * batch.tokens * 2 * size.layers * size.key_value_heads * size.head_dim * width


def _kept(one: Loaded, spec: ModelSpec, batch: Passing, width: int) -> int:
    """What the backward pass wants of a micro-batch whose rows are as long as they may be.

    A block keeps its input, two norms with what they normalized, queries, keys, values, what attention and each step of
    the gated feed-forward layer put out; with checkpointing only its input, and one block is done again at a time. Eager
    attention keeps every weight of it.
    """
    size, tokens = one.size, batch.rows * batch.tokens
    blocks = size.layers if spec.lora is None or spec.lora.last_blocks is None else spec.lora.last_blocks
    queries, keys = size.heads * size.head_dim, size.key_value_heads * size.head_dim
    block = (6 * size.hidden + 3 * queries + 3 * keys + 4 * size.intermediate) * tokens * width
    if spec.attention == "eager":
        block += 2 * batch.rows * size.heads * batch.tokens**2 * width
    return blocks * size.hidden * tokens * width + block if spec.gradient_checkpointing else blocks * block


def _passing(one: Loaded, batch: Passing, width: int) -> int:
    """Of one block at a time."""
    size = one.size
    return batch.rows * batch.tokens * (4 * size.hidden + 3 * size.intermediate) * width


def _device(train: TrainSettings | None) -> str:
    if train is not None and train.accelerator != "auto":
        return train.accelerator
    return "gpu" if any(Path("/dev").glob("nvidia[0-9]*")) else "cpu"


# -- the stages --------------------------------------------------------------------------------------------------------


def drawn(sampling: Sampling, responses: int | None = None) -> Passing:
    """Responses that are drawn at the same time, at their longest."""
    rows = sampling.batch_size if responses is None else min(sampling.batch_size, responses)
    return Passing(rows, sampling.max_prompt_tokens + sampling.max_new_tokens)


def rewards(name: str, component: Settings) -> Iterator[Role]:
    """The models that a reward (or a relevance) names in its settings."""
    owners = dict(walk(component))
    found = [(path, value) for path, value in owners.items() if isinstance(value, ModelSpec)]
    for path, spec in found:
        more = "" if len(found) == 1 else f" {'.'.join(map(str, path))}"
        yield Role(f"{name}{more}", spec, getattr(owners.get(path[:-1], component), "head", "scalar"))


def finetune(stage: Any, peek: Peek) -> dict[str, Any]:
    head = stage.model.head or stage.algorithm.head
    roles = [Role("policy" if head == "lm" else "reward_model", stage.model, head, trained=True)]
    roles += [Role(name, spec) for name, spec in stage.algorithm.frozen_models(stage.model).items()]
    each = 2 if stage.algorithm.data == "pairs" else 1
    rows = min(stage.train.micro_batch_size, -(-stage.train.batch_size // stage.train.devices)) * each
    return estimate(Plan(roles, stage.train, trained=Passing(rows, stage.max_tokens)), peek)


def rl(stage: Any, peek: Peek) -> dict[str, Any]:
    rollout, train = stage.rollout, stage.train
    roles = [Role("actor", stage.model, "lm", trained=True)]
    if stage.algorithm.critic:
        roles.append(Role("critic", stage.critic or stage.model, "scalar", trained=True))
    notes = {"reference": "actor without its adapter"} if stage.reads_reference() and stage.model.lora else {}
    if stage.reads_reference() and not stage.model.lora:
        roles.append(Role("reference", stage.model))
    roles += rewards("reward_model", stage.reward)
    longest = rollout.sampling.max_prompt_tokens + rollout.sampling.max_new_tokens
    plan = Plan(
        roles, train, sampled=drawn(rollout.sampling, -(-rollout.batch_size // train.devices)), sampler="actor",
        trained=Passing(min(train.micro_batch_size, -(-train.batch_size // train.devices)), longest),
        copies=rollout.engine.copies_weights(), notes=notes,
    )  # fmt: skip
    return estimate(plan, peek)


def calibrate(stage: Any, peek: Peek) -> dict[str, Any]:
    roles = [Role("sft", stage.model), *rewards("reward_model", stage.reward)]
    return estimate(Plan(roles, passed=Passing(stage.batch_size, stage.max_tokens)), peek)


def sample(stage: Any, peek: Peek) -> dict[str, Any]:
    return drawing({"model": stage.model}, stage.sampling, stage.engine, peek)


def evaluate(stage: Any, peek: Peek) -> dict[str, Any]:
    """Models that answer, and the rewards that are recorded; {} when all answers are given."""
    scorers = [role for name, reward in stage.rewards.items() for role in rewards(f"reward {name}", reward)]
    return drawing(stage.models, stage.sampling, stage.engine, peek, scorers)


def grade_relevance(stage: Any, peek: Peek) -> dict[str, Any]:
    scorers = [role for name, one in stage.relevance.items() for role in rewards(name, one)]
    return estimate(Plan([Role("policy", stage.policy), *scorers]), peek)


def drawing(
    models: dict[str, ModelSpec], sampling: Sampling | None, engine: Engine, peek: Peek, more: Sequence[Role] = ()
) -> dict[str, Any]:
    """Of a stage that draws from models without training them."""
    if not models or sampling is None:
        return estimate(Plan(list(more)), peek) if more else {}
    roles = [Role(name, spec) for name, spec in models.items()]
    plan = Plan([*roles, *more], sampled=drawn(sampling), copies=engine.copies_weights())
    return estimate(plan, peek)

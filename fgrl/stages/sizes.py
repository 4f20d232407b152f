"""The models that each stage loads and the passes that it runs, for `fgrl plan` (see `fgrl.modules.memory`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fgrl.kinds import Engine, Peek
from fgrl.modules.memory import PassShape, Role, Workload, estimate
from fgrl.registry import Settings, walk
from fgrl.specs import ModelSpec, Sampling


def drawn(sampling: Sampling, responses: int | None = None) -> PassShape:
    """The responses that are drawn at the same time, at their maximum length."""
    rows = sampling.batch_size if responses is None else min(sampling.batch_size, responses)
    return PassShape(rows, sampling.max_prompt_tokens + sampling.max_new_tokens)


def rewards(name: str, component: Settings) -> Iterator[Role]:
    """The models that a reward (or a relevance) names in its settings."""
    owners = dict(walk(component))
    specs = [(path, value) for path, value in owners.items() if isinstance(value, ModelSpec)]
    for path, spec in specs:
        more = "" if len(specs) == 1 else f" {'.'.join(map(str, path))}"
        yield Role(f"{name}{more}", spec, getattr(owners.get(path[:-1], component), "head", "scalar"))


def finetune(stage: Any, peek: Peek) -> dict[str, Any]:
    head = stage.model.head or stage.algorithm.head
    roles = [Role("policy" if head == "lm" else "reward_model", stage.model, head, trained=True)]
    roles += [Role(name, spec) for name, spec in stage.algorithm.frozen_models(stage.model).items()]
    each = 2 if stage.algorithm.data == "pairs" else 1
    rows = min(stage.train.micro_batch_size, -(-stage.train.batch_size // stage.train.devices)) * each
    return estimate(Workload(roles, stage.train, trained=PassShape(rows, stage.max_tokens)), peek)


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
    workload = Workload(
        roles, train, sampled=drawn(rollout.sampling, -(-rollout.batch_size // train.devices)), sampler="actor",
        trained=PassShape(min(train.micro_batch_size, -(-train.batch_size // train.devices)), longest),
        copies=rollout.engine.copies_weights(), notes=notes,
    )  # fmt: skip
    return estimate(workload, peek)


def calibrate(stage: Any, peek: Peek) -> dict[str, Any]:
    roles = [Role("sft", stage.model), *rewards("reward_model", stage.reward)]
    return estimate(Workload(roles, passed=PassShape(stage.batch_size, stage.max_tokens)), peek)


def sample(stage: Any, peek: Peek) -> dict[str, Any]:
    return drawing({"model": stage.model}, stage.sampling, stage.engine, peek)


def evaluate(stage: Any, peek: Peek) -> dict[str, Any]:
    """Models that answer, and the rewards that are recorded; {} when all answers are given."""
    scorers = [role for name, reward in stage.rewards.items() for role in rewards(f"reward {name}", reward)]
    return drawing(stage.models, stage.sampling, stage.engine, peek, scorers)


def grade_relevance(stage: Any, peek: Peek) -> dict[str, Any]:
    scorers = [role for name, relevance in stage.relevance.items() for role in rewards(name, relevance)]
    return estimate(Workload([Role("policy", stage.policy), *scorers]), peek)


def drawing(
    models: dict[str, ModelSpec], sampling: Sampling | None, engine: Engine, peek: Peek, more: Sequence[Role] = ()
) -> dict[str, Any]:
    """The estimate of a stage that draws from models without training them."""
    if not models or sampling is None:
        return estimate(Workload(list(more)), peek) if more else {}
    roles = [Role(name, spec) for name, spec in models.items()]
    workload = Workload([*roles, *more], sampled=drawn(sampling), copies=engine.copies_weights())
    return estimate(workload, peek)

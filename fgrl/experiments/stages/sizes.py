"""Models and passes that several stages have in common, for `fgrl plan` (see `fgrl.training.memory`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from fgrl.base.errors import NotYet
from fgrl.kinds import AuxiliarySettings, Engine, Environment, Metric, Peek
from fgrl.kinds.needs import Divisible
from fgrl.kinds.specs import ModelSpec, Sampling
from fgrl.measuring.comparison import Compared
from fgrl.models.shapes import Unknown
from fgrl.registry import Settings, name_of, walk
from fgrl.training.memory import BYTES, PassShape, Role, Workload, estimate, keys_and_values, loaded
from fgrl.training.trainer import TrainSettings


def drawn(sampling: Sampling, responses: int | None = None, per_prompt: int = 1) -> PassShape:
    """Return the pass over the responses that are drawn at the same time, at their maximum length."""
    rows = sampling.batch_size if responses is None else min(sampling.batch_size, responses)
    new = sampling.max_new_tokens
    return PassShape(rows, sampling.max_prompt_tokens + new, new, -(-rows // per_prompt))


def conversations(environment: Environment | None, sampling: Sampling) -> dict[str, Any]:
    """Return a part of a plan: the limits of conversations with an environment; {} if there is none."""
    if environment is None:
        return {}
    turn = min(environment.max_turn_tokens or sampling.max_new_tokens, sampling.max_new_tokens)
    answer = min(environment.max_observation_tokens, sampling.max_new_tokens)
    limits = {"turns at most": environment.max_turns, "tokens of a conversation at most": sampling.max_new_tokens}
    each = {"of a turn": turn, "of an answer": answer, "seconds of an answer": environment.step_seconds}
    return {"environment": {"name": name_of(environment)[1], **limits, **each}}


def trained(
    train: TrainSettings, tokens: int, each: int = 1, *, scored: int | None = None, unit_by_unit: bool = False
) -> PassShape:
    """Return the pass of a micro-batch of training, of units of `each` rows with at most `tokens` tokens, of which at
    most `scored` (None: all) are response tokens; `unit_by_unit` as in `OfflineAlgorithm.unit_by_unit`.
    """
    budget = train.tokens_at_once(unit_by_unit)
    if budget is not None:
        return PassShape(1, (most := max(budget, each * tokens)), most)
    units = min(train.units_at_once(unit_by_unit), -(-train.batch_size // train.world))
    return PassShape(units * each, tokens, tokens if scored is None else scored)


def of_engine(
    engine: Engine, model: ModelSpec, sampling: Sampling, responses: int, train: TrainSettings, peek: Peek
) -> dict[str, Any]:
    """Return a part of a plan: the place where an engine outside the trainer's process computes, and its needs on each
    of its devices; {} for any other engine. responses: number in one rollout.
    """
    place = engine.elsewhere()
    if place is None:
        return {}
    shared = [device for device in place.devices or () if device < train.world and train.accelerator != "cpu"]
    estimated: dict[str, Any] = {
        "devices": place.copies * place.devices_each,
        "named": list(place.devices or ()),
        "shared": [] if place.memory is not None else shared,
    }
    try:
        actor = loaded(Role("actor", model, "lm", trained=True), peek)
    except (Unknown, NotYet) as reason:
        return {"engine": estimated | {"unknown": str(reason)}}
    width = BYTES.get(place.dtype or "", BYTES[actor.dtype])
    weights = (actor.parameters - actor.own) * width + actor.own * BYTES["float32"]
    rows = PassShape(-(-responses // place.copies), sampling.max_prompt_tokens + sampling.max_new_tokens)
    cache = keys_and_values(actor, rows, width)
    each = {"weights": round(weights / place.devices_each), "kv_cache": round(cache / place.devices_each)}
    return {"engine": estimated | each}


def scorers(name: str, component: Settings) -> Iterator[Role]:
    """Yield the frozen models that a reward, a relevance or a metric names in its settings."""
    owners = dict(walk(component))
    specs = [
        (path, value)
        for path, value in owners.items()
        if isinstance(value, ModelSpec) and not isinstance(owners.get(path[:-1]), AuxiliarySettings)
    ]
    for path, spec in specs:
        more = "" if len(specs) == 1 else f" {'.'.join(map(str, path))}"
        owner = owners.get(path[:-1], component)
        yield Role(f"{name}{more}", spec, getattr(owner, "head", "scalar"), divisible=isinstance(owner, Divisible))


def of_metrics(metrics: Iterable[Metric], held_out: str | None = None) -> Iterator[Role]:
    """Yield the models that metrics name in their settings. held_out: name of the set whose answers are measured while
    a model trains.
    """
    for metric in metrics:
        called = metric.called if isinstance(metric, Compared) else name_of(metric)[1]
        roles = scorers(f"metric {called}" if held_out is None else f"metric {called} on {held_out}", metric)
        yield from (replace(role, divisible=False) for role in roles)


def drawing(
    models: dict[str, ModelSpec], sampling: Sampling | None, engine: Engine, peek: Peek, more: Sequence[Role] = (),
    per_prompt: int = 1,
) -> dict[str, Any]:  # fmt: skip
    """Return the estimate of a stage that draws from models without training them; {} when it loads none."""
    if not models or sampling is None:
        return estimate(Workload(list(more)), peek) if more else {}
    roles = [Role(name, spec) for name, spec in models.items()]
    here = drawn(sampling, None, per_prompt) if engine.elsewhere() is None else None
    workload = Workload([*roles, *more], sampled=here, copies=engine.copies_weights())
    return estimate(workload, peek)

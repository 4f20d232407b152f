"""How much a stage computes, for the times of `fgrl plan`: counted from its settings and from what is known of its texts.

Counted are the operations of passes, the steps of decoding with the bytes that each of them reads, and the bytes of
checkpoints. Left out: what an endpoint is asked, programs that are run, the loading of models and data, and the exchange
of gradients.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fgrl.base import lazy
from fgrl.base.errors import NotYet
from fgrl.kinds import Engine, Expected, Peek, Reader, Stage, stated
from fgrl.kinds.reader import expected
from fgrl.kinds.specs import ModelSpec, Sampling
from fgrl.models.shapes import Unknown
from fgrl.registry import Settings, walk
from fgrl.training.memory import Loaded, PassShape, Role, bytes_of_weights, keys_and_values, loaded
from fgrl.training.trainer import TrainSettings
from fgrl.types import Ref

local = lazy.load("fgrl.components.clients.local")

PADDED = 1.5
"""Tokens that a device computes or waits for in training, for each token of its texts, without `train.micro_batch_tokens`: rows
are as long as the longest of their micro-batch, and devices wait for the slowest.
"""
CHECKPOINT = 15
"""Bytes of a checkpoint for each trained parameter."""
AT_ONCE = 256
"""Responses that a server draws at the same time."""


class Uncounted(Exception):
    """The work cannot be counted; the message is the reason."""


@dataclass(frozen=True)
class Texts:
    """Prompts with responses: how many, and their mean lengths in tokens."""

    rows: int
    prompt: float
    response: float

    @property
    def tokens(self) -> float:
        """All of them, once."""
        return self.rows * (self.prompt + self.response)


@dataclass(frozen=True)
class Work:
    """A part of the work of a stage."""

    what: str
    devices: int = 1
    """How many share it."""
    passed: float = 0.0
    """Operations of passes without gradients."""
    trained: float = 0.0
    """Operations of training, those that are computed twice included."""
    steps: float = 0.0
    """Steps of decoding on each device."""
    read: float = 0.0
    """Bytes that a step reads."""
    served: bool = False
    """True if servers draw, with kernels of their own."""
    ahead: bool = False
    """True if it is done beside the other work."""
    written: float = 0.0
    """Bytes of checkpoints."""


def of_stage(stage: Stage, peek: Peek) -> list[Work] | str:
    """Return the parts of the work of a stage, or the reason why they are unknown."""
    try:
        return list(stated(stage, "work", peek, ())) or "it does not say what it computes"
    except NotYet as upstream:
        return f"after {upstream}"
    except (Unknown, Uncounted) as reason:
        return str(reason)


# -- texts -----------------------------------------------------------------------------------------------------------------


def texts(reader: Reader, peek: Peek, prompt: int, response: int) -> Texts:
    """Return what a reader gives, cut to limits in tokens. Lengths that nobody knows are half of the limits. Raises
    `Uncounted` where the number of rows is unknown.
    """
    known = _known(reader, peek)
    rows = known.get("rows")
    if rows is None:
        raise Uncounted("the number of rows of its data is unknown here")
    lengths = (known.get("prompt", prompt / 2), known.get("response", response / 2))
    return Texts(min(rows, peek.limit or rows), min(lengths[0], prompt), min(lengths[1], response))


@functools.cache
def _sizes() -> dict[str, dict[str, int]]:
    data: dict[str, dict[str, int]] = json.loads(Path(__file__).with_name("known_data.json").read_text())["data"]
    return data


def _known(reader: Reader, peek: Peek) -> dict[str, int]:
    """Return `rows`, `prompt` and `response` of what a reader gives, as far as they are known: of a data set in
    `known_data.json`, or of one from which the stage before made what is read. Only other data are read for it.
    """
    found: dict[str, int] = {}
    for part in (reader, *(value for _path, value in walk(reader))):
        if isinstance(part, Reader):
            place, split = getattr(part, "path", None) or getattr(part, "hub", None), getattr(part, "split", "")
            found = _sizes().get(f"{place}/{split}") or _sizes().get(str(place)) or {}
        elif isinstance(part, Ref):
            found = _made(peek.stage(part), peek)
        if found:
            break
    if stating := stated(reader, "expects", peek):
        return found | {"rows": stating.samples * (stating.responses or 1)}
    if "rows" not in found and (read := expected(reader, peek)):
        return found | {"rows": read.samples}
    return found


def _made(stage: Any, peek: Peek) -> dict[str, int]:
    """Return the same of what a stage makes."""
    first = next((value for _path, value in walk(stage) if isinstance(value, Reader)), None)
    found = {} if first is None else _known(first, peek)
    if "rows" not in found:
        return found
    given = Expected(found["rows"] * getattr(stage, "per_prompt", 1))
    made = stated(getattr(stage, "annotator", None), "makes_at_most", given) or given
    return found | {"rows": made.samples}


# -- parts of the work -----------------------------------------------------------------------------------------------------


def passing(what: str, role: Role, tokens: float, peek: Peek, devices: int = 1) -> Work:
    """Return passes without gradients over so many tokens: two operations for each parameter."""
    return Work(what, devices, passed=2 * _multiplied(loaded(role, peek)) * tokens)


def _multiplied(model: Loaded) -> int:
    """Return the parameters of a model; twice as many of 4-bit weights, which are converted before they are multiplied."""
    return model.parameters * (1 + model.quantized)


def training(role: Role, tokens: float, peek: Peek, train: TrainSettings, saved: float) -> Work:
    """Return training on so many tokens, and `saved` checkpoints. With checkpointed activations the forward pass is
    computed twice; gradients of frozen weights are not computed.
    """
    model = loaded(role, peek)
    each = (6 if model.trainable == model.parameters else 4) + 2 * role.spec.gradient_checkpointing
    written = saved * CHECKPOINT * model.trainable
    tokens *= 1 if train.micro_batch_tokens else PADDED
    return Work(f"training {role.name}", train.world, trained=each * _multiplied(model) * tokens, written=written)


def drawing(
    role: Role, given: Texts, sampling: Sampling, engine: Engine, peek: Peek, *, devices: int = 1, times: float = 1
) -> Iterator[Work]:
    """Yield the drawing of one response to each of the texts, `times` times.

    `hf`: a batch takes as many steps as its longest response, which is taken to reach the limit where a batch has several.
    Servers put the next request in the place of a response that has ended; the longest responses are then drawn alone.
    """
    model, place = loaded(role, peek), engine.elsewhere()
    copies, parallel = (devices, 1) if place is None else (place.copies, place.devices_each)
    prompt, response = min(given.prompt, sampling.max_prompt_tokens), min(given.response, sampling.max_new_tokens)
    each = -(-given.rows // copies)
    at = max(1, min(each, sampling.batch_size if place is None else AT_ONCE))
    weights, cached = bytes_of_weights(model), keys_and_values(model, PassShape(at, 1), 2)
    work = Work(
        f"drawing {role.name}", copies * parallel, passed=2 * _multiplied(model) * given.rows * prompt * times,
        served=place is not None, ahead=bool(engine.draws_ahead()),
    )  # fmt: skip
    if place is None:
        steps = -(-each // at) * (sampling.max_new_tokens if at > 1 else response)
        yield replace(work, steps=steps * times, read=weights + cached * (prompt + response))
    else:
        read = (weights + cached * (prompt + response / 2)) / parallel
        yield replace(work, steps=each * response / at * times, read=read)
        alone = (sampling.max_new_tokens - response) / 2
        yield replace(work, passed=0, steps=alone * times, read=weights / parallel)


def answering(
    component: Settings, rows: int, prompt: float, peek: Peek, *, devices: int = 1, times: float = 1
) -> Iterator[Work]:
    """Yield the drawing of the answers of local models that a component asks, one for each row, of half their limit."""
    for _path, part in walk(component):
        if isinstance(part, local.Local):
            limits = Sampling(
                max_new_tokens=part.max_tokens, max_prompt_tokens=part.max_prompt_tokens, batch_size=part.batch_size
            )
            given, role = Texts(rows, prompt, part.max_tokens / 2), Role("answers", part.model)
            yield from drawing(role, given, limits, part.engine, peek, devices=devices, times=times)


def is_asked(component: Settings, spec: ModelSpec) -> bool:
    """Return True if a model answers questions of a component, so that nothing only passes through it."""
    return any(isinstance(part, local.Local) and part.model is spec for _path, part in walk(component))

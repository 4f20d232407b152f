"""Amount of computation of a stage, for the times of `fgrl plan`: counted from its settings and from known lengths of
its texts.

Included are the operations of passes, the steps of decoding with the bytes that each of them reads, and the bytes of
checkpoints. Not included are requests to endpoints, programs that are run, the loading of models and data, and the
exchange of gradients.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from fgrl.base import lazy
from fgrl.base.errors import DataError, NotYet, Unavailable
from fgrl.feedback.llm import tokens
from fgrl.feedback.templates import as_text
from fgrl.kinds import Engine, Expected, Peek, Reader, Relevance, Stage, stated
from fgrl.kinds.reader import expected
from fgrl.kinds.specs import ModelSpec, Sampling
from fgrl.models.shapes import Unknown
from fgrl.registry import Settings, name_of, walk
from fgrl.training.memory import Loaded, PassShape, Role, bytes_of_weights, keys_and_values, loaded
from fgrl.training.trainer import TrainSettings
from fgrl.types import Pairs, Ref

local = lazy.load("fgrl.components.clients.local")

PADDED, WAITED = 1.3, 1.15
"""Number of tokens that a device computes in training for each token of its texts, without `train.micro_batch_tokens`,
because rows are padded to the longest of their micro-batch; and the factor for several devices, which wait for the
slowest.
"""
CHECKPOINT = 15
"""Bytes of a checkpoint for each trained parameter."""
AT_ONCE = 256
"""Number of responses that a server draws at the same time."""
UNKNOWN, DRAWN = 0.5, 0.65
"""Assumed length of a text of unknown length, as a share of its limit; for any text, and for a response drawn by a
model.
"""
PAIRED = 0.8
"""Assumed number of pairs that a stage makes, as a share of the most that it can make: not all responses of a prompt differ."""
ADAPTER = 0.13
"""Number of operations that an adapter of one linear layer sends to the device, as a share of the operations of a whole
layer of the model.
"""
TEMPLATE = 20
"""Tokens that a chat template adds to a prompt."""
MOST_BYTES, MOST_ROWS = 2**24, 200
"""Maximum bytes of local files, and maximum number of rows, that are read to measure the lengths of texts."""


class Uncounted(Exception):
    """The work cannot be counted; the message is the reason."""


@dataclass(frozen=True)
class Texts:
    """Number of prompts with responses, and their mean lengths in tokens."""

    rows: int
    prompt: float
    response: float
    per_prompt: int = 1
    """Responses to the same prompt, which an engine reads once for all."""
    criteria: float = 1
    """Criteria of a prompt: a relevance reads each response once for each of them."""

    @property
    def tokens(self) -> float:
        """Return the number of tokens of all texts, each counted once."""
        return self.rows * (self.prompt + self.response)


@dataclass(frozen=True)
class Work:
    """A part of the work of a stage."""

    what: str
    devices: int = 1
    """Number of devices that share the work."""
    float32: bool = False
    """True if matrix products are computed in float32 instead of bfloat16."""
    passed: float = 0.0
    """Operations of passes without gradients."""
    trained: float = 0.0
    """Operations of training, including recomputed ones."""
    steps: float = 0.0
    """Steps of decoding on each device."""
    layers: float = 0
    """Layers whose operations a step sends to the device; adapters count as parts of a layer."""
    read: float = 0.0
    """Bytes of weights that a step reads."""
    cached: float = 0.0
    """Bytes of keys and values that a step reads, and copies if attention needs a copy for each head."""
    computed: float = 0.0
    """Operations of a step."""
    served: bool = False
    """True if servers with their own kernels draw the responses."""
    ahead: bool = False
    """True if the work is done in parallel to the other work."""
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
    """Return the number and lengths of a reader's texts, cut to limits in tokens. Unknown lengths are taken as shares
    of the limits. Raises `Uncounted` if the number of rows is unknown.
    """
    known = _known(reader, peek)
    rows = known.get("rows")
    if rows is None:
        raise Uncounted("the number of rows of its data is unknown here")
    asked, answer = known.get("prompt", prompt * UNKNOWN), known.get("response", response * DRAWN)
    rows = round(min(rows, peek.limit or rows))
    return Texts(rows, min(asked, prompt), min(answer, response), criteria=known.get("criteria", 1))


@functools.cache
def _sizes() -> dict[str, dict[str, float]]:
    data: dict[str, dict[str, float]] = json.loads(Path(__file__).with_name("known_data.json").read_text())["data"]
    return data


def _known(reader: Reader, peek: Peek) -> dict[str, float]:
    """Return `rows`, `prompt` and `response` of a reader's texts, as far as they are known: for a data set in
    `known_data.json`, for local files, or from the output of the previous stage.
    """
    found: dict[str, float] = {}
    for part in (reader, *(value for _path, value in walk(reader))):
        if isinstance(part, Reader):
            place, split = getattr(part, "path", None) or getattr(part, "hub", None), getattr(part, "split", "")
            found = {**(_sizes().get(f"{place}/{split}") or _sizes().get(str(place)) or _in_files(part, peek))}
        elif isinstance(part, Ref):
            found = _made(peek.stage(part), peek)
        if found:
            break
    if name_of(reader)[1] == "critiques":  # other texts than those that they are about
        found = {"rows": found["rows"]} if "rows" in found else {}
    if stating := stated(reader, "expects", peek):
        sources = [peek.stage(part) for _path, part in walk(reader) if isinstance(part, Ref)]
        share = PAIRED if any(stage.makes is Pairs for stage in sources) else 1
        return found | {"rows": stating.samples * (stating.responses or 1) * share}
    if "rows" not in found and (read := expected(reader, peek)):
        each = 1 if getattr(reader, "format", None) == "pairs" else read.responses or 1
        return found | {"rows": read.samples * each}
    return found


def _in_files(reader: Reader, peek: Peek) -> dict[str, float]:
    """Return the mean lengths of texts in local files; {} if the files are not local or cannot be read."""
    try:
        if not reader.in_local_files(MOST_BYTES):
            return {}
        reader.setup(peek)
        samples = list(islice(reader.read(), MOST_ROWS))
    except (DataError, NotYet, Unavailable):
        return {}
    prompts = [tokens.of_text(as_text(sample.prompt)) for sample in samples]
    answers = [tokens.of_text(response.text) for sample in samples for response in sample.responses]
    means = {"prompt": (prompts, TEMPLATE), "response": (answers, 0)}
    return {name: sum(counts) / len(counts) + more for name, (counts, more) in means.items() if counts}


def _made(stage: Any, peek: Peek) -> dict[str, float]:
    """Return `rows`, `prompt` and `response` of a stage's output, as far as they are known."""
    first = next((value for _path, value in walk(stage) if isinstance(value, Reader)), None)
    found = {} if first is None else _known(first, peek)
    if (drawn := getattr(stage, "sampling", None)) is not None:
        found.setdefault("response", drawn.max_new_tokens * DRAWN)
    if "rows" not in found:
        return found
    given = Expected(round(found["rows"]) * getattr(stage, "per_prompt", 1))
    made = stated(getattr(stage, "annotator", None), "makes_at_most", given) or given
    return found | {"rows": made.samples}


# -- parts of the work -----------------------------------------------------------------------------------------------------


def passing(
    what: str, role: Role, texts: Texts, peek: Peek, devices: int = 1, times: float = 1, train: TrainSettings | None = None
) -> Work:  # fmt: skip
    """Return the work of passes without gradients over all texts, `times` times: two operations for each parameter that
    a token is multiplied by. train: settings of the training of a model in shards, which are gathered in the training's
    type.
    """
    model = loaded(role, peek)
    operations = 2 * _multiplied(model, role, texts) * times
    return Work(what, devices, _in_float32(model, train), passed=operations)


def readings(components: Iterable[Settings], role: Role, texts: Texts) -> float:
    """Return the number of times that a model named by components reads each response."""
    relevances = [part for component in components for _path, part in walk(component) if isinstance(part, Relevance)]
    return texts.criteria if any(part is role.spec for each in relevances for _path, part in walk(each)) else 1


def _multiplied(model: Loaded, role: Role, texts: Texts) -> float:
    """Return the number of multiplied parameters, summed over the tokens of all texts: the layers for all tokens, the
    output layer of a language model for tokens of responses. It is twice as large for 4-bit weights, which are
    converted first.
    """
    output = model.size.vocabulary * model.size.hidden if role.output == "lm" else 0
    layers = model.size.in_layers() * (1 + model.quantized) + model.own
    return layers * texts.tokens + output * texts.rows * texts.response


def _in_float32(model: Loaded, train: TrainSettings | None) -> bool:
    """Return True if the matrix products of a model are computed in float32."""
    return model.dtype == "float32" and (train is None or train.precision == "32-true")


def training(role: Role, texts: Texts, peek: Peek, train: TrainSettings, saved: float, times: float = 1) -> Work:
    """Return the work of training on all texts, `times` times, and of `saved` checkpoints. With checkpointed
    activations the forward pass is computed twice. Gradients of frozen weights are not computed, nor any gradient below
    the lowest adapter.
    """
    model, lora = loaded(role, peek), role.spec.lora
    deep = 1.0 if lora is None or lora.last_blocks is None else lora.last_blocks / model.size.layers
    again = 1 + (model.trainable == model.parameters) + role.spec.gradient_checkpointing
    operations = 2 * (1 + deep * again) * _multiplied(model, role, texts) * times
    return Work(
        f"training {role.name}", train.world, _in_float32(model, train),
        trained=operations * (1 if train.micro_batch_tokens else PADDED * (WAITED if train.world > 1 else 1)), written=0 if train.strategy == "fsdp" else saved * CHECKPOINT * model.trainable,
    )  # fmt: skip


def drawing(
    role: Role, given: Texts, sampling: Sampling, engine: Engine, peek: Peek, *, devices: int = 1, times: float = 1
) -> Iterator[Work]:
    """Yield the work of drawing one response to each of the texts, `times` times.

    `hf`: a batch takes as many steps as its longest response, which is assumed to reach the limit if a batch has
    several responses. Servers put the next request in the place of a response that has ended; the longest responses are
    then drawn alone.
    """
    model, place = loaded(role, peek), engine.elsewhere()
    copies, parallel = (devices, 1) if place is None else (place.copies, place.devices_each)
    prompt, response = min(given.prompt, sampling.max_prompt_tokens), min(given.response, sampling.max_new_tokens)
    each = -(-given.rows // copies)
    at = max(1, min(each, sampling.batch_size if place is None else AT_ONCE))
    wide = _in_float32(model, None)
    weights, cached = bytes_of_weights(model), keys_and_values(model, PassShape(at, 1), 4 if wide else 2)
    asked = Texts(-(-given.rows // given.per_prompt), prompt, 0)
    work = Work(
        f"drawing {role.name}", copies * parallel, wide, passed=2 * _multiplied(model, role, asked) * times,
        layers=model.size.layers + ADAPTER * model.adapted, served=place is not None, ahead=bool(engine.draws_ahead()),
    )  # fmt: skip
    if place is None:
        longest = sampling.max_new_tokens if at > 1 else response
        more = 0 if role.spec.attention == "flash_attention_2" else 2 * model.size.heads / model.size.key_value_heads
        kept = cached * (1 + more) * response / longest
        drawn = 2 * _multiplied(model, role, Texts(1, 0, at * response / longest))
        steps = -(-each // at) * longest
        yield replace(work, steps=steps * times, read=weights, cached=kept * (prompt + response), computed=drawn)
    else:
        kept = cached * (prompt + response / 2) / parallel
        yield replace(work, steps=each * response / at * times, read=weights / parallel, cached=kept)
        alone = (sampling.max_new_tokens - response) / 2
        yield replace(work, passed=0, steps=alone * times, read=weights / parallel)


def answering(
    component: Settings, rows: int, prompt: float, peek: Peek, *, devices: int = 1, times: float = 1
) -> Iterator[Work]:
    """Yield the work of drawing the answers of local models that a component asks, one for each row. The component's
    prompt file, if it has one, comes before the row's own tokens.
    """
    if isinstance(file := getattr(component, "prompt", None), str) and Path(file).is_file():
        prompt += tokens.of_text(Path(file).read_text(encoding="utf-8"))
    for part in local_clients(component):
        limits = limits_of(part)
        given, role = Texts(rows, prompt, part.max_tokens * UNKNOWN), Role("answers", part.model)
        yield from drawing(role, given, limits, part.engine, peek, devices=devices, times=times)


def local_clients(component: Settings) -> list[Any]:
    """Return the clients of a component that ask a model on this machine."""
    return [part for _path, part in walk(component) if isinstance(part, local.Local)]


def limits_of(client: Any) -> Sampling:
    """Return the sampling limits of the answers of a model on this machine."""
    return Sampling(
        max_new_tokens=client.max_tokens, max_prompt_tokens=client.max_prompt_tokens, batch_size=client.batch_size
    )


def is_asked(component: Settings, spec: ModelSpec) -> bool:
    """Return True if a model answers questions of a component, so that it does more than a forward pass."""
    return any(part.model is spec for part in local_clients(component))

"""The words of the house: what a sample, a span, a pair, a rollout, a reward and an advantage are.

Text-side types (`Sample`, `Pair`, ...) are pydantic models, one JSON line each. Tensor-side types (`Rollout`, `Batch`,
`Rewards`, `Advantages`) are dataclasses of torch tensors; this file does not import torch.

Shapes: `B` responses, `P` prompt tokens, `T` response tokens, `S` segments, `C` criteria. In every mask True means a
real token. Prompts are padded on the left, responses on the right; a response keeps its end-of-sequence token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import core_schema

from fgrl.errors import DataError
from fgrl.files import write_lines

if TYPE_CHECKING:
    from torch import Tensor


class Record(BaseModel):
    """A line of JSON."""

    model_config = ConfigDict(extra="forbid")


class Message(Record):
    """One turn of a chat."""

    role: str
    content: str


class Span(Record):
    """Characters `start:end` of a response that somebody marked."""

    start: int = Field(ge=0)
    end: int = Field(ge=0)
    label: float = 1.0
    reasons: list[str] = []


class Criterion(Record):
    """One demand on a response; `check` names a verifier, None means that a judge decides."""

    text: str
    check: dict[str, Any] | None = None


class Candidate(Record):
    """One of several responses to a prompt, with its score."""

    text: str
    score: float | None = None
    finished: bool = True


class Sample(Record):
    """A prompt and what is known about it."""

    id: str
    prompt: str | list[Message]
    response: str | None = None
    reference: str | list[str] | None = None
    critique: str | None = None
    spans: list[Span] = []
    rubric: list[Criterion] = []
    candidates: list[Candidate] = []
    meta: dict[str, Any] = {}


class Pair(Record):
    """Two responses to one prompt, the first preferred."""

    id: str
    prompt: str | list[Message]
    chosen: str
    rejected: str
    meta: dict[str, Any] = {}


class Request(Record):
    """One question to a language model. What is None is the client's own setting."""

    messages: list[Message]
    sample: int = 0
    """Which of several answers to the same question; part of what it is cached by."""
    json_schema: dict[str, Any] | None = None
    """The JSON schema that the answer is to fit, for endpoints that can hold a model to one."""
    max_tokens: int | None = None
    temperature: float | None = None
    logprobs: int = 0
    """Ask for this many most probable first tokens with their log-probabilities."""


class Usage(Record):
    """What an answer took."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None
    """None: the model's price is not known. 0 only where nothing is charged."""


class Completion(Record):
    """The answer to a request, or why there is none."""

    text: str = ""
    finish: str | None = None
    """As the endpoint calls it: "stop", "length", ..."""
    usage: Usage = Usage()
    cached: bool = False
    """It was answered before; nothing was asked and nothing spent."""
    logprobs: dict[str, float] | None = None
    """Log-probabilities (nats) of the most probable first tokens, where they were asked for and the endpoint gives them."""
    error: str | None = None
    """Why there is no answer. Such a request is missing and counted, never taken for an answer."""


R = TypeVar("R", bound=Record)


def write_jsonl(path: Path, records: Iterable[Record]) -> int:
    """Write records, one a line, finished by rename. Returns how many."""
    return write_lines(path, (record.model_dump_json(exclude_defaults=True) for record in records))


def parse_line(line: str, record: type[R], where: str, hint: str = "") -> R:
    """One line of JSON as a record; one that does not fit raises `DataError` with its place."""
    try:
        return record.model_validate_json(line)
    except ValidationError as error:
        what = error.errors()[0]
        place = ".".join(str(part) for part in what["loc"])
        raise DataError(f"{where}: {place}: {what['msg']} (wanted one {record.__name__} a line{hint})") from None


def read_jsonl(path: Path, record: type[R]) -> Iterator[R]:
    """Read records back; a line that does not fit raises `DataError` with its place."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            yield parse_line(line, record, f"{path}:{number}")


# -- products of stages ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Product:
    """What a stage leaves behind: the folder `path`."""

    path: Path


class Samples(Product):
    """`samples.jsonl`."""

    def read(self) -> Iterator[Sample]:
        return read_jsonl(self.path / "samples.jsonl", Sample)


class Pairs(Product):
    """`pairs.jsonl`."""

    def read(self) -> Iterator[Pair]:
        return read_jsonl(self.path / "pairs.jsonl", Pair)


class Checkpoint(Product):
    """A model: safetensors weights (or an adapter), the tokenizer, and `fgrl.json`, which says how it was made."""

    def about(self) -> dict[str, Any]:
        return json.loads((self.path / "fgrl.json").read_text(encoding="utf-8"))


class Stats(Product):
    """A fitted normalizer: `stats.json`, and the points it was fitted on."""

    def read(self) -> dict[str, Any]:
        return json.loads((self.path / "stats.json").read_text(encoding="utf-8"))


class Report(Product):
    """Measured numbers: `metrics.json`, and `answers.jsonl`."""

    def read(self) -> dict[str, Any]:
        return json.loads((self.path / "metrics.json").read_text(encoding="utf-8"))


P = TypeVar("P", bound=Product)


class Ref(Generic[P]):
    """`${out:stage}`: another stage's product. `Ref[Checkpoint]` in an annotation says which kind of product fits."""

    marker: ClassVar[str] = "${out:"

    def __init__(self, stage: str) -> None:
        self.stage = stage

    def __repr__(self) -> str:
        return f"${{out:{self.stage}}}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other.stage == self.stage

    def __hash__(self) -> int:
        return hash(("Ref", self.stage))

    @classmethod
    def parse(cls, text: str) -> Ref[P] | None:
        """`"${out:x}"` as a reference; None for any other text."""
        if text.startswith(cls.marker) and text.endswith("}"):
            return cls(text[len(cls.marker) : -1].strip())
        return None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        product = (get_args(source) or (Product,))[0]

        def check(value: Any) -> Ref[Any]:
            ref = value if isinstance(value, Ref) else cls.parse(value) if isinstance(value, str) else None
            if ref is None:
                raise ValueError(f"wants ${{out:stage}} of a stage that makes {product.__name__}")
            return ref

        return core_schema.no_info_plain_validator_function(
            check,
            metadata={
                "pydantic_js_functions": [lambda _schema, _handler: {"type": "string", "pattern": r"^\$\{out:.+\}$"}]
            },
            serialization=core_schema.plain_serializer_function_ser_schema(repr),
        )


# -- tensors -----------------------------------------------------------------------------------------------------------


@dataclass
class TensorRows:
    """Tensors that share their first dimension."""

    def map(self, function: Any) -> Any:
        """Apply `function` to every tensor (also inside dicts of tensors)."""

        def change(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: change(item) for key, item in value.items()}
            return function(value) if hasattr(value, "dtype") and hasattr(value, "device") else value

        return replace(self, **{item.name: change(getattr(self, item.name)) for item in fields(self)})

    def to(self, device: Any, *args: Any, **kwargs: Any) -> Any:
        return self.map(lambda tensor: tensor.to(device, *args, **kwargs))


@dataclass
class Tokens(TensorRows):
    """Prompts and responses as token ids."""

    prompt_ids: Tensor  # [B,P] long, left-padded
    prompt_mask: Tensor  # [B,P] bool
    response_ids: Tensor  # [B,T] long, right-padded
    mask: Tensor  # [B,T] bool; the end-of-sequence token is a real token
    eos: Tensor  # [B,T] bool: the token that ends the response; a truncated response has none


@dataclass
class Rollout(Tokens):
    """Sampled responses and what was computed about them; a field is None when nobody needs it."""

    group: Tensor  # [B] long: which prompt
    samples: list[Sample]
    texts: list[str]  # decoded responses without special tokens
    old_logp: Tensor | None = None  # [B,T] nats, policy that sampled
    ref_logp: Tensor | None = None  # [B,T] nats, frozen reference
    ref_entropy: Tensor | None = None  # [B,T] nats, of the reference's distribution that token t was drawn from
    ref_kl: Tensor | None = None  # [B,T] nats, full KL(policy || reference) of that distribution
    values: Tensor | None = None  # [B,T] of the state before token t
    offsets: list[list[tuple[int, int]]] | None = None  # characters of `texts` that each token covers

    def filled(self, name: str) -> Tensor:
        """A score field [B,T]; raises ValueError when nobody asked for it."""
        value = getattr(self, name)
        if value is None:
            raise ValueError(f"the rollout has no {name}; ask for it in `needs`")
        return value


@dataclass
class Segmentable(TensorRows):
    """What a segmenter may look at. `Rollout` and encoded data sets both give one."""

    ids: Tensor  # [B,T] long
    mask: Tensor  # [B,T] bool
    eos: Tensor  # [B,T] bool
    entropy: Tensor | None = None  # [B,T] nats, present when the segmenter needs "entropy"
    texts: list[str] | None = None  # present when it needs "text"
    offsets: list[list[tuple[int, int]]] | None = None


class Mean(float):
    """A metric that is a total over a count of its own, of tokens or segments.

    It is the mean, and knows both parts: over micro-batches and ranks they are added up, so that the metric does not
    depend on how a step was cut. A plain float is averaged over rows. A count of 0 is NaN.
    """

    total: float
    count: float

    def __new__(cls, total: Any, count: Any) -> Mean:
        made = super().__new__(cls, float(total) / float(count) if count else float("nan"))
        made.total, made.count = float(total), float(count)
        return made

    def __getnewargs__(self) -> tuple[float, float]:  # type: ignore[override]
        return self.total, self.count


class Most(float):
    """A metric that is the greatest value that was seen: of several micro-batches the greatest is kept."""


@dataclass
class Rewards(TensorRows):
    """What a reward says of a rollout."""

    response: Tensor  # [B]; NaN = missing
    token: Tensor  # [B,T]; 0 where nothing was said
    credit_mask: Tensor  # [B,T] bool: where something was said (unassigned is not zero)
    segment_ids: Tensor | None = None  # [B,T] long, -1 outside every segment
    criterion: Tensor | None = None  # [B,C,T] verdict x relevance; NaN where a criterion is absent or cannot be told
    verdict: Tensor | None = None  # [B,C] +1 kept, -1 broken; NaN = absent or missing
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class Advantages(TensorRows):
    """What the policy gradient is weighted with."""

    advantage: Tensor  # [B,T]
    returns: Tensor | None = None  # [B,T]
    keep: Tensor | None = None  # [B] bool: the responses to train on; None = all
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class Batch(Tokens):
    """Rows of one micro-batch as `Algorithm.loss` sees them.

    `total_tokens` and `total_rows` count real response tokens and rows of the whole optimizer step (all micro-batches,
    all ranks) and `scale` undoes the averaging over micro-batches and ranks, so that the loss of a step does not depend
    on how the step was cut up: loss = sum(x * mask) / total_tokens * scale.
    """

    columns: dict[str, Tensor] = field(default_factory=dict)  # [N] or [N,T]
    total_tokens: float = 1.0
    total_rows: float = 1.0
    scale: float = 1.0
    temperature: float = 1.0  # at which the responses were sampled: their log-probabilities are taken at it


Aggregation = Literal["token_mean", "seq_mean"]

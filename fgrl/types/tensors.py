"""Rollouts, rewards, advantages and batches: dataclasses of torch tensors with one row per response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from fgrl.base import lazy
from fgrl.base.mergeable import Number, merged
from fgrl.types.columns import (
    Column,
    Named,
    Shared,
    named,
    of_all_rows,
    per_criterion,
    per_criterion_token,
    per_prompt_token,
    per_response,
    per_token,
)
from fgrl.types.drawn import Turn
from fgrl.types.records import Annotation, Sample

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")

T = TypeVar("T", bound="TensorRows")


@dataclass
class TensorRows:
    """Values that share their first dimension. Every field declares its column (see `fgrl.types.columns`)."""

    def __post_init__(self) -> None:
        for name, declaration in declarations(type(self)).items():
            declaration.check(f"{type(self).__name__}.{name}", getattr(self, name))

    def map(self, function: Any) -> Any:
        """Apply `function` to every tensor (also inside dicts of tensors)."""

        def change(value: Any) -> Any:
            if isinstance(value, dict):
                return type(value)({key: change(item) for key, item in value.items()})
            return function(value) if isinstance(value, torch.Tensor) else value

        return replace(self, **{item.name: change(getattr(self, item.name)) for item in fields(self)})

    def to(self, device: Any, *args: Any, **kwargs: Any) -> Any:
        return self.map(lambda tensor: tensor.to(device, *args, **kwargs))

    def take(self: T, rows: Tensor) -> T:
        """Return the rows with these indices, in their order."""
        return replace(self, **{
            name: declaration.take(getattr(self, name), rows) for name, declaration in declarations(type(self)).items()
        })  # fmt: skip

    def tensors(self) -> dict[str, tuple[Column, Tensor]]:
        """Return the declaration and the value of every column that is a tensor. Raises ValueError if two have the same
        name.
        """
        columns: dict[str, tuple[Column, Tensor]] = {}
        for name, declaration in declarations(type(self)).items():
            value = getattr(self, name)
            if isinstance(declaration, Column) and isinstance(value, torch.Tensor):
                columns[name] = (declaration, value)
            elif isinstance(declaration, Named):
                if twice := sorted(columns.keys() & value.keys()):
                    raise ValueError(f"two columns of {type(self).__name__} are called {twice[0]}; rename one of them")
                columns |= {key: (declaration.column(item), item) for key, item in value.items()}
        return columns

    def added(self, base: type[TensorRows]) -> dict[str, tuple[Column, Tensor]]:
        """Return the declaration and the value of every column that `base` does not have: columns of a subclass, and
        named ones.
        """
        return {name: column for name, column in self.tensors().items() if name not in declarations(base)}


def declarations(record: type[TensorRows]) -> dict[str, Column | Named | Shared]:
    """Return the columns of a class of `TensorRows` by field. Raises TypeError for a field without a declaration."""
    declared = (Column, Named, Shared)
    undeclared = [item.name for item in fields(record) if not isinstance(item.metadata.get("column"), declared)]
    if undeclared:
        raise TypeError(
            f"{record.__name__}.{undeclared[0]} does not declare its column; write for example {undeclared[0]}: Tensor = "
            'field(kw_only=True, metadata={"column": per_token(fill=0.0)}), with the functions of fgrl.types.columns'
        )
    return {item.name: item.metadata["column"] for item in fields(record)}


def concatenate(parts: Sequence[T]) -> T:
    """Return the rows of several rollouts (or rewards), padded to common widths."""
    counts = [len(getattr(part, fields(part)[0].name)) for part in parts]
    values = {}
    for name, declaration in declarations(type(parts[0])).items():
        try:
            values[name] = declaration.concatenate([getattr(part, name) for part in parts], counts)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{type(parts[0]).__name__}.{name}: {error}") from None
    return type(parts[0])(**values)


RESPONSE = {"column": per_response()}
TOKEN = {"column": per_token(fill=0)}
OUTSIDE_SEGMENTS = {"column": per_token(fill=-1)}
NOT_DRAWN = {"column": per_token(fill=-1)}
PROMPT_TOKEN = {"column": per_prompt_token(fill=0)}
CRITERION = {"column": per_criterion()}
CRITERION_TOKEN = {"column": per_criterion_token(fill=0)}
NAMED = {"column": named()}
METRICS = {"column": of_all_rows(lambda values, counts: merged(zip(values, counts, strict=True)))}
WHOLE_STEP = {"column": of_all_rows()}
LENT_POLICY = {"column": of_all_rows(lambda values, counts: the_same(values))}
OF_SAMPLING = {"column": of_all_rows(lambda values, counts: as_drawn(values))}
NEED_OF_FIELD = {"lent_policy": "policy", "row": "policy"}
"""Name of a field in `needs`, if it differs from the field's own name."""


def the_same(values: Sequence[Any]) -> Any:
    """Return the object that all parts share. Raises ValueError if they differ."""
    if any(value is not values[0] for value in values):
        raise ValueError("the parts were drawn by different models")
    return values[0]


def as_drawn(values: Sequence[Any]) -> Any:
    """Return the value that all parts have. Raises ValueError if they differ."""
    if any(value != values[0] for value in values):
        raise ValueError("the parts were drawn in different ways")
    return values[0]


@dataclass
class Tokens(TensorRows):
    """Prompts and responses as token ids."""

    prompt_ids: Tensor = field(metadata=PROMPT_TOKEN)  # [B,P] long, left-padded
    prompt_mask: Tensor = field(metadata=PROMPT_TOKEN)  # [B,P] bool
    response_ids: Tensor = field(metadata=TOKEN)  # [B,T] long, right-padded
    mask: Tensor = field(metadata=TOKEN)  # [B,T] bool; the end-of-sequence token is a real token
    eos: Tensor = field(metadata=TOKEN)  # [B,T] bool: the token that ends the response; a truncated response has none
    # [B,T] bool: where no end token could be drawn (`Sampling.min_new_tokens`), so that scores give it probability 0; None: nowhere
    no_end: Tensor | None = field(default=None, kw_only=True, metadata=TOKEN)
    # [B,T] long: the turn in which the policy drew the token, from 0; -1: an environment wrote it. None: all are of turn 0
    turn: Tensor | None = field(default=None, kw_only=True, metadata=NOT_DRAWN)

    @property
    def drawn(self) -> Tensor:
        """[B,T] bool: the real tokens that the policy drew. Metrics, advantages and losses of a policy count only
        these; the tokens of an environment are read, but never trained on.
        """
        return self.mask if self.turn is None else self.mask & (self.turn >= 0)

    @property
    def turn_ids(self) -> Tensor:
        """[B,T] long: the turn in which the policy drew the token, from 0; -1 for any other token."""
        return torch.where(self.drawn, 0 if self.turn is None else self.turn, -1)


@dataclass
class Rollout(Tokens):
    """Sampled responses and the values computed about them; a field is None if no component needs it."""

    group: Tensor = field(metadata=RESPONSE)  # [B] long: which prompt
    samples: list[Sample] = field(metadata=RESPONSE)
    texts: list[str] = field(metadata=RESPONSE)  # decoded responses without special tokens
    # the texts of the drawn tokens alone; None: the policy wrote all of `texts`
    written: list[str] | None = field(default=None, metadata=RESPONSE)
    old_logp: Tensor | None = field(default=None, metadata=TOKEN)  # [B,T] nats, policy that is trained
    # [B,T] nats, as the engine computed them while drawing; None where it draws from the very model that is trained
    drawn_logp: Tensor | None = field(default=None, metadata=TOKEN)
    # [B] long, of the weights that the engine drew from: the iteration whose policy has them; None as `drawn_logp`
    drawn_version: Tensor | None = field(default=None, metadata=RESPONSE)
    # [B,T] nats, of the distribution that token t was drawn from: the policy's, at the temperature of sampling
    entropy: Tensor | None = field(default=None, metadata=TOKEN)
    ref_logp: Tensor | None = field(default=None, metadata=TOKEN)  # [B,T] nats, frozen reference
    # [B,T] nats, of the reference's distribution that token t was drawn from
    ref_entropy: Tensor | None = field(default=None, metadata=TOKEN)
    ref_kl: Tensor | None = field(
        default=None, metadata=TOKEN
    )  # [B,T] nats, full KL(policy || reference) of that distribution
    values: Tensor | None = field(default=None, metadata=TOKEN)  # [B,T] of the state before token t
    turns: list[Sequence[Turn]] | None = field(
        default=None, metadata=RESPONSE
    )  # of conversations; None: there are none
    # [B,T] what an environment gave for a turn, on the turn's last token; None, like the next two: as `turns`
    turn_reward: Tensor | None = field(default=None, metadata=TOKEN)
    # [B] bool: False for a conversation that was truncated, so that more could have followed
    terminated: Tensor | None = field(default=None, metadata=RESPONSE)
    # [B] of the state behind the last token of a conversation that was truncated, 0 for others; None without `values`
    end_value: Tensor | None = field(default=None, metadata=RESPONSE)
    # why the environment failed in a conversation, [B]; None in the others
    lost: list[str | None] | None = field(default=None, metadata=RESPONSE)
    # characters of `texts` that each token covers
    offsets: list[list[tuple[int, int]]] | None = field(default=None, metadata=RESPONSE)
    # [B] long: the response's number among all that are drawn together, which names its random stream
    row: Tensor | None = field(default=None, metadata=RESPONSE)
    lent_policy: Any = field(default=None, metadata=LENT_POLICY)  # `fgrl.rollouts.policies.LentPolicy`
    # at which `old_logp` and `ref_logp` are taken: in training that of sampling, 1 for greedy decoding
    temperature: float = field(default=1.0, metadata=OF_SAMPLING)
    ends: frozenset[int] = field(default=frozenset(), metadata=OF_SAMPLING)  # token ids that end a response
    # [B,T] by name: what auxiliary models say about the responses (`fgrl.kinds.Auxiliary`)
    columns: Mapping[str, Tensor] = field(default_factory=dict, metadata=NAMED)

    @property
    def policy(self) -> Any:
        """The model that drew the responses, as a `fgrl.rollouts.policies.Policy`, for a component whose `needs`
        contain "policy". Raises ValueError if no component asked for it.
        """
        return self.filled("lent_policy").of(self)

    def filled(self, name: str) -> Any:
        """Return a field that is filled on request. Raises ValueError if no component asked for it."""
        value = getattr(self, name)
        if value is None:
            need = NEED_OF_FIELD.get(name, name)
            raise ValueError(f"the rollout has no {need}; ask for it in `needs`")
        return value


@dataclass
class Segmentable(TensorRows):
    """Input of a segmenter. `Rollout` and encoded data sets both provide it."""

    ids: Tensor = field(metadata=TOKEN)  # [B,T] long
    mask: Tensor = field(metadata=TOKEN)  # [B,T] bool
    eos: Tensor = field(metadata=TOKEN)  # [B,T] bool
    entropy: Tensor | None = field(
        default=None, metadata=TOKEN
    )  # [B,T] nats, present when the segmenter needs "entropy"
    texts: list[str] | None = field(default=None, metadata=RESPONSE)  # present when it needs "text"
    offsets: list[list[tuple[int, int]]] | None = field(default=None, metadata=RESPONSE)
    turn: Tensor | None = field(default=None, metadata=NOT_DRAWN)  # [B,T] long, as `Tokens.turn`


@dataclass
class Rewards(TensorRows):
    """Rewards of a rollout. A reward with more columns subclasses this (see `fgrl.types.columns`)."""

    response: Tensor = field(metadata=RESPONSE)  # [B]; NaN = missing
    token: Tensor = field(metadata=TOKEN)  # [B,T]; 0 where no reward was assigned
    credit_mask: Tensor = field(metadata=TOKEN)  # [B,T] bool: where a reward was assigned (unassigned is not zero)
    segment_ids: Tensor | None = field(default=None, metadata=OUTSIDE_SEGMENTS)  # [B,T] long, -1 outside every segment
    # [B,C,T] verdict x relevance; NaN where a criterion is absent or its verdict or relevance is missing
    criterion: Tensor | None = field(default=None, metadata=CRITERION_TOKEN)
    # [B,C] +1 satisfied, -1 violated; NaN = absent or missing
    verdict: Tensor | None = field(default=None, metadata=CRITERION)
    # what a critic wrote about each response; None where it failed
    annotations: list[Annotation | None] | None = field(default=None, metadata=RESPONSE)
    # [B] or [B,T] by name: what the reward declares in `fills`, for algorithms that name it in `reads`
    columns: Mapping[str, Tensor] = field(default_factory=dict, metadata=NAMED)
    metrics: Mapping[str, Number] = field(default_factory=dict, metadata=METRICS)

    def column(self, name: str) -> Any:
        """Return an optional field, or one of `columns`. Raises ValueError if the reward does not fill it."""
        value = self.columns.get(name, getattr(self, name, None))
        if value is None:
            filled = ", ".join(sorted(self.columns)) or "none"
            raise ValueError(f'the reward fills no "{name}"; its columns: {filled}')
        return value


@dataclass
class Advantages(TensorRows):
    """Weights of the policy gradient. An algorithm with more columns subclasses this (see `fgrl.types.columns`)."""

    advantage: Tensor = field(metadata=TOKEN)  # [B,T]
    returns: Tensor | None = field(default=None, metadata=TOKEN)  # [B,T]
    keep: Tensor | None = field(default=None, metadata=RESPONSE)  # [B] bool: the responses to train on; None = all
    trained: Tensor | None = field(
        default=None, metadata=TOKEN
    )  # [B,T] bool: the tokens that the loss counts; None = all
    columns: Mapping[str, Tensor] = field(default_factory=dict, metadata=NAMED)  # [B] or [B,T] by name, for the loss
    metrics: Mapping[str, Number] = field(default_factory=dict, metadata=METRICS)


class StepTotals(TypedDict):
    """The arguments of `ops.aggregate` that describe the whole optimizer step."""

    total_tokens: float
    total_rows: float
    planned_rows: float | None
    scale: float


@dataclass
class Batch(Tokens):
    """Rows of one micro-batch, the input of an algorithm's loss.

    `total_tokens` and `total_rows` count drawn tokens (of `Advantages.trained` those) and rows of the whole
    optimizer step (all micro-batches, all ranks) and `scale` undoes the averaging over micro-batches and ranks, so that
    the loss of a step does not depend on how the step was cut up: loss = sum(x * mask) / total_tokens * scale.
    `planned_rows` is `total_rows` as it would be if no response were missing or left out.
    """

    # [N], [N,T], or [N,C,T] by name: every column of the rollout, the rewards and the advantages, or of the rows of a data set
    columns: dict[str, Tensor] = field(default_factory=dict, metadata=WHOLE_STEP)
    total_tokens: float = field(default=1.0, metadata=WHOLE_STEP)
    total_rows: float = field(default=1.0, metadata=WHOLE_STEP)
    planned_rows: float | None = field(default=None, metadata=WHOLE_STEP)  # None: `total_rows`
    scale: float = field(default=1.0, metadata=WHOLE_STEP)
    # at which the responses were sampled: their log-probabilities are taken at it
    temperature: float = field(default=1.0, metadata=WHOLE_STEP)

    def totals(self) -> StepTotals:
        """Arguments that turn an aggregate into the micro-batch's share of the step's loss: `ops.aggregate(x,
        batch.drawn, how, **batch.totals())`.
        """
        return StepTotals(
            total_tokens=self.total_tokens, total_rows=self.total_rows, planned_rows=self.planned_rows, scale=self.scale
        )  # fmt: skip


Aggregation = Literal["token_mean", "seq_mean", "sum"]

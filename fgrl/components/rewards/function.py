"""Rewards that are functions of a user's Python file, with the signature of TRL's reward functions.

Not supported: models as reward functions (TRL's strings and modules); use the reward `segment_rm` for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import PrivateAttr, model_validator

from fgrl.base import lazy, ops
from fgrl.base.errors import UserCodeError
from fgrl.kinds import Numbers, Reward
from fgrl.kinds.functions import Caller, Form, FunctionFile, Returned, Texts, TrainerState, key_of
from fgrl.kinds.functions.calling import OF_LOGS, OF_TEXTS, OF_TOKENS, STATE
from fgrl.kinds.functions.reporting import report
from fgrl.registry import File, register
from fgrl.types import Annotation, Mean, Rewards, Rollout, Sample, messages_of

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


@register("function")
class FunctionReward(Reward):
    """A Python function that scores responses, as TRL's reward functions do: `def score(completions, **kwargs)` returns
    a number for each response, or None for a response to which it does not apply.

    With the annotation `-> list[list[float]]` it returns a number per token instead, and with `-> list[list[tuple[int,
    int, float]]]` (or `list[list[Span]]`) scored spans of characters. Numbers of several functions are weighted and
    added. A response to which no function applies has no reward. A number for the whole response is the reward of its
    last token.
    """

    version = 2

    path: Annotated[str | None, FunctionFile] = None
    """Function such as `rewards.py:score`, relative to the recipe."""
    paths: list[Annotated[str, FunctionFile]] = []
    """Several functions, in place of `path`."""
    weights: list[float] | None = None
    """Weight of each function in `paths`; null: 1 each."""
    arguments: dict[str, Any] = {}
    """Additional keyword arguments, for the functions that accept them."""
    files: list[Annotated[str, File]] = []
    """Files that the functions read. Their content is part of the cache key."""
    completions: Form = "as_prompt"
    """Form of the responses that functions get. `as_prompt`, as in TRL: a list of one message if the prompt is a list
    of messages, else a text. `messages`, `text`: always in this form.
    """
    total: Literal["sum", "mean"] = "sum"
    """Reward of a response whose tokens have numbers: their sum, or their mean over all tokens (each token's reward is
    then divided by the number of tokens). Token rewards always add up to it.
    """
    placement: Literal["tokens", "last"] = "tokens"
    """Place of the rewards: numbers of tokens and spans stay in their places, or their total is the reward of the last
    token.
    """
    token_policy: ops.TokenPolicy = ops.TOKEN_POLICY
    """Rule by which a token belongs to a span: it lies inside apart from white space before it (`words`), lies
    completely inside (`inside`), begins inside (`start`), or shares a character with the span (`overlap`).
    """
    spread: ops.SpanSpread = "even"
    """Distribution of a span's value over its tokens: shared among them (`even`), or on the last one (`last`). With
    both, the rewards of the tokens add up to the values of the spans, whatever the tokenizer. `each`: every token of
    the span has the whole value.
    """
    conflict: ops.Conflict = "poor"
    """Owner of the characters where spans above and below 0 overlap: the span with the lower value (`poor`), with the
    higher value (`good`), or neither (`cancel`).
    """
    unmarked: float = 0.0
    """Reward of tokens outside all spans."""

    _caller: Caller = PrivateAttr()
    _state: TrainerState | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _check(self) -> FunctionReward:
        if (self.path is None) == (not self.paths):
            raise ValueError("name one function under `path`, or several under `paths`")
        if self.weights is not None and len(self.weights) != len(self.paths):
            raise ValueError(
                f"weights: {len(self.weights)} weights for {len(self.paths)} `paths`: write one for each of them"
            )
        self._caller = Caller(
            self._every_path(), allowed=("numbers", "tokens", "spans"), arguments=self.arguments, form=self.completions
        )
        return self

    def _every_path(self) -> list[str]:
        return self.paths if self.path is None else [self.path]

    def behind(self) -> list[str]:
        return key_of(self._every_path())

    def needs(self) -> frozenset[str]:
        return frozenset({"offsets"} if self._caller.needs_offsets() else ())

    def fills(self) -> frozenset[str]:
        """Return "criterion" if functions have token rewards, which `rtt_grpo` uses, and "annotations" if functions
        return spans.
        """
        kinds = set(self._caller.kinds)
        filled = {"criterion": bool(kinds - {"numbers"}), "annotations": "spans" in kinds}
        return frozenset(name for name, is_filled in filled.items() if is_filled)

    def on_tokens(self) -> bool:
        return self.placement == "tokens" and set(self._caller.kinds) != {"numbers"}

    def at_step(self, step: int, total: int) -> None:
        self._state = TrainerState(step, total)

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        """Raise `UserCodeError` if a function requires a column that the prompts do not have."""
        state = [] if self._state is None else [STATE]
        self._caller.check_arguments(samples, [*OF_TEXTS, *OF_TOKENS, *OF_LOGS, *state])

    def nothing_scored(self, where: str, example: str) -> UserCodeError:
        """Return an error with the file and line of the function."""
        function, names = self._caller.looked[0], " and ".join(self._caller.names)
        problem = f"{names} returned None for each of the {where}, so none has a reward"
        return UserCodeError(report(function.file, function.line, problem, example))

    def score(self, rollout: Rollout) -> Rewards:
        """Return the rewards: 1. calls of the functions, 2. conversion of their numbers to token rewards, 3. weighted
        sums. Shapes as in `Rewards`.
        """
        mask = rollout.mask.cpu()
        lengths = mask.sum(dim=1).tolist()
        ids = [row[:length] for row, length in zip(rollout.response_ids.tolist(), lengths, strict=True)]
        # 1.
        talks = None if rollout.turns is None else [messages_of(turns) for turns in rollout.turns]
        texts = Texts(rollout.samples, rollout.texts, ids, rollout.offsets, self._state, talks, logs=True)
        outcomes = self._caller.call(texts)
        # 2. each function's rewards of responses [B], and of tokens [B,T]
        parts = [self._placed(outcome, rollout, mask) for outcome in outcomes]
        weights = torch.tensor(self.weights or [1.0] * len(parts))
        # 3. what is missing is left out of a sum, and a response of which all is missing is missing
        by_function = torch.stack([part.response for part in parts], dim=1)
        response = (by_function * weights).nansum(dim=1)
        response[by_function.isnan().all(dim=1)] = torch.nan
        token = sum(weight * part.token for weight, part in zip(weights, parts, strict=True))
        credited = torch.stack([part.credited for part in parts]).any(dim=0)
        criterion = [
            torch.where(part.response.isnan()[:, None], torch.nan, weight * part.token)
            for weight, part, outcome in zip(weights, parts, outcomes, strict=True)
            if outcome.kind != "numbers"
        ]
        return Rewards(
            response, token, credited & mask,
            criterion=torch.stack(criterion, dim=1) if criterion else None,
            annotations=_annotations(outcomes, self._caller.names, texts.extras),
            metrics=self._metrics(by_function, parts, texts.metrics),
        ).to(rollout.mask.device)  # fmt: skip

    def _placed(self, outcome: Returned, rollout: Rollout, mask: Tensor) -> _Placed:
        last = ops.segment_ends(torch.where(mask, 0, -1))
        if outcome.kind == "numbers":
            response = torch.tensor([torch.nan if value is None else value for value in outcome.values])
            known = ~response.isnan()[:, None]
            return _Placed(response, torch.where(last & known, response[:, None], 0.0), last & known)
        token, credited = torch.zeros(mask.shape), torch.zeros_like(mask)
        known_rows, uncovered, overruled = torch.ones(len(mask), dtype=torch.bool), 0, 0
        for row in range(len(mask)):
            own = outcome.values[row]
            if own is None:
                known_rows[row] = False
            elif outcome.kind == "tokens":
                token[row, : len(own)] = torch.tensor([value or 0.0 for value in own])
                credited[row, : len(own)] = torch.tensor([value is not None for value in own], dtype=torch.bool)
            else:
                rewards = ops.span_rewards(
                    own, rollout.filled("offsets")[row], rollout.texts[row],
                    self.token_policy, self.conflict, spread=self.spread, unmarked=self.unmarked,
                )  # fmt: skip
                length = len(rewards.token)
                token[row, :length], uncovered = rewards.token, uncovered + len(rewards.uncovered)
                overruled += len(rewards.overruled)
                credited[row, :length] = rewards.marked | (rewards.token != 0)
        if self.total == "mean":
            token = token / mask.sum(dim=1, keepdim=True).clamp(min=1)
        response = torch.where(known_rows, token.sum(dim=1), torch.nan)
        if self.placement == "last":
            credited = last & known_rows[:, None]
            token = torch.where(credited, response[:, None], 0.0)
        spans = sum(len(own or ()) for own in outcome.values) if outcome.kind == "spans" else 0
        return _Placed(response, token, credited, uncovered, overruled, spans)

    def _metrics(self, by_function: Tensor, parts: Sequence[_Placed], logged: Mapping[str, list[float]]) -> Numbers:
        """Return the mean of each function's rewards over the responses to which it applies, and the numbers that the
        functions log.
        """
        metrics: Numbers = {name: Mean(sum(values), len(values)) for name, values in logged.items()}
        for place, name in enumerate(self._caller.names):
            values = by_function[:, place]
            known = values[~values.isnan()]
            metrics[name] = Mean(known.sum(), len(known))
            metrics[f"{name} missing"] = Mean(len(values) - len(known), len(values))
        spans = sum(part.spans for part in parts)
        if "spans" in self._caller.kinds:
            metrics["spans"] = Mean(spans, len(by_function))
        if spans:
            metrics["uncovered"] = Mean(sum(part.uncovered for part in parts), spans)
            metrics["overruled"] = Mean(sum(part.overruled for part in parts), spans)
        return metrics


class _Placed:
    """Rewards of one function."""

    def __init__(
        self, response: Tensor, token: Tensor, credited: Tensor, uncovered: int = 0, overruled: int = 0, spans: int = 0
    ) -> None:
        self.response, self.token, self.credited = response, token, credited  # [B], [B,T], [B,T] bool
        self.uncovered, self.overruled, self.spans = uncovered, overruled, spans
        """Numbers of spans: without tokens, with all tokens lost to spans of another sign, and in total."""


def _annotations(
    outcomes: Sequence[Returned], names: Sequence[str], extras: Mapping[str, list[Any]]
) -> list[Annotation | None] | None:
    """Return the spans that functions returned and the values they gave to `log_extra`, for the report; None without
    either.
    """
    spans = [(name, outcome.values) for name, outcome in zip(names, outcomes, strict=True) if outcome.kind == "spans"]
    if not spans and not extras:
        return None
    count = len(spans[0][1]) if spans else len(next(iter(extras.values())))
    return [
        Annotation(
            by=", ".join(name for name, _own in spans),
            spans=[span for _name, own in spans for span in own[row] or ()],
            answers={column: values[row] for column, values in extras.items()},
        )
        for row in range(count)
    ]

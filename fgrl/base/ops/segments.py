"""Segments of responses: reductions from tokens to segments, and from segments back to tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fgrl.base import lazy
from fgrl.base.ops.statistics import check_choice, masked_mean, masked_sum, zero_masked

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")

Reduce = Literal["last", "mean", "sum"]
Spread = Literal["even", "repeat", "last"]


def inside_segments(mask: Tensor, eos: Tensor, include_eos: bool, turn: Tensor | None = None) -> Tensor:
    """Return a mask of the tokens that may belong to a segment, bool [B,T].

    These are the real tokens, without the end-of-sequence token unless `include_eos`. A turn that consists only of an
    end-of-sequence token keeps it, so that every turn with a real token has a segment. mask, eos: bool [B,T]. turn:
    long [B,T], the turn of a conversation in which the policy drew the token; -1 for tokens of an environment, which
    are in no segment. None: all tokens belong to one turn.
    """
    mask = mask if turn is None else mask & (turn >= 0)
    if include_eos:
        return mask
    text, turn = mask & ~eos, torch.where(mask, 0 if turn is None else turn, -1)
    written, _turns = to_segments(text.long(), turn, "sum")
    return torch.where(written.gather(1, turn.clamp(min=0)) > 0, text, mask)


def turn_starts(turn: Tensor) -> Tensor:
    """Return a mask of the first token of each turn, bool [B,T]. turn: long [B,T], increasing, -1 outside of turns."""
    before = torch.cat([turn.new_full((len(turn), 1), -1), turn], dim=1).cummax(dim=1).values[:, :-1]
    return turn > before


def segment_ids(starts: Tensor, inside: Tensor, turn: Tensor | None = None) -> Tensor:
    """Return the index (from 0) of the segment of each token, long [B,T]; -1 outside of segments.

    A segment extends from a token where `starts` is True to the token before the next start (segment paper, section
    2.2: a start at token i makes i-1 the last of the previous segment), and not beyond the end of a turn. The first
    inside token always starts one; starts outside are ignored. starts, inside: bool [B,T]; turn: as for
    `inside_segments`.
    """
    begins = inside & (starts | turn_starts(torch.where(inside, 0 if turn is None else turn, -1)))
    return torch.where(inside, begins.long().cumsum(dim=1) - 1, -1)


def segment_ends(ids: Tensor) -> Tensor:
    """Return a mask of the last token of each segment, bool [B,T]. ids: long [B,T] as from `segment_ids`."""
    beyond = torch.iinfo(ids.dtype).max
    ahead = torch.where(ids < 0, beyond, ids).flip(1).cummin(dim=1).values.flip(1)  # smallest id from here on
    later = torch.cat([ahead[:, 1:], ahead.new_full((len(ids), 1), beyond)], dim=1)
    return (ids >= 0) & (later != ids)


def _valid(ids: Tensor) -> Tensor:
    """Return a mask of the columns that are segments of the row, bool [B,S]. S is the largest number of segments in a
    row, at least 1.
    """
    if ids.shape[1] == 0:
        return torch.zeros(len(ids), 1, dtype=torch.bool, device=ids.device)
    count = ids.max(dim=1).values + 1
    columns = max(int(count.max()) if len(count) else 0, 1)
    return torch.arange(columns, device=ids.device) < count[:, None]


def _lengths(ids: Tensor, columns: int) -> Tensor:
    """Return the number of tokens of each segment, long [B,S]."""
    inside = ids >= 0
    empty = torch.zeros(len(ids), columns, dtype=torch.long, device=ids.device)
    return empty.scatter_add(1, ids.clamp(min=0), inside.long())


def to_segments(x: Tensor, ids: Tensor, how: Reduce) -> tuple[Tensor, Tensor]:
    """Reduce tokens to segments: x [B,T] -> [B,S], and valid bool [B,S]; 0 where not valid.

    `last` reads a segment's last token (at which a reward model has seen the whole segment); `mean` and `sum` are over
    its tokens. S is the largest number of segments in a row, at least 1. Differentiable in x.
    """
    check_choice("to_segments", how, ("last", "mean", "sum"))
    valid = _valid(ids)
    chosen = segment_ends(ids) if how == "last" else ids >= 0
    out = torch.zeros(valid.shape, dtype=x.dtype, device=x.device).scatter_add(
        1, ids.clamp(min=0), zero_masked(x, chosen)
    )
    if how == "mean":
        out = out / _lengths(ids, valid.shape[1]).clamp(min=1)
    return out, valid


def locations(segments: Tensor) -> Tensor:
    """Return the normalized location of each segment, float64 [B,S]: p = (i + 1) / S_row for i = 0.., so 0 < p <= 1
    (section 2.3).

    segments: segment ids, long [B,T], or `valid`, bool [B,S]. Slots without a segment get 0, which is not a valid
    location. The quotients equal those of Python's floats, so that rounding them to decimals gives the same digits as
    formatting them.
    """
    valid = segments if segments.dtype == torch.bool else _valid(segments)
    index = torch.arange(1, valid.shape[1] + 1, device=valid.device, dtype=torch.float64)
    count = valid.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.where(valid, index / count, 0.0)


def spread(x: Tensor, ids: Tensor, how: Spread) -> Tensor:
    """Distribute each segment's reward to its tokens: x [B,S] -> [B,T], 0 outside (section 2.3 and Table 6).

    even: r / length to each token, so that the tokens of a segment sum to r. repeat: r to each. last: r to the last
    token. Differentiable in x. Raises ValueError when `ids` has more segments than `x` has columns.
    """
    check_choice("spread", how, ("even", "repeat", "last"))
    if ids.numel() and int(ids.max()) >= x.shape[1]:
        raise ValueError(f"segment {int(ids.max())} has no reward: x is {tuple(x.shape)}, one column a segment")
    per_token = x.gather(1, ids.clamp(min=0))
    if how == "even":
        per_token = per_token / _lengths(ids, x.shape[1]).gather(1, ids.clamp(min=0)).clamp(min=1)
    return zero_masked(per_token, segment_ends(ids) if how == "last" else ids >= 0)


def aggregate_segments(x: Tensor, valid: Tensor, how: Literal["mean", "sum", "last"]) -> Tensor:
    """Return the score of a response from the rewards of its segments, [B,S] -> [B] (f in Eq. 3; `mean` is Eq. 4).

    The score is 0 for a response without segments. `last` is the reward of the last valid segment. Differentiable in x.
    """
    check_choice("aggregate", how, ("mean", "sum", "last"))
    if how == "mean":
        return masked_mean(x, valid, dim=1)
    if how == "sum":
        return masked_sum(x, valid, dim=1)
    return masked_sum(x, valid & (valid.long().cumsum(dim=1) == valid.sum(dim=1, keepdim=True)), dim=1)

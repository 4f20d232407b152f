"""Pure tensor functions: masked statistics, segments, credit, advantages, losses.

Letters as in `fgrl.types`: `B` responses, `T` response tokens, `S` segments, `C` criteria. A mask is True on real tokens.

Two promises hold for every function here. What stands in a masked slot, NaN and infinity included, changes neither the
value nor the gradient of anything. And a function that takes a `mask` puts 0 into the masked slots of its result.

Left out: anything that knows a model, a tokenizer or a recipe, and communication between processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from fgrl import lazy

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fgrl.types import Span
else:
    torch = lazy.load("torch")

Reduce = Literal["last", "mean", "sum", "first"]
Spread = Literal["even", "repeat", "last"]
KL = Literal["k1", "k2", "k3"]
Partition = Literal["intra_sample", "inter_sample", "none"]


def _choose(what: str, choice: str, choices: Sequence[str]) -> None:
    if choice not in choices:
        raise ValueError(f"{what} is one of {', '.join(choices)}, not {choice!r}")


def _real(x: Tensor, mask: Tensor) -> Tensor:
    """`x` with 0 in the masked slots: before any arithmetic, so that gradients stay finite too."""
    if x.shape != mask.shape:
        raise ValueError(f"values {tuple(x.shape)} and mask {tuple(mask.shape)} differ in shape")
    return torch.where(mask, x, torch.zeros((), dtype=x.dtype, device=x.device))


# -- masked statistics -------------------------------------------------------------------------------------------------


def masked_sum(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum of the real entries, over everything or along `dim`. Shapes as in `masked_mean`."""
    kept = _real(x, mask)
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of the real entries, over everything or along `dim`; 0 where there is none.

    x, mask: same shape. Returns a scalar, or `x`'s shape without `dim`.
    """
    count = mask.sum() if dim is None else mask.sum(dim)
    return masked_sum(x, mask, dim) / count.clamp(min=1)


def masked_var(x: Tensor, mask: Tensor, dim: int | None = None, *, unbiased: bool = False) -> Tensor:
    """Variance of the real entries, over everything or along `dim`; 0 where there are none.

    Divides by their count n, or by n - 1 when `unbiased` (0 for a single entry). Shapes as in `masked_mean`.
    """
    mean = masked_mean(x, mask, dim)
    centred = _real(x, mask) - (mean if dim is None else mean.unsqueeze(dim))
    count = mask.sum() if dim is None else mask.sum(dim)
    return masked_sum(centred.square(), mask, dim) / (count - int(unbiased)).clamp(min=1)


def masked_whiten(
    x: Tensor, mask: Tensor, shift_mean: bool = True, *, unbiased: bool = False, eps: float = 1e-8
) -> Tensor:
    """Standardise over all real entries of the batch: (x - mean) / sqrt(var + eps). Shaped as `x`.

    shift_mean: False puts the mean back, so that only the scale changes. The batch is what it is given: gather the rows
    of several processes first.
    """
    mean = masked_mean(x, mask)
    white = _real(_real(x, mask) - mean, mask) * (masked_var(x, mask, unbiased=unbiased) + eps).rsqrt()
    return white if shift_mean else _real(white + mean, mask)


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """1 - Var(returns - values) / Var(returns) over real tokens, a scalar: 1 is a perfect critic, 0 a constant one.

    values, returns, mask: [B,T]. 0 when the returns do not vary, because then there is nothing to explain.
    """
    total = masked_var(returns, mask)
    rest = masked_var(_real(returns, mask) - _real(values, mask), mask)
    varies = total > 0
    return torch.where(varies, 1.0 - rest / torch.where(varies, total, torch.ones_like(total)), torch.zeros_like(total))


def aggregate(
    x: Tensor,
    mask: Tensor,
    how: Literal["token_mean", "seq_mean"],
    *,
    total_tokens: float,
    total_rows: float,
    scale: float = 1.0,
) -> Tensor:
    """Sum a per-token loss [B,T] of one micro-batch to its share of the optimizer step's loss, a scalar.

    token_mean: sum of x / total_tokens. seq_mean: sum over rows of each row's own mean / total_rows; a row without real
    tokens adds 0. The totals count the whole optimizer step (all micro-batches of all processes), so the shares of any
    partition of the step's rows add up to the same loss and the same gradient. `scale` undoes the averaging that the
    trainer does over micro-batches and processes (see `fgrl.types.Batch`).

    Raises ValueError for an unknown `how` and for a total that is not positive.
    """
    _choose("aggregate", how, ("token_mean", "seq_mean"))
    total = total_tokens if how == "token_mean" else total_rows
    if total <= 0:
        raise ValueError(
            f"{how} over {total:g} {'tokens' if how == 'token_mean' else 'rows'}: leave out a step that has none"
        )
    share = masked_sum(x, mask) if how == "token_mean" else masked_mean(x, mask, dim=1).sum()
    return share * (scale / total)


# -- segments ----------------------------------------------------------------------------------------------------------


def inside_segments(mask: Tensor, eos: Tensor, include_eos: bool) -> Tensor:
    """bool [B,T]: which tokens may belong to a segment.

    Real tokens, without the end-of-sequence token unless `include_eos`. A response that is only an end-of-sequence
    token keeps it, so every response with a real token has a segment. mask, eos: bool [B,T].
    """
    if include_eos:
        return mask
    text = mask & ~eos
    return torch.where(text.any(dim=1, keepdim=True), text, mask)


def segment_ids(starts: Tensor, inside: Tensor) -> Tensor:
    """Long [B,T]: index (from 0) of the segment of each token, -1 outside.

    A segment reaches from a token where `starts` is True to the one before the next start (segment paper, section 2.2:
    a start at token i makes i-1 the last of the previous segment). The first inside token always starts one; starts
    outside are ignored. starts, inside: bool [B,T].
    """
    nth = inside.long().cumsum(dim=1)
    begins = inside & (starts | (nth == 1))
    return torch.where(inside, begins.long().cumsum(dim=1) - 1, -1)


def segment_ends(ids: Tensor) -> Tensor:
    """bool [B,T]: True at the last token of each segment. ids: long [B,T] as from `segment_ids`."""
    beyond = torch.iinfo(ids.dtype).max
    ahead = torch.where(ids < 0, beyond, ids).flip(1).cummin(dim=1).values.flip(1)  # smallest id from here on
    later = torch.cat([ahead[:, 1:], ahead.new_full((len(ids), 1), beyond)], dim=1)
    return (ids >= 0) & (later != ids)


def _segment_firsts(ids: Tensor) -> Tensor:
    reached = ids.cummax(dim=1).values
    before = torch.cat([reached.new_full((len(ids), 1), -1), reached[:, :-1]], dim=1)
    return (ids >= 0) & (before < ids)


def _valid(ids: Tensor) -> Tensor:
    """bool [B,S]: which of the S = (most segments of a row, at least 1) columns are segments of the row."""
    if ids.shape[1] == 0:
        return torch.zeros(len(ids), 1, dtype=torch.bool, device=ids.device)
    count = ids.max(dim=1).values + 1
    columns = max(int(count.max()) if len(count) else 0, 1)
    return torch.arange(columns, device=ids.device) < count[:, None]


def _lengths(ids: Tensor, columns: int) -> Tensor:
    """Long [B,S]: tokens of each segment."""
    inside = ids >= 0
    empty = torch.zeros(len(ids), columns, dtype=torch.long, device=ids.device)
    return empty.scatter_add(1, ids.clamp(min=0), inside.long())


def to_segments(x: Tensor, ids: Tensor, how: Reduce) -> tuple[Tensor, Tensor]:
    """Reduce tokens to segments: x [B,T] -> [B,S], and valid bool [B,S]; 0 where not valid.

    `last` reads a segment's last token (where a reward model has seen all of it), `first` its first; `mean` and `sum`
    go over its tokens. S is the largest number of segments in a row, at least 1. Differentiable in x.
    """
    _choose("to_segments", how, ("last", "mean", "sum", "first"))
    valid = _valid(ids)
    chosen = segment_ends(ids) if how == "last" else _segment_firsts(ids) if how == "first" else ids >= 0
    out = torch.zeros(valid.shape, dtype=x.dtype, device=x.device).scatter_add(1, ids.clamp(min=0), _real(x, chosen))
    if how == "mean":
        out = out / _lengths(ids, valid.shape[1]).clamp(min=1)
    return out, valid


def locations(segments: Tensor) -> Tensor:
    """Normalized location of each segment, float [B,S]: p = (i + 1) / S_row for i = 0.., so 0 < p <= 1 (section 2.3).

    segments: segment ids, long [B,T], or `valid`, bool [B,S]. Slots without a segment get 0, which no location is.
    """
    valid = segments if segments.dtype == torch.bool else _valid(segments)
    index = torch.arange(1, valid.shape[1] + 1, device=valid.device)
    count = valid.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.where(valid, index / count, 0.0)


def spread(x: Tensor, ids: Tensor, how: Spread) -> Tensor:
    """Give each segment's reward to its tokens: x [B,S] -> [B,T], 0 outside (section 2.3 and Table 6).

    even: r / length to each token, so that the tokens of a segment sum to r. repeat: r to each. last: r to the last
    token. Differentiable in x. Raises ValueError when `ids` has more segments than `x` has columns.
    """
    _choose("spread", how, ("even", "repeat", "last"))
    if ids.numel() and int(ids.max()) >= x.shape[1]:
        raise ValueError(f"segment {int(ids.max())} has no reward: x is {tuple(x.shape)}, one column a segment")
    own = x.gather(1, ids.clamp(min=0))
    if how == "even":
        own = own / _lengths(ids, x.shape[1]).gather(1, ids.clamp(min=0)).clamp(min=1)
    return _real(own, segment_ends(ids) if how == "last" else ids >= 0)


def aggregate_segments(x: Tensor, valid: Tensor, how: Literal["mean", "sum", "last"]) -> Tensor:
    """The score of a response from its segments' rewards, [B,S] -> [B] (f in Eq. 3; `mean` is Eq. 4).

    0 for a response without segments. `last` is the reward of the last valid segment. Differentiable in x.
    """
    _choose("aggregate", how, ("mean", "sum", "last"))
    if how == "mean":
        return masked_mean(x, valid, dim=1)
    if how == "sum":
        return masked_sum(x, valid, dim=1)
    return masked_sum(x, valid & (valid.long().cumsum(dim=1) == valid.sum(dim=1, keepdim=True)), dim=1)


# -- advantages and losses ---------------------------------------------------------------------------------------------


def gae(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Generalized advantage estimation (Schulman et al. 2016, Eq. 16): advantages and returns, each [B,T], no gradient.

    A_t = sum over l of (gamma lam)^l delta_{t+l},  delta_t = r_t + gamma V_{t+1} - V_t,  return_t = A_t + V_t.
    values[t] is of the state before token t. After the last real token the value is 0. Masked tokens are skipped, as if
    the response did not have them: credit crosses them undiscounted.
    """
    rewards, values = _real(rewards.detach(), mask), _real(values.detach(), mask)
    advantage = torch.zeros_like(values[:, 0]) if values.shape[1] else values.new_zeros(len(values))
    next_value = torch.zeros_like(advantage)
    columns = []
    for t in range(values.shape[1] - 1, -1, -1):
        real = mask[:, t]
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        advantage = torch.where(real, delta + gamma * lam * advantage, advantage)
        next_value = torch.where(real, values[:, t], next_value)
        columns.append(advantage)
    advantages = _real(torch.stack(columns[::-1], dim=1), mask) if columns else torch.zeros_like(values)
    return advantages, _real(advantages + values, mask)


def kl(logp: Tensor, ref_logp: Tensor, estimator: KL, mask: Tensor | None = None) -> Tensor:
    """Per-token estimate of KL(policy || reference) in nats, [B,T], from log-probs of tokens drawn from the policy.

    With d = logp - ref_logp:  k1 = d,  k2 = d^2 / 2,  k3 = exp(-d) - 1 + d  (Schulman 2020). The means of k1 and k3 are
    the exact KL; k2 is biased. As a loss, differentiated in logp: the expected gradient of k2 is that of
    KL(policy || reference), of k3 that of KL(reference || policy), and of k1 zero, so use k1 in the reward.

    mask: bool [B,T]; needed when masked slots may hold infinities. Without it every slot is computed.
    """
    _choose("kl", estimator, ("k1", "k2", "k3"))
    d = logp - ref_logp
    if mask is not None:
        d = _real(d, mask)
    if estimator == "k1":
        return d
    if estimator == "k2":
        return d.square() / 2
    return torch.expm1(-d) + d


def clip_loss(
    logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, clip: float, clip_high: float | None = None
) -> tuple[Tensor, Tensor]:
    """PPO's clipped surrogate as a loss per token (Schulman et al. 2017, Eq. 7): losses and where clipped, each [B,T].

    loss = -min(ratio A, clamp(ratio, 1 - clip, 1 + clip_high) A),  ratio = exp(logp - old_logp); logp in nats.
    clip_high: None is `clip`. The second result, bool, marks tokens on which the clamped branch won: no gradient there.
    """
    advantage = _real(advantage, mask)
    ratio = _real(logp - old_logp, mask).exp()
    free = -advantage * ratio
    bound = -advantage * ratio.clamp(1.0 - clip, 1.0 + (clip if clip_high is None else clip_high))
    return torch.maximum(free, bound), (bound > free) & mask


def value_loss(
    values: Tensor, old_values: Tensor | None, returns: Tensor, mask: Tensor, clip: float | None
) -> tuple[Tensor, Tensor]:
    """Squared error of the critic per token, clipped around the old values: losses and where clipped, each [B,T].

    loss = max((V - R)^2, (clamp(V, V_old - clip, V_old + clip) - R)^2) / 2; with clip None, (V - R)^2 / 2 (then
    `old_values` is not read). The second result, bool, marks tokens on which the clamped branch won: no gradient there.
    """
    values, returns = _real(values, mask), _real(returns, mask)
    free = (values - returns).square() / 2
    if clip is None:
        return free, torch.zeros_like(mask)
    if old_values is None:
        raise ValueError("value clipping needs the old values; pass them, or clip=None")
    old = _real(old_values, mask)
    bound = (old + (values - old).clamp(-clip, clip) - returns).square() / 2
    return torch.maximum(free, bound), (bound > free) & mask


# -- groups and criteria -----------------------------------------------------------------------------------------------


def standardize(
    x: Tensor, mask: Tensor, cell: Tensor, *, unbiased: bool, eps: float = 1e-6, min_std: float = 0.0
) -> Tensor:
    """(x - mean) / (std + eps) inside each cell, without gradient; shaped as `x`, in its type, 0 where not `mask`.

    x, mask (bool), cell (long, from 0): same shape; entries with the same `cell` are standardised together. std divides by
    their count, or by one less when `unbiased`. A cell whose entries are all equal, or that has one, gives exactly 0,
    whatever rounding makes of its mean; so does one whose std is less than `min_std`.
    """
    if not x.shape == mask.shape == cell.shape:
        raise ValueError(f"x {tuple(x.shape)}, mask {tuple(mask.shape)}, cell {tuple(cell.shape)} differ in shape")
    result = torch.zeros_like(x)
    where, value = cell[mask], x.detach()[mask].double()
    if not len(where):
        return result
    empty = value.new_zeros(int(where.max()) + 1)
    count = empty.index_add(0, where, torch.ones_like(value)).clamp(min=1)
    centred = value - (empty.index_add(0, where, value) / count)[where]
    std = (empty.index_add(0, where, centred.square()) / (count - int(unbiased)).clamp(min=1)).sqrt()
    low = empty.scatter_reduce(0, where, value, "amin", include_self=False)
    high = empty.scatter_reduce(0, where, value, "amax", include_self=False)
    varies = (high > low) & (std >= min_std)
    scaled = torch.where(varies[where], centred / (std[where] + eps), 0.0)
    result[mask] = scaled.to(x.dtype)
    return result


def group_advantage(reward: Tensor, group: Tensor, eps: float = 1e-6) -> Tensor:
    """A_i = (r_i - mean) / (std + eps) over the responses to one prompt, sample std (Shao et al. 2024, section 4.1.2).

    reward: [B]; NaN is missing: it takes no part and gets 0. group: long [B], any numbers. Returns [B]. Equal rewards,
    and a response that is alone, give 0.
    """
    return standardize(reward, ~torch.isnan(reward), group_index(group), unbiased=True, eps=eps)


def group_index(group: Tensor) -> Tensor:
    """The groups numbered from 0 without gaps: long [B]."""
    return torch.unique(group, return_inverse=True)[1]


def known_criteria(criterion: Tensor, mask: Tensor) -> Tensor:
    """bool [B,C]: which criteria have a reward on every real token; the others are absent or missing (NaN).

    criterion: [B,C,T]; mask: bool [B,T].
    """
    return ~(torch.isnan(criterion) & mask[:, None, :]).any(dim=2)


def criterion_advantage(
    criterion: Tensor, mask: Tensor, group: Tensor, partition: Partition, *, union: bool = False, eps: float = 1e-6,
    min_std: float = 0.0,
) -> Tensor:  # fmt: skip
    """Token advantage of rewards for several criteria, [B,C,T] -> [B,T] ("Rubrics to Tokens", section 4.2.2, appendix D).

    criterion: r = score (+1 kept, -1 broken) x relevance; NaN where a criterion is absent or its verdict missing: such a
    criterion takes no part. mask: bool [B,T]. group: long [B]; criterion c of all responses of a group is the same one.
    partition: rewards are standardised (population std + eps) over the tokens of one response (`intra_sample`), over all
    tokens of all responses of the group, so that long ones weigh more (`inter_sample`), or not at all (`none`).
    union: False standardises each criterion by itself and then takes the mean over a response's known criteria, as the
    paper does; True takes the mean first and standardises that once. Rewards that do not vary, or whose std is less than
    `min_std`, give 0.
    """
    _choose("partition", partition, ("intra_sample", "inter_sample", "none"))
    valid = known_criteria(criterion, mask)[:, :, None] & mask[:, None, :]
    if union:
        criterion, valid = masked_mean(criterion, valid, dim=1)[:, None], valid.any(dim=1, keepdim=True)
    if partition != "none":
        rows, columns = criterion.shape[:2]
        owner = torch.arange(rows, device=criterion.device) if partition == "intra_sample" else group_index(group)
        cell = owner[:, None] * columns + torch.arange(columns, device=criterion.device)
        cells = cell[:, :, None].expand_as(valid)
        criterion = standardize(criterion, valid, cells, unbiased=False, eps=eps, min_std=min_std)
    return masked_mean(criterion, valid, dim=1)


# -- spans -------------------------------------------------------------------------------------------------------------

TokenPolicy = Literal["overlap", "inside", "start"]
Conflict = Literal["poor", "good", "cancel"]


def _covers(span: Span, extent: tuple[int, int], policy: TokenPolicy) -> bool:
    start, end = extent
    if start >= end or span.start >= span.end:
        return False
    if policy == "start":
        return span.start <= start < span.end
    if policy == "inside":
        return span.start <= start and end <= span.end
    return span.start < end and start < span.end


def spans_to_tokens(
    spans: Sequence[Span],
    offsets: Sequence[tuple[int, int]],
    policy: TokenPolicy = "overlap",
    conflict: Conflict = "poor",
) -> Tensor:
    """Label of each token, float [T], from labelled character spans of the response; 0 where no span is.

    offsets: characters [start, end) that each token covers, in the text that the spans count in, as
    `fgrl.rollouts.offsets` gives them: tokens that hold parts of one character (the bytes of an emoji) all cover it. A
    token that covers none (start = end: a special token, the mark before a first word) is in no span.
    policy: a token belongs to a span when they share a character (`overlap`), when it lies in the span (`inside`), or
    when its first character does (`start`). conflict: when several spans cover a token take the lowest label (`poor`),
    the highest (`good`), or 0 if their signs differ and else their mean (`cancel`).

    A span may cover no token at all: ask `uncovered_spans` and say so.
    """
    _choose("policy", policy, ("overlap", "inside", "start"))
    _choose("conflict", conflict, ("poor", "good", "cancel"))
    labels = []
    for extent in offsets:
        found = [span.label for span in spans if _covers(span, extent, policy)]
        if not found:
            labels.append(0.0)
        elif conflict == "cancel":
            labels.append(0.0 if min(found) < 0 < max(found) else sum(found) / len(found))
        else:
            labels.append(min(found) if conflict == "poor" else max(found))
    return torch.tensor(labels, dtype=torch.float32)


def uncovered_spans(
    spans: Sequence[Span], offsets: Sequence[tuple[int, int]], policy: TokenPolicy = "overlap"
) -> list[int]:
    """Indices of the spans that cover no token: empty ones, or spans of text that the tokens do not reach."""
    _choose("policy", policy, ("overlap", "inside", "start"))
    return [i for i, span in enumerate(spans) if not any(_covers(span, extent, policy) for extent in offsets)]


def without_characters(labels: Tensor, offsets: Sequence[tuple[int, int]]) -> Tensor:
    """`labels` [T] with 1 for tokens that cover no character where every other token's label is above 0, else 0 for them.

    No span holds such tokens (the end of a response, the mark before a first word), but a demand on the whole response
    means them too ("Rubrics to Tokens", appendix C.3: all tokens): left at 0, they alone would stand out.
    """
    bare = torch.tensor([start >= end for start, end in offsets], dtype=torch.bool, device=labels.device)
    rest = labels[~bare]
    whole = bool(len(rest)) and bool((rest > 0).all())
    return torch.where(bare, torch.full_like(labels, float(whole)), labels)


def overlaps(source: Sequence[tuple[int, int]], target: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    """Which tokens of two tokenizations of one text share a character: indices [N] into `source` and into `target`.

    Offsets are characters [start, end), in order: neither starts nor ends ever go down. A token that covers nothing is in no
    pair.
    """
    pairs: list[tuple[int, int]] = []
    first = 0
    for i, (start, end) in enumerate(source):
        while first < len(target) and target[first][1] <= start:
            first += 1
        j = first
        while j < len(target) and target[j][0] < end:
            if min(end, target[j][1]) > max(start, target[j][0]):
                pairs.append((i, j))
            j += 1
    found = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
    return found[:, 0], found[:, 1]

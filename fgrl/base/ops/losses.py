"""Advantages of tokens and of response groups, the KL to a reference, losses per token, and their average over a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fgrl.base import lazy
from fgrl.base.ops.statistics import check_choice, masked_mean, masked_sum, zero_masked

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")


Partition = Literal["intra_sample", "inter_sample", "none"]


def standardize(
    x: Tensor, mask: Tensor, cell: Tensor, *, unbiased: bool, eps: float = 1e-6, min_std: float = 0.0
) -> Tensor:
    """Return (x - mean) / (std + eps) within each cell, without gradient; shape and type of `x`, 0 outside of `mask`.

    x, mask (bool), cell (long, from 0): same shape; entries with the same `cell` are standardised together. std divides
    by their count, or by the count minus one if `unbiased`. The result is exactly 0, regardless of rounding, for a cell
    with one entry or with equal entries, and for a cell whose std is less than `min_std`.
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
    """Return A_i = (r_i - mean) / (std + eps) over the responses to one prompt, with the sample std (Shao et al. 2024,
    section 4.1.2).

    reward: [B]; a missing reward (NaN) is excluded and its advantage is 0. group: long [B], any numbers. Returns [B].
    The advantage is 0 for equal rewards and for a single response.
    """
    return standardize(reward, ~torch.isnan(reward), group_index(group), unbiased=True, eps=eps)


def leave_one_out(x: Tensor, valid: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """Return x minus the mean of the other valid entries in its column and group, and a mask of the entries that have
    others, [B,K] each.

    x, valid (bool): [B,K]; group: long [B], any numbers. An entry without others is unchanged. Equal entries give
    exactly 0, and invalid entries give 0.
    """
    index = group_index(group)
    size = (int(index.max()) + 1 if len(index) else 0, x.shape[1])
    where, known = index[:, None].expand_as(x), x.masked_fill(~valid, torch.inf)
    low = x.new_full(size, torch.inf).scatter_reduce(0, where, known, "amin")[index]
    above = zero_masked(x - low, valid)  # so that rounding leaves nothing of equal entries
    total, count = (x.new_zeros(size).index_add(0, index, part)[index] for part in (above, valid.to(x.dtype)))
    others = valid & (count > 1)
    return zero_masked(torch.where(others, above - (total - above) / (count - 1).clamp(min=1), x), valid), others


def group_index(group: Tensor) -> Tensor:
    """Return the groups numbered from 0 without gaps: long [B]."""
    index: Tensor = torch.unique(group, return_inverse=True)[1]
    return index


def known_criteria(criterion: Tensor, mask: Tensor) -> Tensor:
    """Return, as bool [B,C], the criteria with a reward on every real token. The other criteria are absent or missing
    (NaN).

    criterion: [B,C,T]; mask: bool [B,T].
    """
    return ~(torch.isnan(criterion) & mask[:, None, :]).any(dim=2)


def criterion_advantage(
    criterion: Tensor, mask: Tensor, group: Tensor, partition: Partition, *, union: bool = False, eps: float = 1e-6,
    min_std: float = 0.0,
) -> Tensor:  # fmt: skip
    """Return token advantages [B,T] from token rewards of several criteria, [B,C,T] ("Rubrics to Tokens", section
    4.2.2, appendix D).

    criterion: r = score (+1 satisfied, -1 violated) x relevance; NaN if a criterion is absent or its verdict is
    missing: such a criterion is excluded. mask: bool [B,T]. group: long [B]; index c is the same criterion for all
    responses of a group. partition: rewards are standardised (population std + eps) over the tokens of one response
    (`intra_sample`), over all tokens of all responses of the group, so that long ones weigh more (`inter_sample`), or
    not at all (`none`). union: False standardises each criterion by itself and then takes the mean over a response's
    known criteria, as the paper does; True takes the mean first and standardises that once. Rewards that do not vary,
    or whose std is less than `min_std`, give 0.
    """
    check_choice("partition", partition, ("intra_sample", "inter_sample", "none"))
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


KL = Literal["k1", "k2", "k3"]


Gap = Literal["pass", "stop"]


def gae(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    gamma: float,
    lam: float,
    gap: Gap = "pass",
    *,
    drawn: Tensor | None = None,
    end_value: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return advantages and returns by generalized advantage estimation (Schulman et al. 2016, Eq. 16), each [B,T],
    without gradient.

    A_t = sum over l of (gamma lam)^l delta_{t+l},  delta_t = r_t + gamma V_{t+1} - V_t,  return_t = A_t + V_t.
    values[t] is the value of the state before token t. After the last real token the value is `end_value`, [B]; None:
    0.

    gap: with `pass`, masked tokens are skipped as if they did not exist: credit passes them undiscounted. With `stop`,
    no credit crosses a masked token: each run of real tokens between masked ones is a separate episode, with value 0
    after it. drawn: bool [B,T], the tokens that stop credit when they are masked. Credit passes all other masked
    tokens, such as the tokens of an environment. None: every masked token stops credit.
    """
    check_choice("gap", gap, ("pass", "stop"))
    rewards, values = zero_masked(rewards.detach(), mask), zero_masked(values.detach(), mask)
    advantage = torch.zeros_like(values[:, 0]) if values.shape[1] else values.new_zeros(len(values))
    next_value = torch.zeros_like(advantage) if end_value is None else end_value.detach().to(values.dtype)
    stops = torch.zeros_like(mask) if gap == "pass" else ~mask if drawn is None else drawn & ~mask
    columns = []
    for t in range(values.shape[1] - 1, -1, -1):
        real = mask[:, t]
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        advantage = torch.where(real, delta + gamma * lam * advantage, advantage.masked_fill(stops[:, t], 0.0))
        next_value = torch.where(real, values[:, t], next_value.masked_fill(stops[:, t], 0.0))
        columns.append(advantage)
    advantages = zero_masked(torch.stack(columns[::-1], dim=1), mask) if columns else torch.zeros_like(values)
    return advantages, zero_masked(advantages + values, mask)


def amplification(rewards: Tensor, mask: Tensor, decay: float) -> Tensor:
    """Return the factor by which the credit of token rewards exceeds the credit of their sum on the last token: [B]
    float64 (Text2Grad, appendix A).

    alpha(k, T) = decay^-(T - k), decay = gamma lam, is the factor for a reward on token k of T; the result is its mean
    over the tokens k of a response, weighted by the absolute reward: sum_k |r_k| alpha(k, T) / sum_k |r_k|. It is 1
    where all reward is on the last token and grows with the distance from it; NaN for a response without rewards.
    Masked tokens do not count, neither as rewards nor as distance. rewards, mask: [B,T]. Raises ValueError unless decay
    is positive: without it no credit goes back from the last token.
    """
    if decay <= 0:
        raise ValueError(f"decay is gamma x lam and has to be positive, got {decay:g}")
    weight = zero_masked(rewards.detach(), mask).abs().double()
    real = mask.long()
    distance = real.sum(dim=1, keepdim=True) - real.cumsum(dim=1)
    weighted = torch.where(weight > 0, weight * decay ** -distance.double(), 0.0)
    return weighted.sum(dim=1) / weight.sum(dim=1)


def kl(logp: Tensor, ref_logp: Tensor, estimator: KL, mask: Tensor | None = None) -> Tensor:
    """Estimate KL(policy || reference) per token in nats, [B,T], from log-probs of tokens drawn from the policy.

    With d = logp - ref_logp:  k1 = d,  k2 = d^2 / 2,  k3 = exp(-d) - 1 + d  (Schulman 2020). The means of k1 and k3 are
    the exact KL; k2 is biased. As a loss, differentiated in logp: the expected gradient of k2 is that of KL(policy ||
    reference), of k3 that of KL(reference || policy), and of k1 zero, so use k1 in the reward.

    mask: bool [B,T]; required if masked slots may contain infinities. Without it every slot is computed.
    """
    check_choice("kl", estimator, ("k1", "k2", "k3"))
    d = logp - ref_logp
    if mask is not None:
        d = zero_masked(d, mask)
    if estimator == "k1":
        return d
    if estimator == "k2":
        return d.square() / 2
    return torch.expm1(-d) + d


def clip_loss(
    logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, clip: float, clip_high: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return PPO's clipped surrogate as a loss per token, and the tokens where it was clipped, each [B,T] (Schulman et
    al. 2017, Eq. 7).

    loss = -min(ratio A, clamp(ratio, 1 - clip, 1 + clip_high) A),  ratio = exp(logp - old_logp); logp in nats.
    clip_high: None is `clip`. The second result, bool, marks tokens on which the clamped branch won: no gradient there.
    """
    advantage = zero_masked(advantage, mask)
    ratio = zero_masked(logp - old_logp, mask).exp()
    free = -advantage * ratio
    bound = -advantage * ratio.clamp(1.0 - clip, 1.0 + (clip if clip_high is None else clip_high))
    return torch.maximum(free, bound), (bound > free) & mask


Correct = Literal["none", "truncate", "mask"]


def importance_weight(
    logp: Tensor, drawn_logp: Tensor, mask: Tensor, correct: Correct = "none", bound: float = 1.0
) -> Tensor:
    """Return the importance weight of each token that was not drawn from the policy: [B,T], without gradient.

    w = exp(logp - drawn_logp), the policy's probability divided by the probability with which the token was drawn; logp
    in nats. truncate: min(w, bound) (Espeholt et al. 2018, the rho of V-trace). mask: w where 1 / bound <= w <= bound,
    else 0. none: w itself.
    """
    check_choice("correct", correct, ("none", "truncate", "mask"))
    weight = zero_masked(logp.detach() - drawn_logp.detach(), mask).exp()
    if correct == "truncate":
        weight = weight.clamp(max=bound)
    if correct == "mask":
        weight = torch.where((weight >= 1.0 / bound) & (weight <= bound), weight, 0.0)
    return zero_masked(weight, mask)


def value_loss(
    values: Tensor, old_values: Tensor | None, returns: Tensor, mask: Tensor, clip: float | None
) -> tuple[Tensor, Tensor]:
    """Return the critic's squared error per token, clipped around the old values, and the tokens where it was clipped,
    each [B,T].

    loss = max((V - R)^2, (clamp(V, V_old - clip, V_old + clip) - R)^2) / 2; with clip None, (V - R)^2 / 2 (then
    `old_values` is not read). The second result, bool, marks tokens on which the clamped branch won: no gradient there.
    """
    values, returns = zero_masked(values, mask), zero_masked(returns, mask)
    free = (values - returns).square() / 2
    if clip is None:
        return free, torch.zeros_like(mask)
    if old_values is None:
        raise ValueError("value clipping needs the old values; pass them, or clip=None")
    old = zero_masked(old_values, mask)
    bound = (old + (values - old).clamp(-clip, clip) - returns).square() / 2
    return torch.maximum(free, bound), (bound > free) & mask


def aggregate(
    x: Tensor,
    mask: Tensor,
    how: Literal["token_mean", "seq_mean", "sum"],
    *,
    total_tokens: float,
    total_rows: float,
    planned_rows: float | None = None,
    scale: float = 1.0,
) -> Tensor:
    """Reduce the per-token loss [B,T] of one micro-batch to its share of the optimizer step's loss, a scalar.

    token_mean: sum of x / total_tokens. seq_mean: sum over rows of each row's own mean / total_rows; a row without real
    tokens adds 0. sum: sum of x / planned_rows (None: total_rows). Only the divisor of `sum` does not depend on the
    drawn responses; with the others, the gradient of a token depends on the length of responses. The totals count the
    whole optimizer step (all micro-batches of all processes), so the shares of any partition of the step's rows add up
    to the same loss and the same gradient. `scale` undoes the averaging that the trainer does over micro-batches and
    processes (see `fgrl.types.Batch`).

    Raises ValueError for an unknown `how` and for a total that is not positive.
    """
    check_choice("aggregate", how, ("token_mean", "seq_mean", "sum"))
    planned = total_rows if planned_rows is None else planned_rows
    total = {"token_mean": total_tokens, "seq_mean": total_rows, "sum": planned}[how]
    if total <= 0:
        raise ValueError(
            f"{how} over {total:g} {'tokens' if how == 'token_mean' else 'rows'}: leave out a step that has none"
        )
    share = masked_mean(x, mask, dim=1).sum() if how == "seq_mean" else masked_sum(x, mask)
    return share * (scale / total)

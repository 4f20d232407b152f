"""Log-probabilities, entropies and KL of next-token distributions without a whole [N,V] tensor in memory.

Logits are computed for a chunk of positions at a time, in float32, and discarded: at any moment a few [chunk,V] buffers
exist, whatever N is. If the layer itself is trained, the backward pass computes them again. If it is frozen (under an
adapter), the forward pass keeps d logp / d hidden and d H / d hidden [N,h], which is all that the backward pass needs.

With u = z / temperature (z the logits), p = softmax(u):

    logp_y = u_y - logsumexp(u)                d logp_y / du = onehot(y) - p
    H      = -sum_v p_v log p_v                d H / du      = -p (log p + H)

A token that could not be drawn at a position (`barred`) has the logit -inf there: probability 0, and no gradient.

Not included: a fused kernel. It would be faster on a GPU; this code runs everywhere, and the head is a small part of a
step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

Barred = tuple[Tensor, Tensor]
"""Positions (bool [N]) and the token ids (long [E]) that are impossible there."""

CHUNK_BYTES = {"cpu": 16 * 2**20}
"""Size of one chunk's float32 logits; at the peak about four such buffers exist."""
CHUNK_BYTES_ELSEWHERE = 128 * 2**20
"""Size of one chunk's logits on accelerators, which need larger products for full use."""


def chunk_rows(vocabulary: int, device: str = "cpu") -> int:
    """Return the default number of positions in a chunk."""
    return max(16, CHUNK_BYTES.get(device, CHUNK_BYTES_ELSEWHERE) // (4 * vocabulary))


def chunked_scores(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    entropy_temperature: float | None = None,
    chunk: int | None = None,
    barred: Barred | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return the log-probability of `labels` and the entropy of their distributions, in nats.

    hidden [N,h], weight [V,h], bias [V] or None, labels [N] -> logp [N], entropy [N] or None, in float32 (float64 for
    float64 weights). Matrix products are computed in the autocast type, or in the weight's type. Gradients flow from
    both outputs to hidden, weight and bias. The entropy is computed at `entropy_temperature` (default: `temperature`).
    A barred label has -inf.
    """
    if temperature <= 0 or (entropy_temperature is not None and entropy_temperature <= 0):
        raise ValueError("log-probabilities need a temperature above 0 (greedy decoding has no distribution)")
    entropy_temperature = temperature if entropy_temperature is None else entropy_temperature
    logp, entropies = _ChunkedScores.apply(
        hidden,
        weight,
        bias,
        labels,
        temperature,
        entropy_temperature if entropy else None,
        chunk or chunk_rows(weight.shape[0], hidden.device.type),
        _dtype(hidden, weight),
        barred,
    )
    return logp, entropies if entropy else None


def _dtype(hidden: Tensor, weight: Tensor) -> torch.dtype:
    device = hidden.device.type
    if torch.is_autocast_enabled(device) and weight.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return weight.dtype


class _ChunkedScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden, weight, bias, labels, temperature, entropy_temperature, chunk, dtype, barred):  # type: ignore[no-untyped-def]
        wide = torch.promote_types(dtype, torch.float32)
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        # if only hidden needs a gradient, each row's is its output's times a vector that is known here: no second pass
        precomputed = needs_hidden and not needs_weight and not needs_bias
        logp = torch.empty(labels.shape, dtype=wide, device=hidden.device)
        entropies = torch.empty_like(logp) if entropy_temperature is not None else None
        d_logp = torch.empty_like(hidden) if precomputed else None
        d_entropy = torch.empty_like(hidden) if precomputed and entropies is not None else None
        with torch.autocast(hidden.device.type, enabled=False):
            matrix = weight.to(dtype)
            for part in _chunks(len(labels), chunk):
                label = labels[part, None]
                logits = bar(_logits(hidden[part], matrix, bias, wide), barred, part)
                entropy_logits = logits.clone() if entropy_temperature not in (None, temperature) else None
                logprobs = log_softmax_(logits.div_(temperature))
                logp[part] = logprobs.gather(1, label).squeeze(1)
                if d_logp is not None:
                    d_logp[part] = (_label_slope(logprobs, label, temperature).to(dtype) @ matrix).to(hidden.dtype)
                if entropies is None:
                    continue
                if entropy_logits is not None:
                    logprobs = log_softmax_(entropy_logits.div_(entropy_temperature))
                entropies[part] = entropy_of(logprobs)
                if d_entropy is not None:
                    slope = _entropy_slope(logprobs, entropies[part, None], entropy_temperature)
                    d_entropy[part] = (slope.to(dtype) @ matrix).to(hidden.dtype)
        ctx.save_for_backward(*((d_logp, d_entropy) if precomputed else (hidden, weight, bias, labels, entropies)))
        ctx.settings = (precomputed, temperature, entropy_temperature, chunk, dtype, barred)
        return logp, logp.new_empty(0) if entropies is None else entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logp, grad_entropy):  # type: ignore[no-untyped-def]
        if ctx.settings[0]:
            d_logp, d_entropy = ctx.saved_tensors
            gradient = torch.empty_like(d_logp)
            for part in _chunks(len(gradient), ctx.settings[3]):
                row = d_logp[part] * grad_logp[part, None]
                gradient[part] = row if d_entropy is None else row + d_entropy[part] * grad_entropy[part, None]
            return gradient, *(None,) * 8
        hidden, weight, bias, labels, entropies = ctx.saved_tensors
        _precomputed, temperature, entropy_temperature, chunk, dtype, barred = ctx.settings
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        wide = torch.promote_types(dtype, torch.float32)
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        grad_weight = torch.zeros(weight.shape, dtype=wide, device=weight.device) if needs_weight else None
        grad_bias = torch.zeros(bias.shape, dtype=wide, device=weight.device) if needs_bias else None
        with torch.autocast(hidden.device.type, enabled=False):
            matrix = weight.to(dtype)
            for part in _chunks(len(labels), chunk):
                logits = bar(_logits(hidden[part], matrix, bias, wide), barred, part)
                entropy_logits = logits.clone() if entropy_temperature not in (None, temperature) else None
                logprobs = log_softmax_(logits.div_(temperature))
                grad = _label_slope(logprobs, labels[part, None], temperature).mul_(grad_logp[part, None])
                if entropies is not None:
                    if entropy_logits is not None:
                        logprobs = log_softmax_(entropy_logits.div_(entropy_temperature))
                    slope = _entropy_slope(logprobs, entropies[part, None], entropy_temperature)
                    grad += slope.mul_(grad_entropy[part, None])
                if grad_bias is not None:
                    grad_bias += grad.sum(0)
                narrow = grad.to(dtype)
                if grad_hidden is not None:
                    grad_hidden[part] = (narrow @ matrix).to(grad_hidden.dtype)
                if grad_weight is not None:
                    grad_weight += narrow.t() @ hidden[part].to(dtype)
        return (
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(bias.dtype),
            *(None,) * 6,
        )


def _chunks(count: int, chunk: int) -> Iterator[slice]:
    return (slice(start, min(start + chunk, count)) for start in range(0, count, chunk))


def _logits(hidden: Tensor, matrix: Tensor, bias: Tensor | None, wide: torch.dtype) -> Tensor:
    """Return new logits [n,V] that may be overwritten."""
    logits = (hidden.to(matrix.dtype) @ matrix.t()).to(wide)
    return logits if bias is None else logits.add_(bias)


def bar(logits: Tensor, barred: Barred | None, part: slice) -> Tensor:
    """Return logits [n,V] of the positions `part`, with -inf for barred tokens."""
    if barred is None:
        return logits
    rows, ids = barred
    return logits.index_copy(1, ids, logits[:, ids].masked_fill(rows[part, None], -torch.inf))


def log_softmax_(logits: Tensor) -> Tensor:
    """Turn [n,V] logits into log-probabilities, in place."""
    return logits.sub_(logits.logsumexp(1, keepdim=True))


def entropy_of(logprobs: Tensor) -> Tensor:
    """Return the entropy [n] of log-probabilities [n,V]; NaN if a log-probability is NaN."""
    return -_expected(logprobs, logprobs).sum(1)


def _expected(values: Tensor, logprobs: Tensor) -> Tensor:
    """Return values x probabilities, [n,V]. An outcome of probability 0 contributes nothing, even if its value is
    infinite; NaN stays.
    """
    p = logprobs.exp()
    return (p * values).masked_fill_(p == 0, 0.0)


def _label_slope(logprobs: Tensor, label: Tensor, temperature: float) -> Tensor:
    """Return d logp / d logits [n,V], from log-probabilities [n,V] and labels [n,1]."""
    return logprobs.exp().neg_().scatter_add_(1, label, torch.ones_like(logprobs[:, :1])).div_(temperature)


def _entropy_slope(logprobs: Tensor, entropies: Tensor, temperature: float) -> Tensor:
    """Return d H / d logits [n,V], from log-probabilities [n,V], and their entropies [n,1]."""
    return _expected(logprobs + entropies, logprobs).div_(-temperature)


def scores_through(
    head: Callable[[Tensor], Tensor],
    hidden: Tensor,
    labels: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    entropy_temperature: float | None = None,
    chunk: int = 64,
    barred: Barred | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return `chunked_scores` for an output layer that is not a plain matrix (adapted, quantized): autograd,
    checkpointed per chunk.
    """

    def score(part: slice) -> tuple[Tensor, Tensor]:
        logits = bar(head(hidden[part]).float(), barred, part)
        logprobs = torch.log_softmax(logits / temperature, 1)
        logp = logprobs.gather(1, labels[part, None]).squeeze(1)
        if not entropy:
            return logp, logp.new_zeros(0)
        if entropy_temperature is not None and entropy_temperature != temperature:
            logprobs = torch.log_softmax(logits / entropy_temperature, 1)
        p = logprobs.exp()
        return logp, -(p * logprobs.masked_fill(p == 0, 0.0)).sum(1)

    parts = list(_chunks(len(labels), chunk)) or [slice(0, 0)]
    scored = [checkpoint(score, part, use_reentrant=False) for part in parts]
    return torch.cat([logp for logp, _ in scored]), torch.cat(
        [entropies for _, entropies in scored]
    ) if entropy else None


def chunked_kl(
    hidden: Tensor,
    head: Callable[[Tensor], Tensor],
    other_hidden: Tensor,
    other_head: Callable[[Tensor], Tensor],
    *,
    temperature: float = 1.0,
    chunk: int | None = None,
    barred: Barred | None = None,
) -> Tensor:
    """Return KL(p || q) [N] in nats, summed over the vocabulary, of the distributions at hidden [N,h] and other_hidden
    [N,h'].

    Gradients flow to both, if they are enabled: the backward pass computes the logits of each chunk again. NaN if a
    logit is NaN, infinite if q excludes a token that p allows.
    """

    def logits(part: slice) -> tuple[Tensor, Tensor]:
        pairs = ((head, hidden), (other_head, other_hidden))
        return tuple(bar(layer(states[part]).float(), barred, part) / temperature for layer, states in pairs)  # type: ignore[return-value]

    def differentiable(part: slice) -> Tensor:
        p, q = (torch.log_softmax(x, 1) for x in logits(part))
        return (p.exp() * (p - q).masked_fill(p.exp() == 0, 0.0)).sum(1)

    parts = list(_chunks(len(hidden), chunk or 64)) or [slice(0, 0)]
    if torch.is_grad_enabled():
        return torch.cat([checkpoint(differentiable, part, use_reentrant=False) for part in parts])
    kl = torch.zeros(len(hidden), dtype=torch.float32, device=hidden.device)
    for part in parts:
        p, q = (log_softmax_(x) for x in logits(part))
        kl[part] = _expected(p - q, p).sum(1)
    return kl


class ScoringLinear(nn.Linear):
    """Output layer that scores labels chunk by chunk inside its own forward call.

    Using the layer's `forward` keeps the hooks of FSDP and DeepSpeed working, which gather a layer's weight when the
    layer is called.
    """

    @classmethod
    def adopt(cls, layer: nn.Linear) -> None:
        """Turn a plain linear layer into a scoring one, in place."""
        layer.__class__ = cls

    def forward(self, hidden: Tensor, labels: Tensor | None = None, **options: Any) -> Any:  # type: ignore[override]
        """Return logits [..., V]; with `labels` [N], the result of `chunked_scores` for hidden [N,h]."""
        if labels is None:
            return super().forward(hidden)
        return chunked_scores(hidden, self.weight, self.bias, labels, **options)

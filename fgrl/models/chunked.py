"""Log-probabilities, entropies and KL of next-token distributions without a [N,V] tensor alive whole.

Logits are made for a chunk of positions at a time, in float32, and thrown away: at any moment a few [chunk,V] buffers
exist, whatever N is. Where the layer itself is trained the backward pass makes them again. Where it is frozen (under an
adapter), the forward pass keeps d logp / d hidden and d H / d hidden [N,h], all that the backward pass will ask for.

With u = z / temperature (z the logits), p = softmax(u):

    logp_y = u_y - logsumexp(u)                d logp_y / du = onehot(y) - p
    H      = -sum_v p_v log p_v                d H / du      = -p (log p + H)

Left out: a fused kernel. It would be faster on a GPU; this runs anywhere, and the head is a small part of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

CHUNK_BYTES = {"cpu": 16 * 2**20}
"""Size of one chunk's float32 logits; about four such buffers are alive at the peak."""
CHUNK_BYTES_ELSEWHERE = 128 * 2**20
"""On accelerators, which need larger products to be busy."""


def chunk_rows(vocabulary: int, device: str = "cpu") -> int:
    """Positions in a chunk, by default."""
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
) -> tuple[Tensor, Tensor | None]:
    """Log-probability of `labels` and entropy of the distributions they come from, in nats.

    hidden [N,h], weight [V,h], bias [V] or None, labels [N] -> logp [N], entropy [N] or None, in float32 (float64 for
    float64 weights). Products run in the autocast type, or in the weight's. Gradients flow from both outputs to hidden,
    weight and bias. The entropy is taken at `entropy_temperature` (default: `temperature`).
    """
    if temperature <= 0 or (entropy_temperature is not None and entropy_temperature <= 0):
        raise ValueError("log-probabilities need a temperature above 0 (greedy decoding has no distribution)")
    at = temperature if entropy_temperature is None else entropy_temperature
    logp, nats = _ChunkedScores.apply(
        hidden,
        weight,
        bias,
        labels,
        temperature,
        at if entropy else None,
        chunk or chunk_rows(weight.shape[0], hidden.device.type),
        _dtype(hidden, weight),
    )
    return logp, nats if entropy else None


def _dtype(hidden: Tensor, weight: Tensor) -> torch.dtype:
    device = hidden.device.type
    if torch.is_autocast_enabled(device) and weight.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return weight.dtype


class _ChunkedScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden, weight, bias, labels, temperature, entropy_temperature, chunk, dtype):  # type: ignore[no-untyped-def, override]
        wide = torch.promote_types(dtype, torch.float32)
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        # where only hidden takes a gradient, a row's is its output's times a vector known by now: no second pass
        ahead = wants_hidden and not wants_weight and not wants_bias
        logp = torch.empty(labels.shape, dtype=wide, device=hidden.device)
        nats = torch.empty_like(logp) if entropy_temperature is not None else None
        d_logp = torch.empty_like(hidden) if ahead else None
        d_nats = torch.empty_like(hidden) if ahead and nats is not None else None
        with torch.autocast(hidden.device.type, enabled=False):
            table = weight.to(dtype)
            for part in _parts(len(labels), chunk):
                label = labels[part, None]
                logits = _logits(hidden[part], table, bias, wide)
                again = logits.clone() if entropy_temperature not in (None, temperature) else None
                logs = log_softmax_(logits.div_(temperature))
                logp[part] = logs.gather(1, label).squeeze(1)
                if d_logp is not None:
                    d_logp[part] = (_label_slope(logs, label, temperature).to(dtype) @ table).to(hidden.dtype)
                if nats is None:
                    continue
                if again is not None:
                    logs = log_softmax_(again.div_(entropy_temperature))
                nats[part] = entropy_of(logs)
                if d_nats is not None:
                    slope = _entropy_slope_(logs, nats[part, None], entropy_temperature)
                    d_nats[part] = (slope.to(dtype) @ table).to(hidden.dtype)
        ctx.save_for_backward(*((d_logp, d_nats) if ahead else (hidden, weight, bias, labels, nats)))
        ctx.settings = (ahead, temperature, entropy_temperature, chunk, dtype)
        return logp, logp.new_empty(0) if nats is None else nats

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logp, grad_nats):  # type: ignore[no-untyped-def, override]
        if ctx.settings[0]:
            d_logp, d_nats = ctx.saved_tensors
            gradient = torch.empty_like(d_logp)
            for part in _parts(len(gradient), ctx.settings[3]):
                row = d_logp[part] * grad_logp[part, None]
                gradient[part] = row if d_nats is None else row + d_nats[part] * grad_nats[part, None]
            return gradient, *(None,) * 7
        hidden, weight, bias, labels, nats = ctx.saved_tensors
        _ahead, temperature, entropy_temperature, chunk, dtype = ctx.settings
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        wide = torch.promote_types(dtype, torch.float32)
        grad_hidden = torch.empty_like(hidden) if wants_hidden else None
        grad_weight = torch.zeros(weight.shape, dtype=wide, device=weight.device) if wants_weight else None
        grad_bias = torch.zeros(bias.shape, dtype=wide, device=weight.device) if wants_bias else None
        with torch.autocast(hidden.device.type, enabled=False):
            table = weight.to(dtype)
            for part in _parts(len(labels), chunk):
                logits = _logits(hidden[part], table, bias, wide)
                again = logits.clone() if entropy_temperature not in (None, temperature) else None
                logs = log_softmax_(logits.div_(temperature))
                grad = _label_slope(logs, labels[part, None], temperature).mul_(grad_logp[part, None])
                if nats is not None:
                    if again is not None:
                        logs = log_softmax_(again.div_(entropy_temperature))
                    slope = _entropy_slope_(logs, nats[part, None], entropy_temperature)
                    grad += slope.mul_(grad_nats[part, None])
                if grad_bias is not None:
                    grad_bias += grad.sum(0)
                narrow = grad.to(dtype)
                if grad_hidden is not None:
                    grad_hidden[part] = (narrow @ table).to(grad_hidden.dtype)
                if grad_weight is not None:
                    grad_weight += narrow.t() @ hidden[part].to(dtype)
        return (
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(bias.dtype),
            *(None,) * 5,
        )


def _parts(count: int, chunk: int) -> Iterator[slice]:
    return (slice(start, min(start + chunk, count)) for start in range(0, count, chunk))


def _logits(hidden: Tensor, table: Tensor, bias: Tensor | None, wide: torch.dtype) -> Tensor:
    """A fresh [n,V] that may be overwritten."""
    logits = (hidden.to(table.dtype) @ table.t()).to(wide)
    return logits if bias is None else logits.add_(bias)


def log_softmax_(logits: Tensor) -> Tensor:
    """Turns [n,V] logits into log-probabilities in place."""
    return logits.sub_(logits.logsumexp(1, keepdim=True))


def entropy_of(logs: Tensor) -> Tensor:
    """Entropy [n] of log-probabilities [n,V]; outcomes of probability 0 count nothing."""
    return -logs.exp().mul_(logs).nan_to_num_(nan=0.0).sum(1)


def _label_slope(logs: Tensor, label: Tensor, temperature: float) -> Tensor:
    """d logp / d logits [n,V], from log-probabilities [n,V] and labels [n,1]."""
    return logs.exp().neg_().scatter_add_(1, label, torch.ones_like(logs[:, :1])).div_(temperature)


def _entropy_slope_(logs: Tensor, nats: Tensor, temperature: float) -> Tensor:
    """d H / d logits [n,V], from log-probabilities [n,V], which are overwritten, and their entropies [n,1]."""
    p = logs.exp()
    return logs.add_(nats).mul_(p).div_(-temperature)


def scores_through(
    head: Callable[[Tensor], Tensor],
    hidden: Tensor,
    labels: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    entropy_temperature: float | None = None,
    chunk: int = 64,
) -> tuple[Tensor, Tensor | None]:
    """`chunked_scores` for an output layer that is no plain matrix (adapted, quantized): autograd, checkpointed by chunk."""

    def score(rows: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(rows).float()
        logs = torch.log_softmax(logits / temperature, 1)
        logp = logs.gather(1, label[:, None]).squeeze(1)
        if not entropy:
            return logp, logp.new_zeros(0)
        if entropy_temperature is not None and entropy_temperature != temperature:
            logs = torch.log_softmax(logits / entropy_temperature, 1)
        return logp, torch.special.entr(logs.exp()).sum(1)

    parts = list(_parts(len(labels), chunk)) or [slice(0, 0)]
    scored = [checkpoint(score, hidden[part], labels[part], use_reentrant=False) for part in parts]
    return torch.cat([logp for logp, _ in scored]), torch.cat([nats for _, nats in scored]) if entropy else None


@torch.no_grad()
def chunked_kl(
    hidden: Tensor,
    head: Callable[[Tensor], Tensor],
    other_hidden: Tensor,
    other_head: Callable[[Tensor], Tensor],
    *,
    temperature: float = 1.0,
    chunk: int | None = None,
) -> Tensor:
    """KL(p || q) [N] in nats, summed over the vocabulary, of the distributions at hidden [N,h] and other_hidden [N,h'].

    Without gradient.
    """
    kl = torch.zeros(len(hidden), dtype=torch.float32, device=hidden.device)
    rows = chunk or 64
    for part in _parts(len(hidden), rows):
        p = log_softmax_(head(hidden[part]).float() / temperature)
        q = log_softmax_(other_head(other_hidden[part]).float() / temperature)
        kl[part] = q.sub_(p).neg_().mul_(p.exp_()).nan_to_num_(nan=0.0).sum(1)
    return kl


class ScoringLinear(nn.Linear):
    """An output layer that scores labels chunk by chunk inside its own forward call.

    Going through the layer's `forward` keeps the hooks of FSDP and DeepSpeed working, which gather a layer's weight
    when the layer is called.
    """

    @classmethod
    def adopt(cls, layer: nn.Linear) -> None:
        """Turn a plain linear layer into a scoring one, in place."""
        layer.__class__ = cls

    def forward(self, hidden: Tensor, labels: Tensor | None = None, **options: Any) -> Any:  # type: ignore[override]
        """Logits [..., V]; with `labels` [N] what `chunked_scores` returns for hidden [N,h]."""
        if labels is None:
            return super().forward(hidden)
        return chunked_scores(hidden, self.weight, self.bias, labels, **options)

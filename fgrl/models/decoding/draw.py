"""Drawing tokens from logits: one uniform number per row and step, from the row's own random stream.

Not used: `torch.multinomial`. It draws noise for the whole vocabulary, which costs more than a decoding step's layers
on a CPU, and its draws depend on the other rows of the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fgrl.base import lazy

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor
else:
    np = lazy.load("numpy")
    torch = lazy.load("torch")

BLOCK = 256


def uniforms(seed: int, rows: list[int], steps: int) -> Tensor:
    """Return [rows, steps] float64 in [0,1): row i is the stream of the Philox counter with key (seed, rows[i])."""
    keys = [np.array([seed % 2**64, row % 2**64], dtype=np.uint64) for row in rows]
    streams = [np.random.Generator(np.random.Philox(key=key)).random(steps) for key in keys]
    return torch.from_numpy(np.stack(streams)) if streams else torch.empty(0, steps, dtype=torch.float64)


def draw(logits: Tensor, uniform: Tensor, *, temperature: float, top_p: float = 1.0, top_k: int = 0) -> Tensor:
    """Return one token [B] per row of logits [B,V] float32 (overwritten), by the inverse of the distribution function.

    uniform [B] in [0,1). In the usual order: temperature, then top_k, then top_p. Temperature 0 selects the most
    probable token.
    """
    if temperature == 0:
        return logits.argmax(1)
    if temperature != 1:
        logits = logits.div_(temperature)
    weights = logits.sub_(logits.amax(1, keepdim=True)).exp_()
    if top_k or top_p < 1:
        return _draw_from_best(weights, uniform, top_p, top_k)
    return _invert(weights, uniform)


def _invert(weights: Tensor, uniform: Tensor) -> Tensor:
    """Return the first token whose cumulative weight exceeds uniform * total. Blocks are summed first: faster than a
    running sum over the vocabulary, and with less rounding.
    """
    rows, vocabulary = weights.shape
    blocks = -(-vocabulary // BLOCK)
    if vocabulary % BLOCK:
        weights = torch.nn.functional.pad(weights, (0, blocks * BLOCK - vocabulary))
    grouped = weights.view(rows, blocks, BLOCK)
    sums = grouped.sum(2, dtype=torch.float32).double()
    block, rest = _first_above(sums, uniform * sums.sum(1))
    inside = grouped[torch.arange(rows, device=weights.device), block].double()
    token, _ = _first_above(inside, rest)
    return block * BLOCK + token


def _first_above(weights: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first position [B] where the running sum of weights [B,n] exceeds `target` [B], and the rest of the
    target there.

    A position of weight 0 is never chosen: if rounding puts the target past the end, the last position with weight is
    chosen.
    """
    sums = weights.cumsum(1)
    last = (weights > 0).long().mul_(torch.arange(1, weights.shape[1] + 1, device=weights.device)).argmax(1)
    place = torch.searchsorted(sums, target[:, None], right=True).squeeze(1).minimum(last)
    before = sums.gather(1, (place - 1).clamp_min(0)[:, None]).squeeze(1)
    return place, target - torch.where(place > 0, before, 0.0)


def _draw_from_best(weights: Tensor, uniform: Tensor, top_p: float, top_k: int) -> Tensor:
    """Return tokens drawn from the `top_k` best, restricted to the fewest of them that have `top_p` of their weight."""
    vocabulary = weights.shape[1]
    count = min(top_k or 256, vocabulary)
    total = weights.sum(1, dtype=torch.float64)
    while True:
        best, tokens = weights.topk(count, dim=1)
        held = best.double().cumsum(1)
        if top_k:
            total = held[:, -1]
        if top_k or count == vocabulary or bool((held[:, -1] >= top_p * total).all()):
            break
        count = min(4 * count, vocabulary)
    kept = (held - best.double()) < top_p * total[:, None]  # the token that crosses top_p is kept
    best = best.double() * kept
    place, _ = _first_above(best, uniform * best.sum(1))
    return tokens.gather(1, place[:, None]).squeeze(1)

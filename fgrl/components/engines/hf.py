"""Sampling with the transformers model itself, in its own decoding loop."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fgrl import console, lazy
from fgrl.kinds import Ended, Engine
from fgrl.models.decoding.draw import draw, uniforms
from fgrl.registry import register
from fgrl.specs import Sampling

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fgrl import models
    from fgrl.models.decoding import cache as caches
    from fgrl.models.decoding import copies
else:
    caches = lazy.load("fgrl.models.decoding.cache")
    copies = lazy.load("fgrl.models.decoding.copies")
    models = lazy.load("fgrl.models")
    torch = lazy.load("torch")


@register("hf")
class HF(Engine):
    """Samples with the transformers model that is being trained.

    Prompts of similar length are decoded together; a prompt that several rows share is read once; rows leave the batch
    when they end.
    """

    fold: bool = False
    """Merge a LoRA adapter into a temporary copy of the weights while sampling: faster, but needs memory for the copy. In
    bfloat16 the sum is rounded stochastically, which preserves the adapter's effect on average."""

    def generate(
        self,
        model: Any,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        *,
        seed: int,
        rows: Sequence[int],
        ended: Ended | None = None,
    ) -> list[list[int]]:
        """Responses in the order of `prompts`, each with its end-of-sequence token unless it was cut off."""
        if len(rows) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts, but {len(rows)} row numbers")
        longest = max(map(len, prompts), default=0) + sampling.max_new_tokens
        model.check_length(
            longest, "lower `max_prompt_tokens`, which cuts prompts at their beginning, or `max_new_tokens`"
        )
        numbers = uniforms(seed, list(rows), sampling.max_new_tokens)
        order = sorted(range(len(prompts)), key=lambda index: (-len(prompts[index]), tuple(prompts[index])))
        responses: list[list[int]] = [[] for _ in prompts]
        with torch.no_grad(), models.evaluating(model), model.low_precision(), self._weights(model, seed):
            for start in range(0, len(order), sampling.batch_size):
                batch = order[start : start + sampling.batch_size]
                part = _Part(start, len(batch), len(order), sampling.max_new_tokens)
                drawn = _decode(model, [prompts[index] for index in batch], sampling, numbers[batch], ended, part)
                for index, response in zip(batch, drawn, strict=True):
                    responses[index] = response
        return responses

    def copies_weights(self) -> bool:
        return self.fold

    def _weights(self, model: Any, seed: int) -> AbstractContextManager[Any]:
        return copies.decoding_weights(model, seed) if self.fold else nullcontext()


@dataclass(frozen=True)
class _Part:
    """A batch among all rows of a call, for the progress line."""

    start: int
    rows: int
    total: int
    steps: int
    """Tokens of a row, at most."""

    def report(self, step: int, unfinished: int) -> None:
        """After a step: rows that ended are done, the others have `step` of their tokens."""
        done = self.rows - unfinished * (1 - (step + 1) / self.steps)
        console.drawn((self.start + done) / self.total, self.total)


SHRINK = 0.8
"""Finished rows are removed when less than this share of the batch is unfinished: removing them copies the cache."""


def _decode(
    model: Any, prompts: list[Sequence[int]], sampling: Sampling, uniform: Tensor, ended: Ended | None, part: _Part
) -> list[list[int]]:
    """Responses to one batch; uniform [B, max_new_tokens] float64."""
    device = model.device
    ends = torch.tensor(sorted(model.eos_ids), device=device)
    uniform = uniform.to(device)
    responses: list[list[int]] = [[] for _ in prompts]

    # 1. read each distinct prompt once, then give every row its own copy of the keys and values
    distinct = list(dict.fromkeys(tuple(prompt) for prompt in prompts))
    lengths = {len(prompt) for prompt in distinct}
    # without padding, transformers passes no mask and takes an attention path that is several times slower on a CPU
    width = max(lengths) + (len(lengths) == 1 and device.type == "cpu")
    mask = torch.zeros(len(distinct), width + sampling.max_new_tokens, dtype=torch.long, device=device)
    ids = torch.full((len(distinct), width), model.pad_id, dtype=torch.long, device=device)
    for row, prompt in enumerate(distinct):
        mask[row, width - len(prompt) :] = 1
        ids[row, width - len(prompt) :] = torch.tensor(prompt, device=device)
    cache = caches.new_cache(model.transformer.config, width + sampling.max_new_tokens)
    positions = (mask[:, :width].cumsum(1) - 1).clamp_min(0)
    states = _step(model, ids, mask[:, :width], positions, cache)
    place = {prompt: index for index, prompt in enumerate(distinct)}
    rows = torch.tensor([place[tuple(prompt)] for prompt in prompts], device=device)
    if len(distinct) < len(prompts):
        caches.take(cache, rows)
    states, mask, position = states[rows], mask[rows], positions[rows, -1:]

    # 2. token by token; `alive` are the indices of the rows still in the batch
    alive = torch.arange(len(prompts), device=device)
    running = torch.ones(len(prompts), dtype=torch.bool, device=device)
    for step in range(sampling.max_new_tokens):
        logits = model.logits(states).float()
        if step < sampling.min_new_tokens:
            logits[:, ends] = -torch.inf
        token = draw(
            logits, uniform[alive, step], temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k
        )
        for index, drawn, unfinished in zip(alive.tolist(), token.tolist(), running.tolist(), strict=True):
            if unfinished:
                responses[index].append(drawn)
        running = running & ~torch.isin(token, ends)
        if ended is not None:
            rows_left = zip(alive.tolist(), running.tolist(), strict=True)
            complete = [unfinished and ended(responses[index]) for index, unfinished in rows_left]
            running = running & ~torch.tensor(complete, device=device)
        unfinished_rows = int(running.sum())
        part.report(step, unfinished_rows)
        if unfinished_rows == 0 or step + 1 == sampling.max_new_tokens:
            break
        if unfinished_rows < SHRINK * len(alive):
            keep = running.nonzero().squeeze(1)
            caches.take(cache, keep)
            alive, token, mask, position = alive[keep], token[keep], mask[keep], position[keep]
            running = running[keep]
        position = position + 1
        states = _step(model, token[:, None], mask[:, : width + step + 1], position, cache)
    return responses


def _step(model: Any, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Tensor:
    """Hidden states [B,h] at the last of `ids` [B,n]; mask [B, all tokens so far]."""
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "past_key_values": cache, "use_cache": True}
    if model.takes_positions:
        inputs["position_ids"] = positions
    return model.trunk(**inputs).last_hidden_state[:, -1]

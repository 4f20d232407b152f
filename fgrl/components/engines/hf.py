"""Sampling with the transformers model itself, in its own decoding loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from fgrl.base import console, lazy
from fgrl.kinds import Drawer, DrawRequest, Engine
from fgrl.models.decoding.draw import draw, uniforms
from fgrl.registry import register
from fgrl.rollouts.serving.early import complete
from fgrl.types import DrawnResponse

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fgrl import models, rollouts
    from fgrl.models.decoding import cache as caches
    from fgrl.models.decoding import copies
else:
    caches = lazy.load("fgrl.models.decoding.cache")
    copies = lazy.load("fgrl.models.decoding.copies")
    models = lazy.load("fgrl.models")
    rollouts = lazy.load("fgrl.rollouts")
    torch = lazy.load("torch")


@register("hf")
class HF(Engine):
    """Samples with the transformers model that is being trained.

    Prompts of similar length are decoded together; a prompt that several rows share is read once; rows leave the batch
    when they end.
    """

    fold: bool = False
    """Merge a LoRA adapter into a temporary copy of the weights while sampling: faster, but needs memory for the copy.
    In bfloat16 the sum is rounded stochastically, which preserves the adapter's effect on average.
    """

    def open(self, model: Any) -> Drawer:
        return InProcess(model, self.fold)

    def copies_weights(self) -> bool:
        return self.fold


class InProcess(Drawer):
    """The model itself: its weights are there as soon as they change."""

    def __init__(self, model: Any, fold: bool) -> None:
        self.model, self.fold = model, fold

    def take(self, weights: Any, version: int) -> None:
        if weights is not self.model:
            raise ValueError("this drawer draws from the model that it was opened with: open another one")
        super().take(weights, version)

    def draw(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        self._check(requests)
        order = sorted(range(len(requests)), key=lambda i: (_shared(requests[i]), _similar(requests[i])))
        responses: list[list[int]] = [[] for _ in requests]
        early, done = [False] * len(requests), 0
        for _shared_by_all, group in groupby(order, key=lambda i: _shared(requests[i])):
            rows = list(group)
            first = requests[rows[0]]
            with self._passes(), self._weights(first.seed):
                for start in range(0, len(rows), first.sampling.batch_size):
                    places = rows[start : start + first.sampling.batch_size]
                    batch = [requests[i] for i in places]
                    part = _Part(done, len(batch), len(order), max(one.sampling.max_new_tokens for one in batch))
                    for row, token, is_complete in _decode(self.model, batch, part):
                        responses[places[row]].append(token)
                        early[places[row]] = is_complete
                    done += len(batch)
        return [
            DrawnResponse(ids, "early" if ended else "end" if ids[-1] in self.model.eos_ids else "length", self.version)
            for ids, ended in zip(responses, early, strict=True)
        ]

    def stream(self, request: DrawRequest) -> Iterator[int]:
        self._check([request])
        steps = _decode(self.model, [request], _Part(0, 1, 1, request.sampling.max_new_tokens))
        with self._weights(request.seed):
            while True:
                with self._passes():  # not while the caller has the token
                    step = next(steps, None)
                if step is None:
                    return
                yield step[1]

    def _check(self, requests: Sequence[DrawRequest]) -> None:
        longest = max((len(one.prompt) + one.sampling.max_new_tokens for one in requests), default=0)
        self.model.check_length(
            longest, "lower `max_prompt_tokens`, which cuts prompts at their beginning, or `max_new_tokens`"
        )

    @contextmanager
    def _passes(self) -> Iterator[None]:
        with torch.no_grad(), models.evaluating(self.model), self.model.low_precision():
            yield

    def _weights(self, seed: int) -> AbstractContextManager[Any]:
        return copies.decoding_weights(self.model, seed) if self.fold else nullcontext()


def _shared(request: DrawRequest) -> tuple[Any, ...]:
    """Return what requests have in common that are decoded together."""
    drawing = request.sampling
    return drawing.temperature, drawing.top_p, drawing.top_k, repr(request.early), request.seed


def _similar(request: DrawRequest) -> tuple[Any, ...]:
    """Order of requests in which neighbours read prompts of similar length, or the same one."""
    return -len(request.prompt), request.prompt


@dataclass(frozen=True)
class _Part:
    """A batch among all rows of a call, for the progress line."""

    start: int
    rows: int
    total: int
    steps: int
    """Upper bound on the tokens of a row."""

    def report(self, step: int, unfinished: int) -> None:
        """After a step: rows that ended are done, the others have `step` of their tokens."""
        done = self.rows - unfinished * (1 - (step + 1) / self.steps)
        console.drawn((self.start + done) / self.total, self.total)


SHRINK = 0.8
"""Finished rows are removed when less than this share of the batch is unfinished: removing them copies the cache."""


def _decode(model: Any, requests: Sequence[DrawRequest], part: _Part) -> Iterator[tuple[int, int, bool]]:
    """Yield the tokens of one batch, step by step: row, token id, and True where the response is complete early with
    it.
    """
    device = model.device
    prompts, sampling = [request.prompt for request in requests], requests[0].sampling
    limits = torch.tensor([request.sampling.max_new_tokens for request in requests], device=device)
    least = torch.tensor([request.sampling.min_new_tokens for request in requests], device=device)
    most, bound = int(limits.max()), int(least.max())
    uniform = uniforms(requests[0].seed, [request.row for request in requests], most).to(device)
    ends = torch.tensor(sorted(model.eos_ids), device=device)
    is_complete = None if requests[0].early is None else complete(requests[0].early, model.tokenizer)
    so_far: list[list[int]] = [[] for _ in prompts]

    # 1. read each distinct prompt once, then give every row its own copy of the keys and values
    distinct = list(dict.fromkeys(prompts))
    lengths = {len(prompt) for prompt in distinct}
    # without padding, transformers passes no mask and takes an attention path that is several times slower on a CPU
    width = max(lengths) + (len(lengths) == 1 and device.type == "cpu")
    ids, real = (part.to(device) for part in rollouts.pad_prompts(distinct, model.pad_id, width))
    mask = torch.cat([real.long(), torch.ones(len(distinct), most, dtype=torch.long, device=device)], 1)
    cache = caches.new_cache(model.transformer.config, width + most)
    positions = (mask[:, :width].cumsum(1) - 1).clamp_min(0)
    states = _step(model, ids, mask[:, :width], positions, cache)
    place = {prompt: index for index, prompt in enumerate(distinct)}
    rows = torch.tensor([place[prompt] for prompt in prompts], device=device)
    if len(distinct) < len(prompts):
        caches.take(cache, rows)
    states, mask, position = states[rows], mask[rows], positions[rows, -1:]

    # 2. token by token; `alive` are the indices of the rows still in the batch
    alive = torch.arange(len(prompts), device=device)
    running = torch.ones(len(prompts), dtype=torch.bool, device=device)
    for step in range(most):
        logits = model.logits(states).float()
        if step < bound:
            barred = (least[alive] > step)[:, None].expand(-1, len(ends))
            logits[:, ends] = logits[:, ends].masked_fill(barred, -torch.inf)
        token = draw(
            logits, uniform[alive, step], temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k
        )
        drawn = list(zip(alive.tolist(), token.tolist(), running.tolist(), strict=True))
        running = running & ~torch.isin(token, ends) & (limits[alive] > step + 1)
        for place_in_batch, (index, one, unfinished) in enumerate(drawn):
            if unfinished:
                so_far[index].append(one)
                ended_early = is_complete is not None and one not in model.eos_ids and is_complete(so_far[index])
                if ended_early:
                    running[place_in_batch] = False
                yield index, one, ended_early
        unfinished_rows = int(running.sum())
        part.report(step, unfinished_rows)
        if unfinished_rows == 0:
            break
        if unfinished_rows < SHRINK * len(alive):
            keep = running.nonzero().squeeze(1)
            caches.take(cache, keep)
            alive, token, mask, position = alive[keep], token[keep], mask[keep], position[keep]
            running = running[keep]
        position = position + 1
        states = _step(model, token[:, None], mask[:, : width + step + 1], position, cache)


def _step(model: Any, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Tensor:
    """Hidden states [B,h] at the last of `ids` [B,n]; mask [B, all tokens so far]."""
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, **caches.with_cache(model.trunk, cache)}
    if model.takes_positions:
        inputs["position_ids"] = positions
    return model.trunk(**inputs).last_hidden_state[:, -1]

"""Sampling with the transformers model itself, in its own decoding loop."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fgrl.base import console, lazy
from fgrl.kinds import Drawer, Drawing, DrawRequest, Engine
from fgrl.models.decoding.draw import draw, uniforms
from fgrl.registry import register
from fgrl.rollouts.in_process import InProcess
from fgrl.rollouts.serving.early import complete
from fgrl.types import DrawnResponse, Finish

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fgrl import rollouts
    from fgrl.models.decoding import cache as caches
    from fgrl.models.decoding import copies
else:
    caches = lazy.load("fgrl.models.decoding.cache")
    copies = lazy.load("fgrl.models.decoding.copies")
    rollouts = lazy.load("fgrl.rollouts")
    torch = lazy.load("torch")


@register("hf")
class HF(Engine):
    """Samples with the transformers model that is being trained.

    Prompts of similar length are decoded together. A prompt that several rows share is read once. Rows leave the batch
    when they end.
    """

    fold: bool = False
    """Merge a LoRA adapter into a temporary copy of the weights while sampling. This is faster, but needs memory for
    the copy. In bfloat16 the sum is rounded stochastically, which preserves the adapter's effect on average.
    """

    def open(self, model: Any) -> Drawer:
        return Decoding(model, self.fold)

    def copies_weights(self) -> bool:
        return self.fold


class Decoding(InProcess):
    """Drawer that decodes in batches."""

    def __init__(self, model: Any, fold: bool) -> None:
        super().__init__(model)
        self.fold = fold

    def drawing(self) -> Drawing:
        return InBatches(self)

    def stream(self, request: DrawRequest) -> Iterator[int]:
        self.check([request])
        steps = _decode(self.model, [request], _Part(0, 1, 1, request.sampling.max_new_tokens))
        with self.weights(request.seed):
            while True:
                with self.passes():  # not while the caller has the token
                    step = next(steps, None)
                if step is None:
                    return
                yield step[1]

    def weights(self, seed: int) -> AbstractContextManager[Any]:
        return copies.decoding_weights(self.model, seed) if self.fold else nullcontext()


Passes = Callable[[], AbstractContextManager[Any]]
"""Context in which forward passes of the model run."""


class InBatches(Drawing):
    """Iterator over responses that decodes the waiting requests batch by batch."""

    drawer: Decoding

    def __init__(self, drawer: Decoding) -> None:
        super().__init__(drawer)
        self._queue: list[tuple[Any, ...]] = []
        """Heap of the waiting requests: their shared settings, their sort key, and their number."""

    def submit(self, requests: Sequence[DrawRequest]) -> range:
        self.drawer.check(requests)
        numbers = super().submit(requests)
        for number, request in zip(numbers, requests, strict=True):
            heapq.heappush(self._queue, (_shared(request), _similar(request), number))
        return numbers

    def __iter__(self) -> Iterator[tuple[int, DrawnResponse]]:
        return self._responses(self.drawer.passes)  # which are left while the caller has a response

    def rest(self) -> dict[int, DrawnResponse]:
        with self.drawer.passes():
            return dict(self._responses(nullcontext))

    def _responses(self, passes: Passes) -> Iterator[tuple[int, DrawnResponse]]:
        while self._queue:
            shared = self._queue[0][0]
            with self.drawer.weights(shared[-1]):
                while batch := self._batch(shared):
                    yield from self._decoded(batch, passes)

    def _batch(self, shared: tuple[Any, ...]) -> dict[int, DrawRequest]:
        """Take the next batch of waiting requests with these shared settings."""
        batch: dict[int, DrawRequest] = {}
        size = self.waiting[self._queue[0][-1]].sampling.batch_size if self._queue else 0
        while self._queue and self._queue[0][0] == shared and len(batch) < size:
            number = heapq.heappop(self._queue)[-1]
            batch[number] = self.waiting.pop(number)
        return batch

    def _decoded(self, batch: dict[int, DrawRequest], passes: Passes) -> Iterator[tuple[int, DrawnResponse]]:
        numbers, requests = list(batch), list(batch.values())
        done = self.submitted - len(self.waiting) - len(batch)
        part = _Part(done, len(batch), self.submitted, max(one.sampling.max_new_tokens for one in requests))
        steps = _decode(self.drawer.model, requests, part)
        responses: list[list[int]] = [[] for _ in batch]
        while True:
            with passes():
                row, finish = _to_an_end(steps, responses)
            if finish is None:
                return
            yield numbers[row], DrawnResponse(responses[row], finish, self.drawer.version)


def _to_an_end(steps: Iterator[Step], responses: list[list[int]]) -> tuple[int, Finish | None]:
    """Decode until a response ends. Return its row and the reason for its end; None if all responses have already
    ended.
    """
    for row, token, finish in steps:
        responses[row].append(token)
        if finish is not None:
            return row, finish
    return -1, None


def _shared(request: DrawRequest) -> tuple[Any, ...]:
    """Return the settings that all requests of a batch share; the seed is the last one."""
    drawing = request.sampling
    return drawing.temperature, drawing.top_p, drawing.top_k, repr(request.complete_at), request.seed


def _similar(request: DrawRequest) -> tuple[Any, ...]:
    """Return a sort key by which requests with prompts of similar length, or with equal prompts, are neighbours."""
    return -len(request.prompt), request.prompt


@dataclass(frozen=True)
class _Part:
    """A batch within all rows of a call, for the progress line."""

    start: int
    rows: int
    total: int
    steps: int
    """Upper bound on the tokens of a row."""

    def report(self, step: int, unfinished: int) -> None:
        """Report progress after a step: finished rows count as done, the others have `step` of their tokens."""
        done = self.rows - unfinished * (1 - (step + 1) / self.steps)
        console.drawn((self.start + done) / self.total, self.total)


Step = tuple[int, int, Finish | None]
"""Row of a batch, token id, and the reason why the response ends with this token; None if it continues."""
SHRINK = 0.8
"""Share of unfinished rows in a batch below which finished rows are removed. The removal copies the cache."""


def _decode(model: Any, requests: Sequence[DrawRequest], part: _Part) -> Iterator[Step]:
    """Yield the tokens of one batch, step by step."""
    device = model.device
    prompts, sampling = [request.prompt for request in requests], requests[0].sampling
    limits = torch.tensor([request.sampling.max_new_tokens for request in requests], device=device)
    least = torch.tensor([request.sampling.min_new_tokens for request in requests], device=device)
    most, bound = int(limits.max()), int(least.max())
    uniform = uniforms(requests[0].seed, [request.row for request in requests], most).to(device)
    ends = torch.tensor(sorted(model.eos_ids), device=device)
    early = requests[0].complete_at
    is_complete = None if early is None else complete(early, model.tokenizer)
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
                finish: Finish | None = "length" if step + 1 == requests[index].sampling.max_new_tokens else None
                if one in model.eos_ids:
                    finish = "end"
                elif is_complete is not None and is_complete(so_far[index]):
                    finish, running[place_in_batch] = "early", False
                yield index, one, finish
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
    """Return hidden states [B,h] at the last of `ids` [B,n]; mask [B, all tokens so far]."""
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, **caches.with_cache(model.trunk, cache)}
    if model.takes_positions:
        inputs["position_ids"] = positions
    return model.trunk(**inputs).last_hidden_state[:, -1]

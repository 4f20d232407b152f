"""Sampling with the transformers model itself, by the continuous batching of transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import lcm
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from fgrl.base import console, lazy, seeds, stops
from fgrl.base.errors import DataError, EngineFailed, Unavailable, UsageError
from fgrl.kinds import CorrectedEngine, Drawer, Drawing, DrawRequest
from fgrl.kinds.specs import Sampling
from fgrl.registry import Unkeyed, register
from fgrl.rollouts.in_process import InProcess, prompt_ids
from fgrl.rollouts.serving import early
from fgrl.types import DrawnResponse

if TYPE_CHECKING:
    import torch
    from transformers import generation, utils
    from transformers.generation import continuous_batching as batching

    from fgrl import models, rollouts
    from fgrl.models import packed_rows
    from fgrl.models.decoding import copies
else:
    batching = lazy.load("transformers.generation.continuous_batching")
    copies = lazy.load("fgrl.models.decoding.copies")
    generation = lazy.load("transformers.generation")
    models = lazy.load("fgrl.models")
    packed_rows = lazy.load("fgrl.models.packed_rows")
    rollouts = lazy.load("fgrl.rollouts")
    torch = lazy.load("torch")
    utils = lazy.load("transformers.utils")

POLL = 0.1
"""Seconds between two checks whether the run has been asked to stop."""
PAGE, FLASH_PAGE = 32, 256
"""Number of tokens whose keys and values share a page of the cache; the flash kernels require the second value."""
BATCH, FLASH_BATCH = 256, 8192
"""Maximum number of tokens that one pass reads. Without flash kernels, the attention mask has the size of this number
times the tokens of the cache.
"""
NEAR, NEAR_HALF = 1e-2, 0.2
"""Maximum average difference between log-probabilities and those of a pass over the whole response: in float32, and in
a 16-bit type.
"""
TRIED = 4
"""Number of tokens of the two responses in this comparison."""


@register("paged")
class Paged(CorrectedEngine):
    """Samples with the model that is trained, by the continuous batching of transformers 5.23. A finished response
    immediately makes room for the next one, and a GPU replays recorded steps (CUDA graphs) instead of launching each
    operation.

    For one GPU, or several with ddp, also with LoRA. It is much slower without flash kernels (`pip install
    'fgrl[gpu]'`), and on a CPU slower than `hf`. Under `precision: bf16-mixed`, and with an adapter on a bfloat16
    model, the weights are rounded to the nearest bfloat16 for sampling; otherwise they are used unchanged.

    All responses of a draw come from one random stream, so a response depends on the other responses of the draw.
    """

    cache_gib: Annotated[float | None, Unkeyed] = Field(None, gt=0, le=10_000)
    """Maximum size of the cache for keys and values, in GiB. null: the size that `sampling.batch_size` responses of
    full length need. With a smaller cache, fewer responses are drawn at the same time. The memory is free again after
    each draw.
    """

    def check_machine(self) -> None:
        if not hasattr(generation.ContinuousBatchingConfig, "page_size"):
            raise Unavailable("the engine paged needs transformers 5.23 or newer: pip install --upgrade transformers")

    def refuses(self, sampling: Sampling) -> str | None:
        if sampling.min_new_tokens:
            return (
                "min_new_tokens: the engine paged cannot keep a response from ending; set it to 0, or use the engine hf"
            )
        return None

    def open(self, model: Any) -> Drawer:
        return PagedDrawer(model, self)

    def at_once(self, batch_size: int) -> int:
        return 8 * batch_size  # a response that ends makes room for another one

    def copies_weights(self) -> Literal["rounded"]:
        return "rounded"


class PagedDrawer(InProcess):
    """Drawer that uses the model itself, with a cache for the duration of a draw."""

    def __init__(self, model: Any, engine: Paged) -> None:
        super().__init__(model)
        self.engine = engine
        self._drawing, self._tried = ExitStack(), False

    def drawing(self) -> Drawing:
        return Paging(self)

    def rest(self) -> None:
        self._drawing.close()  # one whose responses nobody takes any more

    close = rest

    def check(self, requests: Sequence[DrawRequest]) -> None:
        super().check(requests)
        if why := next(filter(None, (self.engine.refuses(one.sampling) for one in requests)), None):
            raise UsageError(why)
        if self.model.sharded:
            raise UsageError("the engine paged draws from a whole model, and each process has a part of it: use ddp")

    @contextmanager
    def pages(self, requests: Sequence[DrawRequest], rows: int) -> Iterator[Pages]:
        """Yield a cache for responses to requests like these, for `rows` of them at the same time."""
        if not self._tried:
            self._tried = True
            self._try()
        self.rest()
        with self._drawing as inside:
            net, dtype, device = self.model.transformer, self._type(), self.model.device
            gpus = [device] if device.type == "cuda" else []
            inside.enter_context(models.evaluating(self.model))
            inside.enter_context(copies.in_type_of(self.model.net, dtype))
            inside.enter_context(torch.random.fork_rng(gpus))
            inside.callback(net.set_attn_implementation, net.config._attn_implementation)
            for gpu in gpus:  # the thread has a stream of its own, which does not wait for new weights
                torch.cuda.synchronize(gpu)
                inside.callback(torch.cuda.synchronize, gpu)
            pages = Pages(self, requests, rows, flash=self._flash(dtype))
            inside.callback(pages.close)
            pages.begin()
            yield pages

    def _type(self) -> torch.dtype:
        """Return the floating-point type of the weights for sampling."""
        kind = self.model.device.type
        with self.model.low_precision():
            return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else self.model.transformer.dtype

    def _flash(self, dtype: torch.dtype) -> bool:
        """Return True if there are flash kernels for weights of this type. Report missing kernels if they would help."""
        if self.model.device.type != "cuda" or dtype not in packed_rows.HALF:
            return False
        kernels = (utils.is_flash_attn_3_available, utils.is_flash_attn_2_available)
        found = any(available(kernels_fallback_ok=True) for available in kernels)
        if not found and self.engine._run is not None:
            self.engine._run.say("the engine paged is much slower without flash kernels: pip install 'fgrl[gpu]'")
        return found

    def _try(self) -> None:
        """Raise `DataError` if continuous batching does not reproduce the model: with recurrent layers, or with
        positions that differ from those of the tokens.
        """
        limit = None if self.model.max_tokens is None else self.model.max_tokens - TRIED
        probe = packed_rows.probe(self.model.transformer.config.get_text_config(), limit, self.model.device)
        ids, real = torch.cat([probe.prompt_ids, probe.response_ids], 1), torch.cat([probe.prompt_mask, probe.mask], 1)
        prompts = [row[mask].tolist() for row, mask in zip(ids, real, strict=True)]
        try:
            far = self.error_of_trial(prompts, Sampling(max_new_tokens=TRIED))
            why = f"log-probabilities differ by {far:.2g} on average"
        except (AttributeError, NotImplementedError, TypeError, ValueError, EngineFailed) as error:
            far, why = float("inf"), str(error)
        if not far <= (NEAR_HALF if self._type() in packed_rows.HALF else NEAR):
            config = self.model.transformer.config
            raise DataError(
                f"{self.model.spec.base}: the engine paged cannot draw from a {config.model_type} model ({why}): use the engine hf"
            )


class Paging(Drawing):
    """Iterator over responses that draws requests together if their temperature, top_p and top_k are equal."""

    drawer: PagedDrawer

    def submit(self, requests: Sequence[DrawRequest]) -> range:
        self.drawer.check(requests)
        return super().submit(requests)

    def __iter__(self) -> Iterator[tuple[int, DrawnResponse]]:
        return self._responses(whole=False)  # others may come

    def rest(self) -> dict[int, DrawnResponse]:
        return dict(self._responses(whole=True))

    def _responses(self, *, whole: bool) -> Iterator[tuple[int, DrawnResponse]]:
        while self.waiting:
            law = _law(next(iter(self.waiting.values())))
            alike = [each for each in self.waiting.values() if _law(each) == law]
            size = alike[0].sampling.batch_size
            with self.drawer.pages(alike, min(size, len(alike)) if whole else size) as pages:
                yield from self._drawn(pages, law)

    def _drawn(self, pages: Pages, law: tuple[Any, ...]) -> Iterator[tuple[int, DrawnResponse]]:
        while True:
            for number, request in list(self.waiting.items()):
                if _law(request) == law and _length(request) <= pages.longest:
                    pages.ask(number, self.waiting.pop(number))
            if not pages.asked:
                return
            for number, response in pages.finished():
                done = self.submitted - len(self.waiting) - len(pages.asked)
                console.drawn(done / self.submitted, self.submitted)
                yield number, response


class Pages:
    """A cache, and the responses that a thread of transformers draws in it."""

    def __init__(self, drawer: PagedDrawer, requests: Sequence[DrawRequest], rows: int, *, flash: bool) -> None:
        self.model, self.version = drawer.model, drawer.version
        self.longest = max(map(_length, requests))
        """Maximum number of tokens of a prompt and its response."""
        self.asked: dict[int, DrawRequest] = {}
        """Requests with unfinished responses, by number."""
        self._seen: dict[int, int] = {}
        """Number of tokens of each response that are known not to complete it."""
        self._began = False
        net, first = self.model.transformer, requests[0]
        page = FLASH_PAGE if flash or "flash" in net.config._attn_implementation else PAGE
        each = -(-self.longest // page)
        self.blocks = self._blocks(each * rows, page, drawer.engine.cache_gib)
        ends = first.complete_at
        self._complete = None if ends is None else early.complete(ends, self.model.tokenizer)
        law = first.sampling.model_dump(include={"temperature", "top_p", "top_k"}) if first.sampling.temperature else {}
        settings = generation.GenerationConfig(do_sample=bool(law), eos_token_id=sorted(self.model.eos_ids), **law)
        drawn = [(one.seed, one.row) for one in requests]
        self._manager = net.init_continuous_batching(settings, generation.ContinuousBatchingConfig(
            page_size=page, num_blocks=self.blocks, max_blocks_per_request=each if page == FLASH_PAGE else 0,
            max_requests_per_batch=rows, max_batch_tokens=FLASH_BATCH if page == FLASH_PAGE else max(BATCH, rows),
            return_logprobs=True, seed=seeds.of_name(f"paged\0{drawn}", 4), auto_switch_to_flash=flash,
            use_async_batching=None if ends is None else False, disable_nccl_graph_mixing=False,
        ))  # fmt: skip

    def _blocks(self, wanted: int, page: int, gib: float | None) -> int:
        """Return the number of pages of the cache, over all layers. Raise ValueError if a layer is not an attention
        layer.
        """
        config = self.model.transformer.config.get_text_config()
        kinds = batching.cache.group_layers_by_attn_type(config)
        # windowed layers and others take turns in sections that both divide; two sections are kept for padding
        section = -(-lcm(*map(len, kinds.values())) // config.num_hidden_layers)
        spare = section * (len(kinds) + 2)
        if gib is None:
            return wanted + spare
        heads, width = batching.utils.find_num_key_value_heads(config), batching.utils.find_head_dim(config)
        size = 2 * config.num_hidden_layers * heads * width * page * self.model.transformer.dtype.itemsize
        return max(0, min(wanted + spare, int(gib * 2**30) // size - 2 * section))

    def begin(self) -> None:
        """Allocate the cache, and record the steps that a GPU replays. Raise `UsageError` if there is no room for a
        response.
        """
        room = 0
        if self.blocks:
            try:
                self._manager.warmup()
            except MemoryError as error:
                raise UsageError(f"engine paged: {error}: lower sampling.batch_size, or set cache_gib") from None
            room = batching.model_runner.infer_max_single_request_tokens(self._manager.batch_processor.cache)
        if room < self.longest:
            raise UsageError(
                f"cache_gib: a prompt with its response has up to {self.longest:,} tokens, and there is room for {room:,}: raise it, or "
                "lower the limits of prompts and responses"
            )

    def ask(self, number: int, request: DrawRequest) -> None:
        """Add a request."""
        self.asked[number], limit, more = request, request.sampling.max_new_tokens, self._complete is not None
        self._manager.add_request(prompt_ids(request), str(number), limit, streaming=more)

    def finished(self) -> Iterator[tuple[int, DrawnResponse]]:
        """Wait briefly. Yield the response that has finished in the meantime, if there is one."""
        if not self._began:  # with all that is asked at first: so a CPU draws the same again
            self._began = True
            self._manager.start()
        stops.point()
        output = self._manager.get_result(timeout=POLL)
        if output is None and not self._manager.is_running():
            raise EngineFailed(f"continuous batching has ended: {self._manager.background_thread_status.fatal_error}")
        if output is not None and output.error is not None:
            raise EngineFailed(f"continuous batching gives a response up: {output.error}")
        number = -1 if output is None else int(output.request_id)
        if number in self.asked and (response := self._response(number, output)) is not None:
            del self.asked[number]
            yield number, response

    def _response(self, number: int, output: Any) -> DrawnResponse | None:
        """Return the response if it has ended, otherwise None."""
        ids, logp = output.generated_tokens, output.logprobs
        if len(ids) != len(logp):
            raise EngineFailed(f"continuous batching gives {len(logp)} log-probabilities for {len(ids)} tokens")
        complete = self._complete
        for place in range(self._seen.get(number, 0), len(ids)):
            if complete is not None and ids[place] not in self.model.eos_ids and complete(ids[: place + 1]):
                self._manager.cancel_request(output.request_id)
                return DrawnResponse(ids[: place + 1], "early", self.version, logp[: place + 1])
        self._seen[number] = len(ids)
        if not output.is_finished():
            return None
        if ids[-1] not in self.model.eos_ids and len(ids) != self.asked[number].sampling.max_new_tokens:
            raise EngineFailed(f"continuous batching ends a response after {len(ids)} tokens")
        return DrawnResponse(ids, "end" if ids[-1] in self.model.eos_ids else "length", self.version, logp)

    def close(self) -> None:
        """End the thread and free the cache."""
        if self._began:
            self._manager.stop(hard_stop=True)
        self._manager.batch_processor = None


def _law(request: DrawRequest) -> tuple[Any, ...]:
    """Return the settings that all requests of a draw share."""
    sampling = request.sampling
    return sampling.temperature, sampling.top_p, sampling.top_k, repr(request.complete_at)


def _length(request: DrawRequest) -> int:
    """Return the maximum number of tokens of a prompt and its response."""
    return len(request.prompt) + request.sampling.max_new_tokens

"""A language model in this process.

The answer to a request is drawn from a random stream that belongs to the request, so it does not depend on other
requests, on their order, or on their number (up to the rounding of batched arithmetic).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, PrivateAttr

from fgrl.base import lazy, ranks
from fgrl.base.errors import DataError
from fgrl.base.files import sha256_of_file
from fgrl.feedback.llm import tokens
from fgrl.feedback.llm.cached import Cached
from fgrl.feedback.llm.desk import Call, Desk
from fgrl.feedback.llm.prices import Price
from fgrl.kinds import Early, Engine, Peek, Run, default_engine
from fgrl.kinds.specs import ModelSpec, Sampling
from fgrl.registry import Unkeyed, name_of, register
from fgrl.types import Completion, Prompt, Ref, Request, Usage

if TYPE_CHECKING:
    from torch import Tensor
drawing = lazy.load("fgrl.models.decoding.draw")
rollouts = lazy.load("fgrl.rollouts")
sources = lazy.load("fgrl.models.sources")
torch = lazy.load("torch")


@dataclass(frozen=True)
class _Asked:
    """A request, prepared for the rank that answers it."""

    key: str
    """Key that names the random stream of the answer."""
    request: Request
    prompt: Prompt


@register("local")
class Local(Cached):
    """A model in this process, with batched requests. It costs nothing. A JSON schema is not enforced.

    In a stage of several processes, each process answers a part of the requests with its own copy, unless the engine
    draws elsewhere.
    """

    head: ClassVar[str] = "lm"

    model: ModelSpec
    """The model. Its chat template renders the messages."""
    max_tokens: int = Field(256, ge=1)
    """Maximum number of tokens of an answer, unless the question sets a limit."""
    temperature: float = Field(0.0, ge=0, le=100)
    """Sampling temperature, unless the question sets one. 0 is greedy decoding."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus sampling: draw from the most probable tokens that together reach this probability."""
    max_prompt_tokens: int = Field(4096, ge=1)
    """Maximum number of tokens of a prompt. A request with a longer prompt fails; prompts are not truncated."""
    seed: int = 0
    """Seed of the draws: another seed draws other answers if the temperature is above 0."""
    stop_at_json: bool = False
    """End an answer after the token that completes its first JSON object. Only the tokens after it are omitted; the
    tokens up to it stay the same. An answer without a valid object continues as usual.
    """
    engine: Engine = Field(default_factory=default_engine)
    """Engine that draws the answers."""
    batch_size: Annotated[int, Unkeyed] = Field(32, ge=1)
    """Number of answers that are drawn at the same time. It changes memory and speed, not the answers (up to rounding).
    """

    _path: Callable[[Ref[Any]], Path] | None = PrivateAttr(None)
    _weights: str | None = PrivateAttr(None)

    def setup(self, run: Run) -> None:
        self._path = run.path
        self.engine.setup(run)
        super().setup(run)

    def look(self, peek: Peek) -> None:
        self._path = peek.path

    def identity(self) -> dict[str, Any]:
        return {"client": "local", "model": self._name(), "endpoint": "here"}

    def parameters(self, request: Request) -> dict[str, Any]:
        template, elsewhere = self.model.chat_template, self.engine.elsewhere()
        own_template = {} if template is None else {"chat_template": sha256_of_file(Path(template))}
        return own_template | {
            "weights": self._fingerprint(),
            "dtype": self.model.dtype,
            "quantize": self.model.quantize,
            "max_tokens": self.max_tokens if request.max_tokens is None else request.max_tokens,
            "temperature": self.temperature if request.temperature is None else request.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            "logprobs": request.logprobs,
            **({"stop_at_json": True} if self.stop_at_json else {}),
            **({} if elsewhere is None else {"engine": name_of(self.engine)[1], "engine_dtype": elsewhere.dtype}),
        }

    def tariff(self) -> Price:
        """Return the price: nothing is charged."""
        return Price(prompt=0, completion=0)

    def count_tokens(self, request: Request) -> int:
        """Return the exact number of tokens that `complete` feeds to the model. Only the tokenizer is loaded, no
        weights.
        """
        return len(encode(tokens.load_tokenizer(self.model, self._path), request))

    def put(self, calls: Sequence[Call], desk: Desk) -> None:
        model = self._run.model(self.model)
        prompts: dict[str, Prompt] = {}
        groups: dict[tuple[int, float], list[Call]] = {}
        for call in calls:
            prompt = prompts[call.key] = encode(model.tokenizer, call.request)
            parameters, size = self.parameters(call.request), f"the prompt has {len(prompt):,} tokens"
            if len(prompt) > self.max_prompt_tokens:
                desk.fail(call, f"{size}, max_prompt_tokens is {self.max_prompt_tokens:,}")
            elif model.max_tokens is not None and len(prompt) + parameters["max_tokens"] > model.max_tokens:
                desk.fail(
                    call, f"{size}, max_tokens is {parameters['max_tokens']:,}, the model reads {model.max_tokens:,}"
                )
            else:
                groups.setdefault((parameters["max_tokens"], parameters["temperature"]), []).append(call)
        for group in groups.values():
            waiting = sorted(group, key=lambda call: -len(prompts[call.key]))  # of similar length in a batch
            while waiting and not desk.listen():
                batch = self._startable(waiting, desk)
                if not batch:
                    return
                waiting = waiting[len(batch) :]
                started = time.monotonic()
                asked = [_Asked(self._stream_key(call), call.request, prompts[call.key]) for call in batch]
                # what a rank draws together does not depend on their number
                work = [asked[start : start + self.batch_size] for start in range(0, len(asked), self.batch_size)]
                completions = self.share(work) if self.engine.elsewhere() is None else self.answer_share(work)
                seconds_each = (time.monotonic() - started) / len(batch)
                for call, completion in zip(batch, completions, strict=True):
                    desk.answer(call, completion, seconds_each)
                desk.tick()

    def _stream_key(self, call: Call) -> str:
        """Return the key that names the random stream of an answer. It does not depend on `stop_at_json`."""
        if not self.stop_at_json:
            return call.key
        return self.model_copy(update={"stop_at_json": False}).key(call.request)

    def _startable(self, calls: Sequence[Call], desk: Desk) -> list[Call]:
        """Return the first of `calls` that may start now, at most one batch for each rank."""
        batch: list[Call] = []
        for call in calls[: self.engine.at_once(self.batch_size * ranks.connected())]:
            if not desk.may_start():
                break
            batch.append(call)
        return batch

    def answer_share(self, work: list[list[_Asked]]) -> list[Completion]:
        """Answer batches of prompts of one length limit and temperature with this process's model."""
        if not work:
            return []
        every = [asked for batch in work for asked in batch]
        model, parameters = self._run.model(self.model), self.parameters(every[0].request)
        sampling = Sampling(
            max_new_tokens=parameters["max_tokens"],
            max_prompt_tokens=self.max_prompt_tokens,
            temperature=parameters["temperature"],
            top_p=self.top_p,
            batch_size=self.batch_size,
        )
        prompts = [asked.prompt for asked in every]
        streams = [stream(asked.key) for asked in every]
        wanted = [asked.request.logprobs for asked in every]
        rows = [row for row, count in enumerate(wanted) if count]
        likely: list[dict[str, float] | None] = [None] * len(every)
        logits = _first_logits(model, [prompts[row] for row in rows]) if rows else None
        if logits is not None:
            for row, line in zip(rows, logits.log_softmax(1), strict=True):
                likely[row] = _most_likely(model.tokenizer, line, wanted[row])
        if logits is not None and len(rows) == len(every) and sampling.max_new_tokens == 1 and not self.stop_at_json:
            # verdicts of one token: one pass serves both
            uniform = drawing.uniforms(self.seed, streams, 1)[:, 0].to(logits.device)
            first = drawing.draw(logits, uniform, temperature=sampling.temperature, top_p=sampling.top_p)
            drawn = [rollouts.given(model, *each) for each in zip(prompts, first[:, None].tolist(), strict=True)]
        else:
            early = Early(json_object=True) if self.stop_at_json else None
            drawer = self._run.shared(f"drawer {id(self)}", lambda: self.engine.open(model))
            drawn = rollouts.sample(model, drawer, prompts, sampling, seed=self.seed, rows=streams, early=early)
        return [
            Completion(
                text=response.text,
                finish="length" if response.finish == "length" else "stop",
                usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(response), usd=0.0),
                logprobs=logprobs,
            )
            for prompt, response, logprobs in zip(prompts, drawn, likely, strict=True)
        ]

    def _name(self) -> str:
        base = self.model.base
        if isinstance(base, Ref):
            return f"stage {base.stage}"
        return Path(base).name if Path(base).expanduser().is_dir() else base

    def _fingerprint(self) -> str:
        if self._weights is None:
            base = self.model.base
            if isinstance(base, Ref):
                folder = sources.locate(self.model, self._path).name
                self._weights = sources.fingerprint(self.model.model_copy(update={"base": folder}))
            else:
                self._weights = sources.fingerprint(self.model)
        return self._weights


def stream(key: str) -> int:
    """Return the random stream of the request with this key."""
    return int(key[:16], 16)


def encode(tokenizer: Any, request: Request) -> Prompt:
    """Return a request's messages as token ids for the model, up to the start of the answer. Without a chat template a
    single message is encoded unchanged, and several messages are a `DataError`.
    """
    if tokenizer.chat_template:
        return rollouts.encode_prompt(tokenizer, request.messages)
    if len(request.messages) > 1:
        raise DataError(
            f"a question of {len(request.messages)} turns to a model without a chat template: take a model that chats, or a "
            "prompt file without [system] and [user] lines"
        )
    return rollouts.encode_prompt(tokenizer, request.messages[0].content)


def _first_logits(model: Any, prompts: list[Prompt]) -> Tensor:
    """Return the logits [B,V] float32 of the first token after each prompt."""
    responses = [[model.pad_id]] * len(prompts)  # any token: the state before it is read
    padded = rollouts.pad(prompts, responses, model.pad_id, model.eos_ids).to(model.device)
    with torch.no_grad():
        return model.logits(model.states(padded)).float()


def _most_likely(tokenizer: Any, logp: Tensor, count: int) -> dict[str, float]:
    """Return the `count` most probable tokens of logp [V] (nats, at temperature 1). If two have the same text, the more
    probable one counts.
    """
    best = logp.topk(min(count, logp.shape[0]))
    logprobs: dict[str, float] = {}
    for value, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        logprobs.setdefault(tokenizer.decode([token]), value)
    return logprobs

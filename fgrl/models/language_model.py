"""A causal language model with one head, used on prompts and responses.

Every method takes `Tokens` and returns [B,T]. Position `t` of `score` and `values` belongs to the state *before*
response token t (the distribution from which the token was drawn); position `t` of `rewards` to the state *at* token t.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from fgrl.base import stops
from fgrl.base.errors import DataError
from fgrl.kinds.specs import ModelSpec
from fgrl.models import finite, packed_rows
from fgrl.models.chunked import Barred, ScoringLinear, chunk_rows, scores_through
from fgrl.models.heads import NumberHead
from fgrl.models.shapes import FEW_SCORES
from fgrl.models.shared_prefixes import ATTENTION, Packed, can_pack, pack
from fgrl.models.shared_prompts import can_share, distinct_prompts, states_after, worth_sharing
from fgrl.models.sources import Source
from fgrl.types import Tokens

FEW_SCORES_OF_PAIRS = 2**22
"""`FEW_SCORES` for pairs that are read as one sequence. They go through the model one at a time, so that more memory is
available for each.
"""

NEAR = {torch.float32: 1e-3, torch.bfloat16: 0.2}
"""Maximum distance between the states of packed and of padded rows, by the type of the weights: the largest difference
divided by the usual length of a state. For a model that does not keep rows apart, the distance is several times larger.
"""

NEWEST = "default"
"""peft's name of the adapter that is trained, saved and switched off. Adapters that training started with stay active
in addition.
"""


T = TypeVar("T")


def _may_stop(_trunk: nn.Module, _inputs: Any) -> None:
    """Check for a request to stop before every pass: of a decoding step, or of a micro-batch."""
    stops.point()


@dataclass
class Scores:
    """Log-probabilities and entropies of responses; 0 where the mask is False."""

    logp: Tensor  # [B,T] nats
    entropy: Tensor | None = None  # [B,T] nats


class LanguageModel(nn.Module):
    """`net` (a transformers model, possibly inside a peft model) with its tokenizer and its head.

    `number` is the scalar or token head. A model with such a head has no next-token logits, and a model with logits has
    no such head.
    """

    def __init__(
        self,
        net: nn.Module,
        tokenizer: Any,
        spec: ModelSpec,
        *,
        base: Source,
        eos_ids: set[int],
        end_id: int,
        number: NumberHead | None = None,
    ) -> None:
        super().__init__()
        self.net = net
        self.number = number
        self.tokenizer = tokenizer
        self.spec = spec
        self.base = base
        """Source of the weights; with an adapter, of the base model."""
        self.eos_ids = eos_ids
        """Tokens that end a response."""
        self.end_id = end_id
        """Token, one of `eos_ids`, that the chat template puts at the end of an answer."""
        self.pad_id: int = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end_id
        if self.adapted:
            skip_casts(net)
        config = self.transformer.config
        self.hidden_size: int = config.get_text_config().hidden_size
        self.attention_heads: int = getattr(config.get_text_config(), "num_attention_heads", 0)
        self.max_tokens = longest_input(config.get_text_config())
        """Maximum number of tokens of prompt and response together; None if there is no limit."""
        self.trunk.register_forward_pre_hook(_may_stop)
        self.takes_positions = "position_ids" in inspect.signature(self.trunk.forward).parameters
        self.sharded = False
        """True if each process has a part of the weights. Then all processes must make the same passes."""
        self.packed_tokens: int | None = None
        """Maximum number of tokens of the packed rows of one pass (see `pack_rows`); None: rows are padded."""
        self._can_share, self._can_pack = can_share(self.trunk), can_pack(self.trunk)
        if number is None:
            for setting in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
                if getattr(config, setting, None) not in (None, 1, 1.0):
                    raise ValueError(f"models with {setting} are not supported: their logits are not hidden @ weight")
            if type(self.output_layer) is nn.Linear:
                ScoringLinear.adopt(self.output_layer)

    @property
    def transformer(self) -> Any:
        """Return the transformers model, without peft's wrapping."""
        net: Any = self.net
        return net.get_base_model() if self.adapted else net

    @property
    def trunk(self) -> nn.Module:
        """Return the part that computes hidden states, without an output layer."""
        model = self.transformer
        return getattr(model, model.base_model_prefix, model)

    @property
    def output_layer(self) -> nn.Module:
        """Return the layer from hidden states to logits."""
        layer = self.transformer.get_output_embeddings()
        if layer is None:
            raise TypeError(f"this model has a {self.head} head and gives no next-token probabilities")
        return layer

    @property
    def adapted(self) -> bool:
        """Return True if there is a LoRA adapter."""
        return hasattr(self.net, "peft_config")

    @property
    def head(self) -> str:
        """Return "lm", "scalar" or "token"."""
        return "lm" if self.number is None else "scalar" if self.number.bias is None else "token"

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @contextmanager
    def adapter_off(self) -> Iterator[None]:
        """Switch the (newest) adapter off inside the context. The model is then the reference of a LoRA policy."""
        if not self.adapted:
            raise ValueError(
                "no adapter to switch off: the model was loaded without lora, so load the reference separately"
            )
        net: Any = self.net
        trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
        earlier = [name for name in net.peft_config if name != NEWEST]
        try:
            if not earlier:
                with net.disable_adapter():
                    yield
                return
            net.base_model.set_adapter(earlier)
            try:
                yield
            finally:
                net.base_model.set_adapter([*earlier, NEWEST])
        finally:  # peft makes adapters trainable when it switches them on again, whatever they were before
            net.requires_grad_(False)
            for parameter in trained:
                parameter.requires_grad_(True)

    def gathered(self, compute: Callable[[], T]) -> T:
        """Return the result of `compute`. If the weights are sharded, those outside transformer blocks are complete
        inside, and all processes call this.
        """
        return compute()

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the embeddings [B,P+T,h] of prompts and responses, the input of the first layer; without gradient."""
        with torch.no_grad():
            return self.transformer.get_input_embeddings()(torch.cat([tokens.prompt_ids, tokens.response_ids], 1))

    def hidden(
        self, tokens: Tokens, *, adapter: bool = True, gradient: bool | None = None, embeddings: Tensor | None = None
    ) -> Tensor:
        """Return hidden states [B,T+1,h] from the last prompt token to the last response position.

        Row `[:, t]` is the state before response token t, `[:, t + 1]` the state at it. Position ids count real tokens,
        so padding has no effect, also with absolute positions. Every row needs a prompt token.

        gradient: True for the matrix products of a pass with a gradient, False for those of a pass without (None: as in
        the present context). With the same weights and the same batch, passes with the same value round in the same
        way.

        embeddings: [B,P+T,h] in place of those of the ids (see `embed`), with a gradient to them.
        """
        gradient = torch.is_grad_enabled() if gradient is None else gradient
        prompt, mask = tokens.prompt_ids.shape[1], self._mask(tokens)
        inputs: dict[str, Any] = {"attention_mask": mask.long()}
        if embeddings is None:
            inputs["input_ids"] = torch.cat([tokens.prompt_ids, tokens.response_ids], 1)
        else:
            inputs["inputs_embeds"] = embeddings
        if self.takes_positions:
            inputs["position_ids"] = (mask.long().cumsum(1) - 1).clamp_min(0)
        rows, length = mask.shape
        with (
            nullcontext() if adapter else self.adapter_off(),
            self.low_precision(),
            self._attention(rows, length, gradient, FEW_SCORES),
        ):
            if len(mask) > 1 and embeddings is None and self.shares_prompts(gradient=gradient):
                first, place = distinct_prompts(tokens)
                if worth_sharing(len(place), len(first), prompt, tokens.response_ids.shape[1]):
                    return states_after(self.trunk, inputs, prompt, first, place)
            return self.trunk(**inputs, use_cache=False).last_hidden_state[:, prompt - 1 :]

    def _mask(self, tokens: Tokens) -> Tensor:
        """Return a mask, bool [B,P+T], of the real tokens. Raises ValueError for a row without a prompt, `DataError`
        for a row that is too long.
        """
        if tokens.prompt_ids.shape[1] == 0 or not bool(tokens.prompt_mask[:, -1].all()):
            raise ValueError("every prompt needs a token in its last place (prompts are padded on the left)")
        mask = torch.cat([tokens.prompt_mask, tokens.mask], 1)
        if self.max_tokens is not None and mask.shape[1] > self.max_tokens:  # without padding it may still fit
            self.check_length(int(mask.sum(1).max()), "lower the limits of prompts and responses")
        return mask

    def check_length(self, tokens: int, advice: str) -> None:
        """Raise `DataError` for more tokens than the model has positions: its results would be wrong without a message,
        or it would fail.
        """
        if self.max_tokens is not None and tokens > self.max_tokens:
            raise DataError(
                f"{self.spec.base} reads at most {self.max_tokens:,} tokens, and a prompt with its response has up to "
                f"{tokens:,}: {advice}"
            )

    def shares_prompts(self, *, gradient: bool) -> bool:
        """Return True if prompts that several rows of a batch share are computed once; False if activations are
        recomputed for a gradient.
        """
        padded = self.packed_tokens is None
        return padded and self._can_share and not self.sharded and not (gradient and self.spec.gradient_checkpointing)

    def pack_rows(self, tokens: int | None) -> None:
        """Process rows one after another, without padding, from now on, with at most `tokens` tokens in one pass; None:
        change nothing. Raises `DataError` if the model does not keep such rows apart.
        """
        if tokens is None:
            return
        if self.device.type == "meta":  # the process that has the weights looks
            self.packed_tokens = tokens
            return
        probe = packed_rows.probe(self.trunk.config, self.max_tokens, self.device)
        why = "a row changes with the rows before it"
        try:
            with torch.no_grad(), evaluating(self):
                self.packed_tokens = None
                padded = self.states(probe).float()
                self.packed_tokens = tokens
                far = float((self.states(probe).float() - padded).norm(dim=1).max() / padded.norm(dim=1).median())
        except (ImportError, TypeError, ValueError) as error:
            far, why = math.inf, str(error)
        if not far <= NEAR[self.transformer.dtype]:
            self.packed_tokens = None
            config: Any = self.trunk.config
            raise DataError(
                f"{self.spec.base}: the rows of a {config.model_type} model with attention {config._attn_implementation} cannot be "
                f"read without padding ({why}): leave micro_batch_tokens out"
            )

    def packs_pairs(self) -> bool:
        """Return True if the rows of a pair can be processed as one sequence (see `fgrl.models.shared_prefixes`)."""
        config: Any = self.trunk.config
        return self._can_pack and not self.sharded and config._attn_implementation in ATTENTION

    def _packed_states(self, packed: Packed, *, adapter: bool, gradient: bool) -> Tensor:
        """Return the hidden states [E,h] before each distinct response token."""
        rows, length = packed.ids.shape
        config: Any = self.trunk.config
        with (
            nullcontext() if adapter else self.adapter_off(),
            self.low_precision(),
            self._attention(rows, length, gradient, FEW_SCORES_OF_PAIRS),
        ):
            mask = packed.allowed()
            if config._attn_implementation == "eager":
                lowest = torch.finfo(self.transformer.dtype).min
                mask = torch.zeros(mask.shape, dtype=self.transformer.dtype, device=mask.device).masked_fill_(
                    ~mask, lowest
                )
            states = self.trunk(
                input_ids=packed.ids, attention_mask=mask, position_ids=packed.positions, use_cache=False
            ).last_hidden_state
        return states.flatten(0, 1).index_select(0, packed.before)

    @contextmanager
    def _attention(self, rows: int, length: int, gradient: bool, few: int) -> Iterator[None]:
        """Use unfused attention for a short pass on a CPU inside the context: the sums are the same, and a training
        pass takes a fifth less time.
        """
        config: Any = self.trunk.config
        recomputed = gradient and self.spec.gradient_checkpointing  # outside of here
        fused = self.attention_heads and config._attn_implementation == "sdpa" and self.device.type == "cpu"
        if not fused or recomputed or rows * self.attention_heads * length**2 > few:
            yield
            return
        config._attn_implementation = "eager"
        try:
            yield
        finally:
            config._attn_implementation = "sdpa"

    def low_precision(self) -> AbstractContextManager[Any]:
        """Return a context in which adapters on a bfloat16 base compute in bfloat16, in training and elsewhere. They
        are stored in float32.

        Without this, each adapter's input would be converted to float32 and multiplied in it, several times slower.
        """
        kind = self.device.type
        if not self.adapted or self.transformer.dtype != torch.bfloat16 or torch.is_autocast_enabled(kind):
            return nullcontext()
        return torch.autocast(kind, dtype=torch.bfloat16)

    def states(self, tokens: Tokens, *, behind: bool = False, **options: Any) -> Tensor:
        """Return the hidden states [N,h] before each of the N real response tokens, in row order; options of `hidden`.
        behind: True for the states at these tokens instead.
        """
        if self.packed_tokens is not None:
            return self._states_of_rows(tokens, **options)[packed_rows.places(tokens) - (0 if behind else 1)]
        hidden = self.hidden(tokens, **options)
        return (hidden[:, 1:] if behind else hidden[:, :-1])[tokens.mask]

    def _states_of_rows(
        self, tokens: Tokens, *, adapter: bool = True, gradient: bool | None = None, embeddings: Tensor | None = None
    ) -> Tensor:
        """Return the hidden states [N,h] at all real tokens, computed without padding; options of `hidden`, whose
        matrix products are the same with and without a `gradient`.
        """
        mask, config = self._mask(tokens), cast("Any", self.trunk.config)
        if embeddings is None:
            read = {"input_ids": torch.cat([tokens.prompt_ids, tokens.response_ids], 1)[mask][None]}
        else:
            read = {"inputs_embeds": embeddings[mask][None]}
        with nullcontext() if adapter else self.adapter_off(), self.low_precision():
            read |= packed_rows.inputs(mask, config._attn_implementation)
            states: Tensor = self.trunk(**read, use_cache=False).last_hidden_state
        return states[0]

    def score(
        self,
        tokens: Tokens,
        *,
        temperature: float = 1.0,
        entropy: bool = False,
        entropy_temperature: float | None = None,
        adapter: bool = True,
        gradient: bool | None = None,
        chunk: int | None = None,
        pairs: bool = False,
        ends: Collection[int] | None = None,
    ) -> Scores:
        """Return log-probabilities of the response tokens and entropies of the distributions from which they were
        drawn.

        Logits are divided by `temperature`, those of the entropy by `entropy_temperature` (default: the same). Only
        real tokens go through the output layer, `chunk` of them at a time (default: 16 MB of logits on a CPU, 128
        elsewhere). `adapter` and `gradient` are those of `hidden`. pairs: True if rows 2i and 2i+1 have a common
        beginning, as the answers of a preference pair; it goes through the model once, if `packs_pairs` allows it.

        At positions where `tokens.no_end` is True, the tokens `ends` (default: this model's `eos_ids`) have probability
        0, as when the responses were drawn.
        """
        options: dict[str, Any] = {
            "temperature": temperature,
            "entropy": entropy,
            "entropy_temperature": entropy_temperature,
        }
        if pairs and self.packs_pairs() and (self.packed_tokens is None or len(tokens.mask) == 2):
            self._mask(tokens)
            if (packed := pack(tokens, 2, self.pad_id)) is not None:
                gradient = torch.is_grad_enabled() if gradient is None else gradient
                states = self._packed_states(packed, adapter=adapter, gradient=gradient)
                barred = self.barred(tokens, ends=ends)
                if barred is not None:  # what two rows have in common is at the same places of both
                    rows = torch.zeros_like(packed.labels, dtype=torch.bool)
                    rows[packed.place] = barred[0]
                    barred = rows, barred[1]
                numbers = self._scores(states, packed.labels, chunk=chunk, barred=barred, **options)
                return Scores(*(None if x is None else unflatten(x[packed.place], tokens.mask) for x in numbers))  # type: ignore[arg-type]
        return self.score_states(
            self.states(tokens, adapter=adapter, gradient=gradient), tokens, chunk=chunk, ends=ends, **options
        )

    def barred(
        self, tokens: Tokens, mask: Tensor | None = None, *, ends: Collection[int] | None = None
    ) -> Barred | None:
        """Return a mask of the N real response tokens (those of `mask`) that could not be an end token, and the end
        tokens; None if there is no such bound.
        """
        if tokens.no_end is None:
            return None
        ids = torch.tensor(sorted(self.eos_ids if ends is None else ends), device=tokens.mask.device)
        return tokens.no_end[tokens.mask if mask is None else mask], ids

    def score_states(
        self, states: Tensor, tokens: Tokens, *, only: Tensor | None = None, chunk: int | None = None,
        ends: Collection[int] | None = None, **options: Any,
    ) -> Scores:  # fmt: skip
        """Return the second half of `score`, for states [N,h] from `states`.

        only: bool [B,T], the response tokens that go through the output layer; the others get 0. None: all.
        """
        mask = tokens.mask
        if only is not None:
            if only.dtype != torch.bool or only.shape != mask.shape:
                raise ValueError(f"only: {only.dtype} {list(only.shape)}, wants bool {list(mask.shape)}, as the mask")
            mask = mask & only
            states = states[mask[tokens.mask]]
        barred = self.barred(tokens, mask, ends=ends)
        logp, entropies = self._scores(states, tokens.response_ids[mask], chunk=chunk, barred=barred, **options)
        return Scores(unflatten(logp, mask), None if entropies is None else unflatten(entropies, mask))

    def _scores(
        self, states: Tensor, labels: Tensor, *, chunk: int | None, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Return log-probabilities [N] of `labels` [N] after `states` [N,h], and entropies [N] if they are requested."""
        layer = self.output_layer
        if isinstance(layer, ScoringLinear):
            logp, entropies = layer(states, labels, chunk=chunk, **options)
        else:
            rows = chunk or chunk_rows(self.transformer.config.get_text_config().vocab_size, states.device.type)
            logp, entropies = scores_through(self.logits, states, labels, chunk=rows, **options)
        return finite.checked(logp, self.spec), entropies

    def logits(self, states: Tensor) -> Tensor:
        """Return next-token logits [..., V] of hidden states [..., h]. Use it only for few of them at a time."""
        layer = self.output_layer
        if isinstance(layer, nn.Linear) and not torch.is_autocast_enabled(states.device.type):
            states = states.to(layer.weight.dtype)
        return finite.checked(layer(states), self.spec)

    def _numbers(self, states: Tensor, mask: Tensor) -> Tensor:
        if self.number is None:
            raise TypeError("this model has a language-model head; load it with head: scalar or token")
        return unflatten(finite.checked(self.number(states), self.spec), mask)

    def values(self, tokens: Tokens, *, adapter: bool = True) -> Tensor:
        """Return the number head's output at the state before each response token: [B,T] float32, 0 outside the mask."""
        return self._numbers(self.states(tokens, adapter=adapter), tokens.mask)

    def rewards(self, tokens: Tokens, *, adapter: bool = True) -> Tensor:
        """Return the number head's output at each response token: [B,T] float32, 0 outside the mask."""
        return self._numbers(self.states(tokens, behind=True, adapter=adapter), tokens.mask)


@contextmanager
def evaluating(*modules: nn.Module | None) -> Iterator[None]:
    """Put the modules into evaluation mode (no dropout) inside the context; afterwards each part has its previous mode
    again.
    """
    present = [module for module in modules if module is not None]
    training = [part for module in present for part in module.modules() if part.training]
    try:
        for module in present:
            module.eval()
        yield
    finally:
        for part in training:
            part.training = True


def gathering(models: Iterable[LanguageModel], compute: Callable[[], T]) -> T:
    """Return the result of `compute` inside `LanguageModel.gathered` of each model."""
    for model in models:
        compute = partial(model.gathered, compute)
    return compute()


def unflatten(flat: Tensor, mask: Tensor) -> Tensor:
    """Return [B,T] with the [N] numbers of the real tokens, and zeros elsewhere."""
    return torch.zeros(mask.shape, dtype=flat.dtype, device=flat.device).masked_scatter(mask, flat)


def longest_input(config: Any) -> int | None:
    """Return the number of positions in a config, including those that a scaled rotary embedding adds; None if it has
    no number.
    """
    positions = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    if positions is None or not rope.get("factor"):
        return positions
    return max(positions, int(rope.get("original_max_position_embeddings", positions) * rope["factor"]))


def skip_casts(net: nn.Module) -> int:
    """Let adapters in `net` use their input unconverted under autocast. Return the number of adapted layers.

    peft converts a bfloat16 input to the float32 of its weights, and autocast converts it back: the same numbers, but
    two more copies per layer in each pass and another activation to keep for the backward pass.
    """
    layers: list[nn.Module] = [layer for layer in net.modules() if hasattr(layer, "_cast_input_dtype")]
    for layer in layers:
        layer._cast_input_dtype = _cast  # type: ignore[assignment]
    return len(layers)


def _cast(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return x if x is None or torch.is_autocast_enabled(x.device.type) else x.to(dtype)

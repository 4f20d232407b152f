"""Typed settings that several components share: the model, its adapters, sampling. Does not import torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from importlib.util import find_spec
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from fgrl.base import files, native
from fgrl.base.errors import Requires, Unavailable
from fgrl.registry import ByDevice, File, FolderOrName, Settings, Unkeyed, names_folder
from fgrl.types import Checkpoint, Ref


def check_lengths(max_prompt_tokens: int, max_tokens: int) -> None:
    """Raise ValueError if a long prompt would leave no token for its response."""
    if max_prompt_tokens >= max_tokens:
        raise ValueError(
            f"max_prompt_tokens {max_prompt_tokens} is not below max_tokens {max_tokens}, the limit of prompt and response "
            "together: a long prompt would leave no token for the response"
        )


# one of them is in the folder of every model: transformers' and fgrl's, peft's, sentence-transformers'
POLICIES = "policies"
"""Folder in the product of a training for the models of earlier steps that it kept."""
MODEL_FILES = ("config.json", "adapter_config.json", "modules.json")
DAY = "%d %b %Y"
HUB_ID = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")


def names_source(name: str) -> bool:
    """Return True if there is a folder of this name, or it can be a hub id."""
    return files.is_folder(files.expanded(name)) or (HUB_ID.fullmatch(name) is not None and not names_folder(name))


class LoraSpec(Settings):
    """Low-rank adapters (Hu et al. 2021) on a frozen base."""

    r: int = Field(16, ge=1, le=65_536)
    """Rank of the adapters."""
    alpha: float = Field(32, gt=0, le=1e6)
    """Scale of the update, which is multiplied by alpha / r."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate on the adapter's input while training."""
    targets: Annotated[list[str], Field(min_length=1)] | Literal["all-linear"] = "all-linear"
    """Names of the linear layers to adapt."""
    last_blocks: int | None = Field(None, ge=1, le=10_000)
    """Number of the last transformer blocks that are adapted: the backward pass ends there. null adapts all blocks."""


class Templating(NamedTuple):
    """Settings of a tokenizer's chat template."""

    file: str | None = None
    """File with a template that replaces the tokenizer's own."""
    date_string: str | None = None
    """Date that the template uses as today."""
    variables: tuple[tuple[str, Any], ...] = ()
    """Further variables of the template, by name."""
    thinking: tuple[str, ...] = ()
    """Marks between which a response thinks."""


PLAIN = Templating()
"""Settings of a template that is used as the model was saved."""


class ModelSpec(Settings):
    """A backbone with its head. A bare string is `{base: string}`."""

    base: Annotated[str, FolderOrName()] | Ref[Checkpoint]
    """Hub id, folder, short name of a packaged model (`smollm2-135m-instruct`), or `${out:stage}`. In a recipe, a
    folder is relative to the recipe that names it; `owner/name` is a hub id unless the recipe's folder contains such a
    folder.
    """
    revision: str | None = None
    """Commit, tag or branch on the hub."""
    step: int | None = Field(None, ge=0)
    """Iteration or optimizer step of a kept model, for `${out:stage}`: the model that the stage's `evaluate` kept after
    it (`keep: all`). null: the stage's product.
    """
    auxiliary: str | None = None
    """Name of a model that the stage of `${out:stage}` trained beside the policy. null: the policy."""
    head: Literal["lm", "scalar", "token"] | None = None
    """Output of the model: next-token logits, one number per position, or one logit per token. null: the head that the
    field requires.
    """
    lora: LoraSpec | None = None
    """Train adapters instead of all weights."""
    quantize: Literal["nf4", "none"] | None = None
    """Quantization. `nf4`: load the frozen base in 4 bits (needs `fgrl[nf4]` and a GPU). null: as fgrl saved it, else
    no quantization.
    """
    dtype: Annotated[Literal["auto", "float32", "bfloat16"] | None, ByDevice()] = None
    """Type of the weights. `auto`: bfloat16 if the device multiplies it natively, else float32; the recipe's `dtype`
    overrides it. With `auto`, a model all of whose weights are trained is float32 (except with DeepSpeed). null: the
    type that fgrl saved it with, else float32.
    """
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    """Attention implementation of transformers. If flash-attn is not installed, `sdpa` replaces `flash_attention_2`: it
    is torch's own, and computes the same up to rounding.
    """
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass."""
    chat_template: Annotated[str | None, File] = None
    """File with a chat template (Jinja) that replaces the tokenizer's own. null: the tokenizer's template; if it has
    none, prompts are plain text.
    """
    date_string: str | None = None
    """Date that chat templates use as today, such as `26 Jul 2024`, so that results do not depend on the clock. null:
    the date with which the stage or the exported model of `base` was trained, else `26 Jul 2024`, as in Llama's
    templates without a clock.
    """
    template: dict[str, str | bool | int | float | None] = {}
    """Variables of the chat template, such as `{enable_thinking: false}`. Empty: the variables with which the stage or
    the exported model of `base` was trained.
    """
    thinking: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None
    """Marks between which a response thinks, such as `["<think>", "</think>"]`. Rewards, metrics and environments get
    the answer without the text between them. null: the marks with which the stage or the exported model of `base` was
    trained.
    """

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"base": value} if isinstance(value, str | Ref) else value

    @field_validator("date_string")
    @classmethod
    def _is_a_day(cls, value: str | None) -> str | None:
        if value is not None:
            datetime.strptime(value, DAY)
        return value

    @model_validator(mode="after")
    def _step_of_a_stage(self) -> ModelSpec:
        if self.step is not None and not isinstance(self.base, Ref):
            raise ValueError(
                f"step {self.step} needs a base that is ${{out:stage}}, a stage that trains; it is {self.base}"
            )
        if self.auxiliary is not None and not isinstance(self.base, Ref):
            raise ValueError(f"auxiliary {self.auxiliary} needs a base that is ${{out:stage}}; it is {self.base}")
        if self.auxiliary is not None and self.step is not None:
            raise ValueError(f"step {self.step}: of auxiliary models the product holds only the last one; leave it out")
        return self

    @model_validator(mode="after")
    def _exists(self) -> ModelSpec:
        base = self.base
        if isinstance(base, Ref):
            return self
        if not base.strip():
            raise ValueError("base: wants a hub id (owner/name), a folder, or ${out:stage}; this one names nothing")
        if not names_source(base):
            raise ValueError(f"base: no such folder: {base} (a hub id looks like owner/name)")
        folder = files.expanded(base)
        if files.is_folder(folder) and not any((folder / name).is_file() for name in MODEL_FILES):
            empty = (
                f"download one into it (hf download OWNER/NAME --local-dir {base}), or "
                if not files.names_in(folder)
                else ""
            )
            raise ValueError(
                f"base: the folder {base} contains no model: none of {', '.join(MODEL_FILES)}; {empty}name the folder of a model"
            )
        return self

    def check_machine(self) -> None:
        if self.quantize == "nf4":
            Requires("bitsandbytes", "quantize: nf4 needs bitsandbytes", extra="nf4").check()
            if not native.has_gpu():
                raise Unavailable("quantize: nf4 needs a GPU, and none is visible here")

    @property
    def templating(self) -> Templating:
        """Return the settings of the tokenizer's chat template."""
        return Templating(
            self.chat_template, self.date_string, tuple(sorted(self.template.items())), tuple(self.thinking or ())
        )

    def attention_here(self) -> str:
        """Return the attention implementation that runs on this machine, which is part of a stage's key."""
        return "sdpa" if self.attention == "flash_attention_2" and find_spec("flash_attn") is None else self.attention

    def frozen(self) -> ModelSpec:
        """Return the model that training starts from, as a language model without new adapters."""
        return self.model_copy(update={"lora": None, "head": None, "gradient_checkpointing": False})


def stage_of(model: object) -> str | None:
    """Return the stage whose product is the model: `x` of `${out:x}`; None for any other model. model: a `ModelSpec`,
    or settings of a recipe: `${out:x}`, or a mapping with it as `base`.
    """
    base = model.base if isinstance(model, ModelSpec) else model.get("base") if isinstance(model, Mapping) else model
    reference = base if isinstance(base, Ref) else Ref.parse(base.strip()) if isinstance(base, str) else None
    return None if reference is None else reference.stage or None


class Sampling(Settings):
    """Settings of drawing responses."""

    max_new_tokens: int = Field(ge=1, le=10_000_000)
    """Maximum number of tokens of a response."""
    max_prompt_tokens: int = Field(1024, ge=1, le=10_000_000)
    """Maximum number of tokens of a prompt; longer prompts are cut at their beginning."""
    min_new_tokens: int = Field(0, ge=0, le=10_000_000)
    """Number of tokens at the beginning of a response that cannot be an end token. There its probability is 0, in
    drawing and, in training, in every log-probability, entropy and KL.
    """
    temperature: float = Field(1.0, ge=0, le=100)
    """Divisor of the logits; 0 is greedy decoding."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Threshold of nucleus sampling: keep the most probable tokens that together reach this probability."""
    top_k: int = Field(0, ge=0, le=10_000_000)
    """Number of the most probable tokens that are kept; 0 keeps all."""
    truncated: bool = False
    """True to allow `top_p` < 1 or `top_k` in training. Log-probabilities stay those of the whole distribution, so that
    the ratio starts at 1, but the gradient is off-policy: responses are drawn from a truncated distribution.
    """
    stop: list[Annotated[str, Field(min_length=1)]] = []
    """Texts that end a response, or a turn in a conversation: it is complete behind the first token with which its text
    contains one of them.
    """
    batch_size: Annotated[int, Unkeyed] = Field(64, ge=1, le=1_000_000)
    """Number of responses that are sampled at the same time. It changes memory and speed, but not the samples (up to
    rounding).
    """

    @model_validator(mode="after")
    def _usable_temperature(self) -> Sampling:
        if 0 < self.temperature < 1e-3:
            raise ValueError(f"temperature {self.temperature:g}: wants 0 (greedy), or 0.001 to 100")
        return self

    @model_validator(mode="after")
    def _room_for_the_end(self) -> Sampling:
        if self.min_new_tokens > self.max_new_tokens:
            raise ValueError(
                f"min_new_tokens {self.min_new_tokens} is above max_new_tokens {self.max_new_tokens}, the length limit of a response"
            )
        return self

    def inexact(self) -> list[str]:
        """Return the settings that draw responses from another distribution than that of a policy gradient's
        log-probabilities: greedy decoding, and truncation unless `truncated` allows it.
        """
        reasons = {
            "temperature: 0": self.temperature == 0,
            f"top_p: {self.top_p}": self.top_p < 1 and not self.truncated,
            f"top_k: {self.top_k}": self.top_k > 0 and not self.truncated,
        }
        return [reason for reason, holds in reasons.items() if holds]

"""Typed settings that several components share: which model, its adapters, sampling. No torch here."""

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
    """Raise ValueError when a long prompt would leave no token for its response."""
    if max_prompt_tokens >= max_tokens:
        raise ValueError(
            f"max_prompt_tokens {max_prompt_tokens} is not below max_tokens {max_tokens}, the limit of prompt and response "
            "together: a long prompt would leave no token for the response"
        )


# one of them is in the folder of every model: transformers' and fgrl's, peft's, sentence-transformers'
POLICIES = "policies"
"""In the product of a training: the models that it kept of steps."""
MODEL_FILES = ("config.json", "adapter_config.json", "modules.json")
DAY = "%d %b %Y"
HUB_ID = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")


def names_source(name: str) -> bool:
    """Is there a folder of this name, or can it be a hub id?"""
    return files.is_folder(files.expanded(name)) or (HUB_ID.fullmatch(name) is not None and not names_folder(name))


class LoraSpec(Settings):
    """Low-rank adapters (Hu et al. 2021) on a frozen base."""

    r: int = Field(16, ge=1, le=65_536)
    """Rank."""
    alpha: float = Field(32, gt=0, le=1e6)
    """Scale: the update is multiplied by alpha / r."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the adapter's input while training."""
    targets: Annotated[list[str], Field(min_length=1)] | Literal["all-linear"] = "all-linear"
    """Names of the linear layers to adapt."""
    last_blocks: int | None = Field(None, ge=1, le=10_000)
    """Adapt only this many of the last transformer blocks: the backward pass ends there. null adapts all."""


class Templating(NamedTuple):
    """How a tokenizer's chat template is used."""

    file: str | None = None
    """File with a template in place of the tokenizer's own."""
    date_string: str | None = None
    """The day that it takes for today."""
    variables: tuple[tuple[str, Any], ...] = ()
    """What else it is given, by name."""
    thinking: tuple[str, ...] = ()
    """Between which marks a response thinks."""


PLAIN = Templating()
"""As the model was saved."""


class ModelSpec(Settings):
    """A backbone with its head. A bare string is `{base: string}`."""

    base: Annotated[str, FolderOrName()] | Ref[Checkpoint]
    """Hub id, folder, the short name of a packaged model (`smollm2-135m-instruct`), or `${out:stage}`. In a recipe a
    folder is relative to the recipe that names it; `owner/name` is a hub id where the recipe's folder has no such
    folder.
    """
    revision: str | None = None
    """Commit, tag or branch on the hub."""
    step: int | None = Field(None, ge=0)
    """Of `${out:stage}`: the model that the stage's `evaluate` kept after this many iterations or optimizer steps
    (`keep: all`); null: the stage's product.
    """
    auxiliary: str | None = None
    """Of `${out:stage}`: the model that the stage trained beside the policy under this name; null: the policy."""
    head: Literal["lm", "scalar", "token"] | None = None
    """Output of the model: next-token logits, one number per position, or one logit per token. null: what the slot
    requires.
    """
    lora: LoraSpec | None = None
    """Train adapters instead of all weights."""
    quantize: Literal["nf4", "none"] | None = None
    """`nf4`: load the frozen base in 4 bits (needs `fgrl[nf4]` and a GPU). null: as fgrl saved it, else not."""
    dtype: Annotated[Literal["auto", "float32", "bfloat16"] | None, ByDevice()] = None
    """Type of the weights. `auto`: bfloat16 where the device multiplies it natively, else float32; the recipe's `dtype`
    overrides it. A model all of whose weights are trained is float32 under `auto` (but with DeepSpeed). null: the type
    that fgrl saved it with, else float32.
    """
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    """Attention implementation of transformers. Where flash-attn is not installed, `flash_attention_2` stands for `sdpa`: torch's
    own, which computes the same up to rounding.
    """
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass."""
    chat_template: Annotated[str | None, File] = None
    """File with a chat template (Jinja) in place of the tokenizer's own. null: that one; without any, prompts are plain
    text.
    """
    date_string: str | None = None
    """The day that chat templates take for today, as in `26 Jul 2024`: their clock stands still. null: the day with which
    the stage or the exported model of `base` was trained, else `26 Jul 2024`, as Llama's templates without a clock do.
    """
    template: dict[str, str | bool | int | float | None] = {}
    """Variables that chat templates are given, such as `{enable_thinking: false}`. Empty: those with which the stage or
    the exported model of `base` was trained.
    """
    thinking: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None
    """Marks between which a response thinks, such as `["<think>", "</think>"]`: rewards, metrics and environments get the
    answer without what stands there. null: those with which the stage or the exported model of `base` was trained.
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
        """Return how the tokenizer's chat template is used."""
        return Templating(
            self.chat_template, self.date_string, tuple(sorted(self.template.items())), tuple(self.thinking or ())
        )

    def attention_here(self) -> str:
        """Return the attention that runs on this machine, which a stage's key has."""
        return "sdpa" if self.attention == "flash_attention_2" and find_spec("flash_attn") is None else self.attention

    def frozen(self) -> ModelSpec:
        """Return the model that training starts from, as a language model without new adapters."""
        return self.model_copy(update={"lora": None, "head": None, "gradient_checkpointing": False})


def stage_of(model: object) -> str | None:
    """Return the stage whose product a model is: `x` of `${out:x}`; None for any other model.

    model: a `ModelSpec`, or settings as a recipe has them: `${out:x}`, or a mapping with it as `base`.
    """
    base = model.base if isinstance(model, ModelSpec) else model.get("base") if isinstance(model, Mapping) else model
    reference = base if isinstance(base, Ref) else Ref.parse(base.strip()) if isinstance(base, str) else None
    return None if reference is None else reference.stage or None


class Sampling(Settings):
    """How responses are drawn."""

    max_new_tokens: int = Field(ge=1, le=10_000_000)
    """Length limit of a response in tokens."""
    max_prompt_tokens: int = Field(1024, ge=1, le=10_000_000)
    """Longer prompts are cut at their beginning."""
    min_new_tokens: int = Field(0, ge=0, le=10_000_000)
    """The first this many tokens of a response cannot be an end token: its probability is 0 there, in drawing and, in
    training, in every log-probability, entropy and KL.
    """
    temperature: float = Field(1.0, ge=0, le=100)
    """Divides the logits; 0 is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus: keep the most probable tokens that together reach this probability."""
    top_k: int = Field(0, ge=0, le=10_000_000)
    """Keep this many of the most probable tokens; 0 keeps all."""
    truncated: bool = False
    """In training: allow `top_p` < 1 or `top_k`. Log-probabilities stay those of the whole distribution, so
    that the ratio starts at 1, but the gradient is off-policy: responses are drawn from a truncated distribution."""
    stop: list[Annotated[str, Field(min_length=1)]] = []
    """A response, in a conversation a turn, is complete behind the first token with which its text has one of these."""
    batch_size: Annotated[int, Unkeyed] = Field(64, ge=1, le=1_000_000)
    """Responses sampled at the same time. Changes memory and speed, not the samples (up to rounding)."""

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
        """Return the settings that sample from another distribution than the one whose log-probabilities a policy
        gradient uses, and that `truncated` does not allow.
        """
        reasons = {
            "temperature: 0": self.temperature == 0,
            f"top_p: {self.top_p}": self.top_p < 1 and not self.truncated,
            f"top_k: {self.top_k}": self.top_k > 0 and not self.truncated,
        }
        return [reason for reason, holds in reasons.items() if holds]

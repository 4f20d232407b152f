"""Agreement of an exported folder with the stage's model: both answer the same prompts, computed in float32.

1. Adapters are merged in float32, which changes nothing but the order of sums.
2. The sum is rounded to the type of the export. What that changes is measured on this very model.
3. The folder is read from the disk by transformers (and peft), as its users read it, and is the rounded model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

from fgrl import models, rollouts
from fgrl.base.errors import DataError
from fgrl.kinds import default_engine
from fgrl.kinds.specs import ModelSpec, Sampling
from fgrl.models.pretrained import no_progress_bars
from fgrl.models.sources import Source

PROBES = (
    "Write one sentence about the sea.",
    "What does this function return?\n\ndef add(a, b):\n    return a + b",
    "Nenne drei Städte in Europa.",
)
NEW_TOKENS = 24
"""Upper bound on tokens of each greedy answer."""
KL_LIMIT = 1e-6
"""KL in nats per token up to which two models count as equal: they compute the same sums in another order."""
LOST_LIMIT = 0.25
"""Share of the effect of the last training (its KL per token from its start) that rounding may take away."""
NUMBER_LIMIT = 1e-3
"""Largest difference of a reward up to which two models count as equal, relative to 1 + its size."""
CLASSES = {
    "lm": "AutoModelForCausalLM", "scalar": "AutoModelForSequenceClassification", "token": "AutoModelForTokenClassification",
}  # fmt: skip
"""Class that loads whole weights, by the model's head."""


@dataclass(frozen=True)
class Agreement:
    """Differences between the exported model and the stage's."""

    prompts: int
    tokens: int
    """Number of tokens that were compared."""
    same_answers: int | None = None
    """Number of prompts with the same greedy answer, token for token; None for a model with a number head."""
    kl: float | None = None
    """Mean KL(stage || exported) of the next-token distributions, nats per token."""
    kl_of_training: float | None = None
    """Mean KL(stage || start of its training), nats per token; None without an adapter."""
    difference: float | None = None
    """Largest difference of a reward, for a model with a number head."""

    def in_words(self) -> str:
        if self.difference is not None:
            return f"the largest difference of {self.tokens} rewards is {self.difference:.2g}"
        assert self.kl is not None
        kl = "0" if self.kl < 1e-12 else f"{self.kl:.1g}"
        return (
            f"the same greedy tokens on {self.same_answers} of {self.prompts} prompts, KL {kl} nats per token over "
            f"{self.tokens} tokens"
        )


@dataclass
class Answers:
    """Answers of the stage's model, or the rewards that it gives."""

    prompts: list[list[int]]
    responses: list[list[int]]
    numbers: list[Tensor]
    """Log-probabilities [T,V] of each response, or rewards [T] of a number head."""
    base_kl: float | None = None
    rounded: list[Tensor] | None = None
    """`numbers` of the model with the weights of the export; None if these are the stage's weights."""


def _numbers(model: Any, prompts: list[list[int]], responses: list[list[int]], *, adapter: bool = True) -> list[Tensor]:
    tokens = rollouts.pad(prompts, responses, model.pad_id, model.eos_ids)
    lengths = [len(response) for response in responses]
    if model.head != "lm":
        return [row[:n] for row, n in zip(model.rewards(tokens), lengths, strict=True)]
    return list(torch.log_softmax(model.logits(model.states(tokens, adapter=adapter)).float(), -1).split(lengths))


@torch.no_grad()
def round_merged(answers: Answers, model: Any, dtype: str) -> str:
    """Round the weights of `model`, the stage's with its adapters merged, and record its answers. Returns the reason if
    rounding would lose the training; otherwise an empty text. Raises `DataError` if the model differed before the
    rounding.
    """
    _check_same(answers.numbers, _numbers(model, answers.prompts, answers.responses), model.head)
    if dtype == "float32":
        return ""
    for weight in model.parameters():
        weight.copy_(weight.to(getattr(torch, dtype)))
    rounded = _numbers(model, answers.prompts, answers.responses)
    if answers.base_kl is not None and (kl := _distance(answers.numbers, rounded, "lm")) > LOST_LIMIT * answers.base_kl:
        return (
            f"rounding to {dtype} would lose what the training changed: the weights would move by {kl:.2g} nats per token, and the "
            f"training moved them by {answers.base_kl:.2g}"
        )
    answers.rounded = rounded
    return ""


def _check_same(wanted: list[Tensor], found: list[Tensor], head: str) -> None:
    what, limit = ("next-token distributions differ", KL_LIMIT) if head == "lm" else ("rewards differ", NUMBER_LIMIT)
    by = _distance(wanted, found, head)
    if not by <= limit:
        raise DataError(
            f"the exported model is not the stage's: their {what} by {by:.2g}, which is more than rounding; nothing was written"
        )


def _distance(wanted: list[Tensor], found: list[Tensor], head: str) -> float:
    """Return the mean KL in nats per token, or the largest difference of a reward, relative to 1 + its size."""
    one, other = torch.cat(wanted), torch.cat(found)
    if head == "lm":
        return float((one.exp() * (one - other)).sum(-1).clamp_min(0).mean())
    return float(((other - one).abs() / (1 + one.abs())).max())


@torch.no_grad()
def of_stage(folder: Path, head: str) -> Answers:
    """Return the answers of the stage's own model, and the KL from the model that its adapter was added to."""
    model = models.load(ModelSpec(base=str(folder), dtype="float32", quantize="none"), head=head)
    asked = [rollouts.encode_prompt(model.tokenizer, prompt) for prompt in PROBES]
    prompts = [list(rollouts.ids_of(prompt)) for prompt in asked]
    room = NEW_TOKENS if model.max_tokens is None else min(NEW_TOKENS, model.max_tokens - max(map(len, prompts)))
    if room < 1:
        raise DataError(f"the model reads {model.max_tokens} tokens, too few for the prompts of the check")
    if head != "lm":
        written = [prompt[: len(prompt) // 2] for prompt in prompts]
        responses = [[*prompt[len(prompt) // 2 :], model.end_id] for prompt in prompts]
        return Answers(written, responses, _numbers(model, written, responses))
    sampling = Sampling(max_new_tokens=room, temperature=0.0)
    with default_engine().open(model) as drawer:
        drawn = rollouts.sample(model, drawer, asked, sampling, seed=0)
    responses = [list(rollouts.ids_of(response)) for response in drawn]
    answers = Answers(prompts, responses, _numbers(model, prompts, responses))
    if model.adapted:
        answers.base_kl = _distance(answers.numbers, _numbers(model, prompts, responses, adapter=False), "lm")
    return answers


@torch.no_grad()
def compare(answers: Answers, folder: Path, head: str, below: Source) -> Agreement:
    """Compare an exported folder with the stage's answers. Raises `DataError` if the folder is not the rounded model.

    below: the base of an exported adapter.
    """
    with no_progress_bars():
        found = _read_back(answers, folder, head, below)
    # a scalar head with whole weights gives the reward of the last token alone
    stages, exported = (
        [row[-len(own) :] for row, own in zip(rows, found, strict=True)]
        for rows in (answers.numbers, answers.rounded or answers.numbers)
    )
    _check_same(exported, found, head)
    prompts, tokens, distance = len(found), sum(map(len, found)), _distance(stages, found, head)
    if head != "lm":
        return Agreement(prompts, tokens, difference=distance)
    same = [logp.argmax(-1).tolist() == response for logp, response in zip(found, answers.responses, strict=True)]
    return Agreement(prompts, tokens, sum(same), distance, answers.base_kl)


def _read_back(answers: Answers, folder: Path, head: str, below: Source) -> list[Tensor]:
    """Return the numbers of each response as transformers (and peft) compute them from the folder."""
    adapter, number = (folder / "adapter_config.json").is_file(), folder / "head.safetensors"
    auto: Any = transformers.AutoModel if number.is_file() else getattr(transformers, CLASSES[head])
    if adapter:
        import peft

        revision = below.revision or "main"
        base = auto.from_pretrained(below.name, revision=revision, dtype=torch.float32, trust_remote_code=False)
        net = peft.PeftModel.from_pretrained(base, str(folder)).eval()
    else:
        net = auto.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False).eval()
    layer = load_file(str(number)) if number.is_file() else {}
    rows = []
    for prompt, response in zip(answers.prompts, answers.responses, strict=True):
        ids = torch.tensor([prompt + response])
        said = net(input_ids=ids, attention_mask=torch.ones_like(ids))
        if head == "lm":
            rows.append(torch.log_softmax(said.logits[0, len(prompt) - 1 : -1].float(), -1))
        elif layer:
            rows.append(said.last_hidden_state[0, len(prompt) :] @ layer["weight"] + layer.get("bias", 0.0))
        else:
            rows.append(said.logits[0] if head == "scalar" else said.logits[0, len(prompt) :, 0])
    return rows

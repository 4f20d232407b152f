"""Agreement of an exported folder with the stage's model: both answer the same prompts, computed in float32.

1. Adapters are merged in float32, which changes nothing but the order of sums.
2. The sum is rounded to the type of the export. What that changes is measured on this very model.
3. The folder is read from the disk by transformers (and peft), as its users read it, and is the rounded model.
"""

from __future__ import annotations

from collections.abc import Sequence
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

PROBES = (
    "Write one sentence about the sea.",
    "What does this function return?\n\ndef add(a, b):\n    return a + b",
    "Nenne drei Städte in Europa.",
)
NEW_TOKENS = 24
"""Upper bound on tokens of each greedy answer."""
KL_LIMIT = 1e-6
"""Nats per token by which two models differ that compute the same sums in another order."""
LOST_LIMIT = 0.25
"""Share of the last training's effect (its KL per token from what it began with) that rounding may take away."""
NUMBER_LIMIT = 1e-3
"""Largest such difference of a reward, relative to 1 + its size."""


class RoundedAway(DataError):
    """Rounding the weights would take away what the training changed."""


@dataclass(frozen=True)
class Agreement:
    """Differences between the exported model and the stage's."""

    prompts: int
    tokens: int
    """That were compared."""
    same_answers: int | None = None
    """Prompts with the same greedy answer, token for token; None for a model with a number head."""
    kl: float | None = None
    """Mean KL(stage || exported) of the next-token distributions, nats per token."""
    kl_of_training: float | None = None
    """The same from the stage's model to what its training began with; None where that was not needed."""
    difference: float | None = None
    """Largest difference of a reward, of a model with a number head."""

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
    """`numbers` of the model whose weights are those of the export; None: they are the stage's."""

    def exported(self) -> list[Tensor]:
        """Return the numbers of the model that the export is to be."""
        return self.numbers if self.rounded is None else self.rounded


def _numbers(model: Any, prompts: list[list[int]], responses: list[list[int]], *, adapter: bool = True) -> list[Tensor]:
    tokens = rollouts.pad(prompts, responses, model.pad_id, model.eos_ids)
    lengths = [len(response) for response in responses]
    if model.head != "lm":
        return [row[:n] for row, n in zip(model.rewards(tokens), lengths, strict=True)]
    return list(torch.log_softmax(model.logits(model.states(tokens, adapter=adapter)).float(), -1).split(lengths))


@torch.no_grad()
def round_merged(answers: Answers, model: Any, dtype: torch.dtype) -> None:
    """Round the weights of `model`, the stage's with its adapters merged, and note what it then answers. Raises
    `DataError` where it was another model before.
    """
    _check_same(answers.numbers, _numbers(model, answers.prompts, answers.responses), model.head)
    if dtype != torch.float32:
        for weight in model.parameters():
            weight.copy_(weight.to(dtype))
        answers.rounded = _numbers(model, answers.prompts, answers.responses)


def _check_same(wanted: list[Tensor], found: list[Tensor], head: str) -> None:
    what, limit = ("next-token distributions differ", KL_LIMIT) if head == "lm" else ("rewards differ", NUMBER_LIMIT)
    by = _kl_of(wanted, found) if head == "lm" else _difference(wanted, found)
    if not by <= limit:
        raise DataError(
            f"the exported model is not the stage's: their {what} by {by:.2g}, which is more than rounding; nothing was written"
        )


def _kl_of(logp: list[Tensor], other: list[Tensor]) -> float:
    """Mean KL per token."""
    return float(_kl(torch.cat(logp), torch.cat(other)).mean())


def _difference(rewards: list[Tensor], other: list[Tensor]) -> float:
    wanted = torch.cat(rewards)
    return float(((torch.cat(other) - wanted).abs() / (1 + wanted.abs())).max())


@torch.no_grad()
def of_stage(folder: Path, head: str, *, with_base: bool) -> Answers:
    """Return the stage's own model. with_base: measure the KL from what its adapter was added to as well."""
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
    logp, base_kl = _numbers(model, prompts, responses), None
    if with_base and model.adapted:
        base_kl = _kl_of(logp, _numbers(model, prompts, responses, adapter=False))
    return Answers(prompts, responses, logp, base_kl)


def _kl(logp: Tensor, other: Tensor) -> Tensor:
    """KL [N] in nats of distributions [N,V]."""
    return (logp.exp() * (logp - other)).sum(-1).clamp_min(0)


@torch.no_grad()
def compare(
    answers: Answers, folder: Path, head: str, dtype: str, *, base: str | None, eos_ids: Sequence[int]
) -> Agreement:
    """Compare an exported folder with the stage's answers. Raises `DataError` where it is not the rounded model, and
    `RoundedAway`.

    base: of an exported adapter, where its base is on this machine; None: where the adapter's own configuration says.
    """
    with no_progress_bars():
        if head == "lm":
            return _compare_answers(answers, _language_model(folder, base), dtype, eos_ids)
        return _compare_rewards(answers, folder, head, base)


def _language_model(folder: Path, base: str | None) -> Any:
    if base is None:
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, trust_remote_code=False
        ).eval()
    import peft

    below = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, trust_remote_code=False)
    return peft.PeftModel.from_pretrained(below, str(folder)).eval()


def _compare_answers(answers: Answers, net: Any, dtype: str, eos_ids: Sequence[int]) -> Agreement:
    found, same = [], 0
    config = transformers.GenerationConfig(
        do_sample=False,
        max_new_tokens=max(map(len, answers.responses)),
        eos_token_id=list(eos_ids),
        pad_token_id=eos_ids[0],
    )
    for prompt, response, logp in zip(answers.prompts, answers.responses, answers.numbers, strict=True):
        ids = torch.tensor([prompt + response])
        logits = net(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, len(prompt) - 1 : -1].float()
        theirs = torch.log_softmax(logits, -1)
        found.append(theirs)
        start = torch.tensor([prompt])
        written = net.generate(input_ids=start, attention_mask=torch.ones_like(start), generation_config=config)
        other = written[0, len(prompt) :].tolist()[: len(response)]
        same += other == response
        if other != response:
            _check_tie(response, other, logp, theirs)
    _check_same(answers.exported(), found, "lm")
    kl, tokens = _kl_of(answers.numbers, found), sum(map(len, answers.responses))
    if answers.base_kl is not None and kl > LOST_LIMIT * answers.base_kl:
        raise RoundedAway(
            f"rounding to {dtype} would lose what the training changed: the weights would move by {kl:.2g} nats per token, and the "
            f"training moved them by {answers.base_kl:.2g}"
        )
    return Agreement(len(answers.prompts), tokens, same, kl, answers.base_kl)


def _check_tie(response: list[int], other: list[int], logp: Tensor, theirs: Tensor) -> None:
    """Greedy answers may part where two tokens are equally probable up to rounding, and nowhere else."""
    place = next((i for i, (a, b) in enumerate(zip(response, other, strict=False)) if a != b), None)
    if place is None:
        raise DataError(
            f"the exported model is not the stage's: its greedy answer has {len(other)} tokens instead of {len(response)}; nothing "
            "was written"
        )
    gap = float(logp[place, response[place]] - logp[place, other[place]])
    if gap > 2 * float((logp[place] - theirs[place]).abs().max()) + 1e-5:
        raise DataError(
            f"the exported model is not the stage's: token {place + 1} of a greedy answer differs, where the stage's model prefers "
            f"its own by {gap:.2g} nats; nothing was written"
        )


def _compare_rewards(answers: Answers, folder: Path, head: str, base: str | None) -> Agreement:
    """Rewards of the last token (a scalar head) or of every token of the response (a token head)."""
    adapter = (folder / "head.safetensors").is_file()
    if adapter:
        rewards = _from_adapter(answers, folder, base)
    else:
        auto = (
            transformers.AutoModelForSequenceClassification
            if head == "scalar"
            else transformers.AutoModelForTokenClassification
        )
        net = auto.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False).eval()
        rewards = _classified(answers, net)
    last = -1 if head == "scalar" and not adapter else 0
    wanted, stages = ([row[last:] for row in rows] for rows in (answers.exported(), answers.numbers))
    _check_same(wanted, [rewards], head)
    return Agreement(len(answers.prompts), len(rewards), difference=_difference(stages, [rewards]))


def _classified(answers: Answers, net: Any) -> Tensor:
    """In one batch, padded as the model's configuration says."""
    pad = net.config.get_text_config().pad_token_id
    rows = [prompt + response for prompt, response in zip(answers.prompts, answers.responses, strict=True)]
    width = max(map(len, rows))
    ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    logits = net(input_ids=ids, attention_mask=mask).logits.float()
    if logits.ndim == 2:
        return logits[:, 0]
    places = [(len(prompt), len(row)) for prompt, row in zip(answers.prompts, rows, strict=True)]
    return torch.cat([logits[i, start:end, 0] for i, (start, end) in enumerate(places)])


def _from_adapter(answers: Answers, folder: Path, base: str | None) -> Tensor:
    import peft

    if base is None:
        net: Any = peft.AutoPeftModelForFeatureExtraction.from_pretrained(str(folder), dtype=torch.float32).eval()
    else:
        trunk = transformers.AutoModel.from_pretrained(base, dtype=torch.float32, trust_remote_code=False)
        net = peft.PeftModel.from_pretrained(trunk, str(folder)).eval()
    head = load_file(str(folder / "head.safetensors"))
    rewards = []
    for prompt, response in zip(answers.prompts, answers.responses, strict=True):
        states = net(input_ids=torch.tensor([prompt + response])).last_hidden_state[0, len(prompt) :]
        rewards.append(states @ head["weight"] + head.get("bias", torch.zeros(())))
    return torch.cat(rewards)

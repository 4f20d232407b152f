"""Rollouts from prompts: drawing, scoring and decoding of responses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from fgrl.base import console, lazy
from fgrl.kinds import REFERENCE_OUTPUTS, ROLLOUT_NEEDS, DrawRequest
from fgrl.kinds.specs import Sampling
from fgrl.rollouts.conversing import empty_prompt
from fgrl.rollouts.padding import FROZEN_MICRO_BATCH_SIZE, in_micro_batches, pad_responses, select
from fgrl.rollouts.responses import as_rollout, read
from fgrl.rollouts.text import encode_prompt
from fgrl.types import DrawnResponse, Prompt, Rollout, Sample, Tokens

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fgrl import models
    from fgrl.kinds import Drawer, Early
    from fgrl.models import LanguageModel, Scores
    from fgrl.rollouts.policies import LentPolicy
else:
    models = lazy.load("fgrl.models")
    torch = lazy.load("torch")


def check_exact(sampling: Sampling) -> None:
    """Raise ValueError for settings under which the drawn tokens' probabilities are not the model's (at the
    temperature).
    """
    inexact = sampling.inexact()
    if inexact:
        raise ValueError(
            f"sampling with {', '.join(inexact)} draws from another distribution than the one whose log-probabilities the "
            "policy gradient uses; sample with temperature above 0 and without these settings (temperature is exact), or allow "
            "top_p and top_k with `truncated: true`"
        )


def sample(
    model: Any,
    drawer: Drawer,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    *,
    seed: int,
    rows: Sequence[int] | None = None,
    early: Early | None = None,
) -> list[DrawnResponse]:
    """Return responses to encoded prompts; row i uses the random stream (seed, rows[i])."""
    streams = range(len(prompts)) if rows is None else rows
    return _drawn(
        model, drawer, [DrawRequest(prompt, sampling, seed, row, early) for prompt, row in zip(prompts, streams, strict=True)]
    )  # fmt: skip


def score(
    model: LanguageModel,
    reference: LanguageModel | None,
    tokens: Tokens,
    needs: frozenset[str],
    *,
    temperature: float = 1.0,
    critic: LanguageModel | None = None,
    micro_batch_size: int = 8,
    entropy_temperature: float | None = None,
) -> dict[str, Tensor]:
    """Return the score fields of `Rollout` that are in `needs`, each [B,T] float32 on the device of `tokens`, without
    dropout.

    Log-probabilities and `ref_kl` are taken at the sampling `temperature`, `entropy` at `entropy_temperature` (None:
    the same), all of them without the end tokens at positions marked in `tokens.no_end`. `ref_entropy` is taken at
    temperature 1 with all tokens: segments are divided by the reference's own distribution. If `reference` is None, it
    is the model with its adapter switched off. A model that is its own reference reads each token once and has a
    `ref_kl` of 0.
    """
    other = model if reference is None else reference

    def compute(part: Tokens) -> dict[str, Tensor]:
        states = cache(lambda: model.states(part))
        others = states if reference is model else cache(lambda: other.states(part, adapter=reference is not None))
        scored: dict[str, Tensor] = {}
        if needs & {"old_logp", "entropy"}:
            own = model.score_states(
                states(),
                part,
                temperature=temperature,
                entropy="entropy" in needs,
                entropy_temperature=entropy_temperature,
            )
            scored |= {"old_logp": own.logp} if "old_logp" in needs else {}
            scored |= {"entropy": own.entropy} if own.entropy is not None else {}
        if needs & {"ref_logp", "ref_entropy"}:
            scores = other.score_states(
                others(),
                part,
                temperature=temperature or 1.0,  # greedy answers: only the entropy is asked for
                entropy="ref_entropy" in needs,
                entropy_temperature=1.0,
                ends=model.eos_ids,
            )
            scored |= {"ref_logp": scores.logp} if "ref_logp" in needs else {}
            if "ref_entropy" in needs and part.no_end is not None:
                scores.entropy = other.score_states(others(), replace(part, no_end=None), entropy=True).entropy
            scored |= {"ref_entropy": scores.entropy} if scores.entropy is not None else {}
        if "ref_kl" in needs and reference is model:
            scored["ref_kl"] = torch.zeros(part.mask.shape, device=part.mask.device)
        elif "ref_kl" in needs:
            barred = model.barred(part)
            kl = models.chunked_kl(
                states(), model.logits, others(), other.logits, temperature=temperature, barred=barred
            )
            scored["ref_kl"] = models.unflatten(kl, part.mask)
        if critic is not None and "values" in needs:
            scored["values"] = critic.values(part)
        return {name: value.float() for name, value in scored.items()}

    with torch.no_grad(), models.evaluating(model, reference, critic):
        readers = [net for net in (model, other, critic) if net is not None]
        return in_micro_batches(tokens, compute, micro_batch_size, readers)


def score_with(
    rollout: Rollout,
    model: LanguageModel,
    *,
    temperature: float | None = None,
    entropy: bool = False,
    adapter: bool = True,
    micro_batch_size: int = FROZEN_MICRO_BATCH_SIZE,
) -> Scores:
    """Return log-probabilities and entropies [B,T] in nats of a rollout's responses under another frozen model,
    float32, 0 outside the mask.

    The model reads the policy's token ids, so it needs the policy's tokenizer (`check_same_tokens`). At positions where
    the policy could not draw an end token, the model's distribution has no end token either.

    temperature: None takes `rollout.temperature`, at which `old_logp` and `ref_logp` are computed: log-ratios need the
    same. adapter: False switches the model's adapter off. micro_batch_size: number of responses of one pass.
    """
    at = rollout.temperature if temperature is None else temperature

    def compute(part: Tokens) -> dict[str, Tensor]:
        states = model.states(part, adapter=adapter)
        scores = model.score_states(states, part, temperature=at, entropy=entropy, ends=rollout.ends or None)
        return {name: value.float() for name, value in vars(scores).items() if value is not None}

    with torch.no_grad(), models.evaluating(model):
        return models.Scores(**in_micro_batches(rollout, compute, micro_batch_size, [model]))


def collect(
    model: LanguageModel,
    reference: LanguageModel | None,
    prompts: Sequence[Sample],
    sampling: Sampling,
    drawer: Drawer,
    needs: frozenset[str],
    *,
    per_prompt: int = 1,
    seed: int = 0,
    first: int = 0,
    critic: LanguageModel | None = None,
    micro_batch_size: int = 8,
    lent_policy: LentPolicy | None = None,
) -> Rollout:
    """Draw `per_prompt` responses to every prompt (see `draw`) and fill the fields of `Rollout` that are in `needs`.

    `lent_policy` is `model`, for components that need "policy".

    Raises ValueError for a field that cannot be computed, and for settings under which `old_logp` would be inexact
    (`check_exact`). If `reference` is None, it is the policy with its adapter switched off.
    """
    unknown = needs - ROLLOUT_NEEDS
    if unknown:
        raise ValueError(f"a rollout has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(ROLLOUT_NEEDS))}")
    if needs & {"old_logp", "ref_logp", "ref_kl"}:
        check_exact(sampling)
    if "policy" in needs and lent_policy is None:
        raise ValueError("the policy is needed; lend it with fgrl.rollouts.policies.LentPolicy")
    if "values" in needs and critic is None:
        raise ValueError("values are needed, but there is no critic")
    if needs & REFERENCE_OUTPUTS and reference is None and not model.adapted:
        raise ValueError("the reference is needed; give one, or train with lora (then it is the base)")

    # 1. responses: row b answers prompt b // per_prompt
    drawn = draw(model, drawer, prompts, sampling, per_prompt, seed=seed, first=first)
    rows = [response for group in drawn for response in group]
    tokens = pad_responses(model, rows, sampling.min_new_tokens)
    # 2. log-probabilities, entropies, values
    console.phase("log-probabilities")
    temperature = sampling.temperature
    scored: dict[str, Any] = score(
        model, reference, tokens, needs, temperature=temperature, critic=critic, micro_batch_size=micro_batch_size
    )
    if critic is not None and "values" in needs and any(each.turns or each.lost for each in rows):
        truncated = torch.tensor([not each.terminated for each in rows])
        scored["end_value"] = end_values(critic, tokens, truncated, micro_batch_size)
    # 3. text and character offsets of the drawn tokens
    return as_rollout(
        model, rows, tokens, needs,
        group=torch.arange(len(prompts)).repeat_interleave(per_prompt),
        samples=answered([prompt for prompt in prompts for _ in range(per_prompt)], rows),
        first_row=first * per_prompt, lent_policy=lent_policy, temperature=temperature or 1.0,
        **scored, **_as_drawn(rows, tokens.mask),
    )  # fmt: skip


def end_values(critic: LanguageModel, tokens: Tokens, rows: Tensor, micro_batch_size: int = 8) -> Tensor:
    """Return the value of the state after the last token of the responses marked in `rows` (bool [B]), 0 for the
    others, [B] float32.
    """
    found = torch.zeros(len(rows))
    if bool(rows.any()) or critic.sharded:
        chosen = select(tokens, rows)
        with torch.no_grad(), models.evaluating(critic):
            behind = in_micro_batches(
                chosen, lambda part: {"value": critic.rewards(part).float()}, micro_batch_size, [critic]
            )["value"]
        last = (chosen.mask.sum(dim=1, keepdim=True) - 1).clamp(min=0)
        found[rows] = behind.gather(1, last)[:, 0]
    return found


def _as_drawn(rows: Sequence[DrawnResponse], mask: Tensor) -> dict[str, Tensor]:
    """Return the columns that only the engine can compute; {} if it draws from the trained model itself. Raises
    ValueError for an engine that does not give each token a finite log-probability.
    """
    if all(row.token_logp is None for row in rows):
        return {}
    logp = torch.zeros(mask.shape)
    for place, row in enumerate(rows):
        given = row.token_logp or []
        if len(given) != len(row) or not all(map(math.isfinite, given)):
            raise ValueError(
                f"the engine drew {len(row)} tokens and gave {sum(map(math.isfinite, given))} finite log-probabilities: wants "
                "one for each token"
            )
        logp[place, : len(given)] = torch.tensor(given)
    return {"drawn_logp": logp, "drawn_version": torch.tensor([row.version for row in rows])}


def requests(
    tokenizer: Any, prompts: Sequence[Sample], sampling: Sampling, per_prompt: int, *, seed: int, first: int = 0, converses: bool = False
) -> list[DrawRequest]:  # fmt: skip
    """Return `per_prompt` requests for each prompt. Prompt i draws from the random streams of row (first + i) *
    per_prompt. converses: the drawer starts a conversation with each prompt, which it encodes itself.
    """
    asked = []
    for i, prompt in enumerate(prompts, first):
        if not converses and (problem := empty_prompt(prompt.id, prompt.prompt)):
            raise problem
        read = Prompt(()) if converses else encode_prompt(tokenizer, prompt.prompt, sampling.max_prompt_tokens)
        own = DrawRequest(read, sampling, seed, 0, sample=prompt if converses else None, group=i)
        asked += [replace(own, row=i * per_prompt + j) for j in range(per_prompt)]
    return asked


def draw(
    model: Any, drawer: Drawer, prompts: Sequence[Sample], sampling: Sampling, per_prompt: int, *, seed: int, first: int = 0
) -> list[list[DrawnResponse]]:  # fmt: skip
    """Return `per_prompt` responses to each prompt, drawn from the random streams of `requests`, and decoded."""
    asked = requests(model.tokenizer, prompts, sampling, per_prompt, seed=seed, first=first, converses=drawer.converses)
    return _by_prompt(_drawn(model, drawer, asked), per_prompt)


def draw_parts(
    model: Any, drawer: Drawer, parts: Sequence[tuple[int, Sequence[Sample]]], sampling: Sampling, per_prompt: int, *, seed: int, together: bool
) -> Iterator[tuple[int, list[list[DrawnResponse]]]]:  # fmt: skip
    """Yield the number of each part with its responses, as soon as all of them are there. A part is the number of its
    first prompt and its prompts. together: the drawer gets all parts at once, so that it need not wait for the longest
    response of each part; parts are then yielded in any order, and while other parts are still being drawn.
    """
    if not together:
        for place, (first, prompts) in enumerate(parts):
            yield place, draw(model, drawer, prompts, sampling, per_prompt, seed=seed, first=first)
        return
    drawing = drawer.drawing()
    asked = [requests(model.tokenizer, own, sampling, per_prompt, seed=seed, first=first) for first, own in parts]
    numbers = [drawing.submit(own) for own in asked]
    places = {number: place for place, own in enumerate(numbers) for number in own}
    found: list[dict[int, DrawnResponse]] = [{} for _ in parts]
    for number, response in drawing:
        place = places[number]
        found[place][number] = response
        if len(found[place]) == len(numbers[place]):
            drawn = [found[place].pop(one) for one in numbers[place]]
            yield place, _by_prompt(_read(model, asked[place], drawn), per_prompt)


def _by_prompt(drawn: Sequence[DrawnResponse], per_prompt: int) -> list[list[DrawnResponse]]:
    return [list(drawn[i : i + per_prompt]) for i in range(0, len(drawn), per_prompt)]


def _drawn(model: Any, drawer: Drawer, asked: Sequence[DrawRequest]) -> list[DrawnResponse]:
    return _read(model, asked, drawer.draw(asked))


def _read(model: Any, asked: Sequence[DrawRequest], drawn: Sequence[DrawnResponse]) -> list[DrawnResponse]:
    return [
        read(model.tokenizer, each, each.prompt if one.sample else one.prompt)
        for one, each in zip(asked, drawn, strict=True)
    ]


def answered(samples: Sequence[Sample], responses: Sequence[DrawnResponse]) -> list[Sample]:
    """Return the samples of some responses, with the prompts at the start of the conversations."""
    return [
        sample.model_copy(update={"prompt": list(each.prompt.turns)}) if each.turns else sample
        for sample, each in zip(samples, responses, strict=True)
    ]

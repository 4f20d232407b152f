"""Samples as the model sees them, for `fgrl inspect`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fgrl import rollouts
from fgrl.measuring.attributing import attributions
from fgrl.pages.report.marked_tokens import MarkedTokens
from fgrl.runs.results.text import reward_facts
from fgrl.training.stored_rollouts import token_columns
from fgrl.types import Advantages, Prompt, Rewards, Rollout, Sample


def of_prompt(sample: Sample, tokenizer: Any, kept: Prompt) -> MarkedTokens:
    """Return the encoded prompt of a sample, which is to be answered, with the right answers if they are known."""
    right = [sample.reference] if isinstance(sample.reference, str) else sample.reference or []
    return MarkedTokens(
        title=f"{sample.id}: {_tokens('prompt', len(kept), kept.lost)}",
        tokens=rollouts.token_texts(tokenizer, kept),
        kinds=["prompt"] * len(kept),
        note=f"reference: {' | '.join(right)}" if right else "",
    )


def of_row(row: Mapping[str, Any], tokenizer: Any, credit: Mapping[str, Tensor] | None = None) -> MarkedTokens:
    """Return a row of a training set. credit: numbers of its response tokens by name, in addition to its columns."""
    prompt, response = row["prompt"], row["response"]
    kinds = ["prompt"] * len(prompt) + ["response"] * len(response)
    if row["finished"]:
        kinds[-1] = "eos"
    segment, lost = row["columns"].get("segment"), row["lost"]
    others = {name: value for name, value in row["columns"].items() if name != "segment"} | dict(credit or {})
    return MarkedTokens(
        title=f"{_tokens('prompt', len(prompt), lost[0])}, {_tokens('response', len(response), lost[1])}",
        tokens=rollouts.token_texts(tokenizer, prompt + response),
        kinds=kinds,
        segments=None if segment is None else [-1] * len(prompt) + segment.tolist(),
        layers={name: _layer(prompt, value.tolist()) for name, value in others.items() if value.ndim},
        note=", ".join(f"{name} {value.item():g}" for name, value in others.items() if not value.ndim),
    )


def _layer(prompt: Sequence[int], values: Sequence[float], shown: Sequence[bool] | None = None) -> list[float | None]:
    """Return the values of a response's tokens as values of the whole sequence; None for a token without a value."""
    kept = values if shown is None else [value if there else None for value, there in zip(values, shown, strict=True)]
    return [*[None] * len(prompt), *(value if value is not None and math.isfinite(value) else None for value in kept)]


def _tokens(what: str, count: int, lost: int) -> str:
    """Return a phrase with the number of tokens of a prompt or a response, and the number of tokens cut from it."""
    end = "first" if what == "prompt" else "last"
    return f"{count} {what} tokens" + (f", the {end} {lost} of {count + lost} are cut" if lost else "")


def of_rollout(
    rollout: Rollout, rewards: Rewards, tokenizer: Any, lost: Sequence[tuple[int, int]] | None = None,
    advantages: Advantages | None = None, by_token: bool | None = None,
) -> Iterator[MarkedTokens]:  # fmt: skip
    """Yield scored responses, with the criteria of their prompts if the reward returns verdicts, and the columns of
    auxiliary models, reward and algorithm.

    lost: number of tokens cut from each prompt and response; None: for drawn responses, the number for their prompts is
    computed. advantages: of the responses whose reward is not missing; they are shown for the tokens in the loss.
    by_token: whether the algorithm trains on token rewards, for `reward_facts`; None: nothing is trained.
    """
    place = torch.cumsum(~torch.isnan(rewards.response), 0) - 1
    for i, length in enumerate(rollout.mask.sum(dim=1).tolist()):
        prompt = rollout.prompt_ids[i][rollout.prompt_mask[i]].tolist()
        response = rollout.response_ids[i, :length].tolist()
        drawn = rollout.drawn[i, :length].tolist()
        kinds = ["prompt"] * len(prompt) + ["response" if own else "environment" for own in drawn]
        if bool(rollout.eos[i].any()):
            kinds[-1] = "eos"
        segments = rewards.segment_ids
        if lost is None:
            cut = len(rollouts.encode_prompt(tokenizer, rollout.samples[i].prompt)) - len(prompt), 0
        else:
            cut = lost[i]
        at = None if advantages is None or bool(rewards.response[i].isnan()) else int(place[i])
        columns = token_columns(rollout, rewards, advantages, i, at)
        layers = {name: _layer(prompt, value.tolist()) for name, value in columns.items()}
        notes = [f"{name} {float(value[i]):g}" for name, value in rewards.columns.items() if value.ndim == 1]
        if rollout.lost is not None and (why := rollout.lost[i]) is not None:
            notes.append(f"the environment failed: {why}")
        if advantages is not None and at is not None:
            if advantages.keep is not None and not bool(advantages.keep[at]):
                notes.append("not trained on: the algorithm leaves this response out")
            else:
                counted = rollout.drawn[i] if advantages.trained is None else rollout.drawn[i] & advantages.trained[at]
                shown = advantages.advantage[at, :length].tolist()
                layers["advantage"] = _layer(prompt, shown, counted[:length].tolist())
        yield MarkedTokens(
            title=f"{_tokens('prompt', len(prompt), cut[0])}, {_tokens('response', length, cut[1])}, "
            f"{_reward(rewards, i, length, by_token)}",
            tokens=rollouts.token_texts(tokenizer, prompt + response),
            kinds=kinds,
            segments=None if segments is None else [-1] * len(prompt) + segments[i, :length].tolist(),
            values=_layer(prompt, rewards.token[i, :length].tolist()),
            criteria=attributions(rewards, rollout.samples[i], i, length) or [],
            annotations=[] if rewards.annotations is None else [("reward", rewards.annotations[i])],
            text=rollout.texts[i],
            layers=layers,
            turn=[-1] * len(prompt) + rollout.turn[i, :length].tolist()
            if rollout.turns and rollout.turn is not None
            else [],
            turns=list(rollout.turns[i]) if rollout.turns else [],
            note=", ".join(notes),
        )


def _reward(rewards: Rewards, row: int, length: int, by_token: bool | None) -> str:
    """Return the reward of a response: the total of its token rewards. If its response reward is a different number,
    both are included, and the trained one is named.
    """
    credited = zip(rewards.token[row, :length].tolist(), rewards.credit_mask[row, :length].tolist(), strict=True)
    response = float(rewards.response[row])
    facts = reward_facts(response, [value if counts else None for value, counts in credited], by_token)
    return "reward missing" if math.isnan(response) else ", ".join(" ".join(fact) for fact in facts)

"""Samples as the model sees them, for `fgrl inspect`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fgrl import rollouts
from fgrl.evaluation.attributing import attributions
from fgrl.report.terminal import Annotated
from fgrl.types import Rewards, Rollout, Sample


def of_prompt(sample: Sample, tokenizer: Any, max_tokens: int) -> Annotated:
    """A prompt that is to be answered, as `max_tokens` leave it, with the right answers where they are known."""
    whole = rollouts.encode_prompt(tokenizer, sample.prompt)
    kept = rollouts.encode_prompt(tokenizer, sample.prompt, max_tokens)
    lost = len(whole) - len(kept)
    right = [sample.reference] if isinstance(sample.reference, str) else sample.reference or []
    return Annotated(
        title=f"{sample.id}: {len(kept)} prompt tokens"
        + (f", the first {lost} of {len(whole)} are cut" if lost else ""),
        tokens=rollouts.token_texts(tokenizer, kept),
        kinds=["prompt"] * len(kept),
        note=f"reference: {' | '.join(right)}" if right else "",
    )


def of_row(row: Mapping[str, Any], tokenizer: Any) -> Annotated:
    """A row of a training set."""
    prompt, response = row["prompt"], row["response"]
    kinds = ["prompt"] * len(prompt) + ["response"] * len(response)
    if row["finished"]:
        kinds[-1] = "eos"
    segment = row["columns"].get("segment")
    return Annotated(
        title=f"{len(prompt)} prompt tokens, {len(response)} response tokens",
        tokens=rollouts.token_texts(tokenizer, prompt + response),
        kinds=kinds,
        segments=None if segment is None else [-1] * len(prompt) + segment.tolist(),
        values=None,
    )


def of_rollout(rollout: Rollout, rewards: Rewards, tokenizer: Any) -> Iterator[Annotated]:
    """Scored responses, with the criteria of their prompts where the reward tells verdicts."""
    for i, length in enumerate(rollout.mask.sum(dim=1).tolist()):
        prompt = rollout.prompt_ids[i][rollout.prompt_mask[i]].tolist()
        response = rollout.response_ids[i, :length].tolist()
        kinds = ["prompt"] * len(prompt) + ["response"] * length
        if bool(rollout.eos[i].any()):
            kinds[-1] = "eos"
        segments = rewards.segment_ids
        yield Annotated(
            title=f"{len(prompt)} prompt tokens, {length} response tokens, reward {float(rewards.response[i]):.3f}",
            tokens=rollouts.token_texts(tokenizer, prompt + response),
            kinds=kinds,
            segments=None if segments is None else [-1] * len(prompt) + segments[i, :length].tolist(),
            values=[0.0] * len(prompt) + rewards.token[i, :length].tolist(),
            criteria=attributions(rewards, rollout.samples[i], i, length) or [],
        )

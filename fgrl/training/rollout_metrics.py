"""Metrics of one iteration before training on it: reward, length, endings, entropy, repetition, agreement inside
groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from fgrl.base.mergeable import as_numbers
from fgrl.types import Advantages, Rewards, Rollout, Turn


def rollout_metrics(rollout: Rollout, rewards: Rewards, advantages: Advantages) -> dict[str, float]:
    """Return the metrics of responses, and the metrics that the reward (as reward/...) and the algorithm report."""
    of_reward = {
        name if name.startswith("seconds/") else f"reward/{name}": value
        for name, value in as_numbers(rewards.metrics).items()
    }
    return of_responses(rollout, rewards) | of_reward | as_numbers(advantages.metrics)


def of_responses(rollout: Rollout, rewards: Rewards) -> dict[str, float]:
    """Return metrics of the responses and their rewards. Text of an environment is not included."""
    mask, written = rollout.drawn, rollout.written or rollout.texts
    lengths = mask.sum(dim=1).float()
    metrics = {
        "reward": float(rewards.response.mean()),
        "reward_std": float(rewards.response.std(correction=0)),
        "tokens": float(lengths.mean()),
        "empty": sum(not text.strip() for text in written) / len(written),
        "finished": float(rollout.eos.any(dim=1).float().mean()),
        "credited": float((rewards.credit_mask & mask).sum() / mask.sum()),
        "distinct": distinct_pairs(rollout),
    }
    totals = torch.where(mask, rewards.token, 0.0).sum(dim=1)
    known = ~rewards.response.isnan()
    if not torch.allclose(totals[known], rewards.response[known], rtol=1e-3, atol=1e-4):
        metrics["total_reward"] = float(totals[known].mean())
    if rollout.entropy is not None:
        metrics["entropy"] = float(torch.where(mask, rollout.entropy, 0.0).sum() / mask.sum())
    elif rollout.old_logp is not None:
        metrics["entropy"] = float(-torch.where(mask, rollout.old_logp, 0.0).sum() / mask.sum())
    if rollout.ref_entropy is not None:
        metrics["ref_entropy"] = float(torch.where(mask, rollout.ref_entropy, 0.0).sum() / mask.sum())
    if rollout.turns is not None and rollout.terminated is not None:
        metrics |= of_conversations(rollout.turns, rollout.terminated)
    group_sizes = torch.bincount(rollout.group)
    if int(group_sizes.max()) > 1:
        groups = group_sizes.nonzero().flatten()
        spread = [rewards.response[rollout.group == group].std(correction=0) for group in groups]
        metrics["zero_variance"] = float((torch.stack(spread) < 1e-8).float().mean())
    return metrics


def of_conversations(conversations: Sequence[Sequence[Turn]], terminated: torch.Tensor) -> dict[str, float]:
    """Return the number of turns, the share of turns whose text the environment rejected with an error, the share of
    truncated conversations, and the means of the environment's own numbers over the turns that have them.
    """
    turns = [turn for each in conversations for turn in each]
    own: dict[str, list[float]] = {}
    for turn in turns:
        for name, value in turn.numbers.items():
            own.setdefault(f"environment/{name}", []).append(value)
    return {
        "turns": len(turns) / len(conversations),
        "turn_errors": sum(turn.error is not None for turn in turns) / max(len(turns), 1),
        "truncated": 1.0 - float(terminated.float().mean()),
    } | {name: sum(values) / len(values) for name, values in own.items()}


def distinct_pairs(rollout: Rollout) -> float:
    """Return the number of distinct two-token sequences divided by the number of all two-token sequences of the
    rollout.
    """
    pairs = [
        pair
        for ids, drawn in zip(rollout.response_ids.tolist(), rollout.drawn.tolist(), strict=True)
        for pair, both in zip(pairwise(ids), pairwise(drawn), strict=True)
        if all(both)
    ]
    return len(set(pairs)) / len(pairs) if pairs else 0.0

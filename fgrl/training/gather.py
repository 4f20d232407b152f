"""Combination of the rollouts of all processes, and removal of responses without a reward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fgrl.types import Advantages, Rewards, Rollout
from fgrl.types.tensors import concatenate


def drop_missing(rollout: Rollout, rewards: Rewards) -> tuple[Rollout, Rewards, int]:
    """Return the responses whose reward is not missing (NaN), their rewards, and the number of dropped responses."""
    missing = torch.isnan(rewards.response)
    if not missing.any():
        return rollout, rewards, 0
    kept = (~missing).nonzero().flatten()
    return rollout.take(kept), rewards.take(kept), int(missing.sum())


def joined(one: tuple[Rollout, Rewards], other: tuple[Rollout, Rewards]) -> tuple[Rollout, Rewards]:
    """Return two rollouts as one, with their rewards; the group numbers of the second continue those of the first."""
    more = replace(other[0], group=other[0].group + int(one[0].group.max()) + 1)
    return concatenate(_alike([one[0], more])), concatenate([one[1], other[1]])


def _alike(parts: Sequence[Rollout]) -> list[Rollout]:
    """Return the parts of a rollout. If one part has the engine's columns, all have them: a part in which the
    environment failed in every conversation has no tokens, and gets empty columns.
    """
    if all(part.drawn_logp is None for part in parts):
        return list(parts)
    return [
        replace(part, drawn_logp=part.mask.float(), drawn_version=part.group * 0)
        if part.drawn_logp is None and part.lost is not None and not bool(part.mask.any())
        else part
        for part in parts
    ]


def first_groups(advantages: Advantages, group: Tensor, count: int) -> Advantages:
    """Return the advantages with only the responses of the first `count` of the kept groups."""
    kept = torch.ones_like(group, dtype=torch.bool) if advantages.keep is None else advantages.keep
    return replace(advantages, keep=kept & torch.isin(group, torch.unique(group[kept])[:count]))


def everywhere(rollout: Rollout, rewards: Rewards, world: int) -> tuple[Rollout, Rewards]:
    """Return the responses of all ranks on every rank, in the order in which one process would have drawn them.

    Rank r has the r-th slice of the iteration's prompts; groups are renumbered so that each rank continues the numbers
    of the previous rank.
    """
    device, lent_policy = rollout.mask.device, rollout.lent_policy
    rollout = replace(rollout, lent_policy=None)  # each process has it
    gathered: list[Any] = [None] * world
    # as plain mappings: a process may not be able to import the class of another process's rewards
    torch.distributed.all_gather_object(gathered, (vars(rollout.to("cpu")), vars(rewards.to("cpu"))))
    all_rollouts = [type(rollout)(**values) for values, _rewards in gathered]
    all_rewards = [type(rewards)(**values) for _rollout, values in gathered]
    first = 0
    for part in all_rollouts:
        part.group = part.group + first
        first = int(part.group.max()) + 1
    together = replace(concatenate(_alike(all_rollouts)), lent_policy=lent_policy)
    return together.to(device), concatenate(all_rewards).to(device)

"""The bias and the variance of advantages over turns, exactly: all groups of a small world in which the policy decides when to stop.

Turn 1: stop for 0.6, or continue for -0.1. Turn 2: right for 1, wrong for 0. The policy is two logits, one token a turn, and an environment's
token stands between the turns. Every group of conversations that can be drawn (in any order) goes through an algorithm's own `advantages` and
`loss`; the gradients, weighted with the groups' probabilities, give the mean and the standard deviation of the estimate. Both are printed as shares of the
true gradient of each logit: an unbiased estimate has a mean of 1.00.

    python benchmarks/turn_credit_bias.py [--group 4] [--stop 0.6] [--only turn_rloo,grpo]
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from fgrl.base import ops
from fgrl.components.algorithms.grpo import GRPO
from fgrl.components.algorithms.turn_rloo import TurnRLOO
from fgrl.components.rewards.environment import EnvironmentReward
from fgrl.registry import import_file
from fgrl.training.steps import Step, StepLoader
from fgrl.training.turn_relative import TurnRelative
from fgrl.training.units import RolloutUnits
from fgrl.types import Rollout, Sample, Turn

sys.path.insert(0, str(Path(__file__).resolve().parent / "shared"))
from tables import aligned

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "credit"
CONTINUE, RIGHT = 0.31, 0.57
"""The policy's probabilities."""
ENDS: dict[tuple[int, ...], tuple[float, ...]] = {(0,): (0.6,), (1, 1): (-0.1, 1.0), (1, 0): (-0.1, 0.0)}
"""Rewards by turn of the conversations that can be drawn: 1 is to continue, and to be right."""
OF_ENVIRONMENT = 7
DRAWN_AGAIN = "dapo, groups with equal returns drawn again"


class ZeroWhenAlone(TurnRLOO):
    """A turn that no other conversation reached teaches nothing."""

    def of_turns(self, earned: Tensor, reached: Tensor, rollout: Any, rewards: Any) -> Any:
        advantage, others = ops.leave_one_out(earned.flip(1).cumsum(dim=1).flip(1), reached, rollout.group)
        return torch.where(others, advantage, 0.0), {}


class OwnInMean(TurnRelative):
    """The baseline is the mean of all conversations that reached the turn, one's own among them."""

    def of_turns(self, earned: Tensor, reached: Tensor, rollout: Any, rewards: Any) -> Any:
        return self.centred(earned.flip(1).cumsum(dim=1).flip(1), reached, rollout), {}

    def centred(self, x: Tensor, reached: Tensor, rollout: Any) -> Tensor:
        count = reached.double()
        index = ops.group_index(rollout.group)
        total, size = (torch.zeros_like(x).index_add(0, index, each)[index] for each in (x * count, count))
        return torch.where(reached, x - total / size.clamp(min=1), 0.0)


class CentredRewards(OwnInMean):
    """The reward of each turn less its mean, added up from the turn on."""

    def of_turns(self, earned: Tensor, reached: Tensor, rollout: Any, rewards: Any) -> Any:
        return self.centred(earned, reached, rollout).flip(1).cumsum(dim=1).flip(1), {}


class Standardised(TurnRelative):
    """Mean 0 and standard deviation 1 over the conversations that reached the turn; 0 where it was reached alone."""

    def of_turns(self, earned: Tensor, reached: Tensor, rollout: Any, rewards: Any) -> Any:
        to_come = earned.flip(1).cumsum(dim=1).flip(1)
        cell = ops.group_index(rollout.group)[:, None] * reached.shape[1] + torch.arange(reached.shape[1])
        return ops.standardize(to_come, reached, cell, unbiased=True), {}


def published(name: str, of_class: str) -> Any:
    """Return a method of examples/credit with its defaults."""
    return getattr(import_file(EXAMPLES / f"{name}.py"), of_class)()


ESTIMATORS: dict[str, Any] = {
    "turn_rloo": TurnRLOO(),
    "turn_rloo, baseline: response": TurnRLOO(baseline="response"),
    "turn_rloo, aggregate: token_mean": TurnRLOO(aggregate="token_mean"),
    "turn_rloo, aggregate: seq_mean": TurnRLOO(aggregate="seq_mean"),
    "0 where a turn was reached alone": ZeroWhenAlone(),
    "own return in the mean": OwnInMean(),
    "centred rewards of turns, added up": CentredRewards(),
    "mean and standard deviation by turn": Standardised(),
    "grpo, aggregate: sum": GRPO(aggregate="sum"),
    "grpo, aggregate: token_mean": GRPO(aggregate="token_mean"),
    "grpo, aggregate: seq_mean": GRPO(aggregate="seq_mean"),
    DRAWN_AGAIN: published("dapo", "DAPO"),
    "mt_grpo": published("mt_grpo", "MTGRPO"),
    "gigpo": published("gigpo", "GiGPO"),
}


class Policy(nn.Module):
    """One logit a turn."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.logit(torch.tensor([CONTINUE, RIGHT], dtype=torch.float64)))

    def score(self, batch: Any, **_options: Any) -> Any:
        logit = self.logits[batch.turn.clamp(min=0)]
        return SimpleNamespace(
            logp=nn.functional.logsigmoid(torch.where(batch.response_ids == 1, logit, -logit)), entropy=None
        )

    def gradient(self, value: Tensor) -> Tensor:
        return torch.autograd.grad(value, self.logits)[0].detach()

    def probability(self, path: tuple[int, ...]) -> Tensor:
        chances = self.logits.sigmoid()
        return torch.stack([chances[turn] if choice else 1 - chances[turn] for turn, choice in enumerate(path)]).prod()


def truth(policy: Policy) -> Tensor:
    """The gradient of the expected return, [2]."""
    return policy.gradient(sum(policy.probability(path) * sum(rewards) for path, rewards in ENDS.items()))


def rollout_of(paths: list[tuple[int, ...]], size: int) -> Rollout:
    """Conversations in groups of `size`: a turn's token, and one of the environment before the next."""
    ids, turn, reward = (torch.full((len(paths), 3), fill) for fill in (0, -1, 0.0))
    mask = torch.zeros(len(paths), 3, dtype=torch.bool)
    for row, path in enumerate(paths):
        mask[row, : 2 * len(path) - 1] = True
        ids[row, 1] = OF_ENVIRONMENT
        for number, choice in enumerate(path):
            ids[row, 2 * number], turn[row, 2 * number], reward[row, 2 * number] = choice, number, ENDS[path][number]
    rows = len(paths)
    return Rollout(
        torch.zeros(rows, 1, dtype=torch.long), torch.ones(rows, 1, dtype=torch.bool), ids, mask, torch.zeros_like(mask),
        turn=turn, group=torch.arange(rows) // size, samples=[Sample(id=str(row // size), prompt="") for row in range(rows)],
        texts=[""] * rows, turn_reward=reward, terminated=torch.ones(rows, dtype=torch.bool),
        turns=[[Turn(2 * number + 1, each) for number, each in enumerate(ENDS[path])] for path in paths],
    )  # fmt: skip


def gradients(algorithm: Any, policy: Policy, size: int) -> Iterator[tuple[float, Tensor]]:
    """The probability of every group that can be drawn, and the ascent that the algorithm makes of it, [2]."""
    groups = list(itertools.combinations_with_replacement(ENDS, size))
    rollout = rollout_of([path for group in groups for path in group], size)
    rewards = EnvironmentReward().score(rollout)
    advantages = algorithm.advantages(rollout, rewards)
    units = RolloutUnits(rollout, rewards, advantages, pad_id=0)
    steps = [Step(list(range(start, start + size))) for start in range(0, len(rollout.mask), size)]
    for group, batch in zip(groups, StepLoader(units, steps, micro_batches=1, planned_rows=float(size)), strict=True):
        loss, _metrics = algorithm.loss(SimpleNamespace(actor=policy), batch)
        orders = math.factorial(size) // math.prod(math.factorial(count) for count in Counter(group).values())
        chance = torch.stack([policy.probability(path) for path in group]).prod().detach()
        yield orders * float(chance), -policy.gradient(loss)


def measured(algorithm: Any, size: int, *, drawn_again: bool = False) -> tuple[Tensor, Tensor]:
    """The mean and the standard deviation of an algorithm's gradient, as shares of the true one, [2] each. drawn_again: over the groups
    that teach something.
    """
    policy = Policy()
    chances, found = zip(*gradients(algorithm, policy, size), strict=True)
    chance, gradient = torch.tensor(chances, dtype=torch.float64)[:, None], torch.stack(found)
    if drawn_again:
        chance = torch.where((gradient != 0).any(dim=1, keepdim=True), chance, 0.0)
        chance = chance / chance.sum()
    mean = (chance * gradient).sum(dim=0)
    spread = (chance * (gradient - mean).square()).sum(dim=0).sqrt()
    return mean / truth(policy), spread / truth(policy).abs()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", type=int, default=4, help="conversations of a prompt")
    parser.add_argument("--stop", type=float, default=ENDS[0,][0], help="the reward of stopping")
    parser.add_argument("--only", default="", help="estimators whose names begin so, separated by commas")
    arguments = parser.parse_args()
    ENDS[0,] = (arguments.stop,)
    chosen = {name: each for name, each in ESTIMATORS.items() if name.startswith(tuple(arguments.only.split(",")))}
    rows = []
    for name, algorithm in chosen.items():
        mean, spread = measured(algorithm, arguments.group, drawn_again=name == DRAWN_AGAIN)
        rows.append([name, *(f"{share:.2f}" for share in [*mean.tolist(), *spread.tolist()])])
    print("\n".join(aligned([["advantage", "mean, turn 1", "mean, turn 2", "std, turn 1", "std, turn 2"], *rows])))


if __name__ == "__main__":
    main()

"""Checks and bounds over a reward and all that it holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fgrl.errors import UnknownNeed
from fgrl.kinds.needs import ROLLOUT_NEEDS, check_needs
from fgrl.kinds.online_algorithm import OnlineAlgorithm
from fgrl.kinds.planning import DrawnShape, PolicyWork
from fgrl.kinds.relevance import Relevance
from fgrl.kinds.reward import Reward, scorers
from fgrl.registry import name_of


def policy_work(parts: Iterable[Reward | Relevance | OnlineAlgorithm], drawn: DrawnShape) -> PolicyWork | None:
    """What components, and the rewards and relevances that they hold, ask of the policy together; None when it is not known."""
    total = PolicyWork()
    for component in parts:
        for part in [component] if isinstance(component, OnlineAlgorithm) else scorers(component).values():
            work = part.policy_work(drawn)
            if work is None:
                return None
            total += work
    return total


def check_scorer(
    scorer: Reward | Relevance, known: Collection[str] = ROLLOUT_NEEDS, *, field: str, before_setup: bool = True
) -> None:
    """`check_needs` of a reward or a relevance, and of the rewards and relevances that it holds.

    known: less than `ROLLOUT_NEEDS` in a stage that does not draw the responses that it scores.
    """
    inner_first = sorted(scorers(scorer).items(), key=lambda each: -len(each[0]))
    for path, part in inner_first:  # the needs of an outer one contain theirs
        where = ".".join(map(str, (field, *path)))
        needs = part.needs_before_setup() if before_setup else part.needs()
        for need in sorted(needs & ROLLOUT_NEEDS - set(known)):
            kind, name = name_of(part)
            raise UnknownNeed(
                f'{where}: the {kind} {name} needs "{need}" of the responses, which this stage reads and does not draw: use {name} in '
                "a stage `rl` or `evaluate`"
            )
        check_needs(part, needs, known, where)

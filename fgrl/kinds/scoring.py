"""Checks of a reward and of all parts that it holds."""

from __future__ import annotations

from collections.abc import Collection

from fgrl.base.errors import UnknownNeed
from fgrl.kinds.auxiliary import auxiliaries
from fgrl.kinds.needs import ROLLOUT_NEEDS, check_needs
from fgrl.kinds.relevance import Relevance
from fgrl.kinds.reward import Reward, scorers
from fgrl.registry import name_of


def check_scorer(
    scorer: Reward | Relevance, known: Collection[str] = ROLLOUT_NEEDS, *, field: str, trains: bool = False
) -> None:
    """Raise `UnknownNeed` for a reward or a relevance, or one inside it, with a need that is not `known`. Called
    before and after `setup`.

    known: the needs that the stage can fill, fewer than `ROLLOUT_NEEDS` if it does not draw the responses that it
    scores. trains: True in a stage that trains auxiliary models.
    """
    for name, declared in ({} if trains else auxiliaries([scorer])).items():
        kind, called = name_of(declared.owner)
        raise UnknownNeed(
            f'{field}: the {kind} {called} has a model "{name}" trained, and this stage trains none: use {called} in a stage `rl`'
        )
    inner_first = sorted(scorers(scorer).items(), key=lambda each: -len(each[0]))
    for path, part in inner_first:  # the needs of an outer one contain theirs
        where = ".".join(map(str, (field, *path)))
        needs = part.needs()
        for need in sorted(needs & ROLLOUT_NEEDS - set(known)):
            kind, name = name_of(part)
            raise UnknownNeed(
                f'{where}: the {kind} {name} needs "{need}" of the responses, which this stage reads and does not draw: '
                f"use {name} in a stage `rl` or `evaluate`"
            )
        check_needs(part, needs, known, where)

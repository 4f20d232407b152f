"""Preconditions of stages, checked before the first stage begins: keys, packages, devices, engines, a sandbox, readable
rows, reachable trackers. `run`, `plan` and `validate` use the same list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fgrl.base.errors import FgrlError, Unavailable
from fgrl.experiments.pipeline.planning import Planned
from fgrl.experiments.recipe.tracking import Tracking
from fgrl.experiments.stages import first_rows
from fgrl.feedback.rules.criterion_rules import UsesRules
from fgrl.feedback.sandbox import SandboxSpec, refuse_unless
from fgrl.kinds import Stage
from fgrl.registry import Settings, walk
from fgrl.registry.problems import dotted


class Unmet(NamedTuple):
    """Unmet preconditions of stages, as far as they are known before the stages run; each text begins with its place."""

    missing: list[str]
    """Requirements that this machine does not meet."""
    problems: list[str]
    """Errors in the first rows."""
    warnings: list[str]
    """Probable mistakes in the first rows."""
    kind: type[FgrlError] | None
    """Class of the error of the first missing requirement, or else of the first problem."""


def unmet(stages: Mapping[str, Stage], tracking: Tracking) -> Unmet:
    """Return the unmet preconditions of these stages and trackers."""
    look = first_rows.look(stages)
    places: dict[tuple[type[FgrlError], str], list[str]] = {}
    for place, error in [*_lacking(stages, tracking), *look.problems]:
        places.setdefault((type(error), str(error)), []).append(place)
    texts: dict[bool, list[str]] = {True: [], False: []}
    for (kind, text), at in places.items():
        texts[issubclass(kind, Unavailable)].append(f"{at[0]}{f' (and {len(at) - 1} more)' * (len(at) > 1)}: {text}")
    return Unmet(texts[True], texts[False], look.warnings, next((kind for kind, _text in places), None))


def check(planned: Sequence[Planned], tracking: Tracking) -> None:
    """Raise an error that names all unmet preconditions. Its class is that of the first one."""
    missing, problems, _warnings, kind = unmet({each.name: each.stage for each in planned}, tracking)
    if kind is not None:
        raise kind("\n".join([*missing, *problems, "nothing was run"]))


def _lacking(stages: Mapping[str, Stage], tracking: Tracking) -> Iterator[tuple[str, Unavailable]]:
    """Yield the requirements that this machine does not meet, each with the place in the recipe that needs it."""
    for name, stage in stages.items():
        parts = [((), stage), *((path, part) for path, part in walk(stage) if isinstance(part, Settings))]
        uses_rules = any(isinstance(part, UsesRules) for _path, part in parts)
        for path, part in parts:
            try:
                part.check_machine()
                if uses_rules and isinstance(part, SandboxSpec):  # of a reader, for the code in its rows
                    refuse_unless(part.require)
            except Unavailable as error:
                yield dotted(("stages", name, *path)), error
    for tracker, settings in tracking.items():
        try:
            settings.check_machine()
        except Unavailable as error:
            yield f"track.{tracker}", error

"""What stages need before the first of them begins: keys, packages, devices, engines, a sandbox, rows that can be read,
trackers that can be reached. One list for `run`, `plan` and `validate`.
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
    """What keeps stages from running, as far as it is known before they do; each text begins with its place."""

    missing: list[str]
    """What this machine lacks."""
    problems: list[str]
    """What is wrong with the first rows."""
    warnings: list[str]
    """What is seldom meant in the first rows."""
    kind: type[FgrlError] | None
    """Of the first that is missing, or else of the first problem."""


def unmet(stages: Mapping[str, Stage], tracking: Tracking) -> Unmet:
    """Return what is not there for these stages and trackers."""
    look = first_rows.look(stages)
    places: dict[tuple[type[FgrlError], str], list[str]] = {}
    for place, error in [*_lacking(stages, tracking), *look.problems]:
        places.setdefault((type(error), str(error)), []).append(place)
    texts: dict[bool, list[str]] = {True: [], False: []}
    for (kind, text), at in places.items():
        texts[issubclass(kind, Unavailable)].append(f"{at[0]}{f' (and {len(at) - 1} more)' * (len(at) > 1)}: {text}")
    return Unmet(texts[True], texts[False], look.warnings, next((kind for kind, _text in places), None))


def check(planned: Sequence[Planned], tracking: Tracking) -> None:
    """Raise an error that names all that is not there. It is of the kind of the first."""
    missing, problems, _warnings, kind = unmet({each.name: each.stage for each in planned}, tracking)
    if kind is not None:
        raise kind("\n".join([*missing, *problems, "nothing was run"]))


def _lacking(stages: Mapping[str, Stage], tracking: Tracking) -> Iterator[tuple[str, Unavailable]]:
    """Yield what this machine lacks, each with the place in the recipe that needs it."""
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

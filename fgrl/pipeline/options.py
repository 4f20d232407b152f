"""What `fgrl run` was asked for besides the recipe, and the stages of a plan that this selects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fgrl.errors import UsageError
from fgrl.pipeline.planning import Plan, Planned
from fgrl.registry import unknown


@dataclass
class Options:
    """The options of `fgrl run`."""

    only: Sequence[str] = ()
    """Run only these stages; the stages that they need must be done."""
    start: str | None = None
    """Run this stage and those after it."""
    limit: int | None = None
    """At most so many samples and steps in every stage."""
    wandb: str | None = None
    """Project to log to."""
    arguments: Sequence[str] = ()
    """Overrides as they were typed, for the processes of distributed stages."""
    command: Sequence[str] = ()
    """The whole command, for the record."""

    @property
    def whole(self) -> bool:
        """Are all stages of the recipe asked for?"""
        return not self.only and self.start is None

    def select(self, plan: Plan) -> list[Planned]:
        """The stages that `--only` and `--from` ask for, in order. Raises `UsageError` when a stage does not exist, or
        needs another one that is neither done nor selected."""
        names = [stage.name for stage in plan.stages]
        for name in (*self.only, *([self.start] if self.start is not None else [])):
            if name not in names:
                raise UsageError(unknown("stage", name, names))
        selected = plan.stages
        if self.start is not None:
            selected = selected[names.index(self.start) :]
        if self.only:
            selected = [stage for stage in selected if stage.name in self.only]
        inside = {stage.name for stage in selected}
        for stage in selected:
            for needed in stage.upstream:
                if not stage.cached and needed not in inside and not plan[needed].cached:
                    raise UsageError(
                        f"stage {stage.name} needs {needed}, which is not done yet: "
                        f"run it too (--only {needed} --only {stage.name}, or --from {needed})"
                    )
        return selected

"""From a recipe to its results: keys, a plan, and the execution of what is missing. Loaded when first touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fgrl import lazy

if TYPE_CHECKING:
    from fgrl.pipeline.execution import Options, Summary, execute
    from fgrl.pipeline.folders import Runs, recipe_name
    from fgrl.pipeline.planning import Peek, Plan, Planned, estimates, plan

__getattr__, __dir__ = lazy.attributes(
    __name__,
    {
        "execution": ["Options", "Summary", "execute"],
        "folders": ["Runs", "recipe_name"],
        "planning": ["Peek", "Plan", "Planned", "estimates", "plan"],
    },
)
__all__ = [
    "Options", "Peek", "Plan", "Planned", "Runs", "Summary", "estimates", "execute", "plan", "recipe_name",
]  # fmt: skip

"""From a recipe to its results: keys, a plan, and the execution of what is missing."""

from fgrl.pipeline.execute import Options, Summary, Usage, execute
from fgrl.pipeline.folders import Runs, recipe_name
from fgrl.pipeline.plan import Plan, Planned, plan

__all__ = ["Options", "Plan", "Planned", "Runs", "Summary", "Usage", "execute", "plan", "recipe_name"]

"""Keys, plans and execution of the stages of a recipe. Submodules are loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fgrl.base import lazy

if TYPE_CHECKING:
    from fgrl.experiments.pipeline.estimating import estimates
    from fgrl.experiments.pipeline.execution import execute
    from fgrl.experiments.pipeline.invocation import Summary
    from fgrl.experiments.pipeline.planning import Options, Plan, plan

__getattr__, __dir__ = lazy.attributes(
    __name__,
    {
        "estimating": ["estimates"],
        "execution": ["execute"],
        "invocation": ["Summary"],
        "planning": ["Options", "Plan", "plan"],
    },
)
__all__ = ["Options", "Plan", "Summary", "estimates", "execute", "plan"]

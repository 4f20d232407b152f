"""Declarative experiments in fine-grained reinforcement learning of language models.

    import fgrl

    run = fgrl.run("recipes/quickstart.yaml", {"stages.policy.train.lr": 1e-4}, seed=1)
    run.numbers()                                                   # a pandas DataFrame, with intervals
    policy = run.policy("policy")
    policy.generate("Say something about the sea.")
    run.score("policy", "Say something about the sea.", "It is wide, and deep.").draw()

Everything is imported at its first use: `import fgrl` itself loads nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fgrl.lazy import attributes

if TYPE_CHECKING:
    from fgrl import errors, kinds, types
    from fgrl.library import (
        FinishedRun,
        FinishedStage,
        Generated,
        Policy,
        ScoredText,
        TokenSpan,
        load,
        numbers,
        open_run,
        plan,
        register,
        run,
        score,
        table,
        validate,
    )

__version__ = "0.2.0"
__all__ = [
    "FinishedRun", "FinishedStage", "Generated", "Policy", "ScoredText", "TokenSpan", "__version__", "errors", "kinds",
    "load", "numbers", "open_run", "plan", "register", "run", "score", "table", "types", "validate",
]  # fmt: skip
_MODULES = ("errors", "kinds", "types")
"""Modules that `fgrl.NAME` imports."""
_exported, _ = attributes(
    __name__, {"library": [name for name in __all__ if name not in _MODULES and not name.startswith("_")]}
)


def __getattr__(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}") if name in _MODULES else _exported(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})

"""fgrl from Python: `import fgrl` exports what is here. Every name is imported at its first use. The functions do the
same as the command line, with the same engine (`fgrl.experiments.pipeline`), and raise the errors of
`fgrl.base.errors` instead of printing them. Results are objects that draw themselves in a notebook and print as text in
a terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fgrl.base import lazy

if TYPE_CHECKING:
    from fgrl.library.actions import (
        Inspected,
        NewRecipe,
        WrittenReport,
        benchmark,
        catalog,
        check,
        clean,
        describe,
        doctor,
        export,
        init,
        inspect,
        report,
        schema,
    )
    from fgrl.library.annotations import annotation_stats, export_annotations, import_annotations
    from fgrl.library.finished_runs import FinishedRun, FinishedStage, open_run
    from fgrl.library.listed_runs import list_runs
    from fgrl.library.loading import load, score
    from fgrl.library.new_component import new
    from fgrl.library.numbers import compare, curves, elo, frontier, table
    from fgrl.library.policies import Generated, Policy
    from fgrl.library.running import plan, register, run, validate
    from fgrl.library.scored_texts import ScoredText, TokenSpan
    from fgrl.library.sweeps import FinishedSweep, sweep

__getattr__, __dir__ = lazy.attributes(
    __name__,
    {
        "actions": [
            "Inspected",
            "NewRecipe",
            "WrittenReport",
            "benchmark",
            "catalog",
            "check",
            "clean",
            "describe",
            "doctor",
            "export",
            "init",
            "inspect",
            "schema",
            "report",
        ],
        "annotations": ["annotation_stats", "export_annotations", "import_annotations"],
        "finished_runs": ["FinishedRun", "FinishedStage", "open_run"],
        "listed_runs": ["list_runs"],
        "loading": ["load", "score"],
        "new_component": ["new"],
        "numbers": ["compare", "curves", "elo", "frontier", "table"],
        "policies": ["Generated", "Policy"],
        "running": ["plan", "register", "run", "validate"],
        "scored_texts": ["ScoredText", "TokenSpan"],
        "sweeps": ["FinishedSweep", "sweep"],
    },
)

"""`fgrl compare`: recipes against the first of them, over seeds, with the settings in which they differ."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fgrl import lazy
from fgrl.cli.shared import (
    RUNS,
    AsJson,
    DryRun,
    MachineFile,
    Numbers,
    RunsFolder,
    Seeds,
    SetValues,
    Sources,
    echo,
    emit,
    read_sources,
)
from fgrl.errors import UsageError

if TYPE_CHECKING:
    from fgrl.pipeline.comparing import Side
    from fgrl.results.comparing import RecipeComparison
comparing = lazy.load("fgrl.pipeline.comparing")
console = lazy.load("fgrl.console")
texts = lazy.load("fgrl.report.comparison_text")

EXAMPLES = """
\b
Examples:
  fgrl compare recipes/small/segment_ppo.yaml::bandit recipes/small/segment_ppo.yaml
  fgrl compare A.yaml B.yaml C.yaml --seeds 0,1,2 --number rule
  fgrl compare A.yaml B.yaml --seeds 0,1,2 --run stages.policy.algorithm.kl_coef=0.1
  fgrl compare A.yaml B.yaml --seeds 0,1,2 --stage evaluate --model policy --markdown
  fgrl compare runs/small-segment_ppo-bandit runs/small-segment_ppo

\b
A source is a recipe, the folder of a run, or a folder of runs (of one recipe with several seeds). The others are compared with the
first; overrides apply to all recipes. Numbers are those of finished evaluations; nothing is run without --run.
"""


def compare(
    context: typer.Context,
    sources: Sources,
    seeds: Seeds = None,
    number: Numbers = None,
    stage: Annotated[
        list[str] | None, typer.Option("--stage", metavar="STAGE", help="Only this evaluation; may be repeated.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", metavar="NAME", help="Only this model; may be repeated. Default: all but the baseline."
        ),
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="First run what is missing, as `fgrl run` does.")] = False,
    dry_run: DryRun = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
    set_values: SetValues = None,
    machines: MachineFile = None,
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Compare recipes: the settings that differ, and their numbers with intervals over prompts and over seeds."""

    def read() -> list[Side]:
        return comparing.sides(read_sources(sources, seeds, runs, context, at_least=2), any_seed=seeds is None)

    sides = read()
    common, notes = comparing.common_evaluations(sides, stage or [])
    if run or dry_run:
        words, progress = ["fgrl", *sys.argv[1:]], console.Console()
        code = comparing.run_missing(sides, common, words, progress, machines, dry_run=dry_run)
        if code or dry_run:
            raise typer.Exit(code)
        sides = read()
    comparison = comparing.compare_recipes(sides, common, model or [], number or [])
    comparison.notes = [*notes, *comparison.notes]
    if not comparison.numbers:
        raise UsageError(_nothing(comparison, number or []))
    if as_json:
        emit(comparison.as_json())
    else:
        echo(texts.comparison_text(comparison, as_markdown=markdown))


def _nothing(comparison: RecipeComparison, wanted: Sequence[str]) -> str:
    """Why there is nothing to show, and what to do."""
    reasons = [
        *comparison.notes,
        *(f"{evaluation.name}: {note}" for evaluation in comparison.evaluations for note in evaluation.notes),
    ]
    if not comparison.missing and not reasons:
        named = f"{' or '.join(map(repr, wanted))} in its name" if wanted else "the same model"
        reasons.append(f"no number that they have in common has {named} (fgrl table shows all)")
    if comparison.missing:
        reasons.append("these evaluations have not run:")
        reasons += [f"  {missing.command or missing.recipe}" for missing in comparison.missing]
        reasons.append("run them, or give --run")
    return "\n".join(["nothing can be compared", *reasons])

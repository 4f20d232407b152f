"""`fgrl compare`: comparison of recipes with the first one, over seeds, and the settings in which they differ."""

from __future__ import annotations

import functools
from typing import Annotated

import typer

from fgrl.base import lazy
from fgrl.commands.shared import (
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
    finish,
    read_sources,
)

comparing = lazy.load("fgrl.runs.results.comparing")
texts = lazy.load("fgrl.pages.report.comparison_text")

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
        list[str] | None, typer.Option("--stage", metavar="STAGE", help="Show only this evaluation; may be repeated.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", metavar="NAME", help="Show only this model; may be repeated. Default: all except the baseline."
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
    read = functools.partial(read_sources, sources, seeds, runs, context, at_least=2)
    named = read()
    if run or dry_run:
        sides = comparing.named_sides(named, any_seed=seeds is None)
        common, _notes = comparing.common_evaluations(sides, stage or [])
        labels = dict.fromkeys(label for own in sides.values() for label in own)
        every = (own[label] for label in labels for own in sides.values() if label in own)
        finish([each for each in every if set(each.waiting) & set(common)], machines, dry_run=dry_run)
        named = read()
    comparison = comparing.compare_recipes(named, stage or [], model or [], number or [], any_seed=seeds is None)
    if as_json:
        emit(comparison.as_json())
    else:
        echo(texts.comparison_text(comparison, as_markdown=markdown))

"""`fgrl elo`: Elo ratings of models with their intervals, from finished evaluations or from files of verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fgrl.base import files, lazy
from fgrl.base.errors import UsageError
from fgrl.base.visible import quantity
from fgrl.commands.shared import (
    RUNS,
    AsJson,
    RunsFolder,
    Seeds,
    SetValues,
    Sources,
    WrongWord,
    echo,
    emit,
    named_and_overrides,
    read_sources,
)

if TYPE_CHECKING:
    from fgrl.measuring.elo import Anchor
    from fgrl.runs.run import Run
answer_files = lazy.load("fgrl.measuring.answer")
comparisons = lazy.load("fgrl.measuring.comparisons_to_judge")
numbers = lazy.load("fgrl.runs.results.table")
ratings = lazy.load("fgrl.measuring.elo")
results = lazy.load("fgrl.runs.results.elo_views")
texts = lazy.load("fgrl.pages.report.elo_text")
types = lazy.load("fgrl.types")

EXAMPLES = """
\b
Examples:
  fgrl elo R                                              every Elo table of a recipe
  fgrl elo R --anchor base=1000 --pairs
  fgrl elo people.jsonl                                   verdicts of people, as the annotation page exports them
  fgrl elo people.jsonl --by ada --by bob --ridge 0.1
  fgrl elo R people.jsonl --side-by-side                  a judge next to people, one row for each model
  fgrl elo R --write-pairs pairs.jsonl --comparisons 263  what people are to compare

\b
A source is a recipe, the folder of a run, or a folder of runs: it has tables where an evaluation has the metric `elo` or
`elo_by_rule`, or a stage is called `elo`. Files (.jsonl) of samples with verdicts make one table together. With --anchor, --ridge,
--by, --resamples, --level or --draw-seed the ratings are fitted again to the stored games. Runs nothing.
"""


def elo(
    context: typer.Context,
    sources: Sources,
    seeds: Seeds = None,
    stage: Annotated[
        list[str] | None, typer.Option("--stage", metavar="STAGE", help="Stage of the tables; may be repeated.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="NAME", help="Count only games decided by this person or judge; may be repeated."),
    ] = None,
    anchor: Annotated[
        str | None,
        typer.Option(
            "--anchor",
            metavar="[MODEL=]RATING",
            help="Fixed rating of one model, or of the mean. Default: 1500 for the mean.",
        ),
    ] = None,
    ridge: Annotated[
        float | None, typer.Option("--ridge", min=0, help="Ridge penalty: finite ratings for undefeated models too.")
    ] = None,
    resamples: Annotated[int | None, typer.Option("--resamples", min=100, help="Number of bootstrap samples.")] = None,
    level: Annotated[float | None, typer.Option("--level", help="Share of the samples inside the intervals.")] = None,
    draw_seed: Annotated[
        int | None, typer.Option("--draw-seed", min=0, help="Seed of the bootstrap, and of the pairs that are written.")
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Also print every two models that met.")] = False,
    side_by_side: Annotated[
        bool, typer.Option("--side-by-side", help="Print one table with a column for each source.")
    ] = False,
    write_pairs: Annotated[
        Path | None,
        typer.Option(
            "--write-pairs", metavar="FILE", help="Write answers in pairs for people to compare, and no table."
        ),
    ] = None,
    comparisons_wanted: Annotated[
        int | None,
        typer.Option("--comparisons", min=1, help="Number of pairs; default: every two models on every prompt."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
    set_values: SetValues = None,
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Print Elo ratings with intervals of the differences to the best model."""
    if level is not None and not 0 < level < 1:
        raise WrongWord(f"{level}: wants a number between 0 and 1", param_hint="--level")
    named, rest = named_and_overrides([*sources, *context.args])
    verdicts = [Path(word) for word in named if word.endswith(".jsonl") and files.is_file(word)]
    recipes = [word for word in named if Path(word) not in verdicts]
    context.args = rest
    finished = (
        [each for source in read_sources(recipes, seeds, runs, context) for each in source.recipes]
        if recipes or rest or seeds or not verdicts
        else []
    )
    if write_pairs is not None:
        _write_pairs(finished, stage or [], write_pairs, comparisons_wanted, draw_seed or 0, as_json=as_json)
        return
    changes = results.Changes(_anchor(anchor), ridge, resamples, level, draw_seed, tuple(by or ()))
    table = numbers.table_of([numbers.results_of(run) for run in finished])
    views = results.of_table(table, changes, stage or [])
    views += [results.of_files(verdicts, changes)] if verdicts else []
    if not views:
        raise UsageError(_nothing(finished))
    if as_json:
        emit({"tables": [view.as_json() for view in views]})
    elif side_by_side:
        echo(texts.side_by_side(views, as_markdown=markdown))
    else:
        echo("\n\n".join(texts.text(view, pairs=pairs, as_markdown=markdown) for view in views))


def _nothing(finished: list[Run]) -> str:
    lines = ["no finished stage has Elo ratings: the metrics `elo` and `elo_by_rule` and the stage `elo` make them"]
    for recipe in finished:
        if recipe.waiting:
            lines.append(f"not run: {', '.join(recipe.waiting)}; {recipe.command}")
    return "\n".join(lines)


def _anchor(text: str | None) -> Anchor | None:
    """Parse `base=1000`, or `1000` for the mean of all models."""
    if text is None:
        return None
    model, _, rating = text.rpartition("=")
    try:
        return ratings.Anchor(model=model or None, rating=float(rating))
    except ValueError:
        raise WrongWord(f'"{text}": wants MODEL=RATING, as in base=1000, or a rating', param_hint="--anchor") from None


def _write_pairs(
    finished: list[Run], stages: list[str], target: Path, count: int | None, seed: int, *, as_json: bool
) -> None:
    """Write pairs of answers from the only matching evaluation."""
    known = {
        f"{recipe.name}/{name}": stage.out / "answers.jsonl"
        for recipe in finished
        for name, stage in recipe.finished.items()
        if (not stages or name in stages) and (stage.out / "answers.jsonl").exists()
    }
    if len(known) != 1:
        raise UsageError(
            f"--write-pairs wants one finished evaluation with answers, there are {len(known)}"
            + (f": {', '.join(known)}; name one with --stage" if known else "; fgrl run comes first")
        )
    (path,) = known.values()
    samples = comparisons.to_compare(answer_files.read_answers(path), count, seed)
    types.write_jsonl(target, samples)
    if as_json:
        emit({"pairs": len(samples), "file": str(target)})
    else:
        echo(f"{quantity(len(samples), 'pair')} of answers: {target}")

"""`fgrl frontier`: a number against what it cost, for the finished evaluations of several recipes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgrl import lazy
from fgrl.cli.shared import RUNS, WITH_OVERRIDES, AsJson, RunsFolder, columns, emit, load, overrides
from fgrl.errors import UsageError

if TYPE_CHECKING:
    from fgrl.pipeline import Plan
    from fgrl.report.frontier import Finished
omegaconf = lazy.load("omegaconf")
pipeline = lazy.load("fgrl.pipeline")
plotting = lazy.load("fgrl.report.frontier")
loading = lazy.load("fgrl.results.load")
reading = lazy.load("fgrl.results.reading")
types = lazy.load("fgrl.types")

EXAMPLES = """
\b
Examples:
  fgrl frontier recipes/small/segment_ppo*.yaml --y rule.kept
  fgrl frontier A.yaml B.yaml --vary stages.policy.algorithm.kl_coef=0.003,0.01,0.03 --x kl.sum --y win_rate.length_adjusted
  fgrl frontier runs/segment_ppo_phi3 runs/segment_ppo_phi3-bandit --y length_adjusted --model policy --out figures/kl

A source is a recipe, the folder of a run, or a folder of runs (every one in it, as a sweep leaves them). A number is METRIC.NUMBER,
as `fgrl table` names them, or STAGE/METRIC.NUMBER. Reads what finished evaluations measured and runs nothing; writes OUT.svg and
OUT.png. Filled points, and a star in the table, are on the frontier: nothing has more y for as little x.
"""


def add(app: typer.Typer) -> None:
    app.command(context_settings=WITH_OVERRIDES, epilog=EXAMPLES, no_args_is_help=True)(frontier)


def frontier(
    context: typer.Context,
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Recipes, or folders of runs; then overrides.", show_default=False),
    ],
    y: Annotated[str, typer.Option("--y", metavar="NUMBER", help="What is wanted, upwards.")],
    x: Annotated[str, typer.Option("--x", metavar="NUMBER", help="What it costs, to the right.")] = "kl.sum",
    vary: Annotated[
        list[str] | None, typer.Option("--vary", metavar="KEY=A,B,...", help="Every recipe with each of these values.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option("--model", metavar="NAME", help="Only these models.")] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the plot goes, without its ending.")] = Path(
        "frontier"
    ),
    x_label: Annotated[str, typer.Option("--x-label", help="Name of the axis.")] = "",
    y_label: Annotated[str, typer.Option("--y-label", help="Name of the axis.")] = "",
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Plot a number of finished evaluations against another, as win rate against KL, and mark the best."""
    words = [*sources, *context.args]
    places = [Path(word) for word in words if Path(word).exists() or ("=" not in word and not word.startswith("-"))]
    extra = overrides([word for word in words if Path(word) not in places], context)
    finished = [one for place in places for one in _finished(place, extra, vary or [], runs, context)]
    try:
        found = plotting.collect(finished, x, y, model or [])
    except plotting.Unknown as problem:
        raise UsageError(str(problem)) from None
    if not found.points:
        which = f" of {', '.join(found.skipped)}" if found.skipped else ""
        raise UsageError(f"no finished evaluation{which} has both numbers; fgrl run comes first")
    out.parent.mkdir(parents=True, exist_ok=True)
    files = plotting.draw(found, out, x_label, y_label)
    if as_json:
        points = [
            {
                "series": p.series,
                "model": p.model,
                "settings": p.label,
                "best": p.best,
                "x": _numbers(p.x),
                "y": _numbers(p.y),
            }
            for p in found.points
        ]
        emit(
            {
                "x": found.x_name,
                "y": found.y_name,
                "points": points,
                "not run": found.skipped,
                "files": list(map(str, files)),
            }
        )
        return
    typer.echo(columns(plotting.rows(found)))
    if found.skipped:
        typer.echo(f"\nnot run: {', '.join(found.skipped)}")
    typer.echo(f"\n{files[0]}\n{files[1]}")


def _finished(place: Path, extra: list[str], vary: list[str], runs: Path, context: typer.Context) -> list[Finished]:
    if place.is_dir():
        folders = [place] if (place / "recipe.yaml").exists() else sorted(place.glob("*Z-*"))
        if not folders:
            raise typer.BadParameter(f"{place} holds no runs", param_hint="SOURCE")
        return [_of_run(folder) for folder in folders]
    choices = []
    for text in vary:
        key, equals, values = text.partition("=")
        if not equals or not values:
            raise typer.BadParameter(f'"{text}": wants KEY=A,B,...', param_hint="--vary")
        choices.append([f"{key}={value.strip()}" for value in values.split(",")])
    plans = [pipeline.plan(load(place, [*extra, *some], context), runs) for some in itertools.product(*choices)]
    return [_of_plan(plan) for plan in plans]


def _of_plan(plan: Plan) -> Finished:
    done = {
        stage.name: types.Report(stage.dir / "out").read()
        for stage in plan.stages
        if stage.makes == "Report" and stage.cached
    }
    return plotting.Finished(plan.name, plotting.leaves(plan.recipe.data), done)


def _of_run(folder: Path) -> Finished:
    run, notes = loading.load(folder), list[str]()
    done = {}
    for stage in run.stages:
        path = None if stage.folder is None else stage.folder / "out" / "metrics.json"
        if path is not None and path.exists() and stage.state in ("done", "cached"):
            done[stage.name] = reading.read_json(path, notes)
    settings = omegaconf.OmegaConf.to_container(omegaconf.OmegaConf.create(run.recipe)) if run.recipe.strip() else {}
    return plotting.Finished(run.name, plotting.leaves(settings), done)


def _numbers(value: Any) -> dict[str, Any]:
    return {"mean": value.mean, "low": value.low, "high": value.high}

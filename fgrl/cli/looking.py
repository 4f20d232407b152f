"""`fgrl inspect`, `fgrl table`, `fgrl report`: look at what goes in and what came out."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgrl import lazy
from fgrl.cli.shared import RUNS, WITH_OVERRIDES, AsJson, Limit, RecipeFile, RunsFolder, columns, emit, load
from fgrl.errors import UsageError

if TYPE_CHECKING:
    from fgrl.pipeline import Plan, Planned
console = lazy.load("fgrl.console")
numbers = lazy.load("fgrl.results.numbers")
pipeline = lazy.load("fgrl.pipeline")
registry = lazy.load("fgrl.registry")
report_page = lazy.load("fgrl.report")
runs_of = lazy.load("fgrl.pipeline.run")
terminal = lazy.load("fgrl.report.terminal")
types = lazy.load("fgrl.types")

INSPECT = """
\b
Examples:
  fgrl inspect recipes/small/segment_ppo.yaml                          the first stage that shows samples
  fgrl inspect recipes/small/segment_ppo.yaml --stage policy -n 5
  fgrl inspect R --stage reward_model stages.reward_model.algorithm.segmenter.cutoff=1.0

Special tokens are visible, segments are marked, tokens are coloured by reward; a rubric reward also shows each criterion
with its verdict and the tokens that it hangs on. Nothing is trained or kept.
"""
TABLE = """
\b
Examples:
  fgrl table recipes/small/*.yaml
  fgrl table A.yaml B.yaml --markdown
  fgrl table recipes/small/rla*.yaml --number cosine

Reads what finished evaluations measured; runs nothing. Brackets are confidence intervals.
"""
REPORT = """
\b
Examples:
  fgrl report recipes/small/segment_ppo.yaml       rewrite report.html of the newest run
"""


def add(app: typer.Typer) -> None:
    app.command(context_settings=WITH_OVERRIDES, epilog=INSPECT, no_args_is_help=True)(inspect)
    app.command(epilog=TABLE, no_args_is_help=True)(table)
    app.command(epilog=REPORT, no_args_is_help=True)(report)


def inspect(
    context: typer.Context,
    recipe: RecipeFile,
    stage: Annotated[str | None, typer.Option("--stage", metavar="STAGE", help="Which stage's samples.")] = None,
    count: Annotated[int, typer.Option("-n", "--count", metavar="N", min=1, help="How many samples.")] = 3,
    runs: RunsFolder = RUNS,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Show a few samples as the model sees them: tokens, masks, segments, rewards. Overrides may follow the recipe."""
    plan = pipeline.plan(load(recipe, context.args, context), runs, limit=limit)
    chosen = _inspectable(plan, stage)
    voice = console.Console()
    with tempfile.TemporaryDirectory(prefix="fgrl-inspect-") as folder:
        run = runs_of.Run(
            chosen.name,
            Path(folder),
            cache=plan.runs.cache,
            seed=plan.recipe.seed,
            products={name: plan[name].dir / "out" for name in chosen.upstream},
            console=voice,
            limit=limit,
            accelerator=chosen.stage.accelerator(),
        )
        run.out.mkdir()
        run.cache.mkdir(parents=True, exist_ok=True)
        run.seed_libraries()
        voice.say(f"{plan.name}: stage {chosen.name} ({chosen.component})")
        found: list[dict[str, Any]] = []
        for shown, sample in enumerate(chosen.stage.inspect(run, count)):
            if shown == count:
                break
            if as_json:
                found.append(asdict(sample))
            else:
                terminal.print_annotated([sample])
    if as_json:
        emit({"stage": chosen.name, "samples": found})


def _inspectable(plan: Plan, name: str | None) -> Planned:
    able = [stage for stage in plan.stages if stage.stage.can_inspect()]
    if name is None:
        ready = [stage for stage in able if not _missing(plan, stage)]
        if not ready:
            raise UsageError("no stage can show samples yet; run the recipe first")
        return ready[0]
    if name not in [stage.name for stage in plan.stages]:
        raise UsageError(registry.unknown("stage", name, [stage.name for stage in plan.stages]))
    if plan[name] not in able:
        raise UsageError(f"stage {name} has no samples to show; these have: {', '.join(one.name for one in able)}")
    if missing := _missing(plan, plan[name]):
        commands = " ".join(f"--only {one}" for one in missing)
        raise UsageError(f"stage {name} needs {', '.join(missing)} first: fgrl run {plan.recipe.address} {commands}")
    return plan[name]


def _missing(plan: Plan, stage: Planned) -> list[str]:
    return [name for name in stage.upstream if not plan[name].cached]


def table(
    context: typer.Context,
    recipes: Annotated[list[Path], typer.Argument(metavar="RECIPE...", help="Recipes (YAML).", show_default=False)],
    number: Annotated[
        list[str] | None,
        typer.Option("--number", metavar="TEXT", help="Only numbers whose name has this in it; may be given again."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Print the measured numbers of several recipes side by side."""
    measured: dict[str, list[dict[str, Any]] | None] = {}
    for path in recipes:
        plan = pipeline.plan(load(path, [], context), runs)
        measured[plan.name] = measured_in(plan)
    if number:
        measured = only(measured, number)
    if as_json:
        emit({"recipes": measured})
        return
    typer.echo(_as_markdown(measured) if markdown else as_blocks(measured))


def only(measured: dict[str, list[dict[str, Any]] | None], wanted: list[str]) -> dict[str, list[dict[str, Any]] | None]:
    """The numbers with one of the texts in their names. Raises `UsageError` when there are none."""
    known = list(dict.fromkeys(row["number"] for rows in measured.values() for row in rows or []))
    for text in wanted:
        if known and not any(text in name for name in known):
            raise UsageError(f"no number has {text!r} in its name; there are: {', '.join(known)}")
    return {
        recipe: rows and [row for row in rows if any(text in row["number"] for text in wanted)]
        for recipe, rows in measured.items()
    }


def _as_markdown(measured: dict[str, list[dict[str, Any]] | None]) -> str:
    """A row a recipe and model, a column a number."""
    names = list(dict.fromkeys(row["number"] for rows in measured.values() for row in rows or []))
    lines = [["recipe", "model", *names], ["---"] * (len(names) + 2)]
    for recipe, rows in measured.items():
        cells = {(row["model"], row["number"]): row["text"] for row in rows or []}
        models = list(dict.fromkeys(row["model"] for row in rows or []))
        lines += [[recipe, model, *(cells.get((model, name), "") for name in names)] for model in models]
        if rows is None:
            lines.append([recipe, "not run", *[""] * len(names)])
    told: dict[str, list[str]] = {}
    for name in names:
        told.setdefault(_about(measured, name), []).append(name)
    notes = [f"{'; '.join(some)}: {about}" for about, some in told.items() if about]
    table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return "\n\n".join([table, *notes])


def _about(measured: dict[str, list[dict[str, Any]] | None], number: str) -> str:
    """What the recipes' metrics say of how a number came about."""
    rows = (row for rows in measured.values() for row in rows or [])
    return "; ".join(dict.fromkeys(row["about"] for row in rows if row["number"] == number and row["about"]))


def as_blocks(measured: dict[str, list[dict[str, Any]] | None]) -> str:
    """A block a number, so that recipes stand below each other in any terminal."""
    names = list(dict.fromkeys(row["number"] for rows in measured.values() for row in rows or []))
    blocks = []
    for name in names:
        lines = [
            (recipe, row["model"], row["text"], row["change"])
            for recipe, rows in measured.items()
            for row in rows or []
            if row["number"] == name
        ]
        about = _about(measured, name)
        blocks.append(f"{name}{f' ({about})' if about else ''}\n{columns(lines)}")
    waiting = [recipe for recipe, rows in measured.items() if rows is None]
    if waiting:
        blocks.append(f"not run: {', '.join(waiting)}")
    return "\n\n".join(blocks)


def measured_in(plan: Plan) -> list[dict[str, Any]] | None:
    """Numbers of every finished evaluation of a recipe; None when there is none."""
    rows: list[dict[str, Any]] = []
    stages = [stage for stage in plan.stages if stage.makes == "Report"]
    for stage in stages:
        if not stage.cached:
            continue
        for measure in numbers.measures(types.Report(stage.dir / "out").read()):
            title = measure.title if len(stages) == 1 else f"{stage.name}: {measure.title}"
            for row in measure.rows:
                value, change = row.value, row.difference
                rows.append(
                    {
                        "model": row.model,
                        "number": title,
                        "text": value.value + (f" [{value.interval}]" if value.interval else ""),
                        "change": _change(change),
                        "about": measure.about,
                        **_numbers("", value),
                        **_numbers("change_", change),
                    }
                )
    return rows if any(stage.cached for stage in stages) else None


def _change(change: Any) -> str:
    """A difference for the eyes; nothing where there is none."""
    if change is None or change.mean is None:
        return ""
    return f"difference {change.change}" + (f" [{change.interval}]" if change.interval else "")


def _numbers(prefix: str, estimate: Any) -> dict[str, Any]:
    if estimate is None:
        return {}
    return {f"{prefix}mean": estimate.mean, f"{prefix}low": estimate.low, f"{prefix}high": estimate.high}


def report(
    recipe: Annotated[
        Path, typer.Argument(metavar="RECIPE", help="A recipe, or the folder of a run.", show_default=False)
    ],
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Write report.html of a recipe's newest run again, and say where it is."""
    if recipe.is_dir():
        folder = recipe
    else:
        name = pipeline.recipe_name(recipe)
        found = pipeline.Runs(runs).invocations(name)
        if not found:
            raise UsageError(f"{recipe} has no runs in {runs / name}: fgrl run {recipe}")
        folder = found[0]
    page = report_page.write(folder)
    if as_json:
        emit({"report": str(page), "folder": str(folder)})
    else:
        typer.echo(str(page))

"""`fgrl compare`: recipes against the first of them, over seeds, with what their settings differ in."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgrl import lazy
from fgrl.cli.shared import RUNS, WITH_OVERRIDES, AsJson, RunsFolder, columns, emit, load, overrides
from fgrl.errors import UsageError

if TYPE_CHECKING:
    from fgrl.pipeline import Plan
    from fgrl.results.comparing import Difference, Evaluation, Number, Stage
    from fgrl.results.differing import Differing
comparing = lazy.load("fgrl.results.comparing")
console = lazy.load("fgrl.console")
differing = lazy.load("fgrl.results.differing")
numbers = lazy.load("fgrl.results.numbers")
pipeline = lazy.load("fgrl.pipeline")
registry = lazy.load("fgrl.registry")
runs_of = lazy.load("fgrl.pipeline.run")
types = lazy.load("fgrl.types")

EXAMPLES = """
\b
Examples:
  fgrl compare recipes/small/segment_ppo.yaml::bandit recipes/small/segment_ppo.yaml
  fgrl compare A.yaml B.yaml C.yaml --seeds 0,1,2 --number rule
  fgrl compare A.yaml B.yaml --seeds 0,1,2 --run stages.policy.algorithm.kl_coef=0.1
  fgrl compare A.yaml B.yaml --seeds 0,1,2 --stage evaluate --model policy --markdown

\b
The first recipe is what the others are compared with; overrides are for all. Answers that finished evaluations recorded are
measured again; nothing is run without --run.
"""
OWN = "own"
"""Column of recipes that keep their own, different seeds."""
MOST, WIDE = 30, 44
"""Settings that are printed, and characters of each; `--json` has all."""


@dataclass
class Made:
    """A recipe with one seed."""

    seed: str
    plan: Plan
    words: list[str]
    """Its overrides."""
    command: str
    """What runs it."""


@dataclass
class Against:
    """One of the recipes."""

    name: str
    path: Path
    made: list[Made] = field(default_factory=list)


def add(app: typer.Typer) -> None:
    app.command(context_settings=WITH_OVERRIDES, epilog=EXAMPLES, no_args_is_help=True)(compare)


def compare(
    context: typer.Context,
    recipes: Annotated[
        list[str], typer.Argument(metavar="RECIPE...", help="Recipes (YAML), then overrides.", show_default=False)
    ],
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="K,K,...", help="Every recipe with each of these seeds.")
    ] = None,
    number: Annotated[
        list[str] | None,
        typer.Option("--number", metavar="TEXT", help="Only numbers whose name has this in it; may be given again."),
    ] = None,
    stage: Annotated[
        list[str] | None, typer.Option("--stage", metavar="STAGE", help="Only this evaluation; may be given again.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", metavar="NAME", help="Only this model; may be given again. Default: all but the baseline."
        ),
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="First run what is missing, as `fgrl run` does.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Compare recipes: what differs in them, and their numbers with intervals over prompts and over seeds."""
    words = [*recipes, *context.args]
    places = [Path(word) for word in words if Path(word).is_file() or ("=" not in word and not word.startswith("-"))]
    extra = overrides([word for word in words if Path(word) not in places], context)
    if len(places) < 2:
        raise typer.BadParameter(
            "wants at least two recipes: the one to compare with, and another", param_hint="RECIPE"
        )
    wanted = _seeds(seeds, extra)
    sides = _sides(places, wanted, extra, runs, context)
    common, notes = _common(sides, stage or [])
    if run:
        _run(sides, common)
        sides = _sides(places, wanted, extra, runs, context)
    missing = _missing(sides, common)
    found = [_compared(name, sides, model or [], number or []) for name in common]
    if not any(one.numbers for one in found):
        raise UsageError(_nothing(found, missing, notes, number or []))
    settings = _settings(sides, common)
    if as_json:
        emit(_as_json(sides, settings, found, missing, notes))
        return
    typer.echo(_printed(sides, settings, found, missing, notes, markdown=markdown))


# -- what is compared --------------------------------------------------------------------------------------------------


def _seeds(text: str | None, extra: Sequence[str]) -> list[int | None]:
    """Of `--seeds`; None stands for the recipe's own."""
    if text is None:
        return [None]
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f'"{text}": wants whole numbers, as in 0,1,2', param_hint="--seeds") from None
    if min(found) < 0 or len(set(found)) < len(found):
        raise typer.BadParameter(f'"{text}": wants different numbers >= 0', param_hint="--seeds")
    if any(one.startswith("seed=") for one in extra):
        raise typer.BadParameter("there is a seed among the overrides too: give one of the two", param_hint="--seeds")
    return list(found)


def _sides(
    places: Sequence[Path], seeds: Sequence[int | None], extra: Sequence[str], runs: Path, context: typer.Context
) -> list[Against]:
    sides: list[Against] = []
    for path in places:
        made = []
        for seed in seeds:
            words = [*extra, *([] if seed is None else [f"seed={seed}"])]
            plan = pipeline.plan(load(path, words, context), runs)
            place = [] if runs == RUNS else ["--runs", str(runs)]
            made.append(
                Made(str(plan.recipe.seed), plan, words, shlex.join(["fgrl", "run", str(path), *words, *place]))
            )
        name = made[0].plan.name
        same = sum(side.name.split(" (")[0] == name for side in sides)
        sides.append(Against(name if not same else f"{name} ({same + 1})", path, made))
    if seeds == [None] and len({side.made[0].seed for side in sides}) > 1:
        for side in sides:
            side.made[0].seed = OWN
    return sides


def _common(sides: Sequence[Against], wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Evaluations that the first recipe and another have, and what is left out."""
    have = {side.name: [one.name for one in side.made[0].plan.stages if one.makes == "Report"] for side in sides}
    first, *others = have
    known = list(dict.fromkeys(name for names in have.values() for name in names))
    for name in wanted:
        if name not in known:
            raise UsageError(registry.unknown("evaluation", name, known))
    common, notes = [], []
    for name in known:
        if wanted and name not in wanted:
            continue
        without = [recipe for recipe in have if name not in have[recipe]]
        if without:
            notes.append(f"{name} is no evaluation of {', '.join(without)}")
        if name in have[first] and any(name in have[other] for other in others):
            common.append(name)
    if not common:
        raise UsageError(
            f"the recipes have no evaluation in common with {first}: "
            + "; ".join(f"{recipe} has {', '.join(names) or 'none'}" for recipe, names in have.items())
        )
    return common, notes


def _run(sides: Sequence[Against], common: Sequence[str]) -> None:
    """Run the recipes that lack an evaluation, seed by seed. Leaves with the exit code of the first that fails."""
    voice = console.Console()
    for one in (one for of_seed in zip(*(side.made for side in sides), strict=True) for one in of_seed):
        if all(stage.cached for stage in one.plan.stages if stage.name in common):
            continue
        voice.say(one.command)
        options = pipeline.Options(arguments=one.words, command=["fgrl", *sys.argv[1:]])
        summary = pipeline.execute(one.plan.recipe, one.plan.runs.root, options, voice)
        if summary.exit:
            voice.say(f"not finished: {one.command}")
            raise typer.Exit(summary.exit)


def _missing(sides: Sequence[Against], common: Sequence[str]) -> list[dict[str, Any]]:
    """What has not run, with the command that runs it."""
    found = []
    for side in sides:
        for one in side.made:
            stages = [stage.name for stage in one.plan.stages if stage.name in common and not stage.cached]
            if stages:
                found.append({"recipe": side.name, "seed": one.seed, "stages": stages, "command": one.command})
    return found


def _compared(name: str, sides: Sequence[Against], models: Sequence[str], number: Sequence[str]) -> Stage:
    recipes: dict[str, dict[str, Evaluation]] = {}
    for side in sides:
        for one in side.made:
            if any(stage.name == name and stage.cached for stage in one.plan.stages):
                recipes.setdefault(side.name, {})[one.seed] = _evaluation(one.plan, name)
    if sides[0].name not in recipes or len(recipes) < 2:
        return comparing.Stage(name, None)
    return comparing.compare(name, recipes, models, number)


def _evaluation(plan: Plan, name: str) -> Evaluation:
    """What a finished evaluation recorded, measured again."""
    chosen = plan[name]
    report = types.Report(chosen.dir / "out").read()
    answers = comparing.read_answers(chosen.dir / "out" / "answers.jsonl")
    with tempfile.TemporaryDirectory(prefix="fgrl-compare-") as folder:
        run = runs_of.Run(
            name,
            Path(folder),
            cache=plan.runs.cache,
            seed=plan.recipe.seed,
            products={other: plan[other].dir / "out" for other in chosen.upstream},
            console=console.Console(),
            accelerator=chosen.stage.accelerator(),
        )
        run.out.mkdir()
        metrics = getattr(chosen.stage, "metrics", [])
        again, reasons = comparing.measure_again(metrics, answers, str(report.get("baseline") or ""), run)
    return comparing.Evaluation(report, answers, again, reasons)


def _settings(sides: Sequence[Against], common: Sequence[str]) -> list[Differing]:
    """Settings of the evaluations and of all before them, where the recipes differ."""
    built, written = [], []
    for side in sides:
        plan = side.made[0].plan
        names = set(common)
        for stage in reversed(plan.stages):
            if stage.name in names:
                names |= set(stage.upstream)
        chosen = [stage for stage in plan.stages if stage.name in names]
        built.append({stage.name: registry.dump(stage.stage) for stage in chosen})
        written.append(plan.recipe.data["stages"])
    return differing.differing(built, written)


def _nothing(
    found: Sequence[Stage], missing: Sequence[Mapping[str, Any]], notes: Sequence[str], number: Sequence[str]
) -> str:
    """Why there is nothing to show, and what to do."""
    said = [*notes, *(f"{one.name}: {note}" for one in found for note in one.notes)]
    if number and not missing and not said:
        said.append(
            f"no number that they have in common has {' or '.join(map(repr, number))} in its name (fgrl table shows all)"
        )
    if missing:
        said.append("these evaluations have not run:")
        said += [f"  {one['command']}" for one in missing]
        said.append("run them, or give --run")
    return "\n".join(["nothing can be compared", *said])


# -- how it is shown ---------------------------------------------------------------------------------------------------


def _printed(
    sides: Sequence[Against],
    settings: Sequence[Differing],
    found: Sequence[Stage],
    missing: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
    *,
    markdown: bool,
) -> str:
    lay = _pipes if markdown else columns
    seeds = _seeds_of(sides)
    first, *others = [side.name for side in sides]
    parts = [f"{', '.join(others)} against {first}; seeds: {', '.join(seeds)}"]
    if any(side.made[0].seed == OWN for side in sides):
        parts[0] += " (" + ", ".join(f"{side.name} {side.made[0].plan.recipe.seed}" for side in sides) + ")"
    rows = [[one.key, *(_cut(value) for value in one.values)] for one in settings[:MOST]]
    if rows:
        parts.append(lay([["what differs", first, *others], *rows]))
        if len(settings) > MOST:
            parts.append(f"and {len(settings) - MOST} settings more (--json has them)")
    else:
        parts.append("no setting differs")
    for one in found:
        for model in dict.fromkeys(number.model for number in one.numbers):
            parts.append(_head(one, model))
            for number in (number for number in one.numbers if number.model == model):
                about = f" ({number.about})" if number.about else ""
                block = [f"{number.title}{about}", *([""] if markdown else []), lay(_rows(number, seeds))]
                parts.append("\n".join([*block, *([""] if markdown and number.notes else []), *_noted(number.notes)]))
        parts += [f"{one.name}: {note}" for note in one.notes]
    parts.append("\n".join(_legend(found)))
    parts += notes
    if missing:
        lines = [
            f"{one['recipe']}, seed {one['seed']}: {', '.join(one['stages'])}: {one['command']}" for one in missing
        ]
        parts.append("\n".join(["not run, and left out:", *_noted(lines)]))
    return "\n\n".join(parts)


def _head(one: Stage, model: str) -> str:
    """`evaluate, policy: 96 prompts; answers: a 288, b 288`."""
    asked = "number of prompts not recorded" if one.prompts is None else f"{one.prompts} prompts"
    counts = [f"{recipe} {of[model]}" for recipe, of in one.answers.items() if model in of]
    return f"{one.name}, {model}: {asked}" + (f"; answers: {', '.join(counts)}" if counts else "")


def _rows(number: Number, seeds: Sequence[str]) -> list[list[str]]:
    """The table of one number, with its head."""
    first = next(iter(number.recipes))
    before = {f"before{f' ({recipe})' if recipe else ''}": side for recipe, side in number.before.items()}
    sides = {**before, **number.recipes}
    values = {name: _shown(side.over_prompts) for name, side in sides.items()}
    over_prompts = {name: _shown(change.over_prompts) for name, change in number.differences.items()}
    over_seeds = {name: _shown(change.over_seeds) for name, change in number.differences.items()}
    all = [one for one in (*values.values(), *over_prompts.values(), *over_seeds.values()) if one is not None]
    places = numbers.places_for(all)
    for one in all:
        one.places = places
    share = "interval" if number.level is None else f"{100 * number.level:g}%"
    rows = [["", "mean", f"{share} over prompts", "95% over seeds" if number.level is None else f"{share} over seeds"]]
    rows[0] += [f"seed {seed}" for seed in seeds]
    for name, side in sides.items():
        cells = [_single(side.seeds.get(seed), places) if seed in side.seeds else "" for seed in seeds]
        value = values[name]
        rows.append([name, value.value if value else "–", (value.interval if value else "") or "–", "", *cells])
    for name, change in number.differences.items():
        of_prompts, of_seeds = over_prompts[name], over_seeds[name]
        cells = [_single(change.seeds.get(seed), places, signed=True) if seed in change.seeds else "" for seed in seeds]
        rows.append(
            [
                f"{name} − {first}",
                of_seeds.change if of_seeds else "–",
                (of_prompts.interval if of_prompts else "") or "–",
                f"{(of_seeds.interval if of_seeds else '') or '–'} (n = {change.over_seeds.n})",
                *cells,
            ]
        )
    return rows


def _shown(value: Any) -> Any:
    """An estimate for the eyes."""
    return None if value is None else numbers.Estimate.of(value.model_dump())


def _single(value: float | None, places: int | None, *, signed: bool = False) -> str:
    one = numbers.Estimate(value, places=places)
    return str(one.change if signed else one.value)


def _legend(found: Sequence[Stage]) -> list[str]:
    lines = []
    all = [number for one in found for number in one.numbers]
    if any(number.again for number in all):
        lines.append(
            "over prompts: percentiles of a bootstrap that draws the same prompts for every seed and both recipes "
            "(other prompts, the same trained models)"
        )
    if any(change.over_seeds.n > 1 for number in all for change in number.differences.values()):
        lines.append(
            "over seeds: Student's t of the n differences of runs with one seed (other trainings, the same prompts)"
        )
    else:
        lines.append("over seeds: no interval, there is one seed (--seeds 0,1,2)")
    if any(number.before for number in all):
        lines.append("before: the evaluation's own baseline")
    return lines


def _seeds_of(sides: Sequence[Against]) -> list[str]:
    return list(dict.fromkeys(one.seed for side in sides for one in side.made))


def _noted(notes: Sequence[str]) -> list[str]:
    return [f"- {note}" for note in notes]


def _cut(text: str) -> str:
    return text if len(text) <= WIDE else f"{text[: WIDE - 1]}…"


def _pipes(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _as_json(
    sides: Sequence[Against],
    settings: Sequence[Differing],
    found: Sequence[Stage],
    missing: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
) -> dict[str, Any]:
    names = [side.name for side in sides]
    return {
        "baseline": names[0],
        "recipes": {
            side.name: {"path": str(side.path), "seeds": {one.seed: one.plan.recipe.seed for one in side.made}}
            for side in sides
        },
        "seeds": _seeds_of(sides),
        "settings": [{"key": one.key, "values": dict(zip(names, one.values, strict=True))} for one in settings],
        "stages": {
            one.name: {
                "prompts": one.prompts,
                "answers": one.answers,
                "numbers": [_number_json(number) for number in one.numbers],
                "notes": one.notes,
            }
            for one in found
        },
        "missing": list(missing),
        "notes": list(notes),
    }


def _number_json(number: Number) -> dict[str, Any]:
    def side(one: Any) -> dict[str, Any]:
        return {**one.over_prompts.model_dump(), "seeds": one.seeds}

    def change(one: Difference) -> dict[str, Any]:
        over_prompts = None if one.over_prompts is None else one.over_prompts.model_dump()
        return {"over_prompts": over_prompts, "over_seeds": one.over_seeds.model_dump(), "seeds": one.seeds}

    before = {name: side(one) for name, one in number.before.items()}
    return {
        "number": number.title,
        "model": number.model,
        "about": number.about,
        "measured_again": number.again,
        "level": number.level,
        "before": before.get("", before or None),
        "recipes": {name: side(one) for name, one in number.recipes.items()},
        "differences": {name: change(one) for name, one in number.differences.items()},
        "notes": number.notes,
    }

"""`fgrl validate` and `fgrl plan`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgrl.base import lazy
from fgrl.base.errors import DataError
from fgrl.base.visible import quantity
from fgrl.commands import completion
from fgrl.commands.shared import (
    RUNS,
    AsJson,
    Limit,
    MachineFile,
    RecipeFile,
    RunsFolder,
    SetValues,
    WrongWord,
    addresses,
    as_text,
    card_of,
    echo,
    emit,
    load,
    named_and_overrides,
)
from fgrl.pages.report.text_tables import columns

if TYPE_CHECKING:
    from fgrl.experiments.pipeline import Plan
    from fgrl.experiments.recipe import Recipe
    from fgrl.experiments.recipe.machines import Card
costs = lazy.load("fgrl.experiments.pipeline.costs")
machine = lazy.load("fgrl.experiments.pipeline.machine")
preconditions = lazy.load("fgrl.experiments.pipeline.preconditions")
shapes = lazy.load("fgrl.models.shapes")
specs = lazy.load("fgrl.kinds.specs")
pipeline = lazy.load("fgrl.experiments.pipeline")
registry = lazy.load("fgrl.registry")

VALIDATE = """
\b
Examples:
  fgrl validate recipes/small/segment_ppo.yaml
  fgrl validate recipes/*.yaml recipes/small/*.yaml
  fgrl validate 'recipes/segment_ppo_phi3.yaml::*'     all of its rows
  fgrl validate R stages.policy.algorithm.kl_coef=0.1

Every mistake is reported at once, with file:line:column. Exit code 2 when there is one. The first rows of local JSON and CSV files are
read: exit code 3 where they lack what a reader, a reward or a metric needs. No model is loaded and nothing is run.
"""
PLAN = """
\b
Examples:
  fgrl plan recipes/small/segment_ppo.yaml
  fgrl plan R stages.policy.algorithm.kl_coef=0.1     which stages would that run again?
  fgrl plan R --json

Nothing is run or written. A stage is cached when its key is known: its parameters, the contents of files it reads, the
seed, the source of imported files, and the keys of the stages before it.
"""


@lazy.uncollected()
def validate(
    context: typer.Context,
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE...",
            help="Recipes (YAML), then overrides.",
            show_default=False,
            autocompletion=completion.sources,
        ),
    ],
    set_values: SetValues = None,
    machines: MachineFile = None,
    as_json: AsJson = False,
) -> None:
    """Check recipes: names, types, bounds, references, files. Overrides `a.b=value` may follow."""
    named, extra = named_and_overrides([*recipes, *context.args])
    if not named:
        raise WrongWord("no recipe given", param_hint="RECIPE")
    paths = [Path(address) for word in named for address in addresses(word)]
    results: list[dict[str, Any]] = []
    for path in paths:
        try:
            recipe = load(path, extra, context)
            unmet = preconditions.unmet(recipe.stages, recipe.tracking)
            warnings = [*warnings_of(recipe), *unmet.warnings]
            wrong = [{"text": problem} for problem in unmet.problems]
            found = {"warnings": warnings, "missing": unmet.missing, "problems": wrong}
            results.append({"recipe": str(path), "ok": not wrong, "stages": list(recipe.stages), **found})
            if wrong:
                echo("".join(f"{path}: {problem['text']}\n" for problem in wrong).rstrip(), err=True)
            elif not as_json:
                echo(f"{path}: ok, {quantity(len(recipe.stages), 'stage')}: {', '.join(recipe.stages)}")
                for warning in warnings:
                    echo(f"  warning: {warning}")
                for missing in unmet.missing:
                    echo(f"  missing here: {missing}")
        except registry.Problems as problems:
            if problems.needs:  # right, and waiting for what only the user can know
                results.append({"recipe": str(path), "ok": True, "needs": problems.needs, "problems": []})
                if not as_json:
                    echo(f"{path}: ok, needs {' '.join(f'{name}=...' for name in problems.needs)}")
                continue
            results.append({"recipe": str(path), "ok": False, "problems": problems.as_json()["problems"]})
            if len(paths) > 1:
                echo(f"-- {path}", err=True)  # the mistake may sit in a parent that several share
            echo(str(problems), err=True)
    if as_json:
        emit({"ok": all(result["ok"] for result in results), "recipes": results})
    elif len(paths) > 1:
        echo(f"{sum(result['ok'] for result in results)} of {len(paths)} recipes are valid")
    if bad := [result for result in results if not result["ok"]]:
        raise typer.Exit(2 if any("stages" not in result for result in bad) else DataError.exit_code)


def warnings_of(recipe: Recipe) -> list[str]:
    """Return the settings that stages of the recipe ignore, each with its place."""
    return [f"stages.{name}.{text}" for name, stage in recipe.stages.items() for text in stage.warnings()]


def plan(
    context: typer.Context,
    recipe: RecipeFile,
    limit: Limit = None,
    set_values: SetValues = None,
    machines: MachineFile = None,
    runs: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Report which stages would run, which are cached, and why. Overrides `a.b=value` may follow the recipe."""
    planned = pipeline.plan(load(recipe, context.args, context), runs, limit=limit)
    print_plan(planned, as_json, limit, card_of(context))


def print_plan(plan: Plan, as_json: bool, limit: int | None = None, card: Card | None = None) -> None:
    """Print a plan as a table or as JSON. If a machine file names a card, costs on this card are included."""
    estimates = pipeline.estimates(plan, limit, card)
    open_stages = {stage.name: stage.stage for stage in plan.stages if not stage.cached}
    unmet = preconditions.unmet(open_stages, plan.recipe.tracking)
    warnings = [*warnings_of(plan.recipe), *unmet.warnings, *([] if card else _too_large(plan, estimates))]
    if as_json:
        data = plan.as_json()
        for name, estimate in estimates.items():
            data["stages"][name]["estimate"] = estimate
        if card is not None:
            data["costs"] = costs.together(estimates.values(), card)
        emit({**data, "warnings": warnings, "missing": unmet.missing, "problems": unmet.problems})
        return
    missing = sum(not stage.cached for stage in plan.stages)
    echo(f"{plan.name}: {quantity(len(plan.stages), 'stage')}, {missing} to run  (seed {plan.recipe.seed})")
    rows = [("", "stage", "does", "makes", "key", "", "why")]
    rows += [
        (str(number), stage.name, stage.component, stage.makes, stage.key, "cached" if stage.cached else "run",
         stage.why.removeprefix("cached (").removesuffix(")") if stage.cached else stage.why)
        for number, stage in enumerate(plan.stages, start=1)
    ]  # fmt: skip
    echo(columns(rows))
    for line in plan.notices():
        echo(f"  {line}")
    for name, estimate in estimates.items():
        for line in estimate_lines(estimate):
            echo(f"  {name}: {line}")
    if sum("calls" in estimate for estimate in estimates.values()) > 1:
        echo(f"  {calls_together(estimates.values())}")
    if card is not None:
        unknown = costs.uncounted(open_stages, estimates)
        paid = _time(costs.together(estimates.values(), card))
        echo(f"  together on {card.count} x {card.name}: {paid}{', without ' * bool(unknown)}{', '.join(unknown)}")
    if missing_configs := unknown_models(plan):
        commands = "; ".join(f"hf download {name} config.json" for name in missing_configs)
        echo(f"  sizes that are unknown are known after: {commands}")
    for warning in warnings:
        echo(f"  warning: {warning}")
    for missing_here in unmet.missing:
        echo(f"  missing here: {missing_here}")
    for problem in unmet.problems:
        echo(f"  problem: {problem}")


def _too_large(plan: Plan, estimates: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the stages that need more memory than a device has: than any existing device, or than the devices of this
    machine.
    """
    found: dict[str, list[str]] = {}
    for name, estimate in estimates.items():
        peak = estimate.get("memory", {}).get("peak") or 0
        has, what = machine.device_memory(plan[name].stage.accelerator())
        if peak > machine.LARGEST_CARD:
            has, what = machine.LARGEST_CARD, "fits on no card; the largest has"
        if peak > has:
            found.setdefault(f"{what} {size(round(has))}", []).append(f"{name} (at most about {size(peak)})")
    return [f"{what}: {', '.join(stages)}" for what, stages in found.items()]


def estimate_lines(estimate: Mapping[str, Any]) -> list[str]:
    """Return an estimate as text, one line per topic."""
    texts = {"parameters": _parameters, "memory": _memory, "calls": _calls, "engine": _engine, "costs": _costs}
    return [f"{topic}: {texts.get(topic, as_text)(value)}" for topic, value in estimate.items()]


def calls_together(estimates: Iterable[Mapping[str, Any]]) -> str:
    """Return the sum of the model calls of stages; empty if no stage makes any."""
    calls = [estimate["calls"] for estimate in estimates if "calls" in estimate]
    counted = [one for one in calls if "calls" in one]
    bounded = sum(one["at most"] for one in calls if "at most" in one)
    unknown = len([one for one in calls if "calls" not in one and "at most" not in one])
    usd = [one["usd"] for one in counted]
    price = "price unknown" if None in usd else f"at most ${sum(usd):.4f}" if sum(usd) else "no charge"
    parts = [f"at most {sum(one['calls'] for one in counted):,} to make, {price}"] if counted else []
    parts += [f"at most {bounded:,} whose price is not known yet"] if bounded else []
    parts += [f"those of {quantity(unknown, 'stage')} whose number is not known"] if unknown else []
    return f"together: calls: {', and '.join(parts)}" if parts else ""


def unknown_models(plan: Plan) -> list[str]:
    """Return the hub ids of the models of pending stages whose sizes cannot be found on this machine."""
    parts = [value for stage in plan.stages if not stage.cached for _path, value in registry.walk(stage.stage)]
    names = dict.fromkeys(
        spec.base for spec in parts if isinstance(spec, specs.ModelSpec) and isinstance(spec.base, str)
    )
    return [name for name in names if not Path(name).is_dir() and not shapes.is_here(name)]


def _calls(calls: Any) -> str:
    """Format calls: `240 to make (12 answered before), 61,234 prompt tokens, at most 480 completion tokens, at most
    $0.0123`.
    """
    if "calls" not in calls:
        most = f"at most {calls['at most']:,}, their tokens and price unknown" if "at most" in calls else "unknown"
        return f"{most}: {calls['unknown'] if 'unknown' in calls else calls['after'] + ' has to run first'}"
    completion, usd = calls["completion tokens"], calls["usd"]
    known = f" ({calls['cached']:,} answered before)" if calls["cached"] else ""
    price = "price unknown" if usd is None else f"at most ${usd:.4f}" if usd else "no charge"
    count = f"{'at most ' * bool(calls.get('fewer'))}{calls['calls']:,} to make{known}"
    return (
        f"{count}, {'at most ' * bool(calls.get('bound'))}{calls['prompt tokens']:,} prompt tokens, "
        f"{'an unknown number of' if completion is None else f'at most {completion:,}'} completion tokens, {price}"
        f"{''.join(map(_too_long, calls.get('too long', ())))}"
    )


def _too_long(entry: Mapping[str, Any]) -> str:
    return (
        f"; warning: a call may need {entry['tokens']:,} tokens with its answer, and {entry['model']} reads "
        f"{entry['context']:,}: longer ones fail, so name another `model`, or lower the limits of prompts and answers"
    )


def _parameters(roles: Any) -> str:
    """Format parameter counts: `actor 139.4M (4.9M trainable), reference actor without its adapter`."""

    def text(numbers: Any) -> str:
        if not isinstance(numbers, dict):
            return as_text(numbers)
        trainable = numbers.get("trainable")
        return count(numbers["total"]) + (f" ({count(trainable)} trainable)" if trainable is not None else "")

    return ", ".join(f"{role.replace('_', ' ')} {text(numbers)}" for role, numbers in roles.items())


def _memory(roles: Any) -> str:
    """Format memory: `actor 331.1 MiB (weights 275.2 MiB, gradients ...), KV cache 12.0 MiB, at most about 3.1 GiB on
    each device`.
    """

    def text(sizes: Any) -> str:
        if isinstance(sizes, int):
            return size(sizes)
        parts = ", ".join(f"{name} {size(value)}" for name, value in sizes.items())
        return size(sum(sizes.values())) + (f" ({parts})" if len(sizes) > 1 else "")

    words = {"kv_cache": "KV cache"}
    texts = [
        f"{words.get(role, role.replace('_', ' '))} {text(sizes)}"
        for role, sizes in roles.items()
        if role != "peak" and not isinstance(sizes, str)  # the line before reports what is not known
    ]
    peak = roles.get("peak")
    return ", ".join([*texts, "unknown" if peak is None else f"at most about {size(peak)} on each device"])


def _costs(found: Any) -> str:
    """Format costs: `fits on H100 (70.1 GiB of 77.6 GiB); 31.2 h, 249.60 GPU hours, $624.00; drawing actor 72%,
    training actor 11%`.
    """
    needs = "unknown" if found["memory"] is None else size(found["memory"])
    fits = {True: "fits on", False: "does not fit on", None: "memory unknown on"}[found["fits"]]
    text = f"{fits} {found['card']} ({needs} of {size(found['has'])})"
    if "unknown" in found:
        return f"{text}; time unknown: {found['unknown']}"
    largest = sorted(found["parts"].items(), key=lambda part: -part[1])[:2]
    shares = ", ".join(f"{what} {seconds / sum(found['parts'].values()):.0%}" for what, seconds in largest if seconds)
    return f"{text}; {_time(found)}; {shares}"


def _time(paid: Mapping[str, float]) -> str:
    """Format time and price: `31.2 h, 249.60 GPU hours, $624.00`."""
    minutes = paid["seconds"] / 60
    lasts = f"{minutes / 60:,.1f} h" if minutes >= 60 else f"{minutes:.1f} min"
    return f"{lasts}, {paid['gpu hours']:,.2f} GPU hours, ${paid['usd']:,.2f}"


def _engine(place: Any) -> str:
    """Format the needs of an engine: `weights 7.5 GiB, KV cache 1.0 GiB for all responses at once on each of 4 devices
    (4, 5, 6, 7)`.
    """
    if "unknown" in place:
        needs = f"unknown ({place['unknown']})"
    else:
        needs = f"weights {size(place['weights'])}, KV cache {size(place['kv_cache'])} for all responses at once"
    named = f" ({', '.join(map(str, place['named']))})" if place["named"] else ""
    text = f"{needs} on each of {quantity(place['devices'], 'device')}{named}"
    if place["shared"]:
        text += f"; warning: the trainer uses device {', '.join(map(str, place['shared']))}, too: name others, or set its `memory`"
    return text


def count(number: int) -> str:
    """Format a large number: `134.5M`."""
    for unit, letter in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= unit:
            return f"{number / unit:.2f}B" if letter == "B" else f"{number / unit:.1f}{letter}"
    return str(number)


def size(number: int) -> str:
    """Format a size in bytes: `2.1 GiB`."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number} bytes"

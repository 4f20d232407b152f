"""A comparison of recipes as text, for a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from fgrl.measuring.statistics import Estimate
from fgrl.pages.report.text_tables import columns, markdown
from fgrl.runs.results.comparing import OWN_SEED, ComparedEvaluation, ComparedNumber, Comparison
from fgrl.runs.results.estimates import ShownEstimate, common_decimals
from fgrl.runs.results.table import answer

MOST_SETTINGS, MOST_CHARACTERS = 30, 44
"""Maximum number of settings that are printed, and maximum number of characters of each; `--json` has all."""
OVER = (
    "over prompts: a bootstrap that draws the same prompts for every seed and recipe (other prompts, the same trained "
    "models)",
    "over seeds: Student's t of the n differences of runs with one seed (other trainings, the same prompts)",
)


def comparison_text(comparison: Comparison, *, as_markdown: bool = False) -> str:
    """Return the answer by the first number, the settings that differ, a table with a line for each number, notes, and
    the recipes that have not run.
    """
    lay = markdown if as_markdown else columns
    first, *others = comparison.runs
    own = [
        f"{name} {run.seed}"
        for name, runs in comparison.runs.items()
        for label, run in runs.items()
        if label == OWN_SEED
    ]
    seeds = ", ".join(comparison.seeds) + (f" ({', '.join(own)})" if own else "")
    parts = [f"{', '.join(others)} against {first}; seeds: {seeds}", "\n".join(_answers(comparison))]
    rows = [[each.key, *map(_cut, each.values)] for each in comparison.settings]
    parts.append(lay([["what differs", *comparison.runs], *rows[:MOST_SETTINGS]]) if rows else "no setting differs")
    parts += [f"and {len(rows) - MOST_SETTINGS} more settings (--json has them)"] if len(rows) > MOST_SETTINGS else []
    for evaluation in comparison.evaluations:
        for model in dict.fromkeys(number.model for number in evaluation.numbers):
            numbers = [number for number in evaluation.numbers if number.model == model]
            same = [number for number in numbers[1:] if _is_constant(number)]
            empty = [number for number in numbers if all(side.mean is None for side in number.recipes.values())]
            shown = [number for number in numbers if number not in (*same, *empty)]
            parts += [_head(evaluation, model), lay(_rows(shown, first, others))]
            if same:
                values = (f"{each.number} {ShownEstimate.of(each.recipes[first]).value}" for each in same)
                parts.append(f"the same everywhere: {', '.join(values)}")
            parts += [f"without values: {', '.join(each.number for each in empty)}"] if empty else []
            if notes := _notes(shown):
                parts.append("\n".join(notes))
        parts += [f"{evaluation.name}: {note}" for note in evaluation.notes]
    changes = [change for number in comparison.numbers for change in number.differences.values()]
    several = any(change.over_seeds.n > 1 for change in changes)
    alone = "over seeds: no interval, there is one seed (--seeds 0,1,2)"
    observed = any(not number.why_recorded for number in comparison.numbers)
    parts.append("\n".join([*OVER[: int(observed)], OVER[1] if several else alone]))
    parts += comparison.notes
    if comparison.missing:
        lines = []
        for each in comparison.missing:
            known = (f"{each['recipe']}, seed {each['seed']}", ", ".join(each["stages"]), each["command"])
            lines.append(f"- {': '.join(filter(None, known))}")
        parts.append("\n".join(["not run, and left out:", *lines]))
    return "\n\n".join(parts)


def _answers(comparison: Comparison) -> list[str]:
    """Return a sentence for each recipe that says whether it is better by the first number."""
    first, *others = comparison.runs
    number = comparison.numbers[0]
    sentences = []
    for name in others:
        if (change := number.differences.get(name)) is None:
            sentences.append(f"{number.number}: {name} and {first} cannot be compared.")
            continue
        every = {"over prompts": change.over_prompts, "over seeds": change.over_seeds}
        over = {name: each for name, each in every.items() if each is not None}
        decimals = common_decimals([*over.values()])
        shown = {name: ShownEstimate.of(each, decimals) for name, each in over.items()}
        sentences.append(answer(number.number, name, first, number.better, shown))
    return sentences


def _head(evaluation: ComparedEvaluation, model: str) -> str:
    """Return the heading of an evaluation, as in `evaluate, policy: 96 prompts; answers: a 288, b 288`."""
    prompts = "number of prompts not recorded" if evaluation.prompts is None else f"{evaluation.prompts} prompts"
    counts = [f"{recipe} {of_models[model]}" for recipe, of_models in evaluation.answers.items() if model in of_models]
    return f"{evaluation.name}, {model}: {prompts}" + (f"; answers: {', '.join(counts)}" if counts else "")


def _is_constant(number: ComparedNumber) -> bool:
    """Return True if all recipes have the same value, without variation."""
    ends = {end for side in number.recipes.values() for end in (side.mean, side.low, side.high)} - {None}
    changes = [change.over_seeds.mean for change in number.differences.values()]
    return len(ends) == 1 and changes == [0.0] * (len(number.recipes) - 1)


def _rows(numbers: Sequence[ComparedNumber], first: str, others: Sequence[str]) -> list[list[str]]:
    """Return a line for each number of each other recipe. The name of a number is only on its first line."""
    levels = {number.level or 0.0 for number in numbers}
    level = f"{100 * max(levels):g}% " if len(levels) == 1 and all(levels) else ""
    over = [f"{level}over prompts", f"{level}over seeds"]
    rows = [["", "before", first, "", others[0] if len(others) == 1 else "", "difference", *over]]
    for number in numbers:
        changes = list(number.differences.values())
        befores = number.before if isinstance(number.before, dict) else {"": number.before} if number.before else {}
        every: list[Estimate] = [*befores.values(), *number.recipes.values()]
        every += [each for change in changes for each in (change.over_seeds, change.over_prompts) if each is not None]
        decimals = common_decimals(every)
        before = ", ".join(
            f"{ShownEstimate.of(each, decimals).value}{f' ({name})' if name else ''}" for name, each in befores.items()
        )
        start = [number.number, before, ShownEstimate.of(number.recipes[first], decimals).with_interval]
        for name, side in number.recipes.items():
            if name == first:
                continue
            cells = ["–", "–", "–"]
            if (change := number.differences.get(name)) is not None:
                seeds = ShownEstimate.of(change.over_seeds, decimals)
                prompts = ShownEstimate.of(change.over_prompts or Estimate(mean=None), decimals)
                cells = [seeds.change, prompts.interval or "–", f"{seeds.interval or '–'} (n = {seeds.n})"]
            rows.append([*start, name, ShownEstimate.of(side, decimals).with_interval, *cells])
            start = ["", "", ""]
    left_out = {3} if len(others) == 1 else set()
    kept = [place for place in range(len(rows[0])) if place not in left_out and any(row[place] for row in rows[1:])]
    return [[row[place] for place in kept] for row in rows]


def _notes(numbers: Sequence[ComparedNumber]) -> list[str]:
    """Return each remark once, with the names of its numbers."""
    names: dict[str, dict[str, None]] = {}
    for number in numbers:
        reason = f"no paired interval over prompts, only the recorded means: {number.why_recorded}"
        for note in (
            *([number.about] if number.about else []),
            *([reason] if number.why_recorded else []),
            *number.notes,
        ):
            names.setdefault(note, {}).setdefault(number.number)
    return [f"- {', '.join(those)}: {note}" for note, those in names.items()]


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"

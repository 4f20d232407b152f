"""A comparison of recipes as text, for a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from fgrl.evaluation.statistics import Estimate
from fgrl.report.text_tables import columns, markdown
from fgrl.results.comparing import OWN_SEED, ComparedEvaluation, ComparedNumber, RecipeComparison, RecipeNumber
from fgrl.results.estimates import ShownEstimate, common_decimals

MOST_SETTINGS, MOST_CHARACTERS = 30, 44
"""Settings that are printed, and characters of each; `--json` has all."""
NOTHING = "–"


def comparison_text(comparison: RecipeComparison, *, as_markdown: bool = False) -> str:
    """Return the settings that differ, a table for each number with its notes, a legend, and what has not run."""
    lay = markdown if as_markdown else columns
    parts = [_head(comparison), _settings(comparison, as_markdown=as_markdown)]
    if len(comparison.settings) > MOST_SETTINGS:
        parts.append(f"and {len(comparison.settings) - MOST_SETTINGS} more settings (--json has them)")
    for evaluation in comparison.evaluations:
        for model in dict.fromkeys(number.model for number in evaluation.numbers):
            parts.append(_evaluation_head(evaluation, model))
            for number in (number for number in evaluation.numbers if number.model == model):
                title = f"{number.number}{f' ({number.about})' if number.about else ''}"
                block = [title, *([""] if as_markdown else []), lay(_rows(number, comparison.seeds))]
                parts.append("\n".join([*block, *([""] if as_markdown and number.notes else []), *_list(number.notes)]))
        parts += [f"{evaluation.name}: {note}" for note in (*_recorded(evaluation), *evaluation.notes)]
    parts += ["\n".join(_legend(comparison)), *comparison.notes]
    if comparison.missing:
        lines = [
            f"{missing.recipe}, seed {missing.seed}: {', '.join(missing.stages)}"
            + (f": {missing.command}" if missing.command else "")
            for missing in comparison.missing
        ]
        parts.append("\n".join(["not run, and left out:", *_list(lines)]))
    return "\n\n".join(parts)


def _head(comparison: RecipeComparison) -> str:
    first, *others = comparison.recipes
    text = f"{', '.join(others)} against {first}; seeds: {', '.join(comparison.seeds)}"
    own = [
        f"{name} {recipe.seeds[OWN_SEED]}" for name, recipe in comparison.recipes.items() if OWN_SEED in recipe.seeds
    ]
    return text + (f" ({', '.join(own)})" if own else "")


def _settings(comparison: RecipeComparison, *, as_markdown: bool) -> str:
    settings = comparison.settings[:MOST_SETTINGS]
    if not settings:
        return "no setting differs"
    rows = [["what differs", *comparison.recipes]]
    rows += [[setting.key, *map(_cut, setting.values)] for setting in settings]
    return markdown(rows) if as_markdown else columns(rows)


def _evaluation_head(evaluation: ComparedEvaluation, model: str) -> str:
    """`evaluate, policy: 96 prompts; answers: a 288, b 288`."""
    prompts = "number of prompts not recorded" if evaluation.prompts is None else f"{evaluation.prompts} prompts"
    counts = [f"{recipe} {of_models[model]}" for recipe, of_models in evaluation.answers.items() if model in of_models]
    return f"{evaluation.name}, {model}: {prompts}" + (f"; answers: {', '.join(counts)}" if counts else "")


def _recorded(evaluation: ComparedEvaluation) -> list[str]:
    """Return the numbers without a paired interval over prompts, once for each reason."""
    names: dict[str, dict[str, None]] = {}
    for number in evaluation.numbers:
        if number.why_recorded:
            names.setdefault(number.why_recorded, {}).setdefault(number.number)
    return [
        f"{', '.join(numbers)}: no paired interval over prompts, only the recorded means: {reason}"
        for reason, numbers in names.items()
    ]


def _rows(number: ComparedNumber, seeds: Sequence[str]) -> list[list[str]]:
    """Return the table of one number, with its head."""
    first = next(iter(number.recipes))
    if isinstance(number.before, RecipeNumber):
        before = {"before": number.before}
    else:
        before = {f"before ({recipe})": value for recipe, value in (number.before or {}).items()}
    values = {**before, **number.recipes}
    differences = number.differences
    estimates: list[Estimate] = [*values.values()]
    estimates += [difference.over_seeds for difference in differences.values()]
    estimates += [difference.over_prompts for difference in differences.values() if difference.over_prompts is not None]
    decimals = common_decimals(estimates)

    def single(value: float | None) -> ShownEstimate:
        return ShownEstimate.of(Estimate(mean=value), decimals)

    prompts, trainings = ("interval", "95%") if number.level is None else (f"{100 * number.level:g}%",) * 2
    rows = [["", "mean", f"{prompts} over prompts", f"{trainings} over seeds", *(f"seed {seed}" for seed in seeds)]]
    for name, value in values.items():
        shown = ShownEstimate.of(value, decimals)
        cells = [single(value.seeds[seed]).value if seed in value.seeds else "" for seed in seeds]
        rows.append([name, shown.value, shown.interval or NOTHING, "", *cells])
    for name, difference in differences.items():
        over_seeds = ShownEstimate.of(difference.over_seeds, decimals)
        over_prompts = ShownEstimate.of(difference.over_prompts or Estimate(mean=None), decimals)
        cells = [single(difference.seeds[seed]).change if seed in difference.seeds else "" for seed in seeds]
        rows.append(
            [
                f"{name} − {first}",
                over_seeds.change,
                over_prompts.interval or NOTHING,
                f"{over_seeds.interval or NOTHING} (n = {difference.over_seeds.n})",
                *cells,
            ]
        )
    return rows


def _legend(comparison: RecipeComparison) -> list[str]:
    lines = []
    if any(number.observed for number in comparison.numbers):
        lines.append(
            "over prompts: percentiles of a bootstrap that draws the same prompts for every seed and both recipes "
            "(other prompts, the same trained models)"
        )
    if any(change.over_seeds.n > 1 for number in comparison.numbers for change in number.differences.values()):
        lines.append(
            "over seeds: Student's t of the n differences of runs with one seed (other trainings, the same prompts)"
        )
    else:
        lines.append("over seeds: no interval, there is one seed (--seeds 0,1,2)")
    if any(number.before for number in comparison.numbers):
        lines.append("before: the evaluation's own baseline")
    return lines


def _list(notes: Sequence[str]) -> list[str]:
    return [f"- {note}" for note in notes]


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"

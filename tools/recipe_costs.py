"""Print the table of docs/how-to/plan-costs.md: what the main recipe of each paper costs on 1, 8 and 16 cards, as `fgrl plan`
calculates it. Run it after a recipe, a rate or a count has changed: `python tools/recipe_costs.py`. A test compares.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from fgrl.experiments import pipeline, recipe
from fgrl.experiments.pipeline import costs
from fgrl.registry import Problems

ROOT = Path(__file__).resolve().parents[1]
ANNOTATED = ("vars.annotations=recipes/small/span_annotations.jsonl", "stages.chains.data.limit=277")
RECIPES: dict[str, tuple[str, ...]] = {
    "segment_ppo_llama3": (), "rtt_qwen3": (), "rla_llama3": (), "text2grad_qa": (), "span_chains": ANNOTATED,
}  # fmt: skip
"""With what each needs beside the machine: the span recipe the file of annotations, of which the paper has 277."""
MACHINES = ("one_h100", "eight_h100", "sixteen_h100")
OTHERS = (
    ("span_chains", "four_h100"),
    ("segment_ppo_llama3::vllm", "four_and_four"),
    ("segment_ppo_llama3::shards", "four_and_four"),
    ("rtt_qwen3::vllm", "four_and_four"),
)
"""Recipes on machines that they were made for, or that servers share with the training."""
HEAD = ("recipe", "machine", "hours", "GPU hours", "$", "takes most", "does not fit", "not counted")


def table() -> str:
    """The table as Markdown."""
    rows = [HEAD, (":--", ":--", "--:", "--:", "--:", ":--", ":--", ":--")]
    rows += [_row(name, machine) for name in RECIPES for machine in MACHINES]
    rows += [_row(name, machine) for name, machine in OTHERS]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _row(name: str, machine: str) -> tuple[str, ...]:
    file, _, row = name.partition("::")
    address = Path(f"{ROOT / 'recipes' / file}.yaml{'::' * bool(row)}{row}")
    machines = ROOT / "machines" / f"{machine}.yaml"
    given = [each.replace("recipes/", f"{ROOT}/recipes/") for each in RECIPES[file]]
    start = (f"`{name}`", f"`{machine}`")
    try:
        loaded = recipe.load(address, [*recipe.placed(machines, recipe.load(address, given)), *given])
    except Problems as problems:
        return (*start, "", "", "", f"refused: {problems.problems[0].message.partition(':')[0]}", "", "")
    card = recipe.read(machines).card
    assert card is not None
    with tempfile.TemporaryDirectory() as runs:
        found = pipeline.estimates(pipeline.plan(loaded, Path(runs)), None, card)
    of_stages = {stage: estimate["costs"] for stage, estimate in found.items() if "costs" in estimate}
    timed = {stage: each for stage, each in of_stages.items() if "seconds" in each}
    paid = costs.together(found.values(), card)
    parts = [(seconds, f"{stage}: {what}") for stage, each in timed.items() for what, seconds in each["parts"].items()]
    most = f"{max(parts)[1]}, {max(parts)[0] / paid['seconds']:.0%}" if parts else ""
    return (
        *start, f"{paid['seconds'] / 3600:,.1f}", f"{paid['gpu hours']:,.0f}", f"{paid['usd']:,.0f}", most,
        ", ".join(_too_large(of_stages)), ", ".join(costs.uncounted(loaded.stages, found)),
    )  # fmt: skip


def _too_large(of_stages: dict[str, dict[str, object]]) -> Iterator[str]:
    for stage, each in of_stages.items():
        assert each["fits"] is not None, f"{stage}: its memory is unknown"
        if not each["fits"]:
            yield f"{stage} ({float(str(each['memory'])) / 2**30:.0f} GiB)"


if __name__ == "__main__":
    print(table(), end="")

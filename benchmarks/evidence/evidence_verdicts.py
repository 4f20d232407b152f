"""Lines of evidence: each a difference over seeds with a margin of margins.yaml, and what it decides.

Toy world: pairs of methods of the credit benchmark (claims.yaml), on two tasks. SmolLM2: pairs of rows of the small recipes.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import evidence_lines
import yaml
from evidence_lines import Line
from evidence_pages import Asked, found

from fgrl_benchmark import benchmark
from fgrl_benchmark.comparisons import ORACLE, SCALAR, TEST, Values, by_task, holm, paired, shown
from fgrl_benchmark.deciding import Change, planned_seeds, verdict

MARGINS = Path(__file__).resolve().parent / "margins.yaml"
TOY = evidence_lines.ROOT / "docs" / "evidence.md"
"""The page with the table of the toy world."""
PILOT = (*TEST, "claims")
"""Phases with the pilot's seeds of the toy world."""
DECIDING = "claims_decided"
"""The phase with the new ones."""
TRIALS = 6
"""Settings that are tried for each side."""
FIRST, SECOND = "  lines:  # of the toy world\n", "  lines:  # of SmolLM2\n"
"""What the plans of margins.yaml stand below."""


@dataclass(frozen=True)
class Evidence:
    """A difference of which something is claimed."""

    more: str
    than: str
    where: str
    """A task of the toy world, or a number of SmolLM2's."""
    change: Change
    margin: float | None
    """None: the baseline gains nothing that it could be a part of."""
    hours: float | None
    """Of one core, for a seed of both sides. None: not measured."""
    values: tuple[float, ...] = ()
    """Of each seed, where they are known."""

    def plan(self, lines: int) -> dict[str, Any]:
        """Return what is stated before the runs: margin, seeds and spread of the pilot, seeds that follow, hours with both sides' trials."""
        seeds = None if self.margin is None else planned_seeds(self.change.spread, self.margin, lines)
        hours = None if seeds is None or self.hours is None else round(self.hours * (seeds + TRIALS), 1)
        margin = None if self.margin is None else round(self.margin, 4)
        pilot = {"pilot": self.change.seeds, "spread": round(self.change.spread, 4)}
        return {"margin": margin, **pilot, "seeds": seeds, "hours": hours}


@dataclass(frozen=True)
class Decided:
    """A line with p, corrected for all lines, and its verdict."""

    of: Evidence
    p: float
    verdict: str
    """holds, the opposite, equal, or how many seeds it needs, with the hours."""


def decided() -> list[Decided]:
    """Return all lines, those of the toy world first."""
    every = [*toy(by_task(*PILOT), by_task(DECIDING)), *smollm2()]
    corrected = holm([each.change.p for each in every])
    made = []
    for each, p in zip(every, corrected, strict=True):
        said, seeds = verdict(each.change, each.margin, p, len(every))
        if said == "needs":
            hours = "" if seeds is None or each.hours is None else f" ({seeds * each.hours:.1f} h)"
            said = f"needs {seeds or 'more than 1000'} seeds{hours}"
        made.append(Decided(each, p, said))
    return made


def toy(pilot: Values, new: Values) -> list[Evidence]:
    """Return the lines of the toy world, claim by claim: of the new seeds where both sides have some."""
    made = []
    for each in benchmark.read("claims.yaml"):
        more, than = each["more"], each["than"]
        for task in benchmark.read("plan.yaml")["claims"]["tasks"]:
            values = next((own for of in (new, pilot) if len(own := paired(of.get(task, {}), more, than)) > 1), [])
            margin = 0.1 * statistics.mean(paired(pilot[task], ORACLE, SCALAR))
            cost = sum(statistics.mean(map(benchmark.cost, pilot[task][name].values())) for name in (more, than))
            made.append(Evidence(more, than, task, Change.of(values), margin, cost / 3600, tuple(values)))
    return made


def stated() -> dict[str, Any]:
    """Return the contents of margins.yaml."""
    return yaml.safe_load(MARGINS.read_text(encoding="utf-8"))


def smollm2(*, pilot: bool = False) -> list[Evidence]:
    """Return the lines of SmolLM2: with the sides and seeds of `decided`, where a line has that and not its pilot is asked for."""
    every, made = evidence_lines.lines(), []
    for each in stated()["smollm2"]["lines"]:
        of = each if pilot else each | each.get("decided", {})
        over = measured(of, of["more"], every, of["than"])
        baseline, before = (measured(each, each[name], every).mean for name in ("than", "start"))
        change = Change.of_interval(over.mean, over.low, over.high, over.n)
        margin = 0.25 * (baseline - before) if baseline > before else None
        hours = each["minutes"] and 2 * each["minutes"] / 60
        made.append(Evidence(of["more"], of["than"], each["number"], change, margin, hours))
    return made


def measured(of: dict[str, Any], side: str, every: Sequence[Line], less: str = "") -> Any:
    """Return the estimate of a side, or of a difference, over the seeds of a line of SmolLM2."""
    seeds = tuple(of.get("with_seeds", (0, 1, 2)))
    return found(Asked(side, of["number"], seeds, less, of["machine"], 3, 1.0, ()), every)[0].estimate()


def with_plans(text: str) -> str:
    """Return the text of margins.yaml with what follows from the pilots."""
    worlds, others = toy(by_task(*PILOT), {}), smollm2(pilot=True)
    plans = [each.plan(len(worlds) + len(others)) for each in (*worlds, *others)]
    names = [{"more": each.more, "than": each.than, "task": each.where} for each in worlds]
    own = yaml.safe_load(text)["smollm2"]["lines"]
    made = [f"  - {flow(line | plan)}\n" for line, plan in zip([*names, *own], plans, strict=True)]
    head, rest = text.split(FIRST)
    middle = rest[rest.index("smollm2:") : rest.index(SECOND)]
    return "".join([head, FIRST, *made[: len(worlds)], middle, SECOND, *made[len(worlds) :]])


def flow(value: dict[str, Any]) -> str:
    """Return a mapping in one line of YAML."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000).strip()


def table(every: Sequence[Decided]) -> str:
    """Return the table of the toy world: differences in bold where p, corrected for all lines, is below 0.05."""
    tasks = benchmark.read("plan.yaml")["claims"]["tasks"]
    rows = [
        f"| paper | claim | {' | '.join(f'`{task}`' for task in tasks)} | seeds | methods |\n|{'---|' * (4 + len(tasks))}"
    ]
    pairs = groupby((each for each in every if each.of.where in tasks), key=lambda each: (each.of.more, each.of.than))
    for claim, (_, own) in zip(benchmark.read("claims.yaml"), pairs, strict=True):
        cells, seeds = [], {}
        for each in own:
            text = shown(each.of.values)
            cells.append(f"{f'**{text}**' if each.p < 0.05 else text}: {each.verdict}")
            seeds[str(each.of.change.seeds)] = None
        ends = [", ".join(seeds), f"`{claim['more']}`, `{claim['than']}`"]
        rows.append(f"| {' | '.join([claim['paper'], claim['claim'], *cells, *ends])} |")
    return "\n".join(rows) + "\n"


COUNTS = "*Lines of evidence*: "
"""How the sentence below the table begins."""
SAID = {"holds": "hold", "the": "the opposite", "equal": "equal", "needs": "need more seeds"}
"""What that sentence says of verdicts that begin with these words."""


def counts(every: Sequence[Decided]) -> str:
    """Return how many lines of each world are decided, and how."""
    tasks, said = benchmark.read("plan.yaml")["claims"]["tasks"], []
    for world, own in (
        ("of this table", [each for each in every if each.of.where in tasks]),
        ("of SmolLM2", [each for each in every if each.of.where not in tasks]),
    ):
        found = Counter(each.verdict.split()[0] for each in own)
        told = [f"{found[word]} {shown}" for word, shown in SAID.items() if found[word]]
        said.append(f"{len(own)} {world}: {', '.join(told)}")
    return f"{COUNTS}{'; '.join(said)}.\n"


def with_table(page: str) -> str:
    """Return the page with the table of today's lines and the sentence below it, in place of those that it has."""
    every = decided()
    made = table(every)
    head, _, rest = page.partition(made.partition("\n")[0])
    below = rest.partition(COUNTS)[2].partition("\n")[2]
    return f"{head}{made}\n{counts(every)}{below}"

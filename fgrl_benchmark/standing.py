"""Standing of a method among those of the benchmark: its line of the table, its place, its costs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fgrl.measuring.statistics import student
from fgrl_benchmark.comparisons import (
    ORACLE,
    PRIMARY,
    SCALAR,
    Values,
    holm,
    p_value,
    paired,
    share_of_oracle,
    shared_seeds,
    shown_change,
)  # fmt: skip
from fgrl_benchmark.sheet import REFERENCE, TEST, TUNE, Sheet, sent
from fgrl_benchmark.worlds import WORLDS, World

DIVERGED = 20.0
"""KL in nats above which a training counts as diverged."""


@dataclass(frozen=True)
class Standing:
    """Standing of a method by its lines."""

    sheet: Sheet
    found: Values
    """Lines of the method and of all others, on the same tasks and seeds."""
    others: Mapping[str, str]
    """Information that the other methods are told, including submitted methods."""

    @property
    def name(self) -> str:
        return str(self.sheet.about["method"])

    @property
    def told(self) -> str:
        return str(self.sheet.about["told"])

    @property
    def world(self) -> World:
        return WORLDS[self.sheet.about["world"]]

    def groups(self) -> dict[str, str]:
        """Return the information that each method is told."""
        return {**self.others, self.name: self.told}

    def gain(self, method: str, other: str = SCALAR) -> list[float]:
        """Return the differences of two methods, one for each seed that both have on all tasks; each is a mean over
        tasks.
        """
        seeds = [set(shared_seeds(self.found[task], method, other)) for task in self.world.tasks]
        return [
            statistics.mean(
                self.found[task][method][seed][PRIMARY] - self.found[task][other][seed][PRIMARY]
                for task in self.world.tasks
            )
            for seed in sorted(set.intersection(*seeds))
        ]

    def rivals(self) -> list[str]:
        """Return the methods that are told the same information and have run on all tasks, the best first."""
        names = [name for name, told in self.groups().items() if told == self.told and self.gain(name)]
        return sorted(names, key=lambda name: -statistics.mean(self.gain(name)))

    def apart(self) -> dict[str, list[str]]:
        """Return the rivals that the method is above, those that it is below, and those without a significant
        difference, by the 95% interval over seeds.
        """
        found: dict[str, list[str]] = {"above": [], "below": [], "not told from": []}
        for name in self.rivals():
            if name != self.name:
                over = student(self.gain(self.name, name))
                known = over.low is not None and over.high is not None
                side = "above" if known and over.low > 0 else "below" if known and over.high < 0 else "not told from"
                found[side].append(name)
        return found

    def row(self, method: str) -> list[str]:
        """Return a method's line of the table; bold if p is below 0.05 after Holm's correction for the line."""
        changes = [paired(self.found[task], method, SCALAR) for task in self.world.tasks]
        ps = holm([p_value(change) if len(change) > 1 else 1.0 for change in changes])
        cells = []
        for task, change, p in zip(self.world.tasks, changes, ps, strict=True):
            text = shown_change(change)
            share = share_of_oracle(self.found[task], method) if text and method != ORACLE else None
            cells.append((f"**{text}**" if p < 0.05 else text) + (f"; {share[0]:.2f}" if share else ""))
        seeds = {len(change) for change in changes} - {0}
        return [self.groups()[method], f"`{method}`", ", ".join(map(str, sorted(seeds))), *cells]

    def table(self) -> list[str]:
        """Return the table of the method, its rivals and the oracle, as Markdown."""
        head = ["told", "method", "seeds", *(f"`{task}`" for task in self.world.tasks)]
        names = [name for name in (ORACLE, *self.rivals()) if name != SCALAR and self.gain(name)]
        return markdown([head, *map(self.row, dict.fromkeys([*names, self.name]))])

    def settings(self) -> str:
        """Return the settings that tuning chose, and whether a learning rate is the last of those that were tried."""
        tried = sorted({line["settings"]["vars.lr"] for line in self.sheet.lines if line["phase"] == TUNE})
        found: dict[str, list[str]] = {}
        for line in self.sheet.of(TEST):
            rate = line["settings"]["vars.lr"]
            end = " (the largest tried)" if rate == tried[-1] else " (the smallest tried)" if rate == tried[0] else ""
            text = ", ".join(
                f"{key.rpartition('.')[2]} {value}{end if key == 'vars.lr' else ''}"
                for key, value in line["settings"].items()
            )
            found.setdefault(text, []).append(line["task"])
        if len(found) == 1:
            return next(iter(found))
        return "; ".join(f"{', '.join(dict.fromkeys(tasks))}: {text}" for text, tasks in found.items())

    def ended(self) -> str:
        """Return the number of runs that diverged or were stopped."""
        tests = [line for line in self.sheet.lines if line["phase"] == TEST]
        diverged = sum(line.get("policy.kl", 0.0) > DIVERGED for line in tests)
        said = [f"{diverged} of {len(tests)} tests diverged (KL above {DIVERGED:g} nats)"]
        for phase, what in ((TUNE, "of the tuning"), (TEST, "of the test")):
            if stopped := self.sheet.stopped(phase):
                said.append(f"{stopped} runs {what} were stopped by the training, and count nowhere")
        return "; ".join(said)

    def cost(self) -> dict[str, float]:
        """Return medians over tests, also for the scalar on this machine, and the minutes of all runs together."""
        tests, here = self.sheet.of(TEST), self.sheet.of(REFERENCE)
        found = {
            key: statistics.median(line[name] for line in lines if name in line)
            for key, lines, name in (
                ("seconds", tests, "processor seconds"), ("seconds of even", here, "processor seconds"),
                ("seconds before", tests, "seconds before"), ("tokens drawn", tests, "drawn"), ("tokens read", tests, "read"),
            )
            if any(name in line for line in lines)
        }  # fmt: skip
        return found | {
            "minutes": sum(line["processor seconds"] for line in (*self.sheet.of(TUNE), *tests, *here)) / 60
        }

    def same_here(self) -> list[str]:
        """Return for each task the comparison of a run of the scalar on this machine with the benchmark's own line."""
        known = self.world.known()
        said = []
        for line in self.sheet.of(REFERENCE):
            theirs = known[line["task"]][SCALAR][line["seed"]]
            before, after = (f"{each[PRIMARY]:.3f}" for each in (theirs, line))
            equal = line[PRIMARY] == theirs[PRIMARY]
            said.append(f"{line['task']} {after}" + (", as in its line" if equal else f", {before} in its line"))
        return said


def standing_of(sheet: Sheet) -> Standing:
    """Return the standing of the method of a file of lines, among all methods including submitted ones."""
    world = WORLDS[sheet.about["world"]]
    found, told = world.known(), {name: each["told"] for name, each in world.methods.items()}
    others = [
        each for each in sent() if each.about["world"] == world.name and each.about["method"] != sheet.about["method"]
    ]
    for each in (*others, sheet):
        for line in each.of(TEST):
            found[line["task"]].setdefault(line["method"], {})[line["seed"]] = line
    return Standing(sheet, found, told | {each.about["method"]: each.about["told"] for each in others})


def text_of(standing: Standing) -> str:
    """Return the whole standing as text."""
    world, rivals, cost = standing.world, standing.rivals(), standing.cost()
    read = [
        f"{cost[key]:,.0f} {what}" for key, what in
        (("tokens drawn", "tokens drawn"), ("tokens read", "tokens that the policy reads for the reward"))
        if key in cost
    ]  # fmt: skip
    even = f", {SCALAR} {cost['seconds of even']:.1f} here" if "seconds of even" in cost else ""
    before = (
        f", {cost['seconds before']:.0f} s of them before the policy's training" if cost.get("seconds before") else ""
    )
    place = (
        f"{rivals.index(standing.name) + 1} of {len(rivals)}"
        if standing.name in rivals
        else "none: too few tests ended"
    )
    lines = [
        f"{world.primary} less those of `{SCALAR}`, seeds {world.seeds[0]} to {world.seeds[-1]}, 95% intervals; then the share of the oracle's advantage",
        "", *standing.table(), "",
        f"place: {place} that are told the same ({standing.told}), by the mean over both tasks",
        *(f"  {side}: {', '.join(names)}" for side, names in standing.apart().items() if names),
        f"settings: {standing.settings()}",
        f"runs: {standing.ended()}",
        f"cost: {cost.get('seconds', 0):.1f} s of one core for a run{even}{before}; {cost['minutes']:.1f} minutes for all"
        + "".join(f"; {each}" for each in read),
    ]  # fmt: skip
    if same := standing.same_here():
        lines.append(f"{SCALAR} on this machine: {'; '.join(same)}")
    return "\n".join(lines)


def as_json(standing: Standing) -> dict[str, Any]:
    """Return the whole standing as JSON, for a program."""
    rivals = standing.rivals()
    tasks: Mapping[str, Any] = {
        task: {
            "difference": student(change).mean if change else None,
            "interval": [student(change).low, student(change).high] if change else None,
            "p": p_value(change) if len(change) > 1 else None,
            "share": list(share_of_oracle(standing.found[task], standing.name) or ()),
        }
        for task in standing.world.tasks
        for change in [paired(standing.found[task], standing.name, SCALAR)]
    }
    return {
        "method": standing.name, "told": standing.told, "world": standing.world.name, "tasks": tasks,
        "place": rivals.index(standing.name) + 1 if standing.name in rivals else None, "among": rivals,
        "apart": standing.apart(), "settings": standing.settings(), "runs": standing.ended(), "cost": standing.cost(),
    }  # fmt: skip


def markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table whose columns are aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    head, *rest = (
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |" for row in rows
    )
    return [head, f"|{'|'.join('-' * (width + 2) for width in widths)}|", *rest]

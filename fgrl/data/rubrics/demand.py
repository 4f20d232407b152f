"""Demands of a data set on a response: its criteria, and counts of the criteria by kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fgrl.data.row_reader import Omissions

CODE_CHECKER = "code:checker"
"""Name of the verifier that runs Python code of a data set."""
Check = dict[str, Any]
"""Settings of a verifier, in the form of recipes and `Criterion.check`."""


@dataclass(frozen=True)
class Demand:
    """A criterion in the form of the data set."""

    text: str
    check: Check | None = None
    kind: str = ""
    """The rule's id, or the data set's name for it. Hard criteria without a checker are counted by it."""
    hard: bool = True
    """True if the data set means a program to decide it, False if a judge."""
    why: str = ""
    """Reason why a hard criterion has no check."""

    def by_code(self) -> bool:
        """Return True if Python source of the data set decides it."""
        return self.check is not None and self.check["name"] == CODE_CHECKER


@dataclass
class Tally:
    """Counts of the prompts and criteria that were read of a data set with rubrics."""

    prompts: int = 0
    rules: int = 0
    code: int = 0
    soft: int = 0
    judged: int = 0
    """Number of hard criteria without a checker that are left to the judge."""
    without: Counter[str] = field(default_factory=Counter)
    """Counts of hard criteria without a checker, kept or not, by their id."""
    dropped: Omissions = field(default_factory=Omissions)
    """Counts of criteria that were left out."""
    left_out: Omissions = field(default_factory=Omissions)
    """Counts of rows that were left out."""
    unstated: int = 0
    """Number of prompts that contain no criterion word for word, if this was checked."""

    def add(self, demand: Demand, kept: bool) -> None:
        """Count a criterion. kept: it stays in the rubric."""
        if demand.check is None and demand.hard:
            self.without[demand.kind + (f" ({demand.why})" if demand.why else "")] += 1
        if not kept:
            self.dropped.add("hard without a checker" if demand.hard else "soft")
        elif demand.check is not None:
            self.code += demand.by_code()
            self.rules += not demand.by_code()
        elif demand.hard:
            self.judged += 1
        else:
            self.soft += 1

    def numbers(self) -> dict[str, Any]:
        """Return the counts for summaries and plans. `criteria` are those that were kept."""
        numbers: dict[str, Any] = {
            "prompts": self.prompts, "criteria": self.rules + self.code + self.soft + self.judged, "by rules": self.rules,
            "by their own code": self.code, "soft": self.soft, "hard without a checker": self.without.total(),
        }  # fmt: skip
        return numbers | ({"namely": dict(self.without.most_common())} if self.without else {})

    def summary(self) -> str:
        """Return the counts in words."""
        text = (
            f"{self.prompts:,} prompts, {self.numbers()['criteria']:,} criteria: {self.rules:,} hard by rules, "
            f"{self.code:,} hard by their own code in the sandbox, {self.soft:,} soft for the judge"
        )
        if self.without:
            which = ", ".join(f"{name} {count:,}" for name, count in self.without.most_common())
            left = "left to the judge" if self.judged else "left out"
            text += f", {self.without.total():,} hard without a checker here, {left}: {which}"
        if self.unstated:
            text += (
                f"; in {self.unstated:,} prompts no criterion stands word for word (`list_criteria: true` adds them)"
            )
        return text + self.omissions()

    def omissions(self) -> str:
        """Return what was left out, in words."""
        parts = [f"; left out criteria: {self.dropped}" if self.dropped else ""]
        parts += [f"; left out rows: {self.left_out}{self.left_out.first_misfit}" if self.left_out else ""]
        return "".join(parts)

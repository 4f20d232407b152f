"""Measured numbers as lines of JSON below results/, a file for each recipe: what was measured, of which seeds, and with which recipe.

A line has the values of its seeds; where they are not known any more, the mean over the seeds with its interval. Its `key` is that of
the stage which measured, as the snapshot of recipes had it then: where the snapshot has another one now, the line is older than its
recipe. A key changes with a setting, a default, the version of a component, a file that is read, and with all of these in earlier
stages. Code that changes without a new version of its component is not seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from fgrl.measuring.statistics import Estimate, student

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results"
SNAPSHOT = ROOT / "tests" / "recipes" / "snapshot" / "recipes"
BEFORE = "before"
"""Name of the model of an evaluation that the others are compared with."""


@dataclass(frozen=True)
class Line:
    """A number of a model, or the difference of two, paired by seed."""

    side: str
    """A recipe below recipes/, perhaps a row of it, and the model: `small/segment_ppo::token policy`."""
    number: str
    """The stage that measured it, and its name there: `evaluate/rule.kept`."""
    seeds: tuple[int, ...]
    less: str = ""
    """The side that is subtracted."""
    values: tuple[float, ...] = ()
    """Of each seed."""
    mean: float | None = None
    interval: tuple[float, float] | None = None
    """95%, over seeds (Student's t). With `mean` for a line whose values are not known."""
    prompts: tuple[float, float] | None = None
    """95% interval over prompts, with these trained models."""
    key: str = ""
    """Of the stage that measured it; of a difference that of the other side, too. Empty: from before there were keys that can be compared."""
    commit: str = ""
    """With which it was measured; of a line that was recorded from a page, the one that brought the number to the page."""
    machine: str = ""
    """Where it ran; of lines that were recorded, also what else was different then."""
    recorded_from_page: bool = False
    """True: the run is gone, and the line has what the page had printed."""

    @property
    def place(self) -> tuple[str, str, str, tuple[int, ...], str]:
        """What a line is found by; one measured later takes the place of an earlier one."""
        return self.side, self.less, self.number, self.seeds, self.machine

    @property
    def recipe(self) -> str:
        """The recipe without its row."""
        return self.side.split()[0].partition("::")[0]

    def estimate(self, *, over_prompts: bool = False) -> Estimate:
        """Return the mean with its interval over seeds; of a single seed, or where it is asked for, over prompts. Raises LookupError
        where that is asked for and not known.
        """
        if over_prompts and self.prompts is None:
            raise LookupError(f"{self.side}, {self.number}: no interval over prompts")
        over = student(self.values) if self.values else Estimate(mean=self.mean, n=len(self.seeds))
        bounds = self.prompts if over_prompts or len(self.seeds) == 1 else self.interval
        return over if bounds is None else over.model_copy(update={"low": bounds[0], "high": bounds[1]})

    def of_seeds(self, seeds: tuple[int, ...]) -> Line:
        """Return a line with the values of some of its seeds."""
        values = dict(zip(self.seeds, self.values, strict=True))
        return replace(self, seeds=seeds, values=tuple(values[seed] for seed in seeds), interval=None, prompts=None)

    def the_other_way(self) -> Line:
        """Return the difference of the two sides, swapped."""
        interval, prompts = (bounds and (-bounds[1], -bounds[0]) for bounds in (self.interval, self.prompts))
        mean, values = None if self.mean is None else -self.mean, tuple(-value for value in self.values)
        return replace(
            self, side=self.less, less=self.side, mean=mean, values=values, interval=interval, prompts=prompts
        )

    def as_json(self) -> str:
        known = {name: value for name, value in asdict(self).items() if value is not None and value is not False}
        return json.dumps({name: value for name, value in known.items() if value not in ("", ())})

    @classmethod
    def from_json(cls, text: str) -> Line:
        return cls(**{name: tuple(each) if isinstance(each, list) else each for name, each in json.loads(text).items()})

    @property
    def key_now(self) -> str:
        """The key that a line measured now would have."""
        stage, found = self.number.partition("/")[0], []
        for side in filter(None, (self.side, self.less)):
            recipe, _, row = side.split()[0].partition("::")
            found.append(keys(recipe).get((row, stage), "none"))
        return " ".join(found)

    @property
    def older_than_its_recipe(self) -> bool:
        """True if the recipe, or what it reads, has changed since, or was not known exactly then."""
        return self.key != self.key_now


def lines() -> list[Line]:
    """Return all lines."""
    return [
        Line.from_json(text)
        for file in sorted(RESULTS.rglob("*.jsonl")) for text in file.read_text(encoding="utf-8").splitlines()
    ]  # fmt: skip


def write(more: Iterable[Line]) -> None:
    """Add lines to the files of their recipes, in place of those of the same numbers."""
    every = {line.place: line for line in [*lines(), *more]}
    for recipe in sorted({line.recipe for line in every.values()}):
        file = RESULTS / f"{recipe}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        own = [f"{line.as_json()}\n" for line in every.values() if line.recipe == recipe]
        file.write_text("".join(own), encoding="utf-8")


@cache
def keys(recipe: str) -> dict[tuple[str, str], str]:
    """Return the keys of a recipe by row and stage, as its snapshot has them; the recipe itself is the row "". {} without a snapshot."""
    file = (SNAPSHOT / recipe).with_suffix(".txt")
    return dict(keys_of(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def keys_of(snapshot: str) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield row, stage and key. A row has the stages of the recipe but for those that it changes (+) or lacks (-)."""
    whole, *rows = re.split(r"^::(?=\w)", snapshot, flags=re.MULTILINE)
    stage = r"(\w+): key (\w+)"
    first = dict(re.findall(f"^{stage}", whole, re.MULTILINE))
    yield from ((("", name), key) for name, key in first.items())
    for text in rows:
        row = text.partition("\n")[0]
        lacking = re.findall(r"^- (\w+)$", text, re.MULTILINE)
        own = first | dict(re.findall(rf"^\+ {stage}", text, re.MULTILINE))
        yield from (((row, name), key) for name, key in own.items() if name not in lacking)

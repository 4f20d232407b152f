"""Numbers of pages, printed from lines. A file of pages/ has texts of a page in which names stand for numbers:

    | single tokens | {{tokens rule|values}} | {{tokens - segments rule|+}} |

`tokens` and `segments` are sides that the file names, `rule` is a number that it names. After the bar: `values` (of each seed), `mean`,
`interval`, `prompts` (the interval over prompts), `+` (with its sign); before it `@0,2` for these seeds alone. `{{...}}` stands for words
that do not matter, `{{sources}}` for the sentence about the lines. A text is found in the page by its words, wherever it stands.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from evidence_lines import ROOT, Line

PAGES = Path(__file__).resolve().parent / "pages"
PUBLISHED = ROOT / "docs" / "papers" / "data"
NAME = re.compile(r"\{\{(.+?)\}\}")
ONE = r"[-+]?\d+(?:\.\d+)?"
PRINTED = rf"({ONE}(?:, {ONE})*(?: \[{ONE}, {ONE}\])?|\[{ONE}, {ONE}\])"
"""What stands in a page for a number, its interval, or those of several seeds."""
SOURCES = "sources"
"""Name of the sentence about the lines of a page."""
ANY = "..."
"""Stands in a text for words of the page that do not matter."""
FREE = {SOURCES: r"(.*)", ANY: r"([^|\n]*)"}
DECIMAL = re.compile(r"(?<![\w.])[-+]?\d+\.\d+(?![\w.]*\d)")
CODE = re.compile(r"`[^`]*`|\]\([^)]*\)")


@dataclass(frozen=True)
class Asked:
    """A number that a text asks for."""

    side: str
    number: str
    seeds: tuple[int, ...]
    less: str
    machine: str
    digits: int
    times: float
    shown: tuple[str, ...]

    def text(self, lines: Sequence[Line]) -> tuple[str, list[Line]]:
        """Return it as it is printed, and the lines that it was made of. Raises LookupError where there is none, or more than one."""
        line, used = found(self, lines)
        sign = "+" if "+" in self.shown else ""
        if "values" in self.shown:
            if not line.values:
                raise LookupError(f"{self.side}, {self.number}: the values of its seeds are not known")
            return ", ".join(self.digit(value, sign) for value in line.values), used
        over = line.estimate(over_prompts="prompts" in self.shown)
        mean = self.digit(over.mean, sign)
        bounds = None if over.low is None or over.high is None else f"[{self.digit(over.low)}, {self.digit(over.high)}]"
        if "mean" in self.shown or bounds is None:
            return mean, used
        return bounds if {"interval", "prompts"} & set(self.shown) else f"{mean} {bounds}", used

    def digit(self, value: float | None, sign: str = "") -> str:
        if value is None:
            raise LookupError(f"{self.side}, {self.number}: its line has no mean")
        return f"{self.times * value:{sign}.{self.digits}f}"


def found(asked: Asked, lines: Sequence[Line]) -> tuple[Line, list[Line]]:
    """Return the line of a number, and the committed lines that it was made of: of a difference the same of the two sides swapped, or
    the differences of both sides' values.
    """

    def of(side: str, less: str) -> list[tuple[Line, Line]]:
        same = [
            line for line in lines
            if (line.side, line.number, line.less) == (side, asked.number, less) and line.machine.startswith(asked.machine)
        ]  # fmt: skip
        more = [
            (line.of_seeds(asked.seeds), line) for line in same if line.values and set(asked.seeds) < set(line.seeds)
        ]
        return [(line, line) for line in same if line.seeds == asked.seeds] or more

    own = of(asked.side, asked.less)
    if not own and asked.less:
        own = [(line.the_other_way(), used) for line, used in of(asked.less, asked.side)]
    if not own and asked.less:
        sides = [of(side, "") for side in (asked.side, asked.less)]
        if all(len(each) == 1 and each[0][0].values for each in sides):
            ((first, first_line),), ((second, second_line),) = sides
            values = tuple(a - b for a, b in zip(first.values, second.values, strict=True))
            return Line(asked.side, asked.number, asked.seeds, asked.less, values), [first_line, second_line]
    if len(own) != 1:
        less = f" less {asked.less}" if asked.less else ""
        raise LookupError(
            f"{asked.side}{less}, {asked.number}, seeds {asked.seeds}, {asked.machine or 'any machine'}: {len(own)} lines"
        )
    return own[0][0], [own[0][1]]


@dataclass(frozen=True)
class Page:
    """The file of a page."""

    file: Path

    @cached_property
    def contents(self) -> dict[str, Any]:
        return yaml.safe_load(self.file.read_text(encoding="utf-8"))

    @property
    def path(self) -> Path:
        return ROOT / self.contents["page"]

    def asked(self, name: str) -> Asked:
        """Return what a name in a text stands for."""
        what, _, shown = name.partition("|")
        sides, number, *seeds = re.fullmatch(r"(.+?) (\w+)(?: @([\d,]+))?", what.strip()).groups()  # type: ignore[union-attr]
        named, digits, *times = self.contents["numbers"][number]
        of = [self.contents["sides"][side].partition(" on ") for side in sides.split(" - ")]
        if len({machine for _side, _on, machine in of}) > 1:
            raise LookupError(f"{name}: two sides of a difference are of one machine")
        (side, _, machine), less = of[0], of[1][0] if len(of) > 1 else ""
        default = ",".join(map(str, self.contents["seeds"]))
        chosen = tuple(map(int, (seeds[0] or default).split(",")))
        return Asked(side, named, chosen, less, machine, digits, times[0] if times else 1.0, tuple(shown.split()))

    def printed(self, text: str, place: re.Match[str], lines: Sequence[Line]) -> str:
        """Return a text with its numbers, for a place of the page."""
        before = iter(place.groups())

        def instead(name: re.Match[str]) -> str:
            word = next(before)
            if name[1] in FREE:
                return self.sources(lines) if name[1] == SOURCES else word
            return self.asked(name[1]).text(lines)[0]

        return NAME.sub(instead, text)

    def places(self, page: str) -> Iterator[tuple[str, re.Match[str]]]:
        """Yield each text with the place in the page where it stands. Raises LookupError unless that is one."""
        for text in self.contents["texts"]:
            parts = NAME.split(text)
            pattern = "".join(
                re.escape(part) if place % 2 == 0 else FREE.get(part, PRINTED) for place, part in enumerate(parts)
            )
            places = list(re.finditer(pattern, page))
            if len(places) != 1:
                raise LookupError(
                    f"{self.contents['page']} has {len(places)} places with the words of this text, not one: {text}"
                )
            yield text, places[0]

    def written(self, page: str, lines: Sequence[Line]) -> str:
        """Return the page with the numbers of the lines."""
        for text, place in sorted(self.places(page), key=lambda each: -each[1].start()):
            page = page[: place.start()] + self.printed(text, place, lines) + page[place.end() :]
        return page

    def used(self, lines: Sequence[Line]) -> list[Line]:
        """Return the lines that the page's numbers are made of."""
        names = [name for text in self.contents["texts"] for name in NAME.findall(text) if name not in FREE]
        return list({line.place: line for name in names for line in self.asked(name).text(lines)[1]}.values())

    def sources(self, lines: Sequence[Line]) -> str:
        """Return where the numbers are from: lines with values of each seed, those recorded from a page, and those older than their recipe."""
        used = self.used(lines)
        recorded = sorted({line.commit for line in used if line.recorded_from_page})
        count = sum(line.recorded_from_page for line in used)
        older = Counter(line.recipe for line in used if line.older_than_its_recipe)
        said = [f"{len(used)} numbers, each a line of `benchmarks/evidence/results/`"]
        if recorded:
            named = ", ".join(f"`{commit}`" for commit in recorded)
            said.append(f"{count} were recorded from the pages of {named}: their runs are gone")
        if older:
            named = ", ".join(f"`{recipe}`: {number}" for recipe, number in sorted(older.items()))
            total = sum(older.values())
            said.append(
                f"{total} {'is older than its recipe' if total == 1 else 'are older than their recipes'} ({named})"
            )
        return ". ".join(said)

    def without_line(self, page: str) -> list[str]:
        """Return the decimal numbers that no line has: not the papers', not those that the file names as `not_measured`, not in code."""
        start = page.find(self.contents.get("from", ""))
        if start < 0:
            raise LookupError(f"{self.contents['page']} has no {self.contents['from']!r}")
        known = {str(each) for each in self.contents.get("not_measured", [])}
        known |= {number for paper in self.contents.get("papers", []) for number in published(paper)}
        for text, place in sorted(self.places(page), key=lambda each: -each[1].start()):
            page = page[: place.start()] + NAME.sub("", text) + page[place.end() :]
        section = re.split(r"\n## ", page[start + 1 :])[0]
        return [number for number in DECIMAL.findall(CODE.sub("", section)) if number.lstrip("+") not in known]


def published(paper: str) -> set[str]:
    """Return the numbers that a paper prints."""
    return {number.lstrip("+") for number in DECIMAL.findall((PUBLISHED / f"{paper}.yaml").read_text(encoding="utf-8"))}


def pages() -> list[Page]:
    """Return all pages that have numbers of lines."""
    return [Page(file) for file in sorted(PAGES.glob("*.yaml"))]

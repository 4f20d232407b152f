"""Numbers of docs/evidence.md, docs/length.md and the papers' pages, from the lines below results/.

    python benchmarks/evidence/evidence.py add A.yaml B.yaml --seeds 0,1,2   # as `fgrl compare`: runs what is missing, adds lines
    python benchmarks/evidence/evidence.py add A.yaml --seeds 0,1,2          # the same of one recipe
    python benchmarks/evidence/evidence.py write                             # the numbers of all lines into the pages
    python benchmarks/evidence/evidence.py older                             # lines of recipes that have changed since
    python benchmarks/evidence/evidence.py margins                           # what follows from the pilots into margins.yaml
    python benchmarks/evidence/evidence.py verdicts                          # what each line of evidence decides

A number stands in a page where a file of pages/ says so (see evidence_pages.py). A test compares pages and lines.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import evidence_verdicts
from evidence_lines import BEFORE, ROOT, Line, lines, write
from evidence_pages import pages

from fgrl_benchmark import benchmark


def lines_of(compared: Mapping[str, Any], changes: Sequence[str], commit: str, machine: str) -> Iterator[Line]:
    """Yield the lines of what `fgrl compare --json` printed. Raises SystemExit for anything but recipes below recipes/.

    changes: what all recipes change, as `vars.cutoff=1.75`.
    """
    recipes = {name: address_of(each["path"]) for name, each in compared["recipes"].items()}
    seeds = {name: each["seeds"] for name, each in compared["recipes"].items()}
    first = recipes[compared["baseline"]]

    def line(name: str, model: str, number: str, own: Mapping[str, Any], less: str = "") -> Line:
        over = own.get("over_prompts", own)
        known = {label: value for label, value in own["seeds"].items() if value is not None}
        line = Line(
            " ".join([recipes[name], *changes, model]), number, tuple(seeds[name][label] for label in known), less,
            values=tuple(round(value, 6) for value in known.values()),
            prompts=(round(over["low"], 6), round(over["high"], 6)) if over and over["low"] is not None else None,
            commit=commit, machine=machine,
        )  # fmt: skip
        return replace(line, key=line.key_now)

    for stage, evaluation in compared["stages"].items():
        for each in evaluation["numbers"]:
            number, model, before = f"{stage}/{each['number']}", each["model"], each["before"] or {}
            for name, own in each["recipes"].items():
                yield line(name, model, number, own)
                if base := before if "seeds" in before else before.get(name):
                    yield line(name, BEFORE, number, base)
            for name, own in each["differences"].items():
                if recipes[name] == first:  # one recipe, compared with itself
                    continue
                yield line(name, model, number, own, " ".join([first, *changes, model]))


def address_of(path: str) -> str:
    """Return a recipe below recipes/, and its row, as lines name it. Raises SystemExit for the folder of a run, which may be of an earlier
    recipe.
    """
    file, _, row = path.partition("::")
    place = Path(file).resolve()
    if place.suffix != ".yaml" or not place.is_relative_to(ROOT / "recipes"):
        raise SystemExit(f"{path} is no recipe below recipes/: only of these a line can say whether it is older")
    return f"{place.relative_to(ROOT / 'recipes').with_suffix('')}{'::' if row else ''}{row}"


def twice(words: Sequence[str]) -> list[str]:
    """Return what `fgrl compare` takes: a recipe that is alone is compared with itself."""
    recipes = [word for word in words if word.partition("::")[0].endswith(".yaml") and "=" not in word]
    return [*recipes, *words] if len(recipes) == 1 else [*words]


def add(options: argparse.Namespace) -> None:
    """Run what is missing of a comparison, and add its lines."""
    command = [sys.executable, "-m", "fgrl", "compare", *twice(options.words)]
    subprocess.run([*command, "--run"], check=True)
    compared = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    head = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=True
    )
    changes = [word for word in options.words if "=" in word and not word.startswith("--")]
    found = lines_of(compared, changes, head.stdout.strip(), options.machine)
    more = list(
        dict.fromkeys(line for line in found if line.values)
    )  # some numbers are undefined, such as a share of nothing
    write(more)
    print(f"{len(more)} lines; now: python benchmarks/evidence/evidence.py write")


def write_pages(_options: argparse.Namespace) -> None:
    """Write the numbers of the lines into the pages, and name decimal numbers that no line has."""
    every = lines()
    for page in pages():
        text = page.path.read_text(encoding="utf-8")
        page.path.write_text(page.written(text, every), encoding="utf-8")
        if odd := page.without_line(page.path.read_text(encoding="utf-8")):
            print(f"{page.path.relative_to(ROOT)}: no line has {', '.join(odd)}")
    text = evidence_verdicts.TOY.read_text(encoding="utf-8")
    evidence_verdicts.TOY.write_text(evidence_verdicts.with_table(text), encoding="utf-8")


def older(_options: argparse.Namespace) -> None:
    """Print the lines whose recipe, or what it reads, has changed since."""
    for line in lines():
        if line.older_than_its_recipe:
            less = f" less {line.less}" if line.less else ""
            print(f"{line.side}{less}, {line.number}, seeds {','.join(map(str, line.seeds))}: of {line.commit}")


def margins(_options: argparse.Namespace) -> None:
    """Write the plan of each line into margins.yaml."""
    file = evidence_verdicts.MARGINS
    file.write_text(evidence_verdicts.with_plans(file.read_text(encoding="utf-8")), encoding="utf-8")


def verdicts(_options: argparse.Namespace) -> None:
    """Print each line of evidence with its margin, p, corrected for all, and its verdict."""
    print("| more | than | of | seeds | difference | margin | p (Holm) | verdict |\n" + "|---" * 8 + "|")
    for each in evidence_verdicts.decided():
        change = each.of.change
        cells = [each.of.more, each.of.than, each.of.where, str(change.seeds), f"{change.mean:.3f}"]
        margin = "none" if each.of.margin is None else f"{each.of.margin:.4f}"
        print(f"| {' | '.join([*cells, margin, f'{each.p:.4f}', each.verdict])} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    adding = commands.add_parser("add", help="run what is missing of a comparison, and add its lines")
    adding.add_argument("--machine", default=benchmark.processor(), help="where it ran, if not here")
    adding.add_argument("words", nargs=argparse.REMAINDER, help="what `fgrl compare` takes")
    adding.set_defaults(do=add)
    commands.add_parser("write", help="write the numbers of the lines into the pages").set_defaults(do=write_pages)
    commands.add_parser("older", help="print the lines of recipes that have changed since").set_defaults(do=older)
    commands.add_parser("margins", help="write what follows from the pilots").set_defaults(do=margins)
    commands.add_parser("verdicts", help="print what each line decides").set_defaults(do=verdicts)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()

"""Look up every number of docs/papers/data in the texts of the papers: in the lines of its table, in its row, at its
column's place.

    python tools/check_published_numbers.py FOLDER            # FOLDER has the texts that the data files name
    python tools/check_published_numbers.py FOLDER --plant 20 # also: swap digits, rows and columns, one at a time

The texts are extracted from PDFs, and their tables are not all alike. `tools/published_layouts.yaml` says where and how
a table stands in its text when it is not a block of lines with tabs below its caption. Exit code 1 where a number is not
found, or where a planted swap is not noticed.
"""

from __future__ import annotations

import argparse
import copy
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs" / "papers" / "data"
LAYOUTS = ROOT / "tools" / "published_layouts.yaml"
CAPTION = re.compile(r"(Table|Figure) (\w+)[:.]")
MARKUP = re.compile(r"<[^>]*>|\\(?:bf|mathrm|overline|textit|text|rm)(?![a-z])|[\s$*{}^_`]|\\(?=[$%#])")
SIGNS = {"−": "-", "\\times": "×", "\\alpha": "α", "\\beta": "β", "\\geq": "≥", "\\phi": "ϕ"}
ARROW = r"[^0-9]{0,3}[017]{0,2}[^0-9]{0,3}"
"""What stands in a text for an arrow: often a 1 or a 7."""
ROUNDED = 0.16
"""Largest distance of a printed change from the difference of two printed values."""


@dataclass
class Row:
    """A row of a table as the data have it."""

    group: str
    name: str
    values: list[str]


@dataclass
class Layout:
    """Where a table stands in its text, and how."""

    shape: str = "tabs"
    """tabs: cells between tabs; a line may hold several rows. spaces: cells between spaces, in any line, points and
    arrows possibly lost. columns: a line for each value, column by column. pairs: name, value, name, value. assigned:
    `name = value` anywhere. ends: each cell ends with its value in parentheses.
    """
    side: str = "below"
    """Of the caption: below or above."""
    start: str = ""
    end: str = ""
    """Patterns of the lines around it, for a table that is not between two captions. No end: the end of the text."""
    after: int = 0
    """Cells behind the values."""
    spelled: dict[str, str] = field(default_factory=dict)
    """Names of rows and groups, and values, that the text has in another form."""
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Other layouts of single groups."""


def plain(text: str) -> str:
    """Return a text without markup and white space, to be compared."""
    for sign, meant in SIGNS.items():
        text = text.replace(sign, meant)
    return MARKUP.sub("", text)


def rows_of(table: Mapping[str, Any]) -> list[Row]:
    """Return the rows of a table, those of groups too."""
    rows = []
    for name, value in table["rows"].items():
        inner = value.items() if isinstance(value, dict) else [(name, value)]
        rows += [Row(name if isinstance(value, dict) else "", row, list(values)) for row, values in inner]
    return rows


def region(lines: Sequence[str], number: str, layout: Layout) -> list[str]:
    """Return the lines of a table. Raises LookupError where there are none."""
    if layout.start:
        first = _line(lines, layout.start, 0)
        return list(lines[first : _line(lines, layout.end, first + 1) if layout.end else len(lines)])
    captions = [place for place, line in enumerate(lines) if CAPTION.match(line)]
    own = [place for place in captions if re.match(rf"Table {number}[:.]", lines[place])]
    if not own:
        raise LookupError(f"no caption of Table {number}")
    if layout.side == "above":
        return list(lines[max([place for place in captions if place < own[0]], default=0) : own[0]])
    # a caption that the text repeats counts as one
    return list(lines[own[-1] : min([place for place in captions if place > own[-1]], default=len(lines))])


def _line(lines: Sequence[str], pattern: str, since: int) -> int:
    for place in range(since, len(lines)):
        if re.search(pattern, lines[place]):
            return place
    raise LookupError(f"no line {pattern!r}")


def check_table(lines: Sequence[str], number: str, table: Mapping[str, Any], layout: Layout) -> list[str]:
    """Return what is wrong in a table; empty where all numbers are found."""
    rows = rows_of(table)
    wrong = [f"{row.name}: {len(row.values)} values" for row in rows if len(row.values) != len(table["columns"])]
    if wrong or not rows:
        return wrong
    wrong += list(_changes(rows))
    for own, part in _parts(rows, layout):
        try:
            wrong += SHAPES[own.shape](part, region(lines, number, own), own)
        except LookupError as error:
            wrong.append(str(error))
    return wrong


def _parts(rows: Sequence[Row], layout: Layout) -> Iterator[tuple[Layout, list[Row]]]:
    """Yield the rows with one layout, and those of each group that has its own."""
    yield layout, [row for row in rows if row.group not in layout.groups]
    for group, own in layout.groups.items():
        yield Layout(**{"spelled": layout.spelled, **own}), [row for row in rows if row.group == group]


def _changes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the changes (`88.85 ↑0.7`) that are not the difference to the first row of their group."""
    for row in rows:
        first = next(other for other in rows if other.group == row.group)
        for value, start in zip(row.values, first.values, strict=True):
            match = re.fullmatch(r"([\d.]+) ([↑↓])([\d.]+)", value)
            if match is None:
                continue
            change = float(match[3]) * (1 if match[2] == "↑" else -1)
            if abs(float(match[1]) - float(start.split()[0]) - change) > ROUNDED:
                yield f"{row.name}: {value} is no change of {start}"


# -- shapes of tables --------------------------------------------------------------------------------------------------


def _tabs(rows: Sequence[Row], lines: Sequence[str], layout: Layout) -> list[str]:
    wrong: list[str] = []
    place = index = 0
    while index < len(rows):
        found = _tab_line(rows, index, lines, place, layout)
        if found is None:
            wrong.append(f"{_name(rows[index])}: no such row")
            index += 1
            continue
        at, count = found
        if not _group_seen(rows, index, lines[place : at + 1], layout):
            wrong.append(f"{rows[index].group}: no such group")
        values = _cells(lines[at], layout, len(rows[index].values))[1]
        for offset in range(count):
            row = rows[index + offset]
            parts = [value.split() if count > 1 else [value] for value in values]
            read = [plain(part[offset]) if len(part) == count else "" for part in parts]
            wrong += _differing(row, read, layout)
        place, index = at + 1, index + count
    return wrong


def _tab_line(
    rows: Sequence[Row], index: int, lines: Sequence[str], since: int, layout: Layout
) -> tuple[int, int] | None:
    """Return the next line that begins with a row's name, and how many rows it holds."""
    group = rows[index].group
    most = sum(1 for _ in _while_same(rows, index))
    for at in range(since, len(lines)):
        if "\t" not in lines[at]:
            continue
        label = "".join(_cells(lines[at], layout, len(rows[index].values))[0])
        for count in range(1, most + 1):
            wanted = "".join(plain(_label(row, layout)) for row in rows[index : index + count])
            if label in (wanted, _spelled(group, layout) + wanted):
                return at, count
    return None


def _while_same(rows: Sequence[Row], index: int) -> Iterator[Row]:
    for row in rows[index:]:
        if row.group != rows[index].group:
            return
        yield row


def _cells(line: str, layout: Layout, count: int) -> tuple[list[str], list[str]]:
    """Return the names in front of the values, plain, and the values with the white space between them."""
    cells = line.split("\t")
    cells = cells[: len(cells) - layout.after]
    values = [re.sub(r"<[^>]*>", "", cell) for cell in cells[-count:]]
    return [plain(cell) for cell in cells[:-count]], values


def _group_seen(rows: Sequence[Row], index: int, lines: Sequence[str], layout: Layout) -> bool:
    """Return True if the first row of a group comes with or behind the group's name."""
    row = rows[index]
    if not row.group or row.group == row.name or (index and rows[index - 1].group == row.group):
        return True
    wanted = _spelled(row.group, layout)
    return any(wanted in (plain(cell) for cell in [line, *line.split("\t")]) for line in lines)


def _spaces(rows: Sequence[Row], lines: Sequence[str], layout: Layout) -> list[str]:
    wrong, place = [], 0
    for index, row in enumerate(rows):
        label = r"\s*".join(re.escape(part) for part in re.findall(r"\w+|[^\w\s]", _label(row, layout)))
        known = [
            (at, match)
            for at in range(place, len(lines))
            if (match := re.search(label + r"\W{0,4}(?=[\d.])", lines[at]))
        ]
        if not known:
            wrong.append(f"{_name(row)}: no such row")
            continue
        at, match = known[0]
        if not _group_seen(rows, index, lines[place : at + 1], layout):
            wrong.append(f"{row.group}: no such group")
        rest = lines[at][match.end() :].strip()
        if not re.fullmatch(_loose(row.values), rest):
            wrong.append(f'{_name(row)}: the data have {" | ".join(row.values)}, the text "{rest}"')
        place = at + 1
    return wrong


def _loose(values: Sequence[str]) -> str:
    """Return a pattern of a row whose points and arrows may be lost."""
    cells = []
    for value in values:
        number, *change = re.split(r" [↑↓]", value)
        cell = "[-–—_]" if number == "–" else _digits(number)
        cells.append(cell + (ARROW + _digits(change[0]) if change else ""))
    between = r"\s*" if any(re.search("[↑↓]", value) for value in values) else r"\s+"
    return between.join(cells)


def _digits(number: str) -> str:
    return "".join(rf"[{sign}]?\s?" if sign in ".," else re.escape(sign) for sign in number)


def _columns(rows: Sequence[Row], lines: Sequence[str], layout: Layout) -> list[str]:
    read = [plain(line) for line in lines if line.strip()]
    wanted = [plain(row.values[column]) for column in range(len(rows[0].values)) for row in rows]
    lines_of = [  # two columns whose numbers stand in one cell
        wanted,
        [
            *(a + b for a, b in zip(wanted[: len(rows)], wanted[len(rows) : 2 * len(rows)], strict=True)),
            *wanted[2 * len(rows) :],
        ],
    ]
    if any(read[at : at + len(each)] == each for each in lines_of for at in range(len(read))):
        return []
    return [f"{rows[0].group}: the lines do not have {', '.join(wanted)} below each other"]


def _pairs(rows: Sequence[Row], lines: Sequence[str], layout: Layout) -> list[str]:
    cells = [[plain(cell) for cell in line.split("\t")] for line in lines if "\t" in line]
    read = {name: value for line in cells for name, value in zip(line[::2], line[1::2], strict=False)}
    return [text for row in rows for text in _differing(row, [read.get(plain(row.name), "no such row")], layout)]


def _assigned(rows: Sequence[Row], lines: Sequence[str], layout: Layout) -> list[str]:
    text, place, wrong = " ".join(" ".join(lines).split()), 0, []
    for index, row in enumerate(rows):
        if row.group and (not index or rows[index - 1].group != row.group):
            place = max(place, text.find(layout.spelled.get(row.group, row.group), place))
        value = layout.spelled.get(row.values[0], row.values[0])
        match = re.compile(
            rf"(?<![\w]){re.escape(_label(row, layout))}\s?[=:]\s?(.{{{len(value)}}})(?=[\s,;]|\.?(?:\s|$))"
        ).search(text, place)
        if match is None or match[1] != value:
            wrong.append(f'{_name(row)}: the data have {value}, the text "{"" if match is None else match[1]}"')
        place = place if match is None else match.end(1)
    return wrong


def _ends(rows: Sequence[Row], lines: Sequence[str], layout: Layout) -> list[str]:
    wrong = []
    for row in rows:
        line = next((line for line in lines if line.startswith(_label(row, layout))), "")
        read = [(re.search(r"\(([\d.]+)\)$", cell.strip()) or ["", ""])[1] for cell in line.split("\t")]
        wrong += _differing(row, [cell for cell in read if cell], layout)
    return wrong


SHAPES = {
    "tabs": _tabs, "spaces": _spaces, "columns": _columns, "pairs": _pairs, "assigned": _assigned, "ends": _ends,
}  # fmt: skip


def _label(row: Row, layout: Layout) -> str:
    """Return a row's name as the text has it."""
    return layout.spelled.get(_name(row), layout.spelled.get(row.name, row.name))


def _spelled(name: str, layout: Layout) -> str:
    return plain(layout.spelled.get(name, name))


def _differing(row: Row, read: Sequence[str], layout: Layout) -> list[str]:
    wanted = [plain(layout.spelled.get(value, value)) for value in row.values]
    if list(read) == wanted:
        return []
    return [f'{_name(row)}: the data have {" | ".join(wanted)}, the text "{" | ".join(read)}"']


def _name(row: Row) -> str:
    return f"{row.group} / {row.name}" if row.group else row.name


# -- all papers --------------------------------------------------------------------------------------------------------


def check(data: Mapping[str, Mapping[str, Any]], folder: Path, layouts: Mapping[str, Any]) -> list[str]:
    """Return what is wrong in the data files, by name, that have the texts of the folder."""
    wrong = []
    for paper, content in data.items():
        text = (folder / content["text"]).read_text(encoding="utf-8")
        lines = re.sub(r"(\d\.\d+) / (\d+\.\d)", r"\1\t\2", text).splitlines()  # two numbers of one cell
        for number, table in content["tables"].items():
            layout = Layout(**layouts.get(paper, {}).get(number, {}))
            wrong += [f"{paper}, Table {number}: {text}" for text in check_table(lines, number, table, layout)]
    return wrong


def plant(data: Mapping[str, Any], kind: str, draw: random.Random) -> tuple[str, dict[str, Any]]:
    """Return a description and a copy of the data with one swap: of two neighbouring digits of a number, or of two
    values in different rows of a column, or in different columns of a row.
    """
    while True:
        changed = copy.deepcopy(dict(data))
        paper = draw.choice(sorted(changed))
        number = draw.choice(sorted(changed[paper]["tables"]))
        table = changed[paper]["tables"][number]
        lists = [
            inner
            for value in table["rows"].values()
            for inner in (value.values() if isinstance(value, dict) else [value])
        ]
        if not lists:
            continue
        one, other = draw.choice(lists), draw.choice(lists)
        column, second = draw.randrange(len(one)), draw.randrange(len(one))
        before = one[column]
        if kind == "digits":
            pairs = [
                at for at in range(len(before) - 1) if before[at : at + 2].isdigit() and before[at] != before[at + 1]
            ]
            if not pairs:
                continue
            at = draw.choice(pairs)
            one[column] = before[:at] + before[at + 1] + before[at] + before[at + 2 :]
        elif kind == "rows":
            one[column], other[column] = other[column], one[column]
        else:
            one[column], one[second] = one[second], one[column]
        if one[column] != before and re.search(r"\d", one[column] + before):
            return f"{kind} of {paper}, Table {number}: {before} became {one[column]}", changed


def planted(data: Mapping[str, Any], folder: Path, layouts: Mapping[str, Any], count: int, seed: int = 0) -> list[str]:
    """Return the planted swaps that are not noticed."""
    draw, missed = random.Random(seed), []
    for place in range(count):
        text, changed = plant(data, ("digits", "rows", "columns")[place % 3], draw)
        noticed = check(changed, folder, layouts)
        print(f"{'noticed' if noticed else 'MISSED'}: {text}")
        missed += [] if noticed else [text]
    return missed


def read_data(folder: Path = DATA) -> dict[str, Any]:
    """Return the data files by name."""
    return {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="folder of the papers' texts")
    parser.add_argument("--plant", type=int, default=0, metavar="N", help="also plant N swaps, one at a time")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    data, layouts = read_data(), yaml.safe_load(LAYOUTS.read_text(encoding="utf-8"))
    wrong = check(data, given.folder, layouts)
    print("\n".join(wrong) or "every number is in its table, row and column")
    values = sum(
        bool(value)
        for each in data.values()
        for table in each["tables"].values()
        for row in rows_of(table)
        for value in row.values
    )
    print(f"{sum(len(each['tables']) for each in data.values())} tables, {values} values")
    missed = planted(data, given.folder, layouts, given.plant, given.seed)
    return 1 if wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())

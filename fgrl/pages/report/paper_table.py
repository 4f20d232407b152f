"""A table of a paper as text: for a terminal, Markdown, LaTeX, CSV and JSON. Our numbers and the published numbers have
separate columns in all formats.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

from fgrl.measuring.statistics import Estimate
from fgrl.pages.report.text_tables import columns, markdown
from fgrl.runs.results.estimates import ShownEstimate, common_decimals
from fgrl.runs.results.paper_table import Cell, PaperTable, TableRow

PAPER = "paper"
NOT_RUN = "not run: "
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "−": "$-$", "≥": r"$\geq$", "×": r"$\times$", "Σ": r"$\Sigma$",
    "α": r"$\alpha$", "β": r"$\beta$", "✓": r"$\checkmark$", "<": "$<$", ">": "$>$", "|": "$|$",
}  # fmt: skip


def as_text(table: PaperTable) -> str:
    """Return a block for each column, so that the rows are below each other in any terminal."""
    blocks = [table.about]
    for title in table.columns:
        kinds, lines = _column(table, title, lambda text: f"{text} *")
        number = table.numbers.get(title)
        rows = [["", *kinds], *_with_names(table, lines, indent="  ")]
        blocks.append(f"{title}{f' ({number})' if number else ''}\n{columns(rows)}")
    return "\n\n".join([*blocks, "\n".join(_remarks(table, "* "))])


def as_markdown(table: PaperTable) -> str:
    """Return one table, with the best number in bold, and remarks."""
    head, *body = _wide(table, lambda text: f"**{text}**", escape=lambda text: text.replace("*", r"\*"))
    lines = ["- " + text for text in _remarks(table, "bold: ")]
    return "\n\n".join([f"**{table.about}**", markdown([head, *body]), "\n".join(lines)])


def as_latex(table: PaperTable) -> str:
    """Return a `table` environment that needs no package, with the best number in bold. The commands that run the
    missing rows are comments.
    """
    _head, *body = _wide(table, lambda text: rf"\textbf{{{text}}}", escape=_latex)
    kinds = {title: _column(table, title, str)[0] for title in table.columns}
    titles = [rf"\multicolumn{{{len(own)}}}{{c}}{{{_latex(title)}}}" for title, own in kinds.items()]
    below = [kind for own in kinds.values() for kind in own]
    remarks = _remarks(table, "bold: ")
    lines = [
        *(f"% {text}" for text in remarks if text.startswith(NOT_RUN)),
        r"\begin{table}", r"\centering\scriptsize", rf"\caption{{{_latex(table.about)}}}",
        rf"\begin{{tabular}}{{l{'r' * len(below)}}}", r"\hline",
        *(" & ".join(["", *row]) + r" \\" for row in (titles, below)), r"\hline",
        *(" & ".join(row) + r" \\" for row in body), r"\hline", r"\end{tabular}",
        *(rf"\par {_latex(text)}" for text in remarks if not text.startswith(NOT_RUN)), r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines)


def as_csv(table: PaperTable) -> str:
    """Return a line for each row, with a column for each end of each interval, and the published values as printed."""
    kinds = ["", " low", " high", " low over seeds", " high over seeds", " best", f" {PAPER}"]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        ["group", "row", "recipe", "model", *(f"{title}{kind}" for title in table.columns for kind in kinds)]
    )
    for row in table.rows:
        values: list[Any] = [row.group, row.name, row.recipe, row.model]
        for title in table.columns:
            cell = row.cells[title]
            seeds = (cell.over_seeds.low, cell.over_seeds.high) if cell.over_seeds else (None, None)
            ours = (cell.ours.mean, cell.ours.low, cell.ours.high) if cell.ours else (None, None, None)
            values += [*ours, *seeds, int(cell.best) if cell.ours else None, cell.published]
        writer.writerow(values)
    return stream.getvalue().rstrip("\n")


def as_json(table: PaperTable) -> dict[str, Any]:
    """Return the table as plain data, with `ours` and `published` separate."""

    def numbers(cell: Cell) -> dict[str, Any] | None:
        if cell.ours is None:
            return None
        over = cell.over_seeds
        ends = None if over is None else {"low": over.low, "high": over.high}
        return {
            **cell.ours.model_dump(include={"mean", "low", "high", "n", "seeds"}),
            "over_seeds": ends,
            "best": cell.best,
        }

    return {
        "about": table.about,
        "ours": {"models": table.models, "seeds": table.seeds, "numbers": table.numbers},
        "published": {"source": table.source, "model": table.published_model, "budget": table.published_budget},
        "rows": [
            {
                "group": row.group, "row": row.name, "recipe": row.recipe, "model": row.model, "waiting": row.waiting, "budget": row.budget,
                "ours": {title: numbers(cell) for title, cell in row.cells.items()},
                "published": {title: cell.published for title, cell in row.cells.items()},
            }
            for row in table.rows
        ],
        "notes": table.notes,
    }  # fmt: skip


def _wide(table: PaperTable, mark: Callable[[str], str], escape: Callable[[str], str] = str) -> list[list[str]]:
    """Return the head and the rows of one wide table, in which all columns and their parts are side by side."""
    made = {title: _column(table, title, mark, escape) for title in table.columns}
    head = ["", *(escape(f"{title}, {kind}") for title, (kinds, _) in made.items() for kind in kinds)]
    lines = [[text for _, own in made.values() for text in own[place]] for place in range(len(table.rows))]
    return [head, *_with_names(table, lines, escape)]


def _column(
    table: PaperTable, title: str, mark: Callable[[str], str], escape: Callable[[str], str] = str
) -> tuple[list[str], list[list[str]]]:
    """Return the names of a column's parts (ours if there is such a number, over seeds if there are several, the
    paper's if it has some), and the texts of each row, with the same decimals in all of them.
    """
    cells = [row.cells[title] for row in table.rows]
    decimals = common_decimals([estimate for cell in cells for estimate in (cell.ours, cell.over_seeds) if estimate])

    def shown(estimate: Estimate) -> ShownEstimate:
        return ShownEstimate.of(Estimate(mean=estimate.mean, low=estimate.low, high=estimate.high), decimals)

    lines = []
    for row, cell in zip(table.rows, cells, strict=True):
        ours = escape(_absent(row, cell) if cell.ours is None else shown(cell.ours).with_interval)
        seeds = escape(f"[{shown(cell.over_seeds).interval}]") if cell.over_seeds else ""
        lines.append([mark(ours) if cell.best else ours, seeds, escape(cell.published or "")])
    kinds = {
        "ours": title in table.numbers or any(cell.ours for cell in cells),
        "over seeds": any(cell.over_seeds for cell in cells),
        PAPER: any(cell.published for cell in cells),
    }
    kept = list(kinds.values())
    return list(compress(kinds, kept)), [list(compress(line, kept)) for line in lines]


def _with_names(
    table: PaperTable, lines: Sequence[Sequence[str]], escape: Callable[[str], str] = str, indent: str = ""
) -> Iterator[list[str]]:
    """Yield the lines, each after the name of its row, and a line for each group."""
    group = ""
    for row, line in zip(table.rows, lines, strict=True):
        if row.group and row.group != group:
            yield [escape(row.group), *[""] * len(line)]
        group = row.group
        yield [(indent if group else "") + escape(row.name), *line]


def _absent(row: TableRow, cell: Cell) -> str:
    return "not run" if row.waiting == "not run" or cell.missing == "not run" else "–"


def _remarks(table: PaperTable, mark: str) -> list[str]:
    """Return the notes for the reader: models and budgets of both sides, and missing numbers."""
    seeds = f", seed{'s' * (len(table.seeds) > 1)} {', '.join(map(str, table.seeds))}" if table.seeds else ""
    lines = [f"ours: {', '.join(table.models) or 'no model'}{seeds}"]
    budgets = {row.full_name: row.budget for row in table.rows if row.budget and not row.waiting}
    if len(set(budgets.values())) == 1:
        lines.append(f"budget of ours: {next(iter(budgets.values()))}")
    else:
        lines += _by_value("budget of ours, ", budgets)
    cells = [(row, cell) for row in table.rows for cell in row.cells.values()]
    if any(cell.published for _, cell in cells):
        about = "; ".join(filter(None, (table.source, table.published_model, table.published_budget)))
        lines.append(f"{PAPER}: {about}")
    if any(cell.best for _, cell in cells):
        lines.append(f"{mark}better than every other row that has run, by the paired intervals")
    reasons = {row.full_name: row.waiting for row in table.rows} | {
        row.full_name: cell.missing for row, cell in cells if cell.missing
    }
    lines += _by_value("", {name: reason for name, reason in reasons.items() if reason not in ("", "not run")})
    commands = dict.fromkeys(command for row in table.rows for command in row.commands)
    return [*lines, *(NOT_RUN + command for command in commands), *table.notes]


def _by_value(title: str, values: Mapping[str, str]) -> list[str]:
    """Return a line for each different value, with the rows that have it."""
    rows: dict[str, list[str]] = {}
    for name, value in values.items():
        rows.setdefault(value, []).append(name)
    return [f"{title}{', '.join(names)}: {value}" for value, names in rows.items()]


def _latex(text: str) -> str:
    return "".join(LATEX.get(sign, sign) for sign in text)


FORMATS: Mapping[str, Callable[[PaperTable], str]] = {
    "text": as_text, "markdown": as_markdown, "latex": as_latex, "csv": as_csv
}  # fmt: skip

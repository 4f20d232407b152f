"""Every table file: its rows' recipes validate and plan, full-size and small, and have the numbers that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fgrl import registry
from fgrl.experiments.recipe.tables import is_table_file, read_table_file
from fgrl.experiments.stages.average import NUMBER
from fgrl.kinds import Metric
from fgrl.kinds.metric import meaning_in
from fgrl.library.named import NamedRecipe
from fgrl.library.tables import OpenTable, open_table, paper_table
from fgrl.runs.results.published import read_published

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(ROOT.glob("sweeps/*/*.yaml"))
FILES = [path for path in FILES if is_table_file(path)]
PAPERS = {"rla": 6, "rubrics_to_tokens": 8, "segment_ppo": 10, "span_feedback": 2, "text2grad": 21}
"""Tables and figures with numbers, by paper."""
SETTINGS = {"segment_ppo": {"8", "9"}, "rubrics_to_tokens": {"6", "7", "8"}, "text2grad": {"9", "10"}, "rla": {"E"}}
"""Tables of settings, prompts and examples, which no evaluation measures."""
JSON_LINES = ROOT / "recipes" / "small" / "definitions.jsonl"
"""Stands for files that only a user has."""


def named(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def opened(path: Path, runs: Path, small: bool) -> OpenTable:
    wanted = {key for keys in read_table_file(path, small=small).needs.values() for key in keys}
    given = [f"{key}={'somebody/some-model' if key == 'vars.sft' else JSON_LINES}" for key in sorted(wanted)]
    return open_table(path, runs, given, small=small)


def test_every_table_and_figure_has_its_file() -> None:
    assert {paper: len([path for path in FILES if path.parent.name == paper]) for paper in PAPERS} == PAPERS
    assert len(FILES) == sum(PAPERS.values()) == 47
    for paper, left_out in SETTINGS.items():
        content = yaml.safe_load((ROOT / "docs" / "papers" / "data" / f"{paper}.yaml").read_text(encoding="utf-8"))
        numbers = {path.stem.removeprefix("table").partition("_")[0] for path in FILES if path.parent.name == paper}
        assert set(content["tables"]) - numbers == left_out


@pytest.mark.parametrize("small", [False, True], ids=["full", "small"])
@pytest.mark.parametrize("path", FILES, ids=named)
def test_rows_plan_and_have_their_numbers(path: Path, small: bool, tmp_path: Path) -> None:
    table = opened(path, tmp_path / "runs", small)
    made = paper_table(table)
    reasons = {"not run", "needs annotations=FILE", *(place.row.reason for place in table.places.values())}
    assert {row.waiting for row in made.rows} <= reasons
    assert all(
        place.finished or place.row.reason or place.row.derived or place.row.domain for place in table.places.values()
    )
    for place in table.places.values():
        for recipe, source in place.sources.items():
            (finished, *_) = source.recipes
            assert ("small" in finished.recipe.path.parts) == small
            for title, column in table.file.columns.items():
                number = place.row.numbers.get(title, column.number)
                if number is not None and table.file.recipe_of(place.row, column) == recipe:
                    check(finished, number, place.row.models.get(title, place.row.model))
            figure = table.file.figure
            if figure is not None and figure.kind == "curves":
                assert set(figure.stages) <= set(finished.recipe.stages)
    drawn = table.file.figure
    assert table.file.columns or (drawn is not None and drawn.metrics)
    if drawn is not None and drawn.kind == "lines":
        assert all(row.x is not None for row in made.rows)


@pytest.mark.parametrize("path", [path for path in FILES if path.stem.startswith("table")], ids=named)
def test_rows_and_columns_are_those_of_the_paper(path: Path, tmp_path: Path) -> None:
    made = paper_table(opened(path, tmp_path / "runs", small=False))
    printed = [cell.published for row in made.rows for cell in row.cells.values() if cell.published]
    assert printed
    notes = [note for note in made.notes if "table:" in note]
    ours_too = {"text2grad-table15": 1, "text2grad-table1_judged": 2}
    assert len(notes) == ours_too.get(named(path), 0), notes


HEADLINES = {
    "segment_ppo::1": ("AlpacaEval 2.0 LC (%)", ["Phi3-mini Instruct", "Bandit (Sequence)", "Sentence", "Token", "Segment (Ours)"]),
    "rla::1": ("C_sim", [f"{search} Search / {row}" for search in ("With", "Without") for row in ("Llama3", "SFT", "RLAIF", "RLA-CE", "RLA")]),
    "rubrics_to_tokens::1": ("MulDimIF Acc.", [f"Qwen3-4B-Instruct / {row}" for row in ("Qwen3-4B-Instruct", "+ RL-AON", "+ RTT-AON (Ours)")]),
    "span_feedback::2": ("ELO_H", ["base", "(a, b)", "(a^0, a^*)", "(a^i, a^{i+1})_ds", "(a^i, a^{i+1})"]),
    "text2grad::2": ("R-L", ["Open-Source Baselines (8B) / SFT", "Open-Source Baselines (8B) / PPO", "Ours / TEXT2GRAD"]),
}  # fmt: skip
"""By the table of a page's first command: its column, and the rows whose numbers the page has above the command, in this order."""


@pytest.mark.parametrize("table", HEADLINES)
def test_a_page_begins_with_numbers_of_its_table_and_the_command(table: str) -> None:
    paper, number = table.split("::")
    column, rows = HEADLINES[table]
    start = (ROOT / "docs" / "papers" / f"{paper}.md").read_text(encoding="utf-8").split("\n## ")[0]
    said, command, _ = " ".join(start.split()).partition(f"fgrl table sweeps/{paper}/table{number}.yaml")
    assert command
    published = read_published(f"{paper}.yaml::{number}", ROOT / "docs" / "papers" / "data")
    at = published.table.columns.index(column)
    places = [said.find(f" {published.rows[row][at].split()[0]}") for row in rows]
    assert -1 not in places
    assert places == sorted(places)


def test_the_how_to_shows_a_file_that_there_is() -> None:
    page = (ROOT / "docs" / "how-to" / "paper-tables.md").read_text(encoding="utf-8")
    assert page.split("```yaml\n")[1].split("```")[0] == (ROOT / "sweeps" / "segment_ppo" / "table4.yaml").read_text(
        encoding="utf-8"
    )


def check(finished: NamedRecipe, number: str, model: str) -> None:
    """A stage that measures has such a number of such a model."""
    stage_name, _, text = number.partition("/")
    stage = finished.recipe.stages[stage_name]
    kind = registry.name_of(stage)[1]
    if kind == "evaluate":
        assert model in {*stage.models, *stage.given}
        metrics = {registry.name_of(metric)[1]: metric for metric in stage.every_metric()}
        assert any(has(name, metric, text) for name, metric in metrics.items()), (number, list(metrics))
        return
    named_by: dict[str, Any] = {"average": "averages", "costs": "of", "human_accuracy": "of", "grade": "right"}
    if kind == "average":
        title, _, key = text.partition(".")
        assert (title in stage.averages, key) == (True, NUMBER)
        return
    if kind == "lm_eval":
        assert text.partition(".")[0] in {task.task for task in stage.tasks}
        assert model in stage.models
    elif kind == "elo":
        assert text.partition(".")[0] == stage.title
    else:
        assert model in getattr(stage, named_by[kind])
    if kind == "grade":
        metric, _, key = text.partition(".")
        assert metric in {stage.unit, "spans", "span_lengths", "span_accuracy", *(["judged"] if stage.judge else [])}
        labels = {*(stage.labels or {"positive": 1, "negative": -1})}
        own = {"length", "left_marked", "unmatched", "win", "tie", "loss"}
        assert key in own or key.partition("_")[0] in labels


def has(name: str, metric: Metric, text: str) -> bool:
    """True if the metric has a number that the text selects."""
    prefix, dot, key = text.rpartition(".")
    if dot and prefix != name:
        return False
    known = meaning_in(metric.meanings, key) is not None
    return (
        known
        or text == name
        or key in ("difference",)
        or name in ("elo_by_rule", "token_reward", "reference_likelihood")
    )


def test_a_table_file_is_told_from_recipes_and_sweeps() -> None:
    others = [*ROOT.glob("recipes/*.yaml"), *ROOT.glob("sweeps/*.yaml"), *ROOT.glob("docs/papers/data/*.yaml")]
    assert not any(map(is_table_file, others))
    assert not is_table_file(ROOT / "recipes")
    assert not is_table_file(ROOT / "no_such.yaml")

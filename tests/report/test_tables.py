"""The table of numbers as text."""

from __future__ import annotations

from typing import Any

import pytest

from fgrl.pages.report.text_tables import markdown, number_json, number_text
from fgrl.runs.results.estimates import ShownEstimate
from fgrl.runs.results.evaluations import Evaluation, RecipeResults
from fgrl.runs.results.table import answer, table_of

ABOUT = "corpus BLEU, nrefs:1|tok:13a"
REPORT = {"baseline": "sft", "metrics": {"bleu": {"sft": {"corpus": 1.0}, "policy": {"corpus": 1.0}, "about": ABOUT}}}
FULL: dict[str, Any] = {
    "baseline": "sft",
    "metrics": {
        "length": {
            "sft": {"words": {"mean": 5.0, "low": 4.0, "high": 6.0}, "empty": {"mean": 0.0, "low": 0.0, "high": 0.0}},
            "policy": {
                "words": {"mean": 7.0, "low": 6.0, "high": 8.0},
                "empty": {"mean": 0.0, "low": 0.0, "high": 0.0},
            },
        },
        "rule": {
            "sft": {"kept": {"mean": 0.2, "low": 0.1, "high": 0.3}},
            "policy": {"kept": {"mean": 0.6, "low": 0.5, "high": 0.7}},
            "differences": {"policy": {"kept": {"mean": 0.4, "low": 0.2, "high": 0.6}}},
        },
    },
    "meanings": {"rule": {"purpose": "goal", "numbers": {"kept": ["share that keeps it", "higher", None]}}},
}


def recipe(name: str, **evaluations: Evaluation) -> RecipeResults:
    return RecipeResults(name, {}, evaluations)


def test_a_run_is_one_table_with_the_goal_first_and_a_sentence_that_answers() -> None:
    assert number_text(table_of([recipe("one", e=Evaluation(FULL))])).splitlines() == [
        "rule.kept: policy is better than sft: +0.40 [0.20 to 0.60].",
        "",
        "                sft                  policy               difference",
        "  rule.kept     0.20 [0.10 to 0.30]  0.60 [0.50 to 0.70]  +0.40 [0.20 to 0.60]",
        "  length.words  5.0 [4.0 to 6.0]     7.0 [6.0 to 8.0]",
        "",
        "the same everywhere: length.empty 0",
    ]


def test_a_number_of_several_recipes_has_a_line_for_each_model() -> None:
    table = table_of([recipe("one", e=Evaluation(FULL)), recipe("two", e=Evaluation(FULL))], ["kept"])
    assert number_text(table, as_markdown=True).splitlines()[:4] == [
        "|  | recipe | model | value | difference |",
        "| --- | --- | --- | --- | --- |",
        "| rule.kept | one | sft | 0.20 [0.10 to 0.30] |  |",
        "|  | one | policy | 0.60 [0.50 to 0.70] | +0.40 [0.20 to 0.60] |",
    ]


@pytest.mark.parametrize(
    ("better", "ends", "more", "said"),
    [
        ("higher", (0.1, 0.3), (None, None), "n: a is better than b: +0.200 [0.100 to 0.300] over prompts."),
        ("lower", (0.1, 0.3), (None, None), "n: a is worse than b: +0.200 [0.100 to 0.300] over prompts."),
        (None, (0.1, 0.3), (0.05, 0.4), "n: a is higher than b: +0.200 [0.100 to 0.300] over prompts and [0.0500 to"),
        ("higher", (0.1, 0.3), (-0.1, 0.5), "contains 0."),
        ("higher", (-0.1, 0.3), (0.1, 0.3), "n: no clear difference between a and b: +0.200 [−0.100 to 0.300] over"),
        ("higher", (None, None), (None, None), "n: a less b is +0.200, without an interval."),
    ],
)
def test_the_sentence_depends_on_every_interval(better: Any, ends: Any, more: Any, said: str) -> None:
    changes = [ShownEstimate(mean=0.2, low=low, high=high, decimals=None) for low, high in (ends, more)]
    assert said in answer("n", "a", "b", better, dict(zip(("over prompts", "over seeds"), changes, strict=True)))


def test_how_a_number_came_about_is_written_once() -> None:
    evaluation = Evaluation(REPORT)
    table = table_of([recipe("one", e=evaluation), recipe("two", e=evaluation), recipe("three")])
    text = number_text(table)
    assert text.endswith(f"\n\nbleu.corpus: {ABOUT}\n\nnot run: three")
    assert text.count(ABOUT) == 1
    assert number_json(table)["three"] is None
    assert [row["number"] for row in number_json(table)["two"]] == ["bleu.corpus"] * 2


def test_a_stage_is_named_where_a_recipe_has_several() -> None:
    evaluation = Evaluation(REPORT)
    table = table_of([recipe("one", e=evaluation, f=evaluation), recipe("two", e=evaluation)])
    shown = [(row.title, table.shown(row)) for row in table.rows if row.model == "sft"]
    assert shown == [("one", "e/bleu.corpus"), ("one", "f/bleu.corpus"), ("two", "e/bleu.corpus")]


def test_recipes_of_one_name_are_told_apart_by_their_settings() -> None:
    results = [RecipeResults("a", settings, {}) for settings in ({"seed": 0}, {"seed": 1}, {"seed": 1})]
    assert table_of([*results, RecipeResults("b", {"seed": 2}, {})]).not_run == [
        "a seed 0",
        "a seed 1",
        "a seed 1 (2)",
        "b",
    ]


def test_bars_in_a_cell_are_escaped() -> None:
    assert markdown([["a", "b"], ["1|2", "3"]]) == "| a | b |\n| --- | --- |\n| 1\\|2 | 3 |"

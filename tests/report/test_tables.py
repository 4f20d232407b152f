"""Tables of numbers as text."""

from __future__ import annotations

from fgrl.report.text_tables import markdown, number_blocks, number_json, number_markdown
from fgrl.results.evaluations import Evaluation, RecipeResults
from fgrl.results.number_tables import number_table

ABOUT = "corpus BLEU, nrefs:1|tok:13a"
REPORT = {"baseline": "sft", "metrics": {"bleu": {"sft": {"corpus": 1.0}, "policy": {"corpus": 1.0}, "about": ABOUT}}}


def recipe(name: str, **evaluations: Evaluation) -> RecipeResults:
    return RecipeResults(name, {}, evaluations)


def test_how_a_number_came_about_is_written_once() -> None:
    evaluation = Evaluation(REPORT)
    table = number_table([recipe("one", e=evaluation), recipe("two", e=evaluation), recipe("three")])
    blocks, text = number_blocks(table), number_markdown(table)
    assert blocks.startswith(f"bleu.corpus ({ABOUT})\n")
    assert blocks.endswith("not run: three")
    assert text.endswith(f"\n\nbleu.corpus: {ABOUT}")
    assert blocks.count(ABOUT) == text.count(ABOUT) == 1
    assert number_json(table)["three"] is None
    assert [row["number"] for row in number_json(table)["two"]] == ["bleu.corpus"] * 2


def test_a_stage_is_named_where_a_recipe_has_several() -> None:
    evaluation = Evaluation(REPORT)
    table = number_table([recipe("one", e=evaluation, f=evaluation), recipe("two", e=evaluation)])
    assert [name for name, _ in table["one"] or []] == ["e/bleu.corpus", "f/bleu.corpus"]
    assert [name for name, _ in table["two"] or []] == ["e/bleu.corpus"]


def test_recipes_of_one_name_are_told_apart_by_their_settings() -> None:
    results = [RecipeResults("a", settings, {}) for settings in ({"seed": 0}, {"seed": 1}, {"seed": 1})]
    assert list(number_table([*results, RecipeResults("b", {"seed": 2}, {})])) == [
        "a seed 0",
        "a seed 1",
        "a seed 1 (2)",
        "b",
    ]


def test_bars_in_a_cell_are_escaped() -> None:
    assert markdown([["a", "b"], ["1|2", "3"]]) == "| a | b |\n| --- | --- |\n| 1\\|2 | 3 |"

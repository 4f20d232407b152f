"""Questions whose rows have responses, and which of two is better, as SLF5K's have."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from reading_helpers import Folder, read

from fgrl.base.errors import DataError
from fgrl.components.pair_builders.judged import Judged
from fgrl.components.readers.tables import Questions
from fgrl.data.questions.answered import QuestionColumns

COLUMNS: dict[str, Any] = {"id": "id", "question": "post", "answers": "ideal_human_summary"}
COMPARED = COLUMNS | {
    "responses": ["generated_summary_for_comparison_A", "generated_summary_for_comparison_B"],
    "better": "comparison_preference",
}
LABELS = ["Summary A", "Summary B"]


def row(number: int = 1, preference: str = "Summary B", **changes: Any) -> dict[str, Any]:
    return {
        "id": f"t3_{number}",
        "post": f"I lost my key {number} times.",
        "ideal_human_summary": "Somebody loses keys.",
        "generated_summary_for_feedback": f"A key was lost {number} times.",
        "generated_summary_for_comparison_A": "A key.",
        "generated_summary_for_comparison_B": "Lost keys.",
        "comparison_preference": preference,
    } | changes


@pytest.fixture
def reader(tmp_path: Any) -> Any:
    folder = Folder(tmp_path)
    prompt = folder.prompt("Summarize: {question}")

    def reader(rows: list[dict[str, Any]], columns: dict[str, Any], **fields: Any) -> Questions:
        return Questions(**folder.jsonl(rows), prompt=prompt, columns=QuestionColumns(**columns), **fields)

    return reader


def test_a_single_response_is_the_chosen_one(reader: Any) -> None:
    samples, _ = read(reader([row(3)], COLUMNS | {"responses": ["generated_summary_for_feedback"]}))
    assert samples[0].id == "t3_3"
    assert samples[0].prompt[0].content == "Summarize: I lost my key 3 times."
    assert samples[0].reference == ["Somebody loses keys."]
    assert samples[0].chosen_response.text == "A key was lost 3 times."
    assert samples[0].verdicts is None


def test_without_columns_for_them_there_are_no_responses(reader: Any) -> None:
    samples, _ = read(reader([row()], COLUMNS))
    assert (samples[0].responses, samples[0].chosen, samples[0].verdicts) == ([], None, None)


def test_two_compared_responses_make_a_pair(reader: Any) -> None:
    samples, _ = read(reader([row(1), row(2, "Summary A")], COMPARED, better_labels=LABELS))
    assert [sample.chosen for sample in samples] == [None, None]
    pairs = [pair for sample in samples for pair in Judged().build(sample)]
    assert [(pair.chosen, pair.rejected) for pair in pairs] == [("Lost keys.", "A key."), ("A key.", "Lost keys.")]


def test_a_row_without_a_preference_is_left_out_and_counted(reader: Any) -> None:
    samples, said = read(reader([row(1, "error"), row(2)], COMPARED, better_labels=LABELS))
    assert [sample.id for sample in samples] == ["t3_2"]
    assert said[-1].endswith("left out 1 of 2 rows: 1 without a preference")


def test_a_blank_response_is_a_bad_row(reader: Any) -> None:
    rows = [row(1, generated_summary_for_comparison_B=" ")]
    with pytest.raises(DataError, match=r"row 1: .generated_summary_for_comparison_B. is .* wants a text"):
        read(reader(rows, COMPARED, better_labels=LABELS))


def test_a_missing_column_is_named_with_the_key_to_set(reader: Any) -> None:
    with pytest.raises(DataError, match=r'no column "summary".*Set `columns.responses.0`'):
        read(reader([row()], COLUMNS | {"responses": ["summary"]}))
    with pytest.raises(DataError, match=r'no column "preference".*Set `columns.better`'):
        read(reader([row()], COMPARED | {"better": "preference"}, better_labels=LABELS))


@pytest.mark.parametrize(
    ("columns", "labels"),
    [
        (COLUMNS | {"responses": ["a", "b"]}, LABELS),
        (COMPARED, []),
        (COMPARED | {"responses": ["a"]}, LABELS),
        (COMPARED, ["A", "A"]),
        (COMPARED, ["A", "B", "C"]),
    ],
)
def test_a_comparison_is_of_two_responses_with_two_labels(reader: Any, columns: Any, labels: list[str]) -> None:
    with pytest.raises(ValidationError, match="better"):
        reader([row()], columns, better_labels=labels)

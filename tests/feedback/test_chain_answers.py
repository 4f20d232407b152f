"""Steps in a model's answer."""

from __future__ import annotations

import json

import pytest

from fgrl.feedback.chain_answers import read_passage, read_steps, read_text, steps_schema
from fgrl.feedback.llm.reading import Refused

TEXTS = ['He said "no".\n', "{braces} and\n```\na fence\n```"]
OBJECTS = [{"id": number, "response": text} for number, text in enumerate(TEXTS, start=1)]


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps({"steps": OBJECTS}),
        json.dumps({"steps": [{"id": one["id"], "text": one["response"], "why": "x"} for one in OBJECTS]}, indent=1),
        json.dumps(OBJECTS),
        json.dumps(TEXTS),
        "```json\n" + json.dumps({"steps": OBJECTS}) + "\n```\n",
        "Here you are:\n" + json.dumps({"steps": TEXTS}) + "\nThat is all.",
        json.dumps({"steps": TEXTS}).replace("\\n", "\n"),
    ],
)
def test_the_usual_forms_of_json_are_read(answer: str) -> None:
    assert read_steps(answer, 2) == TEXTS


def test_steps_under_headings_are_read() -> None:
    assert read_steps("### Step 1:\nThe first.\n\nIt has Step 2 in it.\n**Step 2**\nThe second.\n", 2) == [
        "The first.\n\nIt has Step 2 in it.", "The second.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (json.dumps({"steps": TEXTS[:1]}), "it has 1 steps for 2"),
        (json.dumps({"steps": [*TEXTS, "c"]}), "it has 3 steps for 2"),
        (json.dumps({"steps": OBJECTS[::-1]}), "step 1 has the id 2"),
        (json.dumps({"steps": [{"id": 1, "response": "a", "text": "b"}, "c"]}), "step 1 is no object"),
        (json.dumps({"steps": "ab"}), 'no list "steps"'),
        (json.dumps({"edits": TEXTS}), 'no list "steps"'),
        ('{"steps": ["He said "no".", "b"]}', "no JSON object"),
        ('{"steps": ["a", "b', "no JSON object"),
        ("Step 1\na\nStep 3\nb", "no JSON object"),
        ("The first. The second.", "no JSON object"),
        ("", "no JSON object"),
    ],
)
def test_other_answers_are_refused_with_a_reason(answer: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_steps(answer, 2)


def test_an_answer_that_declines_is_told_apart() -> None:
    with pytest.raises(Refused):
        read_steps("I'm sorry, but I cannot help with that.", 2)


def test_a_step_of_its_own_is_the_text_without_a_fence_around_all_of_it() -> None:
    assert read_text("```text\na\n```\n") == "a"
    assert read_text("Use:\n```\na\n```\nThen b.") == "Use:\n```\na\n```\nThen b."
    with pytest.raises(ValueError, match="empty"):
        read_text(" \n")


def test_the_schema_demands_the_number_of_steps() -> None:
    steps = steps_schema(3)["properties"]["steps"]
    assert (steps["minItems"], steps["maxItems"], steps["items"]["required"]) == (3, 3, ["id", "response"])


@pytest.mark.parametrize(
    ("answer", "passage", "new"),
    [
        (" old \n", "very old", "old"),
        ('"old"', "very old", "old"),
        ("\u201cold\u201d", "very old", "old"),
        ('"old"', 'so-called "old"', '"old"'),
        ('"old" and "new"', "very old", '"old" and "new"'),
        ("```\nold\n```", " very old\n", " old\n"),
        ("a\nb", "one\ntwo", "a\nb"),
        ("new", "", "new"),
    ],
)
def test_a_passage_is_the_answer_without_what_stands_around_all_of_it(answer: str, passage: str, new: str) -> None:
    assert read_passage(answer, passage) == new


@pytest.mark.parametrize("answer", ["", '""', "Sure!\n\nold"])
def test_what_is_no_passage_is_refused(answer: str) -> None:
    with pytest.raises(ValueError, match=r"it is empty|several lines"):
        read_passage(answer, "very old")

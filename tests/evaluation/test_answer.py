"""Answers and their file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from answer_helpers import answer_of

from fgrl.base.errors import DataError
from fgrl.measuring.answer import Answer, Attribution, FollowUp, read_answers, write_answers
from fgrl.types import Annotation, Criterion, Message, Response, Span, Turn

FULL = answer_of(
    "1", [Message(role="system", content="Be kind."), Message(role="user", content="Why?")], "So é🎉.",
    ["So", " é🎉.", "</s>"], [(0, 2), (2, 6), (6, 6)], True, references=["a", "b"], meta={"x": [1, None]},
    rubric=[Criterion(text="c", check={"name": "n"})], model="m", logp=-1.5, ref_logp=-2.5, kl=0.25,
    rewards={"r": -0.5, "s": None}, token_rewards={"r": [0.5, None, -1.0]}, segments={"r": [0, 0, -1]},
    criteria={"r": [Attribution("c", False, [0.5, 1.0, 0.0]), Attribution("d", None)], "s": []},
    annotations={"r": Annotation(critique="Fine.", spans=[Span(start=0, end=2, note="n")]), "s": None, "t": Annotation()},
    verdicts={"rule": True, "other": None}, scores={"similarity.cosine": 0.5}, violations={"rule": [Span(start=0, end=2)]},
)  # fmt: skip
FULL.follow_ups.append(FollowUp(question="And?", response=Response(text="Then.", finished=False), n_tokens=3))


def test_every_field_survives_the_file(tmp_path: Path) -> None:
    turns = [Turn(1, 0.5, "So", "Why?", error="ValueError", numbers={"n": 2.0}), Turn(3, -1.0, " é🎉.", version=2)]
    talk = FULL.model_copy(update={"turn": [0, -1, 1], "turns": turns, "terminated": False, "lost": "gone"})
    assert talk.model_fields_set == set(Answer.model_fields), "the example sets every field"
    write_answers(tmp_path / "a.jsonl", {"m": [talk, FULL]})
    assert read_answers(tmp_path / "a.jsonl") == {"m": [talk, FULL]}
    assert (talk.text, talk.n_tokens) == ("So\n é🎉.", 2)


def test_a_file_keeps_the_names_of_the_models_that_it_is_given(tmp_path: Path) -> None:
    write_answers(tmp_path / "a.jsonl", {"a": [FULL], "b": []})
    assert read_answers(tmp_path / "a.jsonl") == {"a": [FULL.model_copy(update={"model": "a"})]}
    assert read_answers(tmp_path / "none.jsonl") == {}


def test_what_is_known_of_the_prompt() -> None:
    assert (FULL.id, FULL.text, FULL.question, FULL.references, FULL.n_tokens) == (
        "1",
        "So é🎉.",
        "Why?",
        ["a", "b"],
        3,
    )
    assert FULL.chat[0].content == "Be kind."
    plain = answer_of("1", "Why?", "So.")
    assert (plain.chat, plain.question, plain.references) == ([Message(role="user", content="Why?")], "Why?", [])
    assert plain.given
    assert not FULL.given


GIVEN = {"sample": {"id": "1", "prompt": "p"}, "response": {"text": "x"}}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({"sample": {"id": "1", "prompt": "p"}}, "response: Field required"),
        (GIVEN | {"response": {}}, r"response\.text: Field required"),
        (GIVEN | {"odd": 1}, "odd: Extra inputs"),
        (GIVEN | {"offsets": [[0]]}, r"offsets\.0\.1: Field required"),
    ],
)
def test_a_line_that_is_no_answer_is_named(tmp_path: Path, line: dict[str, Any], problem: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps(line) + "\n")
    with pytest.raises(DataError, match=rf"answers.jsonl:1: {problem}"):
        read_answers(path)

"""Answers: their file, and lines that earlier versions wrote (`tests/data/records/answers.jsonl`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from answer_helpers import answer_of

from fgrl.errors import DataError
from fgrl.evaluation.answer import Answer, Attribution, FollowUp, read_answers, write_answers
from fgrl.report import attribution
from fgrl.report.answers import answers_section
from fgrl.types import Annotation, Criterion, Message, Response, Span

EARLIER = Path(__file__).parents[1] / "data" / "records" / "answers.jsonl"
FULL = answer_of(
    "1", [Message(role="system", content="Be kind."), Message(role="user", content="Why?")], "So é🎉.",
    ["So", " é🎉.", "</s>"], [(0, 2), (2, 6), (6, 6)], True, references=["a", "b"], meta={"x": [1, None]},
    rubric=[Criterion(text="c", check={"name": "n"})], model="m", logp=-1.5, ref_logp=-2.5, kl=0.25,
    rewards={"r": -0.5, "s": None}, token_rewards={"r": [0.5, None, -1.0]}, segments={"r": [0, 0, -1]},
    criteria={"r": [Attribution("c", False, [0.5, 1.0, 0.0]), Attribution("d", None)], "s": []},
    annotations={"r": Annotation(critique="Fine.", spans=[Span(start=0, end=2, note="n")]), "s": None, "t": Annotation()},
    verdicts={"rule": True, "other": None}, violations={"rule": [Span(start=0, end=2)]},
)  # fmt: skip
FULL.follow_ups.append(FollowUp(question="And?", response=Response(text="Then.", finished=False), n_tokens=3))


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in EARLIER.read_text(encoding="utf-8").splitlines()]


def test_every_field_survives_the_file(tmp_path: Path) -> None:
    assert FULL.model_fields_set == set(Answer.model_fields), "the example sets every field"
    write_answers(tmp_path / "a.jsonl", {"m": [FULL, FULL]})
    assert read_answers(tmp_path / "a.jsonl") == {"m": [FULL, FULL]}


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


def test_nothing_of_an_earlier_line_is_lost() -> None:
    answers = [answer for own in read_answers(EARLIER).values() for answer in own]
    assert len(answers) == len(lines()) == 9
    for line, answer in zip(lines(), answers, strict=True):
        assert (answer.model, answer.id, answer.question, answer.text) == (
            line["model"], line["id"], line["prompt"], line["response"],
        )  # fmt: skip
        assert answer.response.finished is line["finished"]
        assert answer.n_tokens == line["n_tokens"]
        assert [turn.model_dump() for turn in answer.chat] == (
            line["conversation"] or [{"role": "user", "content": line["prompt"]}]
        )
        assert answer.references == line["references"]
        assert answer.sample.meta == line["meta"]
        assert [one.model_dump(exclude_defaults=True) for one in answer.sample.rubric] == line["rubric"]
        assert [
            {"question": turn.question, "response": turn.response.text, "finished": turn.response.finished,
             "n_tokens": turn.n_tokens}
            for turn in answer.follow_ups
        ] == line["turns"]  # fmt: skip
        measured = ("tokens", "offsets", "logp", "ref_logp", "kl", "token_rewards", "segments", "criteria")
        written = json.loads(answer.model_dump_json())
        assert {name: written[name] for name in measured} == {name: line[name] for name in measured}
    assert sum(len(line["turns"]) for line in lines()) == 6
    assert any(line["criteria"] for line in lines())


def test_the_page_shows_the_same_of_earlier_lines_and_of_what_is_written_again(tmp_path: Path) -> None:
    write_answers(tmp_path / "again.jsonl", read_answers(EARLIER))
    again = [json.loads(line) for line in (tmp_path / "again.jsonl").read_text(encoding="utf-8").splitlines()]
    assert all("sample" in line and "conversation" not in line for line in again)
    shown = answers_section(lines(), "people")
    assert shown == answers_section(again, "people")
    assert [exchange.id for exchange in shown.exchanges] == ["1", "2", "3"]
    assert [role for role, _ in shown.exchanges[1].turns] == ["system", "user"]
    assert [len(answer.later) for answer in shown.exchanges[0].answers] == [4, 4]
    criteria = attribution.criteria_section(lines, "people")
    assert criteria is not None
    assert criteria == attribution.criteria_section(lambda: again, "people")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({"sample": {"id": "1", "prompt": "p"}}, "response: Field required"),
        ({"id": "1", "prompt": "p"}, r"response\.text: Input should be a valid string"),
        ({"id": "1", "prompt": "p", "response": "x", "odd": 1}, "odd: Extra inputs"),
        ({"id": "1", "prompt": "p", "response": "x", "offsets": [[0]]}, r"offsets\.0\.1: Field required"),
    ],
)
def test_a_line_that_is_no_answer_is_named(tmp_path: Path, line: dict[str, Any], problem: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps(line) + "\n")
    with pytest.raises(DataError, match=rf"answers.jsonl:1: {problem}"):
        read_answers(path)

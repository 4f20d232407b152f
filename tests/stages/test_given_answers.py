"""Evaluations of answers that are given, follow-up turns, conversations, and the files of benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from answer_helpers import answer_of

from fgrl import registry
from fgrl.base.errors import DataError
from fgrl.experiments.pipeline.run import Run
from fgrl.experiments.recipe import know_components
from fgrl.kinds import Stage
from fgrl.measuring import answer_files
from fgrl.measuring.answer import Answer, FollowUp, read_answers, write_answers
from fgrl.pages.report.answers import answers_section
from fgrl.registry import Problems
from fgrl.types import Message, Response

PROMPTS = [{"id": "1", "prompt": "What is red?"}, {"id": "2", "prompt": "What is blue?"}]
SHORT = [
    {"id": "2", "prompt": "", "responses": [{"text": "The sea."}]},
    {"id": "1", "prompt": "", "responses": [{"text": "A rose."}]},
]


def lines(path: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows as a file, and a reader of it."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"name": "jsonl", "path": str(path)}


def stage(folder: Path, prompts: list[dict[str, Any]], given: dict[str, list[dict[str, Any]]], **fields: Any) -> Any:
    know_components()
    readers = {name: lines(folder / f"{name}.jsonl", rows) for name, rows in given.items()}
    node: dict[str, Any] = {
        "name": "evaluate", "prompts": lines(folder / "prompts.jsonl", prompts), "given": readers,
        "baseline": next(iter(given), "sft"), "metrics": ["length"], **fields,
    }  # fmt: skip
    return registry.build(Stage, node)


def run(made: Any, folder: Path, limit: int | None = None) -> Path:
    work = Run("evaluate", folder / "stage", cache=folder / "cache", limit=limit)
    work.out.mkdir(parents=True, exist_ok=True)
    made.run(work)
    return work.out


def test_given_answers_are_measured_like_any_other_in_the_prompts_order(tmp_path: Path) -> None:
    out = run(stage(tmp_path, PROMPTS, {"rival": SHORT}), tmp_path)
    answers = read_answers(out / "answers.jsonl")["rival"]
    assert [(answer.id, answer.question, answer.text) for answer in answers] == [
        ("1", "What is red?", "A rose."), ("2", "What is blue?", "The sea."),
    ]  # fmt: skip
    numbers = json.loads((out / "metrics.json").read_text())["metrics"]["length"]["rival"]
    assert numbers["words"]["mean"] == 2.0
    assert numbers["tokens"]["mean"] is None  # text has none
    assert numbers["finished"]["mean"] is None


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (SHORT[:1], "no answer to prompt 1"),
        (
            [*SHORT, {"id": "3", "prompt": "", "responses": [{"text": "?"}]}],
            "answers to what is not asked, the prompt 3",
        ),
        ([{"id": "1", "prompt": "x"}], "sample 1 has no `response`"),
    ],
)
def test_an_answer_and_a_prompt_that_do_not_meet_are_told(tmp_path: Path, rows: list[Any], said: str) -> None:
    with pytest.raises(DataError, match=f"given.rival: {said}"):
        run(stage(tmp_path, PROMPTS, {"rival": rows}), tmp_path)


def test_a_trial_of_one_prompt_passes_over_the_other_answers(tmp_path: Path) -> None:
    out = run(stage(tmp_path, PROMPTS, {"rival": SHORT}), tmp_path, limit=1)
    assert [answer.text for answer in read_answers(out / "answers.jsonl")["rival"]] == ["A rose."]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"models": {"sft": "nobody/nothing"}}, "say how to draw them under `sampling`"),
        (
            {"models": {"rival": "nobody/nothing"}, "sampling": {"max_new_tokens": 4}},
            "under `models` and under `given`",
        ),
        ({"metrics": ["kl"]}, "kl is taken to a model, and the baseline 'rival' is only answers: name one of `models`"),
        ({"reference": "rival"}, "reference 'rival' is not one of the models that are drawn from: none"),
        ({"baseline": "sft"}, 'baseline: no model "sft"'),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_recipe(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(Problems, match=said):
        stage(tmp_path, PROMPTS, {"rival": SHORT}, **fields)


def test_likelihoods_are_taken_to_the_named_model_when_the_baseline_is_given(
    tmp_path: Path, tiny_model_dir: Path
) -> None:
    made = stage(
        tmp_path, PROMPTS, {"rival": SHORT}, models={"sft": str(tiny_model_dir)}, reference="sft", metrics=["kl"],
        sampling={"max_new_tokens": 4},
    )  # fmt: skip
    found = json.loads((run(made, tmp_path) / "metrics.json").read_text())
    assert found["baseline"] == "rival"
    assert found["metrics"]["kl"]["sft"]["sum"]["mean"] == pytest.approx(0.0, abs=1e-5)
    assert found["metrics"]["kl"]["rival"]["sum"]["note"] == "no values"


def test_an_evaluation_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Problems, match="nothing to compare"):
        stage(tmp_path, PROMPTS, {})


# -- conversations -----------------------------------------------------------------------------------------------------


def test_follow_ups_are_asked_after_the_model_s_own_answer(tmp_path: Path, tiny_model_dir: Path) -> None:
    """What is asked in the second turn is what the first answer made of it: the same chat, drawn as a prompt."""
    asked = [
        {"id": "1", "prompt": "A lamp?", "meta": {"follow_ups": ["Why?", "And then?"]}},
        {"id": "2", "prompt": "The sea."},
        {"id": "3", "prompt": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Bread?"}],
         "meta": {"follow_ups": ["More?"]}},
    ]  # fmt: skip
    models, greedy = {"tiny": str(tiny_model_dir)}, {"max_new_tokens": 6, "temperature": 0.0}
    made = stage(tmp_path, asked, {}, models=models, baseline="tiny", sampling=greedy)
    one, two, three = read_answers(run(made, tmp_path) / "answers.jsonl")["tiny"]
    assert [len(answer.follow_ups) for answer in (one, two, three)] == [2, 0, 1]
    assert [turn.question for turn in one.follow_ups] == ["Why?", "And then?"]
    assert one.follow_ups[0].n_tokens > 0
    chat = [
        {"role": "user", "content": "A lamp?"}, {"role": "assistant", "content": one.text},
        {"role": "user", "content": "Why?"}, {"role": "assistant", "content": one.follow_ups[0].response.text},
        {"role": "user", "content": "And then?"},
    ]  # fmt: skip
    again = [{"id": "a", "prompt": chat[:3]}, {"id": "b", "prompt": chat}]
    (tmp_path / "again").mkdir()
    made = stage(tmp_path / "again", again, {}, models=models, baseline="tiny", sampling=greedy)
    answers = read_answers(run(made, tmp_path / "again") / "answers.jsonl")["tiny"]
    assert [answer.response for answer in answers] == [turn.response for turn in one.follow_ups]


def test_turns_cut_conversations_short(tmp_path: Path) -> None:
    asked = [{**PROMPTS[0], "meta": {"follow_ups": ["Why?", "And?"]}}]
    said = [
        {"id": "1", "prompt": "", "responses": [{"text": "A rose."}], "meta": {"later_responses": ["So.", "Then."]}}
    ]
    for turns, wanted in ((1, []), (2, ["So."]), (None, ["So.", "Then."])):
        folder = tmp_path / str(turns)
        folder.mkdir()
        out = run(stage(folder, asked, {"rival": said}, turns=turns), folder)
        (answer,) = read_answers(out / "answers.jsonl")["rival"]
        assert [turn.response.text for turn in answer.follow_ups] == wanted


def test_later_turns_do_not_depend_on_the_batch(tmp_path: Path, tiny_model_dir: Path) -> None:
    asked = [{"id": str(n), "prompt": f"Bread {n}?", "meta": {"follow_ups": ["Why?"]}} for n in range(5)]
    found = []
    for size in (2, 8):
        folder = tmp_path / str(size)
        folder.mkdir()
        made = stage(
            folder, asked, {}, models={"tiny": str(tiny_model_dir)}, baseline="tiny", per_prompt=2,
            sampling={"max_new_tokens": 6, "batch_size": size},
        )  # fmt: skip
        answers = read_answers(run(made, folder) / "answers.jsonl")["tiny"]
        found.append([(answer.text, answer.follow_ups[0].response.text) for answer in answers])
    assert found[0] == found[1]
    assert len({turn for _, turn in found[0]}) > 1


def test_the_page_shows_the_whole_conversation_and_what_followed() -> None:
    chat = [Message(role="system", content="Be brief."), Message(role="user", content="Why <b>?")]
    answer = answer_of("1", chat, "So.", ["So."], [(0, 3)], True, follow_ups=[("And?", "Yes <i>.")], model="sft")
    shown = answers_section([answer]).exchanges[0]
    assert [(role, str(text)) for role, text in shown.turns] == [("system", "Be brief."), ("user", "Why &lt;b&gt;?")]
    assert [(role, str(text)) for role, text in shown.answers[0].later] == [
        ("user", "And?"), ("assistant", "Yes &lt;i&gt;."),
    ]  # fmt: skip


def test_answers_survive_their_file(tmp_path: Path) -> None:
    later = FollowUp(question="q", response=Response(text="r", finished=False), n_tokens=3)
    answer = answer_of("1", [Message(role="user", content="p")], "So.", ["So."], [(0, 3)], model="m", meta={"x": 1})
    answer.follow_ups.append(later)
    write_answers(tmp_path / "a.jsonl", {"m": [answer]})
    assert read_answers(tmp_path / "a.jsonl") == {"m": [answer]}


# -- files of benchmarks -----------------------------------------------------------------------------------------------


def answer(id: str = "81", response: str = "Yes.", **more: Any) -> Answer:
    return answer_of(id, more.pop("prompt", "Is it?"), response, **more)


def test_alpaca_eval_s_file(tmp_path: Path) -> None:
    (path,) = answer_files.write("alpaca_eval", tmp_path, {"policy": [answer(meta={"dataset": "koala", "x": 1})]})
    assert path == tmp_path / "alpaca_eval" / "policy.json"
    assert json.loads(path.read_text()) == [
        {"dataset": "koala", "instruction": "Is it?", "output": "Yes.", "generator": "policy"}
    ]


def test_arena_hard_s_file(tmp_path: Path) -> None:
    (path,) = answer_files.write("arena_hard", tmp_path, {"policy": [answer("2edbb5f36f5b42be")]})
    assert path == tmp_path / "arena_hard" / "policy.jsonl"
    row = json.loads(path.read_text())
    assert list(row) == ["uid", "ans_id", "model", "messages", "tstamp", "metadata"]
    assert (row["uid"], row["model"]) == ("2edbb5f36f5b42be", "policy")
    assert row["messages"] == [
        {"role": "user", "content": "Is it?"}, {"role": "assistant", "content": {"answer": "Yes."}},
    ]  # fmt: skip


def test_mt_bench_s_file(tmp_path: Path) -> None:
    both = [answer(follow_ups=[("Why?", "So.")]), answer(response="No.", follow_ups=[("Why?", "Hm.")])]
    (path,) = answer_files.write("mt_bench", tmp_path, {"policy": both})
    row = json.loads(path.read_text())
    assert list(row) == ["question_id", "answer_id", "model_id", "choices", "tstamp"]
    assert (row["question_id"], row["model_id"]) == (81, "policy")
    assert row["choices"] == [{"index": 0, "turns": ["Yes.", "So."]}, {"index": 1, "turns": ["No.", "Hm."]}]


@pytest.mark.parametrize(
    ("benchmark", "answers", "said"),
    [
        ("alpaca_eval", [answer(), answer()], "one answer per prompt"),
        ("arena_hard", [answer(follow_ups=[("Why?", "So.")])], "prompt 81 has follow-ups"),
        (
            "alpaca_eval",
            [answer(prompt=[Message(role="assistant", content="x"), Message(role="user", content="y")])],
            "is a conversation",
        ),
        ("mt_bench", [answer("q1")], "whole numbers"),
    ],
)
def test_answers_that_do_not_fit_a_format(tmp_path: Path, benchmark: str, answers: list[Answer], said: str) -> None:
    with pytest.raises(DataError, match=said):
        answer_files.write(benchmark, tmp_path, {"policy": answers})


def test_a_recipe_asks_for_the_files(tmp_path: Path) -> None:
    out = run(stage(tmp_path, PROMPTS, {"rival": SHORT}, files=["alpaca_eval", "mt_bench"]), tmp_path)
    assert (out / "alpaca_eval" / "rival.json").is_file()
    assert len((out / "mt_bench" / "rival.jsonl").read_text().splitlines()) == 2


def test_what_numbers_mean_and_whether_answers_pass_is_recorded(tmp_path: Path) -> None:
    rule = {"name": "rule", "rule": {"name": "punctuation:no_comma"}, "title": "commas"}
    rows = [
        row | {"responses": [{"text": text}]} for row, text in zip(PROMPTS, ("A rose, red.", "The sea."), strict=True)
    ]
    out = run(stage(tmp_path, PROMPTS, {"rival": rows}, metrics=[rule, "length"]), tmp_path)
    meanings = json.loads((out / "metrics.json").read_text())["meanings"]
    share = {"words": "share of answers that satisfy the rule", "better": "higher", "even": None}
    assert meanings["commas"] == {"purpose": "goal", "numbers": {"kept": share}}
    assert meanings["length"]["purpose"] == "symptom"
    assert meanings["length"]["numbers"]["words"]["better"] is None
    failed, passed = read_answers(out / "answers.jsonl")["rival"]
    assert (failed.verdicts, passed.verdicts) == ({"commas": False}, {"commas": True})
    (comma,) = failed.violations["commas"]
    assert failed.text[comma.start : comma.end] == ","
    assert passed.violations == {}

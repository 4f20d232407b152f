"""Answers from a file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fgrl.base.errors import DataError
from fgrl.components.clients import replay
from fgrl.components.clients.local import Local
from fgrl.components.clients.replay import Line, Replay
from fgrl.experiments.pipeline.run import Run
from fgrl.kinds import Client
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import build
from fgrl.types import Message, Request, Usage


def request(*texts: str, **more) -> Request:
    roles = ["system", "user"][-len(texts) :] if len(texts) < 3 else ["user", "assistant", "user"]
    return Request(messages=[Message(role=role, content=text) for role, text in zip(roles, texts, strict=True)], **more)


def client(folder: Path, *lines: dict | str, **options) -> Replay:
    path = folder / "answers.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return Replay(answers=str(path), **options)


def test_the_first_line_that_fits_answers(tmp_path):
    answers = client(
        tmp_path,
        {"messages": [{"role": "user", "content": "red"}], "answer": "exactly"},
        {"contains": ["red", "blue"], "answer": "both"},
        {"contains": "be brief", "answer": "system"},
        {"contains": "red", "answer": {"colour": "réd"}},
        "",
        {"any": True, "answer": "whatever", "finish": "length"},
    )
    found = answers.complete(
        [request("red"), request("red and blue"), request("be brief", "red"), request("a red one"), request("green")]
    )
    assert [one.text for one in found] == ["exactly", "both", "system", '{"colour": "réd"}', "whatever"]
    assert [one.finish for one in found] == ["stop"] * 4 + ["length"]
    assert all(one.error is None and not one.cached for one in found)


def test_answers_by_sample(tmp_path):
    answers = client(
        tmp_path,
        {"any": True, "sample": 1, "answer": "one"},
        {"any": True, "answers": ["a", "b", "c"]},
        missing="error",
    )
    found = answers.complete([request("q", sample=sample) for sample in range(4)])
    assert [one.text for one in found] == ["a", "one", "c", ""]
    assert "its answer number 3" in found[3].error


def test_errors_logprobs_and_usage(tmp_path):
    answers = client(
        tmp_path,
        {"contains": "x", "error": "503"},
        {"any": True, "answer": "1", "logprobs": {"1": -0.1}, "prompt_tokens": 7, "completion_tokens": 2},
    )
    failed, plain, asked = answers.complete([request("x"), request("q"), request("q", logprobs=2)])
    assert (failed.error, failed.text) == ("503", "")
    assert plain.logprobs is None
    assert asked.logprobs == {"1": -0.1}
    assert asked.usage == Usage(prompt_tokens=7, completion_tokens=2, usd=0.0)
    assert answers.price() == (0.0, 0.0)


def test_a_missing_answer_shows_the_end_of_the_question_and_a_line_that_would_do(tmp_path):
    answers = client(tmp_path, {"contains": "never", "answer": "x"})
    with pytest.raises(DataError, match=r"answers\.jsonl: no line answers the question that ends with") as problem:
        answers.complete([request('Which is "better"?')])
    line = str(problem.value).split("\n")[-1]
    again = client(tmp_path, line)
    assert again.complete([request('Which is "better"?')])[0].text == "..."


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"answer": "x"}, "one of contains, messages and any"),
        ({"any": True, "contains": "x", "answer": "x"}, "one of contains, messages and any"),
        ({"any": True}, "one of answer, answers and error"),
        ({"any": True, "answer": "x", "error": "y"}, "one of answer, answers and error"),
        ({"any": True, "answr": "x"}, "answr"),
        ("no json", "JSON"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path, line, message):
    with pytest.raises(DataError, match=rf"answers.jsonl:2: .*{message}"):
        client(tmp_path, {"any": True, "answer": "x"}, line).complete([request("q")])


def test_the_answers_of_a_cache_become_a_file_that_answers_the_same(tmp_path, tiny_model_dir):
    asked = [request("a", "b"), request("a", "b", sample=1), request("a", "c"), request("d", logprobs=2)]
    local = Local(model=ModelSpec(base=str(tiny_model_dir)), max_tokens=4, temperature=1.0)
    local.setup(Run("s", tmp_path / "stage", cache=tmp_path / "cache"))
    answers = local.complete(asked)
    cache, path = tmp_path / "cache" / "completions.sqlite", tmp_path / "made.jsonl"
    assert replay.export(cache, path) == 4
    for new, old in zip(Replay(answers=str(path)).complete(asked), answers, strict=True):
        assert new.model_copy(update={"cached": False}) == old
    assert replay.export(cache, path, model="another") == 0
    assert replay.export(cache, path, model=tiny_model_dir.name) == 4
    with pytest.raises(DataError, match="no such file"):
        replay.export(tmp_path / "none.sqlite", path)


def test_many_exact_lines_do_not_take_a_search_each(tmp_path, monkeypatch):
    lines = [{"messages": [{"role": "user", "content": str(n)}], "answer": str(n)} for n in range(500)]
    answers = client(tmp_path, *lines, {"any": True, "answer": "other"})
    tried = []
    fits = Line.fits
    monkeypatch.setattr(Line, "fits", lambda line, *rest: tried.append(line) or fits(line, *rest))
    found = answers.complete([request(str(n)) for n in range(500)] + [request("new")])
    assert [one.text for one in found] == [*map(str, range(500)), "other"]
    assert len(tried) == 501


def test_a_recipe_names_it_by_its_file(tmp_path):
    (tmp_path / "answers.jsonl").write_text('{"any": true, "answer": "1"}\n')
    built = build(Client, {"name": "replay", "answers": str(tmp_path / "answers.jsonl")})
    assert built.complete([request("q")])[0].text == "1"


def test_the_lines_and_keys_of_the_page_about_it_are_understood(tmp_path):
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "replay.md").read_text(encoding="utf-8")
    (tmp_path / "page.jsonl").write_text(page.split("```json\n")[1].split("```")[0])
    assert len(replay.read_lines(tmp_path / "page.jsonl")) == 5
    named = set(
        re.findall(r"`(\w+)`", "\n".join(line.split("|")[1] for line in page.split("\n") if line.startswith("|")))
    )
    assert named == set(Line.model_fields)

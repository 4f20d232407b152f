"""A language model as the judge of criteria: what it is asked, what is read of its answers, what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from fault_server import FaultServer

from fgrl.base.errors import DataError, OverBudget
from fgrl.components.judges.llm import LLMJudge
from fgrl.components.rewards.rubric import Rubric
from fgrl.experiments.pipeline.run import Run
from fgrl.experiments.recipe import know_components
from fgrl.feedback.rules.criterion_rules import CriterionRules
from fgrl.kinds import Client, Judge
from fgrl.measuring import given as given_answers
from fgrl.measuring.judging import asked_text
from fgrl.registry import build
from fgrl.types import Criterion, Message, Response, Rollout, Sample

PROMPT = str(Path(__file__).resolve().parents[3] / "prompts" / "judge_criterion.txt")
RHYME, KIND = Criterion(text="Every line rhymes."), Criterion(text="Be kind.")
ASKED = Sample(id="1", prompt="Write a poem.")


def a_run(folder: Path) -> Run:
    (folder / "stage" / "out").mkdir(parents=True, exist_ok=True)
    return Run("stage", folder / "stage", cache=folder / "cache")


def made(folder: Path, client: dict[str, Any], **fields: Any) -> Any:
    know_components()
    judge = build(Judge, {"name": "llm", "client": client, "prompt": PROMPT, **fields})
    judge.setup(a_run(folder))
    return judge


def replay(folder: Path, lines: Iterable[dict[str, Any]]) -> dict[str, Any]:
    path = folder / "judge.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return {"name": "replay", "answers": str(path)}


def endpoint(server: FaultServer, **fields: Any) -> dict[str, Any]:
    return {"name": "openai", "model": "judge", "base_url": server.url, "api_key_env": None, "max_retries": 0, **fields}


def text_of(messages: Iterable[Message]) -> str:
    return "\n".join(message.content for message in messages)


# -- asking ------------------------------------------------------------------------------------------------------------


def test_what_the_judge_is_shown(tmp_path: Path) -> None:
    judge = made(tmp_path, replay(tmp_path, [{"any": True, "answer": "YES"}]))
    (request,) = judge.asks([(ASKED, "Moon, {soon}.", RHYME)])
    shown = text_of(request.messages)
    assert "<request>\nWrite a poem.\n</request>" in shown
    assert "<text>\nMoon, {soon}.\n</text>" in shown
    assert "<requirement>\nEvery line rhymes.\n</requirement>" in shown
    assert (request.temperature, request.max_tokens, request.sample) == (0.01, 16, 0)


def test_a_chat_is_shown_as_other_judges_see_it(tmp_path: Path) -> None:
    chat = [Message(role="system", content="Be brief."), Message(role="user", content="A poem?")]
    sample = Sample(id="1", prompt=chat)
    judge = made(tmp_path, replay(tmp_path, []))
    (request,) = judge.asks([(sample, "Moon.", KIND)])
    (answer,) = given_answers.answers("x", [Sample(id="1", prompt="", responses=[Response(text="Moon.")])], [sample])
    assert asked_text(answer) == "[system]\nBe brief.\n\n[user]\nA poem?"
    assert f"<request>\n{asked_text(answer)}\n</request>" in text_of(request.messages)


def test_verdicts_come_back_in_order_and_equal_cases_are_one_question(tmp_path: Path) -> None:
    lines = [{"contains": "<text>\nMoon", "answer": "YES"}, {"contains": "Be kind.", "answer": "no."}]
    judge = made(tmp_path, replay(tmp_path, lines))
    other = Sample(id="2", prompt="Write a poem.")  # another id, but the very same question
    cases = [(ASKED, "Moon", RHYME), (ASKED, "Sun", KIND), (other, "Moon", RHYME), (ASKED, "Moon", KIND)]
    assert judge.decide(cases) == [True, False, True, True]
    assert judge.counts() == {
        "questions": 3, "cached": 0, "asked_again": 0, "refused": 0, "unparsed": 0, "failed": 0,
    }  # fmt: skip
    assert len(judge.asks(cases)) == 3


def test_garbage_is_put_again_and_then_missing_by_kind(tmp_path: Path) -> None:
    lines = [
        {"contains": ["<text>\nlate", "cannot be used"], "answer": "NO"},
        {"contains": "<text>\nlate", "answer": "NO, not a YES"},
        {"contains": "<text>\nnever", "answer": ""},
        {"contains": "<text>\nboth", "answer": "Yes and no"},
        {"contains": "<text>\nlong", "answer": "YES", "finish": "length"},
        {"contains": "<text>\nrude", "answer": "I cannot judge that."},
        {"contains": "<text>\ndown", "error": "nobody is there"},
        {"any": True, "answer": "YES"},
    ]
    judge = made(tmp_path, replay(tmp_path, lines))
    words = ["late", "never", "both", "long", "rude", "down", "fine"]
    assert judge.decide([(ASKED, word, KIND) for word in words]) == [False, None, None, None, None, None, True]
    assert judge.counts() == {
        "questions": 7, "cached": 0, "asked_again": 5, "refused": 1, "unparsed": 3, "failed": 1,
    }  # fmt: skip
    once = made(tmp_path, replay(tmp_path, lines), tries=1)
    assert once.decide([(ASKED, "late", KIND)]) == [None]


def test_a_response_without_text_keeps_nothing_and_nobody_is_asked(tmp_path: Path) -> None:
    judge = made(tmp_path, replay(tmp_path, []))
    cases = [(ASKED, "", KIND), (ASKED, " \n", RHYME)]
    assert judge.decide(cases) == [False, False]
    assert judge.asks(cases) == []
    assert judge.counts()["questions"] == 0
    assert judge.decide([]) == []


def test_a_prompt_that_does_not_show_the_response_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("Is {criterion} kept?")
    with pytest.raises(DataError, match=r"lacks the placeholder \{response\}"):
        made(tmp_path, replay(tmp_path, []), prompt=str(tmp_path / "p.txt"))


def test_over_http_each_question_is_paid_once(tmp_path: Path) -> None:
    """What the endpoint gets, and a second judge that finds every answer in the cache."""
    with FaultServer(answer=lambda prompt, body: "YES" if "<text>\nMoon" in prompt else "**No.**") as server:
        judge = made(tmp_path, endpoint(server))
        cases = [(ASKED, "Moon", RHYME), (ASKED, "Sun", RHYME), (ASKED, "Moon", KIND)]
        assert judge.decide(cases) == [True, False, True]
        again = made(tmp_path, endpoint(server))
        assert again.decide(cases) == [True, False, True]
        assert again.counts()["cached"] == 3
    bodies = [one["body"] for one in server.seen]
    assert len(bodies) == 3
    assert {(body["temperature"], body["max_tokens"]) for body in bodies} == {(0.01, 16)}


def test_a_broken_endpoint_leaves_verdicts_missing(tmp_path: Path) -> None:
    plan = {"Sun": "500", "Stars": "malformed", "Sky": "truncated"}

    def happens(prompt: str, attempt: int) -> str:
        return next((what for word, what in plan.items() if f"<text>\n{word}" in prompt), "ok")

    with FaultServer(plan=happens, answer=lambda prompt, body: "YES") as server:
        judge = made(tmp_path, endpoint(server), tries=1)
        words = ["Moon", "Sun", "Stars", "Sky"]
        assert judge.decide([(ASKED, word, KIND) for word in words]) == [True, None, None, None]
    counts = judge.counts()
    assert (counts["failed"], counts["unparsed"]) == (2, 1)


def test_a_spent_limit_ends_it_and_keeps_what_was_answered(tmp_path: Path) -> None:
    cases = [(ASKED, f"Line {n}", KIND) for n in range(5)]
    with FaultServer(answer=lambda prompt, body: "YES") as server:
        with pytest.raises(OverBudget, match="3 of 3 calls are made"):
            made(tmp_path, endpoint(server, max_calls=3)).decide(cases)
        judge = made(tmp_path, endpoint(server, max_calls=5))
        assert judge.decide(cases) == [True] * 5
        assert judge.counts()["cached"] == 3
        assert len(server.seen) == 5


# -- in a reward -------------------------------------------------------------------------------------------------------


def test_a_judge_in_a_reward(tmp_path: Path) -> None:
    """One response keeps both criteria, one breaks the soft one, of one the verdict is missing."""
    lamp = Criterion(text="Name a lamp.", check={"name": "keywords:existence", "keywords": ["lamp"]})
    lines = [{"contains": "<text>\nkind", "answer": "YES"}, {"contains": "<text>\nrude", "answer": "NO"},
             {"any": True, "answer": "Perhaps."}]  # fmt: skip
    node = {"name": "llm", "client": replay(tmp_path, lines), "prompt": PROMPT}
    know_components()
    reward: Rubric = build("reward", {"name": "rubric", "judge": node, "response": "aon"})  # type: ignore[assignment]
    reward.setup(a_run(tmp_path))
    texts = ["kind lamp", "rude lamp", "a lamp", "nothing"]
    sample = Sample(id="s", prompt="?", rubric=[KIND, lamp])
    reward.check_prompts([sample])
    mask = torch.ones(4, 2, dtype=torch.bool)
    ids = torch.ones(4, 2, dtype=torch.long)
    rollout = Rollout(ids, mask, ids, mask, torch.zeros_like(mask), torch.zeros(4).long(), [sample] * 4, texts)
    found = reward.score(rollout)
    assert found.verdict is not None
    assert found.verdict.nan_to_num(7).tolist() == [[1, 1], [-1, 1], [7, 1], [7, -1]]
    assert found.response.nan_to_num(7).tolist() == [1, 0, 7, 0]
    assert float(found.metrics["missing_verdicts"]) == 2 / 8
    assert (found.metrics["judge_questions"], found.metrics["judge_unparsed"]) == (4, 2)
    assert reward.judged(sample) == [KIND]
    assert isinstance(reward.judge, LLMJudge)
    assert isinstance(reward.judge.client, Client)
    assert isinstance(reward._rules, CriterionRules)

"""Rubric rewards in an evaluation: what is kept of every criterion, and its way onto the page and the terminal."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from answer_helpers import answer_of
from training_helpers import a_run

from fgrl import registry
from fgrl.base.errors import DataError
from fgrl.experiments.recipe import know_components
from fgrl.feedback.rules.rule import relevant
from fgrl.kinds import Stage, Verifier
from fgrl.measuring.answer import Answer, Attribution, read_answers
from fgrl.measuring.attributing import attributions
from fgrl.pages.report import attribution
from fgrl.pages.report.drawing import ShownAnswer
from fgrl.types import Criterion, Rewards, Sample, read_jsonl

NAN = math.nan


def letter(letter: str, relation: str, times: int = 1) -> dict[str, Any]:
    check = {"name": "keywords:letter_frequency", "letter": letter, "let_frequency": times, "let_relation": relation}
    return {"text": f"{letter} {relation} {times}", "check": check}


PROMPTS = [
    {"id": "a", "prompt": "Say something.", "rubric": [letter("e", "at least"), letter("e", "less than")]},
    {"id": "b", "prompt": "Again.", "rubric": [letter("e", "at least"), letter("q", "at least", 90), letter("a", "less than")]},
]  # fmt: skip


def evaluation(folder: Path, base: Path, prompts: list[dict[str, Any]], **reward: Any) -> Any:
    know_components()
    (folder / "prompts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in prompts), encoding="utf-8")
    node = {
        "name": "evaluate", "prompts": {"name": "jsonl", "path": str(folder / "prompts.jsonl")},
        "models": {"base": str(base)}, "baseline": "base", "metrics": ["length"], "per_prompt": 2,
        "sampling": {"max_new_tokens": 24, "batch_size": 4},
        "rewards": {"rubric": {"name": "rubric", "relevance": "oracle"} | reward},
    }  # fmt: skip
    return registry.build(Stage, node)


def test_every_criterion_is_kept_with_what_its_rule_says(tmp_path: Path, tiny_model_dir: Path) -> None:
    """Verdicts and relevances in the file are the rule's own, of the text and the tokens that are beside them."""
    stage, work = evaluation(tmp_path, tiny_model_dir, PROMPTS), a_run(tmp_path / "stage")
    stage.run(work)
    answers = read_answers(work.out / "answers.jsonl")["base"]
    assert [answer.id for answer in answers] == ["a", "a", "b", "b"]
    verdicts = set()
    for answer in answers:
        rubric = next(one["rubric"] for one in PROMPTS if one["id"] == answer.id)
        found = answer.criteria["rubric"]
        assert [one.text for one in found] == [criterion["text"] for criterion in rubric]
        for one, criterion in zip(found, rubric, strict=True):
            rule = registry.build(Verifier, dict(criterion["check"]))
            assert one.kept is rule.verdict(answer.text)
            spans = relevant(rule, answer.text)
            touched = [any(start < span.end and span.start < end for span in spans) for start, end in answer.offsets]
            assert one.relevance == [float(hit) for hit in touched]
            assert len(touched) == answer.n_tokens
            verdicts.add(one.kept)
    assert verdicts == {True, False}


def test_the_page_draws_what_the_stage_wrote(tmp_path: Path, tiny_model_dir: Path) -> None:
    """As many relevant tokens as the file has, for the answers that are drawn."""
    stage, work = evaluation(tmp_path, tiny_model_dir, PROMPTS), a_run(tmp_path / "stage")
    stage.run(work)
    answers = read_jsonl(work.out / "answers.jsonl", Answer)
    found = attribution.criteria_section(answers, "base")
    assert found is not None
    assert found.with_rubric == len(found.prompts) == 2
    rows = [row for prompt in found.prompts for criterion in prompt.criteria for row in criterion.rows]
    assert len(rows) == 5
    cases = [case for row in rows for case in row.answers if isinstance(case, ShownAnswer)]
    assert len(cases) >= len(rows)
    for case in cases:
        assert case.drawing
        strong = int(re.match(r"\d+", case.notes[0])[0])  # type: ignore[index]
        assert (strong > 0) == bool(re.search(r'<i class="t \w+ strong', case.drawing.layers[0]))


def test_a_reward_without_relevance_leaves_verdicts_alone(tmp_path: Path, tiny_model_dir: Path) -> None:
    stage, work = evaluation(tmp_path, tiny_model_dir, PROMPTS, relevance=None), a_run(tmp_path / "stage")
    stage.run(work)
    for answer in read_answers(work.out / "answers.jsonl")["base"]:
        assert all(one.relevance is None and one.kept is not None for one in answer.criteria["rubric"])


def test_a_prompt_without_a_rubric_is_told_before_anything_is_drawn(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fgrl.rollouts.draw_parts", lambda *_some, **_more: pytest.fail("something was drawn"))
    stage, work = evaluation(tmp_path, tiny_model_dir, [*PROMPTS, {"id": "c", "prompt": "x"}]), a_run(tmp_path / "s")
    with pytest.raises(DataError, match="sample c has no rubric"):
        stage.run(work)


def test_relevance_is_what_is_left_of_verdict_times_relevance() -> None:
    sample = Sample(id="1", prompt="p", rubric=[Criterion(text=text) for text in "abcde"])
    weights = torch.tensor([[0.123456, 0.0, 1.0, 0.0], [0.5, 0.25, 0.0, 0.0], [NAN] * 4, [NAN] * 4])
    verdict = torch.tensor([[1.0, -1.0, 1.0, NAN]])
    rewards = Rewards(
        torch.zeros(1), torch.zeros(1, 4), torch.ones(1, 4).bool(),
        criterion=weights[None] * verdict[:, :, None], verdict=verdict,
    )  # fmt: skip
    assert attributions(rewards, sample, 0, 3) == [
        Attribution("a", True, [0.1235, 0.0, 1.0]),
        Attribution("b", False, [0.5, 0.25, 0.0]),
        Attribution("c", True, None),
        Attribution("d", None, None),
    ]  # the fifth criterion is beyond what the reward counts
    assert str(attributions(rewards, sample, 0, 3)[1].relevance) == "[0.5, 0.25, 0.0]"  # type: ignore[index]  # no -0.0
    rewards.criterion = None
    assert [one.relevance for one in attributions(rewards, sample, 0, 3) or []] == [None] * 4
    rewards.verdict = None
    assert attributions(rewards, sample, 0, 3) is None


def test_criteria_survive_their_file_and_old_files_have_none() -> None:
    told = {"r": [Attribution("<b>", False, [0.5, 1.0]), Attribution("x", None)], "s": []}
    answer = answer_of("1", "p", "So.", ["So", "."], [(0, 2), (2, 3)], True, criteria=told)
    record = json.loads(answer.model_dump_json())
    assert Answer.model_validate(record) == answer
    del record["criteria"]
    assert Answer.model_validate(record).criteria == {}

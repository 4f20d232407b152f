"""Rewrites that follow a critique, from answers in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from critique_answers import PROMPTS, asker, replay, sample, stage_key
from pydantic import ValidationError

from fgrl.components.annotators.refine import Refine
from fgrl.components.annotators.rubric_score import RubricScore
from fgrl.components.judges.llm import LLMJudge
from fgrl.kinds import Annotator, Expected
from fgrl.measuring.given import answers as given_answers
from fgrl.types import Annotation, Response, Sample, Span

PROMPT = "P <{prompt}> R <{response}> C <{critique}> G <{good}> B <{poor}> N <{neutral}>"
TEXT = "The mill stands by the sea."
SPANS = [Span(start=4, end=8, label=1), Span(start=19, end=26, label=-1), Span(start=9, end=15, label=0)]
CRITIC = Annotation(by="critic", critique="Which sea?", spans=SPANS)


def criticised(*annotations: Annotation, **more: Any) -> Sample:
    return sample(responses=[Response(text=TEXT, by="policy", annotations=list(annotations))], **more)


class Lengths(Annotator):
    """A response's score is its length; samples with a response "none" have none, and are dropped."""

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        kept = [one for one in samples if all(response.text != "none" for response in one.responses)]
        return [one.with_scores([float(len(response.text)) for response in one.responses]) for one in kept]


def test_a_rewrite_becomes_the_chosen_response_and_refers_to_its_critique(tmp_path: Path) -> None:
    annotator = asker(Refine, tmp_path, PROMPT, {"any": True, "answer": "  The mill stands by the North Sea.\n"})
    before = criticised(CRITIC)
    kept = before.model_copy(deep=True)
    (after,) = annotator.annotate([before])
    assert before == kept
    assert after.chosen == 1
    assert after.responses[0] == before.responses[0]
    assert after.responses[1] == Response(
        text="The mill stands by the North Sea.", finished=True, by="refine",
        meta={"refines": 0, "critic": "critic", "critique": "Which sea?"},
    )  # fmt: skip
    assert annotator.asks([before])[0].messages[0].content == (
        f"P <Ask.> R <{TEXT}> C <Which sea?> G <- mill> B <- the sea> N <- stands>"
    )
    assert annotator.counts() == {
        "refined": 1, "rewrites": 1, "unchanged": 0, "dropped": 0,
        "questions": 1, "answered": 1, "cached": 0, "asked again": 0, "repaired": 0, "failed": 0,
    }  # fmt: skip


def test_the_last_annotation_or_that_of_the_named_critic_is_followed(tmp_path: Path) -> None:
    person, blank = Annotation(by="ada", critique="Too short."), Annotation(by="bo", critique=" ")
    spans_alone = Annotation(by="spans", spans=SPANS[:1])
    line = {"any": True, "answer": "Better."}
    for options, given, critique in (
        ({}, (CRITIC, person, blank), "Too short."),
        ({"critic": "critic"}, (CRITIC, person), "Which sea?"),
        ({}, (spans_alone,), "(none)"),
    ):
        annotator = asker(Refine, tmp_path, PROMPT, line, **options)
        (asked,) = annotator.asks([criticised(*given)])
        assert f"C <{critique}>" in asked.messages[0].content
    annotator = asker(Refine, tmp_path, PROMPT, line, critic="nobody")
    assert annotator.annotate([criticised(CRITIC), criticised(blank)]) == []
    assert (annotator.counts()["without a critique"], annotator.counts()["dropped"]) == (2, 2)


def test_of_several_rewrites_the_one_with_the_highest_score_is_taken(tmp_path: Path) -> None:
    lines = (
        {"contains": "<one>", "answers": ["short", "the longest", "the longes_"]},
        {"contains": "<two>", "answers": ["", "only", "I'm sorry, I cannot."]},
        {"contains": "<none>", "answers": ["none", "b", "c"]},
    )
    annotator = asker(Refine, tmp_path, PROMPT, *lines, n=3, best=Lengths(), tries=1)
    given = [criticised(CRITIC, prompt=prompt, id=prompt) for prompt in ("one", "two", "none")]
    after = annotator.annotate(given)
    assert [(one.id, one.chosen_response.text, one.chosen_response.score) for one in after] == [  # type: ignore[union-attr]
        ("one", "the longest", 11.0), ("two", "only", 4.0),
    ]  # fmt: skip
    counts = annotator.counts()
    assert (counts["refined"], counts["rewrites"], counts["scored"], counts["dropped"], counts["questions"]) == (
        2,
        7,
        2,
        1,
        9,
    )
    assert [request.sample for request in annotator.asks(given[:1])] == [0, 1, 2]
    assert annotator.asks_at_most(Expected(5)) == 15


@pytest.mark.parametrize("answer", ["", "  \n", "I'm sorry, but I can't help with that."])
def test_an_answer_that_is_no_rewrite_is_missing(tmp_path: Path, answer: str) -> None:
    line = {"any": True, "answer": answer}
    dropped, kept = (asker(Refine, tmp_path, PROMPT, line, missing=missing) for missing in ("drop", "keep"))
    before = [criticised(CRITIC), criticised(id="without"), Sample(id="empty", prompt="x")]
    assert dropped.annotate(before) == []
    assert kept.annotate(before) == before
    assert (kept.counts()["kept as they were"], kept.counts()["failed"], kept.counts()["without a response"]) == (
        3,
        1,
        1,
    )


def test_an_evaluation_takes_the_rewrites_as_given_answers(tmp_path: Path) -> None:
    annotator = asker(
        Refine, tmp_path, PROMPT, {"contains": "<1>", "answer": "Rewritten."}, missing="keep", by="reflection"
    )
    prompts = [Sample(id=name, prompt=name) for name in "12"]
    answered = [criticised(CRITIC, id="1", prompt="1", chosen=None), criticised(id="2", prompt="2", chosen=None)]
    found = given_answers("reflected", annotator.annotate(answered), prompts)
    assert [(one.text, one.response.by) for one in found] == [("Rewritten.", "reflection"), (TEXT, "policy")]


def test_settings_that_cannot_be_planned_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("{response} {critique}")
    common: dict[str, Any] = {"client": replay(tmp_path), "prompt": str(tmp_path / "p.txt")}
    with pytest.raises(ValidationError, match="of several rewrites one is taken"):
        Refine(**common, n=2)
    judge = LLMJudge(client=replay(tmp_path), prompt=str(PROMPTS / "judge_criterion.txt"))
    with pytest.raises(ValidationError, match="asks a language model"):
        Refine(**common, best=RubricScore(judge=judge))


def test_the_prompt_that_ships_can_be_filled_in_and_is_part_of_the_key(tmp_path: Path) -> None:
    shipped = Refine(client=replay(tmp_path), prompt=str(PROMPTS / "refine.txt"))
    assert shipped.template().fields == {"prompt", "response", "critique", "good", "poor"}
    annotator = asker(Refine, tmp_path, PROMPT, {"any": True, "answer": "x"})
    before = stage_key(tmp_path, annotator)
    (tmp_path / "prompt.txt").write_text(PROMPT.replace("P", "Q"))
    assert stage_key(tmp_path, annotator) != before

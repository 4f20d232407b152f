"""Responses that break one criterion: rewritten as little as it takes, or answered without it. Answers come from a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fgrl.base.errors import DataError
from fgrl.components.annotators.constraint_omission import ConstraintOmission, without
from fgrl.components.annotators.mark_by_rules import MarkByRules
from fgrl.components.annotators.minimal_modification import MinimalModification, change
from fgrl.components.clients.replay import Replay
from fgrl.feedback.negatives import draw
from fgrl.kinds import Annotator
from fgrl.registry import build
from fgrl.types import Criterion, Response, Sample

PROMPTS = Path(__file__).resolve().parents[3] / "prompts"
SEA = Criterion(text="Never say sea.", check={"name": "keywords:forbidden_words", "forbidden_words": ["sea"]})
MILL = Criterion(text="Say mill.", check={"name": "keywords:existence", "keywords": ["mill"]})
KIND = Criterion(text="Be kind.")
ODD = Criterion(
    text="Be odd.",
    check={"name": "code:checker", "source": "def check(response): return None", "sandbox": {"require": "weak"}},
)
GOOD = "An old mill stands by the river."


def one(*rubric: Criterion, response: str | None = GOOD, **more) -> Sample:
    sample = Sample(**{"id": "s", "prompt": "Write.", "rubric": list(rubric), **more})
    return sample if response is None else sample.with_chosen(Response(text=response))


def texts(samples: list[Sample]) -> list[str]:
    return [sample.chosen_response.text for sample in samples]


def replay(folder: Path, lines) -> Replay:
    path = folder / "answers.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Replay(answers=str(path))


def rewriter(folder: Path, *lines: dict, prompt: str = "Q {prompt}\nC <{criterion}>\nR <{response}>", **options):
    (folder / "rewrite.txt").write_text(prompt)
    more = {"per_response": None, **options}
    return MinimalModification(client=replay(folder, lines), prompt=str(folder / "rewrite.txt"), **more)


def omitter(folder: Path, *lines: dict, prompt: str = "Q <{prompt}>\nK <{rubric}>", **options) -> ConstraintOmission:
    (folder / "answer.txt").write_text(prompt)
    more = {"per_sample": None, **options}
    return ConstraintOmission(client=replay(folder, lines), prompt=str(folder / "answer.txt"), **more)


# -- minimal modification ----------------------------------------------------------------------------------------------

BY_SEA, NO_MILL, RUDE = (GOOD.replace(*pair) for pair in (("river", "sea"), ("mill", "farm"), ("An old", "Your ugly")))
REWRITES = [
    {"contains": "<Never say sea.>", "answer": f"\n{BY_SEA}\n"},
    {"contains": "<Say mill.>", "answer": NO_MILL},
    {"contains": "<Be kind.>", "answer": RUDE},
]


def test_each_rewrite_breaks_one_criterion_and_is_a_sample_of_its_own(tmp_path):
    annotator = rewriter(tmp_path, *REWRITES)
    given = one(SEA, MILL, KIND, meta={"topic": 1})
    found = annotator.annotate([given])
    assert found[0] is given
    assert texts(found[1:]) == [BY_SEA, NO_MILL, RUDE]
    assert found[1].id == "s/response/minimal_modification/0"
    assert found[1].meta == {
        "topic": 1, "negative": "minimal_modification", "broken": "Never say sea.", "criterion": 0, "from": "s/response",
        "certain": True, "change": round(4 / 32, 4),
    }  # fmt: skip
    assert [sample.meta["certain"] for sample in found[1:]] == [True, True, False], "no rule says what is kind"
    assert all(sample.rubric == given.rubric for sample in found)
    counts = annotator.counts()
    assert (counts["negatives"], counts["certain"], counts["questions"], counts["failed"]) == (3, 2, 3, 0)
    alone = rewriter(tmp_path, *REWRITES, rubric="broken", keep_originals=False).annotate([given])
    assert [sample.rubric for sample in alone] == [[SEA], [MILL], [KIND]]


def test_negatives_are_marked_like_other_responses(tmp_path):
    negatives = rewriter(tmp_path, *REWRITES, rubric="broken", keep_originals=False).annotate([one(SEA, MILL)])
    marks = MarkByRules().annotate(negatives)
    assert [sample.id for sample in marks] == [f"s/response/minimal_modification/{n}/response/0" for n in (0, 1)]
    assert [
        [one.text[span.start : span.end] for span in one.spans] for one in (sample.chosen_response for sample in marks)
    ] == [["sea"], []]
    assert [sample.meta["kept"] for sample in marks] == [False, False]
    assert marks[0].meta["negative"] == "minimal_modification"


@pytest.mark.parametrize(
    ("answer", "reason", "name"),
    [
        (GOOD.replace("river", "lake"), "it still keeps the rule", "still kept"),
        (f" {GOOD} ", "it is the response as it was", "unchanged"),
        ("sea", "it changes too much: 94% of it, and 50% is allowed", "changed too much"),
        ("", "it is empty", None),
    ],
)
def test_a_rewrite_that_is_no_use_is_asked_for_again_then_dropped_and_counted(tmp_path, answer, reason, name):
    lines = [{"contains": reason, "answer": BY_SEA}, {"any": True, "answer": answer}]
    annotator = rewriter(tmp_path, *lines, keep_originals=False)
    assert texts(annotator.annotate([one(SEA)])) == [BY_SEA]
    assert annotator.counts()["asked again"] == 1
    once = rewriter(tmp_path, *lines, keep_originals=False, tries=1)
    assert once.annotate([one(SEA)]) == []
    assert once.counts()["failed: unreadable"] == 1
    assert name is None or once.counts()[name] == 1


def test_only_criteria_that_are_kept_are_broken(tmp_path):
    annotator = rewriter(tmp_path, {"contains": "<Be kind.>", "answer": "Say mill, fool."}, {"any": True, "error": "x"})
    sample = one(SEA, MILL, KIND, ODD, response=None, responses=[Response(text="the sea, friend"), Response(text=" ")])
    assert [request.messages[0].content for request in annotator.asks([sample])] == [
        "Q Write.\nC <Be kind.>\nR <the sea, friend>"
    ]
    annotator.annotate([sample, one()])
    counts = annotator.counts()
    assert {name: counts[name] for name in ("broken already", "undecided already", "empty responses", "questions")} == {
        "broken already": 2, "undecided already": 1, "empty responses": 1, "questions": 1,
    }  # fmt: skip
    assert counts["without a rubric"] == 1


def test_what_a_negative_was_made_to_break_is_not_broken_again(tmp_path):
    """Nobody can say that it keeps the criterion: the model would be told a falsehood."""
    annotator = rewriter(tmp_path, {"any": True, "answer": RUDE}, keep_originals=False)
    withheld = one(KIND, MILL, meta={"negative": "constraint_omission", "broken": "Be kind."})
    asked = [request.messages[0].content for request in annotator.asks([withheld])]
    assert [text.split("\n")[1] for text in asked] == ["C <Say mill.>"]
    annotator.annotate([withheld, one(KIND, MILL, id="t", meta={"broken": "Be kind."})])
    assert annotator.counts()["broken already"] == 1


def test_refusals_are_no_rewrites(tmp_path):
    refuses = {"any": True, "answer": "I'm sorry, but I can't do that."}
    annotator = rewriter(tmp_path, refuses, max_change=1.0, keep_originals=False)
    assert annotator.annotate([one(KIND)]) == []
    assert annotator.counts()["failed: refused"] == 1


def test_which_criteria_are_drawn_hangs_on_the_seed_and_the_response(tmp_path):
    samples = [one(SEA, MILL, KIND, id=str(n)) for n in range(30)]

    def asked(**options) -> list[str]:
        return [request.messages[0].content for request in rewriter(tmp_path, **options).asks(samples)]

    first = asked(per_response=1)
    assert len(first) == 30
    assert asked(per_response=1) == first != asked(per_response=1, seed=1)
    assert len(set(first)) == 3, "each criterion now and then"
    assert len(asked(per_response=2)) == 60
    assert draw([0, 2, 3], None, 0, "s") == [0, 2, 3]
    assert draw([0, 2, 3], 5, 0, "s") == [0, 2, 3]


def test_change_is_the_share_of_characters():
    assert change("abcd", "abXd ") == 0.25
    assert change("abcd", "abcd") == 0
    assert change("ab", "xyzw") == 1


def test_the_same_sample_twice_keeps_its_negatives_apart(tmp_path):
    sample = one(SEA)
    found = rewriter(tmp_path, *REWRITES).annotate([sample, sample])
    assert texts(found) == [GOOD, BY_SEA, GOOD, BY_SEA]


# -- constraint omission -----------------------------------------------------------------------------------------------


def test_one_criterion_is_withheld_from_the_rubric_and_from_the_prompt(tmp_path):
    annotator = omitter(tmp_path)
    sample = one(SEA, MILL, prompt="Write. Never  say sea. Say mill.", response=None)
    asked = [request.messages[0].content for request in annotator.asks([sample])]
    assert asked == ["Q <Write. Say mill.>\nK <1. Say mill.>", "Q <Write. Never  say sea.>\nK <1. Never say sea.>"]
    bare = sample.model_copy(update={"meta": {"question": "Write {rubric}."}})
    assert annotator.asks([bare])[0].messages[0].content == "Q <Write {rubric}.>\nK <1. Say mill.>"
    alone = annotator.asks([one(KIND)])[0].messages[0].content
    assert alone == "Q <Write.>\nK <(none)>"


def test_an_answer_that_keeps_the_criterion_is_drawn_again_without_a_word(tmp_path):
    lines = [
        {"contains": "K <1. Say mill.", "answers": [GOOD, BY_SEA]},  # SEA is withheld
        {"contains": "K <1. Never say sea.", "answers": [GOOD, GOOD]},  # MILL is withheld
    ]
    annotator = omitter(tmp_path, *lines, keep_originals=False)
    (found,) = annotator.annotate([one(SEA, MILL)])
    assert (found.chosen_response.text, found.id) == (BY_SEA, "s/constraint_omission/0")
    assert found.meta == {
        "negative": "constraint_omission", "broken": "Never say sea.", "criterion": 0, "from": "s", "certain": True
    }  # fmt: skip
    assert found.rubric == [SEA, MILL]
    counts = annotator.counts()
    expected = {"negatives": 1, "certain": 1, "drawn again": 2, "kept all the same": 1, "questions": 2, "answered": 2}
    assert {name: counts[name] for name in expected} == expected
    requests = annotator.question(annotator.template(), annotator.cases([one(SEA)])[0][0], 1).request
    assert (requests.sample, len(requests.messages)) == (1, 1)


def test_without_a_rule_an_answer_is_taken_and_what_cannot_be_told_is_dropped(tmp_path):
    annotator = omitter(tmp_path, {"any": True, "answer": "\nfine\n"}, draws=1, rubric="broken")
    found = annotator.annotate([one(KIND, ODD), one()])
    assert [(sample.chosen_response.text, sample.rubric, sample.meta.get("certain")) for sample in found] == [
        (GOOD, [KIND, ODD], None), ("fine", [KIND], False), (GOOD, [], None)
    ]  # fmt: skip
    counts = annotator.counts()
    assert (counts["negatives"], counts["certain"], counts["undecided"], counts["without a rubric"]) == (1, 0, 1, 1)


def test_failed_answers_are_counted(tmp_path):
    annotator = omitter(tmp_path, {"contains": "K <1. Say", "error": "503"}, {"any": True, "answer": " "})
    assert annotator.annotate([one(SEA, MILL)]) == [one(SEA, MILL)]
    counts = annotator.counts()
    assert (counts["failed: error"], counts["failed: unreadable"], counts["negatives"]) == (1, 1, 0)


def test_an_empty_answer_is_requested_again_as_often_as_tries_says(tmp_path):
    lines = [{"contains": "That answer cannot be used: it is empty", "answer": "fine"}, {"any": True, "answer": " "}]
    assert texts(omitter(tmp_path, *lines, tries=2).annotate([one(KIND, response=None)])[1:]) == ["fine"]
    once = omitter(tmp_path, *lines)
    assert once.annotate([one(KIND, response=None)])[1:] == []
    assert once.counts()["failed"] == 1


def test_words_are_cut_wherever_they_stand():
    assert without("a b  c a b", "a b") == "  c"
    assert without("Do. Say “x”. End.", 'Say "x".') == "Do. End."
    assert without("aaa", "aa") == "a"
    assert without("abc", "x") == without("abc", "") == "abc"


# -- both --------------------------------------------------------------------------------------------------------------


def test_shipped_prompts_and_the_recipe_keys():
    client = {"name": "replay", "answers": str(Path(__file__))}  # any file
    specs = {
        "minimal_modification": ("rewrite_minimal.txt", ["Write.", GOOD, "Never say sea."]),
        "constraint_omission": ("answer_rubric.txt", ["Write.", "\n(none)\n"]),
    }
    for name, (prompt, said) in specs.items():
        annotator = build(Annotator, {"name": name, "client": client, "prompt": str(PROMPTS / prompt)})
        asked = ["\n".join(turn.content for turn in request.messages) for request in annotator.asks([one(SEA)])]
        assert len(asked) == 1
        assert all(words in asked[0] for words in said)


def test_mistakes_are_named(tmp_path):
    with pytest.raises(DataError, match=r"lacks the placeholder \{criterion\}"):
        rewriter(tmp_path, prompt="{response}").asks([one(SEA)])
    with pytest.raises(DataError, match=r"unknown placeholder \{criterion\}"):
        omitter(tmp_path, prompt="{prompt} {criterion}").asks([one(SEA)])

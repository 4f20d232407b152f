"""The metric `rubric`: instruction-level and rubric-level accuracy, strict and loose, on hand-made answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answer_helpers import answer_of
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import PrivateAttr
from scratch_registry import scratch

from fgrl import registry
from fgrl.base.errors import DataError, Undecided
from fgrl.commands.checking import estimate_lines
from fgrl.components.rewards.rubric import Rubric
from fgrl.experiments.pipeline.estimating import Peek
from fgrl.experiments.pipeline.run import Run
from fgrl.experiments.recipe import know_components
from fgrl.feedback.rules import rubrics
from fgrl.kinds import Judge, Metric, Stage, Verifier
from fgrl.measuring import given as given_answers
from fgrl.measuring.answer import Answer, read_answers, write_answers
from fgrl.types import Criterion, Message, Response, Sample

PROMPT = str(Path(__file__).resolve().parents[2] / "prompts" / "judge_criterion.txt")
NO_CAT = {"text": "No cats.", "check": {"name": "keywords:forbidden_words", "forbidden_words": ["cat"]}}
LAMP = {"text": "Name a lamp.", "check": {"name": "keywords:existence", "keywords": ["lamp"]}}
NO_COMMA = {"text": "No commas.", "check": {"name": "punctuation:no_comma"}}
KIND = {"text": "Be kind."}


class Says(Judge):
    """YES to responses with the word, nothing to those with a question mark."""

    word: str = "kind"
    _asked: list[Any] = PrivateAttr(default_factory=list)

    def decide(self, cases: Sequence[tuple[Sample, str, Criterion]]) -> list[bool | None]:
        self._asked.append(list(cases))
        return [None if "?" in text else self.word in text for _sample, text, _criterion in cases]

    def counts(self) -> dict[str, float]:
        return {"asked_again": 2.0}


def answer(id: str, text: str, *rubric: dict[str, Any]) -> Answer:
    return answer_of(id, f"Prompt {id}", text, rubric=[Criterion(**one) for one in rubric])


def made(judge: Judge | None = None, **fields: Any) -> Any:
    know_components()
    metric: Any = registry.build(Metric, {"name": "rubric", **fields})
    metric.judge = judge
    return metric


def means(metric: Any, answers: Sequence[Answer]) -> dict[str, Any]:
    return {name: one["mean"] for name, one in metric.measure({"m": answers})["rubric"]["m"].items()}


# -- what the numbers are ----------------------------------------------------------------------------------------------


def test_aon_and_csr_by_hand() -> None:
    """Kept: 2 of 2, 1 of 3, 0 of 1."""
    answers = [
        answer("a", "the lamp", NO_CAT, LAMP),
        answer("b", "a cat, there", NO_CAT, LAMP, {"text": "!", "check": {"name": "startend:quotation"}}),
        answer("c", "one, two", NO_COMMA),
    ]
    answers[1].response.text = "a cat with a lamp"
    found = means(made(), answers)
    assert found == {
        "aon": pytest.approx(1 / 3), "csr": pytest.approx(3 / 6), "missing": 0.0,
        "aon_loose": pytest.approx(1 / 3), "csr_loose": pytest.approx(3 / 6),
    }  # fmt: skip
    found = means(made(average="answers"), answers)
    assert found["csr"] == pytest.approx((1 + 1 / 3 + 0) / 3)
    assert found["aon"] == pytest.approx(1 / 3)


def test_loose_forgives_an_introduction_and_asterisks() -> None:
    quoted = {"text": "Quote it.", "check": {"name": "startend:quotation"}}
    answers = [
        answer("a", 'Sure, here it is:\n"a lamp"', quoted, LAMP),  # strict: not quoted; without the first line it is
        answer("b", '"a lamp"', quoted, LAMP),
        answer("c", "Sure, yes:\nno, commas", NO_COMMA),
        answer("d", "a cat\na cat\na cat", NO_CAT),
    ]
    found = means(made(), answers)
    assert (found["aon"], found["aon_loose"]) == (0.25, 0.5)
    assert (found["csr"], found["csr_loose"]) == (pytest.approx(3 / 6), pytest.approx(4 / 6))


def test_loose_is_never_below_strict_and_judges_have_one_reading() -> None:
    judge = Says()
    answers = [answer("a", "cruel\nkind", KIND), answer("b", "Sure:\ncruel", KIND, LAMP)]
    found = means(made(judge), answers)
    assert found["csr"] == found["csr_loose"] == pytest.approx(1 / 3)
    (cases,) = judge._asked
    assert [(sample.id, sample.prompt, text, criterion.text) for sample, text, criterion in cases] == [
        ("a", "Prompt a", "cruel\nkind", "Be kind."), ("b", "Prompt b", "Sure:\ncruel", "Be kind."),
    ]  # fmt: skip


def test_missing_verdicts_are_left_out_and_counted() -> None:
    """a: kept and unknown; b: broken and unknown; c: all kept; d: nothing known."""
    answers = [
        answer("a", "lamp?", LAMP, KIND), answer("b", "none?", LAMP, KIND), answer("c", "kind lamp", LAMP, KIND),
        answer("d", "?", KIND),
    ]  # fmt: skip
    found = made(Says()).measure({"m": answers})["rubric"]["m"]
    assert found["aon"]["mean"] == 0.5  # b is broken whatever the judge says, c is kept; a and d would be guesses
    assert found["aon"]["n"] == 2
    assert found["csr"]["mean"] == pytest.approx(3 / 4)
    assert found["missing"]["mean"] == pytest.approx(3 / 7)
    assert means(made(Says(), average="answers"), answers)["csr"] == pytest.approx((1 + 0 + 1) / 3)
    nothing = made(Says()).measure({"m": answers[3:]})["rubric"]["m"]
    assert nothing["aon"]["mean"] is nothing["csr"]["mean"] is None
    assert nothing["missing"]["mean"] == 1.0


def test_an_undecided_rule_is_missing_and_may_be_kept_loosely() -> None:
    class Unsure(Verifier):
        """Knows only single lines."""

        def check(self, response: str) -> bool:
            if "\n" in response:
                raise Undecided("too many lines")
            return "lamp" in response

    unsure = {"text": "?", "check": {"name": "unsure"}}
    with scratch():
        registry.register("unsure")(Unsure)
        found = means(
            made(), [answer("a", "Sure:\nlamp", unsure), answer("b", "x\ny", unsure), answer("c", "z", unsure)]
        )
    assert found["missing"] == pytest.approx(2 / 3)
    assert (found["csr"], found["aon"]) == (0.0, 0.0)
    assert (found["csr_loose"], found["aon_loose"]) == (0.5, 0.5)  # b stays undecided: one reading of it is


def test_by_kind() -> None:
    words = {
        "text": "Words.",
        "check": {"name": "length_constraints:number_words", "relation": "at least", "num_words": 2},
    }
    answers = [
        answer("a", "a cat", NO_CAT, LAMP, words),
        answer("b", "kind lamp", LAMP, words, KIND),
        answer("c", "x", words),
    ]
    found = means(made(Says(), by="kind"), answers)
    assert {name: value for name, value in found.items() if " " in name} == {
        "csr judged": 1.0, "csr keywords": pytest.approx(1 / 3), "csr length_constraints": pytest.approx(2 / 3),
    }  # fmt: skip
    assert found["csr"] == pytest.approx(4 / 7)


VERDICTS = st.lists(st.lists(st.sampled_from([True, False, None]), max_size=4), min_size=1, max_size=5)


@settings(max_examples=150, deadline=None)
@given(VERDICTS)
def test_the_metric_and_the_reward_agree_on_aon_and_csr(rows: list[list[bool | None]]) -> None:
    csr, aon = Rubric(), Rubric(response="aon")
    for row in rows:
        assert csr.response_reward(row) == rubrics.share_kept(row)
        assert aon.response_reward(row) == rubrics.all_kept(row)


def test_five_answers_a_prompt_are_drawn_together_and_differences_are_paired() -> None:
    """Against a bootstrap of our own: prompts are drawn with all their answers, the same ones for both models."""
    rng = np.random.default_rng(0)
    kept = {model: np.repeat(rng.random((40, 1)) < rate, 5, axis=1) for model, rate in (("sft", 0.3), ("policy", 0.6))}
    answers = {
        model: [answer(str(p), "lamp" if one else "none", LAMP) for p, row in enumerate(table) for one in row]
        for model, table in kept.items()
    }
    found = made(resamples=4000).measure(answers, baseline="sft")["rubric"]
    draws = rng.integers(0, 40, (4000, 40))
    for number in ("csr", "aon"):
        one = found["policy"][number]
        assert one["mean"] == pytest.approx(kept["policy"].mean())
        assert (one["n"], one["groups"]) == (200, 40)
        change = found["differences"]["policy"][number]
        by_prompt = kept["policy"].mean(1) - kept["sft"].mean(1)
        assert change["mean"] == pytest.approx(by_prompt.mean())
        wanted = np.quantile(by_prompt[draws].mean(1), [0.025, 0.975])
        assert [change["low"], change["high"]] == pytest.approx(wanted.tolist(), abs=0.03)


# -- what it refuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rubric", "message"),
    [
        ([], "sample x has no rubric"),
        ([KIND], "no verifier decides 'Be kind.': set `judge`"),
        ([{"text": "?", "check": {"name": "keywords:existense"}}], '(?s)sample x, criterion .*did you mean "keywords'),
    ],
)
def test_what_cannot_be_decided_is_told_before_and_after(rubric: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        made().measure({"m": [answer("x", "lamp", *rubric)]})
    with pytest.raises(DataError, match=message):
        made().check_prompts([Sample(id="x", prompt="?", rubric=[Criterion(**one) for one in rubric])])


def test_an_evaluation_tells_before_it_draws(tmp_path: Path) -> None:
    prompts = [{"id": "x", "prompt": "?", "rubric": [KIND]}]
    stage = evaluation(
        tmp_path, prompts, {}, models={"m": "nobody/nothing"}, baseline="m", sampling={"max_new_tokens": 4}
    )
    with pytest.raises(DataError, match="no verifier decides 'Be kind"):
        stage.run(a_run(tmp_path))


# -- answers carry their rubric ----------------------------------------------------------------------------------------


def test_rubrics_survive_the_file_of_answers(tmp_path: Path) -> None:
    prompt = Sample(id="1", prompt="p", rubric=[Criterion(**LAMP), Criterion(**KIND)])
    found = given_answers.answers("m", [Sample(id="1", prompt="", responses=[Response(text="lamp")])], [prompt])
    assert found[0].sample.rubric == [Criterion(**LAMP), Criterion(**KIND)]
    write_answers(tmp_path / "a.jsonl", {"m": found})
    assert read_answers(tmp_path / "a.jsonl") == {"m": found}


def test_a_judge_sees_the_whole_chat() -> None:
    turns = [Message(role="system", content="Be kind."), Message(role="user", content="Hello")]
    judge = Says()
    made(judge).measure({"m": [answer_of("a", turns, "kind", rubric=[Criterion(**KIND)])]})
    assert judge._asked[0][0][0].prompt == turns


# -- in an evaluation --------------------------------------------------------------------------------------------------


def a_run(folder: Path) -> Run:
    run = Run("evaluate", folder / "stage", cache=folder / "cache")
    run.out.mkdir(parents=True, exist_ok=True)
    run.cache.mkdir(exist_ok=True)
    return run


def lines(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def evaluation(
    folder: Path, prompts: list[dict[str, Any]], given: dict[str, list[str]], judge: Any = None, **fields: Any
) -> Any:
    know_components()
    readers = {
        name: {"name": "jsonl", "path": lines(folder / f"{name}.jsonl", [
            {"id": prompt["id"], "prompt": "", "responses": [{"text": text}]} for prompt, text in zip(prompts, texts, strict=True)
        ])}
        for name, texts in given.items()
    }  # fmt: skip
    node = {
        "name": "evaluate", "prompts": {"name": "jsonl", "path": lines(folder / "prompts.jsonl", prompts)},
        "given": readers, "baseline": next(iter(given), "sft"), "metrics": [{"name": "rubric", "judge": judge}], **fields,
    }  # fmt: skip
    return registry.build(Stage, node)


PROMPTS = [{"id": str(n), "prompt": f"Question {n}", "rubric": [LAMP, KIND][: 1 + n % 2]} for n in range(4)]


def replay(folder: Path) -> dict[str, Any]:
    said = [
        {"contains": "<text>\nkind", "answer": "YES"}, {"contains": "<text>\nodd", "answer": "YES or NO"},
        {"any": True, "answer": "NO"},
    ]  # fmt: skip
    client = {"name": "replay", "answers": lines(folder / "judge.jsonl", said)}
    return {"name": "llm", "client": client, "prompt": PROMPT}


def test_an_evaluation_with_a_judge_behind_replay(tmp_path: Path) -> None:
    texts = {"sft": ["lamp", "odd lamp", "none", "none"], "policy": ["lamp", "kind lamp", "lamp", "kind"]}
    stage = evaluation(tmp_path, PROMPTS, texts, replay(tmp_path))
    run = a_run(tmp_path)
    summary = stage.run(run)
    found = json.loads((run.out / "metrics.json").read_text())["metrics"]["rubric"]
    assert found["policy"]["csr"]["mean"] == pytest.approx(5 / 6)
    assert found["policy"]["aon"]["mean"] == pytest.approx(3 / 4)
    assert found["sft"]["csr"]["mean"] == pytest.approx(2 / 5)
    assert found["sft"]["missing"]["mean"] == pytest.approx(1 / 6)
    assert summary["rubric: questions"] == 4
    assert (summary["rubric: unparsed"], summary["rubric: asked again"]) == (1, 1)
    verdicts = [json.loads(line) for line in (run.out / "verdicts-rubric.jsonl").read_text().splitlines()]
    assert len(verdicts) == 12
    assert verdicts[2] == {
        "model": "sft", "id": "1", "answer": 0, "criterion": "Be kind.", "kind": "judged", "strict": None, "loose": None,
    }  # fmt: skip
    assert verdicts[1]["kind"] == "keywords"


def test_a_plan_counts_the_very_questions_of_given_answers(tmp_path: Path) -> None:
    texts = {"sft": ["lamp", "odd", "x", "same"], "policy": ["lamp", "kind", " ", "same"]}
    stage = evaluation(tmp_path, PROMPTS, texts, replay(tmp_path))
    calls = stage.estimate(Peek(tmp_path / "cache", None, {}))["calls"]
    assert stage.run(a_run(tmp_path))["rubric: questions"] == calls["calls"] == 3  # "same" twice
    assert calls["completion tokens"] == 3 * 16
    hard_only = evaluation(tmp_path, [PROMPTS[0]], {"sft": ["lamp"]})
    assert "calls" not in hard_only.estimate(Peek(tmp_path / "cache", None, {}))


def test_a_plan_bounds_the_questions_about_answers_that_are_to_be_drawn(tmp_path: Path) -> None:
    judge = replay(tmp_path)
    fields = {"models": {"a": "nobody/nothing", "b": "nobody/nothing"}, "per_prompt": 5, "baseline": "a",
              "sampling": {"max_new_tokens": 100}}  # fmt: skip
    stage = evaluation(tmp_path, PROMPTS, {}, judge, **fields)
    estimate = stage.estimate(Peek(tmp_path / "cache", None, {}))
    calls = estimate["calls"]
    assert calls["calls"] == 2 * 5 * 2  # models, answers, soft criteria
    assert calls["prompt tokens"] >= 20 * 100
    assert calls["completion tokens"] == 20 * 16
    assert estimate_lines({"calls": calls})[0].startswith("calls: at most 20 to make, at most ")
    recorded = evaluation(tmp_path, PROMPTS, {}, None, **fields, rewards={"r": {"name": "rubric", "judge": judge}},
                          metrics=["length"])  # fmt: skip
    assert recorded.estimate(Peek(tmp_path / "cache", None, {}))["calls"] == calls

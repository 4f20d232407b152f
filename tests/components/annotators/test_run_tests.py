"""The annotator that runs tests, and the pairs of passing and failing programs."""

from __future__ import annotations

import pytest

from fgrl.base.errors import DataError
from fgrl.components.annotators.run_tests import RunTests
from fgrl.components.pair_builders.all_ranked import AllRanked
from fgrl.feedback.critic import shown
from fgrl.feedback.sandbox import detect
from fgrl.types import Criterion, Response, Sample

pytestmark = pytest.mark.skipif(detect().strength == "none", reason="needs a sandbox")

SANDBOX = {"require": "weak", "seconds": 20}
RIGHT, ALSO_RIGHT, WRONG = "def f(x):\n    return x + 1", "def f(x):\n    return 1 + x", "def f(x):\n    return x"


def problem(*responses: str, tests: str = "assert f(1) == 2", id: str = "1") -> Sample:
    check = {"name": "code:tests", "tests": tests, "format": "asserts", "sandbox": SANDBOX}
    return Sample(
        id=id,
        prompt="Add one.",
        rubric=[Criterion(text="passes", check=check)],
        responses=[Response(text=text, by="m", meta={"known": 1}) for text in responses],
        meta={"tests": tests},
    )


def annotated(*samples: Sample) -> tuple[list[Sample], dict[str, int]]:
    annotator = RunTests()
    annotator.setup(None)
    return annotator.annotate(samples), annotator.counts()


def test_responses_get_their_outcomes() -> None:
    given = problem(RIGHT, WRONG, "")
    (sample,), counts = annotated(given)
    assert [response.score for response in sample.responses] == [1.0, 0.0, 0.0]
    assert sample.responses[0].meta == {"known": 1, "tests": {"passed": True, "detail": ""}}
    assert sample.responses[1].meta["tests"] == {
        "passed": False,
        "detail": "tests: AssertionError, in `assert f(1) == 2`",
    }
    assert counts == {
        "passed": 1, "failed": 2, "without a verdict": 0, "passed without a replay": 0, "prompts with both": 1,
        "dropped": 0,
    }  # fmt: skip
    assert given.responses[0].score is None, "the given sample is unchanged"


def test_a_critics_prompt_shows_the_outcome() -> None:
    (sample,), _ = annotated(problem(RIGHT, WRONG))
    passed, failed = (shown(sample, response) for response in sample.responses)
    assert passed["outcome"] == "Passed: yes"
    assert failed["outcome"] == "Passed: no"
    assert "AssertionError" in failed["tests"]


def test_a_prompt_without_a_verdict_is_dropped_and_counted() -> None:
    kept, counts = annotated(problem(RIGHT, WRONG, tests="assert ("), problem(RIGHT, WRONG, id="2"))
    assert [sample.id for sample in kept] == ["2"]
    assert (counts["without a verdict"], counts["dropped"]) == (2, 1)


def test_a_response_without_a_verdict_has_no_score_and_makes_no_pair() -> None:
    first = {"name": "code:tests", "tests": "assert f(1) == 2", "format": "asserts", "sandbox": SANDBOX}
    second = first | {"tests": "assert ("}
    given = problem(RIGHT, WRONG).model_copy(
        update={"rubric": [Criterion(text="a", check=first), Criterion(text="b", check=second)]}
    )
    (sample,), counts = annotated(given)
    assert [response.score for response in sample.responses] == [None, 0.0], "a failure decides, a pass does not"
    assert sample.responses[0].meta["tests"]["passed"] is None
    assert counts["without a verdict"] == 1
    assert AllRanked(ties="drop").build(sample) == []


def test_passing_programs_are_preferred_to_failing_ones() -> None:
    (sample,), _ = annotated(problem(WRONG, RIGHT, ALSO_RIGHT))
    pairs = AllRanked(ties="drop").build(sample)
    assert {(pair.chosen, pair.rejected) for pair in pairs} == {(RIGHT, WRONG), (ALSO_RIGHT, WRONG)}


def test_a_prompt_without_tests_is_refused() -> None:
    annotator = RunTests()
    annotator.setup(None)
    with pytest.raises(DataError, match="no tests"):
        annotator.annotate([Sample(id="1", prompt="p", responses=[Response(text="a")])])

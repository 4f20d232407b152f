"""Metrics on hand-made answers."""

from __future__ import annotations

import json
import math

import pytest
from answer_helpers import answer_of
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fgrl.base.errors import DataError
from fgrl.components.metrics.kl import Kl
from fgrl.components.metrics.length import Length
from fgrl.components.metrics.reference_likelihood import ReferenceLikelihood
from fgrl.components.metrics.repetition import Repetition
from fgrl.components.metrics.rule import RuleShare
from fgrl.components.metrics.segment_length import SegmentLength
from fgrl.components.metrics.token_auc import TokenAuc
from fgrl.components.verifiers.all_of import AllOf
from fgrl.components.verifiers.ifeval.length import NumberWords
from fgrl.components.verifiers.ifeval.punctuation import NoComma
from fgrl.measuring.answer import Answer, read_answers, write_answers
from fgrl.measuring.repetition import distinct
from fgrl.measuring.statistics import Estimate

RULE = AllOf(rules=[NoComma(), NumberWords(relation="at least", num_words=2)])
ALL = [
    RuleShare(rule=RULE),
    Length(),
    Kl(),
    ReferenceLikelihood(),
    Repetition(),
    TokenAuc(rule=NoComma(), rewards=["r"]),
]


def answer(text: str, id: str = "0", rewards: list[float | None] | None = None, **more) -> Answer:
    """One token a character, and the end-of-sequence token."""
    offsets = [(at, at + 1) for at in range(len(text))] + [(len(text), len(text))]
    known = {"tokens": [*text, "<eos>"], "offsets": offsets, "finished": True} | more
    return answer_of(id, "p", text, token_rewards={"r": rewards or [0.0] * len(offsets)}, **known)


def measured(metric, *answers: Answer) -> dict[str, Estimate]:
    """The numbers of one model."""
    (result,) = metric.measure({"model": answers}).values()
    return {name: Estimate.model_validate(number) for name, number in result["model"].items()}


def means(metric, *answers: Answer) -> dict[str, float | None]:
    return {name: number.mean for name, number in measured(metric, *answers).items()}


# -- the shape ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: type(metric).__name__)
def test_shape_of_the_result(metric):
    """{metric: {model: {number: estimate}, "differences": {model: {number: estimate}}}}, in strict JSON."""
    base = [answer("a, b", str(n), kl=0.0, ref_logp=-5.0) for n in range(4)]
    best = [answer("a b c", str(n), kl=1.0, ref_logp=-9.0) for n in range(4)]
    result = metric.measure({"sft": base, "policy": best}, baseline="sft")
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    (of_metric,) = result.values()
    assert set(of_metric) == {"sft", "policy", "differences"}
    assert set(of_metric["differences"]) == {"policy"}
    assert list(of_metric["differences"]["policy"]) == list(of_metric["policy"]) == list(of_metric["sft"])
    for group in (of_metric["sft"], of_metric["policy"], of_metric["differences"]["policy"]):
        for number in group.values():
            found = Estimate.model_validate(number)
            assert found.groups == 4
            assert (found.mean is None) == (found.low is None)
            assert found.mean is not None or found.note
    assert "differences" not in next(iter(metric.measure({"sft": base}).values()))


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: type(metric).__name__)
def test_empty_answers_and_missing_numbers_do_no_harm(metric):
    nothing = answer_of("0", "p", "", finished=False, token_rewards={"r": []})
    silent = answer("", "1")
    for number in measured(metric, nothing, silent).values():
        assert number.mean is None or math.isfinite(number.mean)
        assert number.mean is not None or number.note


def test_differences_are_paired_by_prompt():
    """Prompts differ in length by far more than the models do, and stand in another order."""
    base = [answer("w " * (10 * n + 1), str(n)) for n in range(8)]
    longer = [answer("w " * (10 * n + 3), str(n)) for n in range(8)][::-1]
    result = Length().measure({"base": base, "longer": longer}, baseline="base")["length"]
    words = result["differences"]["longer"]["words"]
    assert (words["mean"], words["low"], words["high"]) == pytest.approx((2.0, 2.0, 2.0))
    assert result["longer"]["words"]["high"] - result["longer"]["words"]["low"] > 10


def test_different_prompts_are_refused():
    with pytest.raises(DataError, match=r"b and a: .*only on one: 0, 1"):
        Length().measure({"a": [answer("x", "0")], "b": [answer("x", "1")]}, baseline="a")
    with pytest.raises(DataError, match="baseline 'c' has no answers; there are answers of a"):
        Length().measure({"a": [answer("x")]}, baseline="c")


def test_options_of_the_interval():
    found = [answer("w " * n, str(n)) for n in range(20)]
    wide, narrow = measured(Length(level=0.99), *found)["words"], measured(Length(level=0.5), *found)["words"]
    assert wide.low < narrow.low < narrow.high < wide.high
    assert Length(title="how long").measure({"a": found}).keys() == {"how long"}
    with pytest.raises(ValidationError):
        Length(level=95)


# -- the metrics -------------------------------------------------------------------------------------------------------


def test_rule():
    found = means(RuleShare(rule=RULE), answer("a b"), answer("a, b"), answer("a"), answer(""))
    assert found == {"kept": 0.25, "punctuation:no_comma": 0.5, "length_constraints:number_words at least 2": 0.5}
    assert means(RuleShare(rule=NoComma()), answer("a"), answer(",")) == {"kept": 0.5}


def test_length():
    found = means(Length(), answer("a b. c"), answer(" ", finished=False), answer("don't"))
    assert found == {
        "words": pytest.approx(5 / 3),
        "characters": pytest.approx((6 + 1 + 5) / 3),
        "tokens": 5.0,
        "empty": pytest.approx(1 / 3),
        "finished": pytest.approx(2 / 3),
    }


def test_kl_and_likelihood_are_over_answers_and_over_tokens():
    short, long = answer("", "0", kl=3.0, ref_logp=-4.0), answer("abc", "1", kl=1.0, ref_logp=-6.0)  # 1 and 4 tokens
    assert means(Kl(), short, long) == {"sum": 2.0, "per_token": pytest.approx(4 / 5)}
    found = means(ReferenceLikelihood(), short, long)
    assert found == {"per_token": pytest.approx(-10 / 5), "worst_tenth": pytest.approx(-4.0)}


def test_worst_tenth_sees_the_one_bad_answer_of_ten():
    fine = [answer("abc", str(n), ref_logp=-4.0) for n in range(9)]
    found = means(ReferenceLikelihood(), *fine, answer("abc", "9", ref_logp=-40.0))
    assert found == {"per_token": pytest.approx(-1.9), "worst_tenth": pytest.approx(-10.0)}


def test_unknown_numbers_are_missing_not_zero():
    found = measured(Kl(), answer("a"), answer("b", "1"))
    assert {(number.mean, number.n, number.note) for number in found.values()} == {(None, 0, "no values")}
    assert measured(Kl(), answer("a", kl=2.0), answer("b", "1"))["sum"].n == 1


def test_repetition_of_the_prompt():
    """An answer that repeats four words of its prompt in their order; upper case and punctuation do not matter."""
    asked = "Say something about rivers in one sentence."
    answers = [
        answer_of(str(number), asked, text, model="policy")
        for number, text in enumerate(
            ["something, about RIVERS in short", "Rivers flow to the sea.", "about something rivers", ""]
        )
    ]
    assert "prompt" not in means(Repetition(), *answers)
    assert means(Repetition(prompt_words=4), *answers)["prompt"] == pytest.approx(1 / 3)
    assert means(Repetition(prompt_words=50), *answers)["prompt"] == 0.0


def test_repetition():
    found = means(Repetition(), answer("a b a b", "0"), answer("The the", "1"), answer("", "2"))
    assert found == {"distinct_1": 0.5, "distinct_2": pytest.approx((2 / 3 + 1) / 2), "copied": 0.0}
    assert distinct(["a"], 2) is None


def test_copied_counts_the_same_words_for_another_prompt():
    found = [answer("A cat.", "0"), answer("a cat", "1"), answer("a dog", "2"), answer("a dog", "2")]
    assert means(Repetition(), *found)["copied"] == 0.5


# -- token rewards against the rule ------------------------------------------------------------------------------------

AUC = TokenAuc(rule=NoComma(), rewards=["r"])


def test_auc_is_one_when_commas_have_the_lowest_rewards():
    perfect = answer("a,b,", rewards=[0.5, -1.0, 0.1, 0.0, -9.0])  # the last is EOS, which does not count
    found = measured(AUC, perfect, answer("ab", "1", [1.0, 1.0, -9.0]))
    assert found["r"].mean == found["r within"].mean == 1.0
    assert (found["r"].n, found["r"].positives) == (6, 2)
    assert means(AUC, answer("a,b,", rewards=[-0.5, 1.0, -0.1, 0.0, 9.0])) == {"r": 0.0, "r within": 0.0}


def test_a_reward_of_whole_answers_finds_answers_but_no_places():
    """The bandit: pooled it can look informed, within an answer it is exactly a coin."""
    bad, good = answer("a,bcd", "0", [-1.0] * 6), answer("abcde", "1", [1.0] * 6)
    found = means(AUC, bad, good)
    # 1 comma against 4 equal tokens (a half each) and 5 higher ones
    assert found == {"r": pytest.approx((4 * 0.5 + 5) / 9), "r within": 0.5}


def test_a_token_breaks_the_rule_when_it_overlaps_the_place():
    pieces = answer("a, b", tokens=["a,", " b", ""], offsets=[(0, 2), (2, 4), (4, 4)], rewards=[-1.0, 0.0, 0.0])
    found = measured(AUC, pieces)["r"]
    assert (found.mean, found.n, found.positives) == (1.0, 2, 1)


def test_no_breaking_token_is_said_not_scored():
    found = measured(AUC, answer("ab"), answer("c", "1"))
    assert (found["r"].mean, found["r"].positives, found["r"].note) == (None, 0, "no positives")
    assert (found["r within"].mean, found["r within"].note) == (None, "no values")


def test_tokens_without_a_reward_do_not_count():
    found = measured(AUC, answer("a,bc", rewards=[None, -1.0, 0.0, None, None]))["r"]
    assert (found.n, found.positives, found.mean) == (2, 1, 1.0)


def test_answers_that_break_the_rule_nowhere_in_particular_do_not_count():
    long = NumberWords(relation="at least", num_words=2)
    metric = TokenAuc(rule=AllOf(rules=[long, NoComma()]), rewards=["r"])
    assert measured(metric, answer("a"))["r"].n == 0
    with pytest.raises(ValidationError, match="number_words at least 2 never marks what breaks it"):
        TokenAuc(rule=long, rewards=["r"])
    beyond = TokenAuc(rule=NumberWords(relation="less than", num_words=2), rewards=["r"])
    found = measured(beyond, answer("ab c", rewards=[0.0, 0.0, 0.0, -1.0, 0.0]))["r"]
    assert (found.mean, found.n, found.positives) == (1.0, 4, 1)


def test_an_unknown_reward_is_named():
    with pytest.raises(DataError, match="no reward 'q'; the evaluation recorded: r"):
        TokenAuc(rule=NoComma(), rewards=["q"]).measure({"a": [answer("a")]})


def test_without_names_all_recorded_rewards_are_measured():
    both = answer("a,b", rewards=[0.0, -1.0, 0.0, 0.0])
    both.token_rewards["other"] = [0.0, 1.0, 0.0, 0.0]
    assert means(TokenAuc(rule=NoComma()), both) == {"r": 1.0, "r within": 1.0, "other": 0.0, "other within": 0.0}
    with pytest.raises(DataError, match="recorded no token rewards"):
        TokenAuc(rule=NoComma()).measure({"a": [answer_of("0", "p", "", finished=True)]})


def test_segment_length_is_tokens_over_segments_not_a_mean_of_means():
    one = answer("abcd", segments={"r": [0, 0, 0, 1, -1]})  # 3 tokens and 1; the end-of-sequence token is in none
    other = answer("abc", "1", segments={"r": [0, 1, 2, -1]})
    found = measured(SegmentLength(), one, other)["r"]
    assert (found.mean, found.n) == (7 / 5, 2)
    nothing = answer("", "2", segments={"r": [-1]})
    assert means(SegmentLength(rewards=["r"]), one, nothing) == {"r": 2.0}
    with pytest.raises(DataError, match="segment_length: the evaluation recorded no segments"):
        SegmentLength().measure({"a": [answer("a")]})
    with pytest.raises(DataError, match="no reward 'q'; the evaluation recorded: r"):
        SegmentLength(rewards=["q"]).measure({"a": [one]})


def test_auc_differences_are_paired_though_one_prompt_has_no_token():
    models = {
        "sft": [answer("a,", "0", [0.0, 1.0, 0.0]), answer("b,", "1", [0.0, 1.0, 0.0]), answer("", "2")],
        "policy": [answer("", "0"), answer("b,", "1", [1.0, 0.0, 0.0]), answer("c,", "2", [1.0, 0.0, 0.0])],
    }
    found = AUC.measure(models, baseline="sft")["token_auc"]["differences"]["policy"]["r"]
    assert (found["mean"], found["groups"]) == (1.0, 3)


def test_interval_of_the_auc_is_over_prompts():
    """Every answer copied three times: the same interval."""
    rewards = [[0.1, -0.2, 0.3, 0.0], [0.0, 0.4, -0.1, 0.0], [0.5, 0.1, 0.2, 0.0], [0.2, 0.3, 0.1, 0.0]]
    once = [answer("a,b", str(n), values) for n, values in enumerate(rewards)]
    found, copied = measured(AUC, *once)["r"], measured(AUC, *(item for item in once for _ in range(3)))["r"]
    assert (copied.mean, copied.low, copied.high) == pytest.approx((found.mean, found.low, found.high))
    assert found.low < found.high


# -- answers -----------------------------------------------------------------------------------------------------------


@given(st.text(max_size=8), st.lists(st.floats() | st.none(), max_size=5))
def test_answers_are_strict_json(tmp_path_factory, text, rewards):
    stored = answer(text, rewards=rewards or None, logp=math.nan, kl=math.inf)
    stored.segments = {"r": [0, -1]}
    path = tmp_path_factory.mktemp("answers") / "answers.jsonl"
    write_answers(path, {"m": [stored]})
    json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(f"{name} is no strict JSON"))
    (back,) = read_answers(path)["m"]
    assert (back.logp, back.kl, back.offsets, back.segments) == (None, None, stored.offsets, stored.segments)
    expected = [None if value is None or not math.isfinite(value) else value for value in stored.token_rewards["r"]]
    assert back.token_rewards["r"] == expected
    write_answers(path, {"m": [back]})
    assert read_answers(path) == {"m": [back]}

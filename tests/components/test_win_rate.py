"""Win rates by judges that follow a rule: their numbers are known."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answer_helpers import answer_of
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from fgrl.base.errors import DataError
from fgrl.components.metrics.rating import Rating, read_mark
from fgrl.components.metrics.win_rate import WinRate
from fgrl.feedback.llm.reading import read_label
from fgrl.kinds import Client, ToDraw
from fgrl.kinds.specs import Sampling
from fgrl.measuring.answer import Answer
from fgrl.measuring.length_adjusted import fit
from fgrl.measuring.pairwise import matched
from fgrl.measuring.statistics import Estimate, estimate, length_adjusted
from fgrl.types import Completion, Message, Request

PROMPTS = Path(__file__).resolve().parents[2] / "prompts"
PAIRWISE = str(PROMPTS / "judge_pairwise.txt")
SORRY = "I'm sorry, but I can't judge these."


class Judge(Client):
    """Answers by a rule on the two texts; keeps what it was asked."""

    rule: Any
    asked: list[Request] = []

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        self.asked += requests
        return [self._say(request) for request in requests]

    def _say(self, request: Request) -> Completion:
        text = request.messages[-1].content if len(request.messages) < 3 else request.messages[1].content
        shown = [re.search(rf"<answer_{n}>\n(.*?)\n</answer_{n}>", text, re.DOTALL) for n in (1, 2)]
        said = self.rule(*(found[1] for found in shown if found))
        return said if isinstance(said, Completion) else Completion(text=said, finish="stop")


def longer(first: str, second: str) -> str:
    return "Because.\n" + ("[[tie]]" if len(first) == len(second) else "[[1]]" if len(first) > len(second) else "[[2]]")


def answer(response: str, id: str, **more: Any) -> Answer:
    return answer_of(id, more.pop("prompt", f"Question {id}?"), response, **more)


def answers(*texts: str, **more: Any) -> list[Answer]:
    return [answer(text, str(n), **more) for n, text in enumerate(texts)]


def to_draw(models: Iterable[str], prompts: int, turns: int = 1) -> ToDraw:
    return ToDraw(list, lambda: (prompts, turns), list(models), 1, Sampling(max_new_tokens=1))


def judged(rule: Callable[..., Any], ours: list[Answer], theirs: list[Answer], **fields: Any) -> dict[str, Estimate]:
    metric = WinRate(client=Judge(rule=rule), prompt=fields.pop("prompt", PAIRWISE), **fields)
    ((name, found),) = metric.measure({"ours": ours, "theirs": theirs}, baseline="theirs").items()
    assert name == "win_rate"
    assert set(found) == {"ours", "about"}  # the other one has no number of its own, and so no difference
    return {name: Estimate.model_validate(number) for name, number in found["ours"].items()}


LONG, SHORT = answers(*["long answer"] * 8), answers(*["short"] * 8)


def test_a_judge_that_always_takes_the_first_has_half_and_a_bias_of_one() -> None:
    found = judged(lambda first, second: "[[1]]", LONG, SHORT)
    assert (found["win_rate"].mean, found["win_rate"].low, found["win_rate"].high) == (0.5, 0.5, 0.5)
    assert found["position_bias"].mean == 1.0
    assert found["inconsistent"].mean == 1.0
    assert found["ties"].mean == 0.0
    assert found["length_adjusted"].mean == pytest.approx(0.5)
    assert (found["win_rate"].n, found["position_bias"].n, found["win_rate"].groups) == (8, 16, 8)


def test_always_the_second_is_a_bias_of_minus_one() -> None:
    found = judged(lambda first, second: "[[2]]", LONG, SHORT)
    assert (found["win_rate"].mean, found["position_bias"].mean) == (0.5, -1.0)


def test_the_longer_answer_wins() -> None:
    ours = [*LONG[:6], *answers(*["abc"] * 8)[6:]]
    found = judged(longer, ours, SHORT)
    assert found["win_rate"].mean == 6 / 8
    assert found["position_bias"].mean == 0.0
    assert found["inconsistent"].mean == 0.0
    assert found["win_rate"].low is not None
    assert found["win_rate"].low < 0.75 < found["win_rate"].high  # type: ignore[operator]


def test_ties_count_half_and_have_no_bias() -> None:
    found = judged(longer, SHORT, SHORT)
    assert (found["win_rate"].mean, found["ties"].mean, found["inconsistent"].mean) == (0.5, 1.0, 0.0)
    assert found["position_bias"].mean is None
    assert found["position_bias"].note == "no values"


def test_a_tie_in_one_order_is_inconsistent_and_counts_half() -> None:
    found = judged(lambda first, second: "[[1]]" if first == "long answer" else "[[tie]]", LONG, SHORT)
    assert (found["win_rate"].mean, found["inconsistent"].mean, found["ties"].mean) == (0.5, 1.0, 0.5)


def test_ties_refusals_garbage_and_failures_are_counted_apart_and_never_scored() -> None:
    kinds = ["win", "win", "lose", "tie", "refuse", "garbage", "fail", "cut"]
    said = {
        "tie": "[[tie]]", "refuse": SORRY, "garbage": "Both! [[1]] and [[2]]", "fail": Completion(error="500: down"),
        "cut": Completion(text="Well, the first", finish="length"),
    }  # fmt: skip

    def rule(first: str, second: str) -> Any:
        kind = first if first != "theirs" else second
        if kind in said:
            return said[kind]
        return "[[1]]" if (kind == "win") == (first == kind) else "[[2]]"

    found = judged(rule, answers(*kinds), answers(*["theirs"] * 8))
    assert found["win_rate"].mean == (2 + 0 + 0.5) / 4
    assert found["win_rate"].n == 4
    assert found["ties"].mean == 2 / 8
    assert found["ties"].n == 8
    shares = {name: (found[name].mean, found[name].n) for name in ("refused", "unparsed", "failed")}
    assert shares == {"refused": (1 / 8, 16), "unparsed": (2 / 8, 16), "failed": (1 / 8, 16)}


def test_a_pair_with_one_missing_judgement_is_missing() -> None:
    found = judged(lambda first, second: "[[1]]" if first == "long answer" else SORRY, LONG, SHORT)
    assert found["win_rate"].mean is None
    assert found["refused"].mean == 0.5


def test_nothing_said_is_no_number() -> None:
    found = judged(lambda first, second: Completion(error="500"), LONG, SHORT)
    assert [found[name].mean for name in ("win_rate", "length_adjusted", "ties", "failed")] == [None, None, None, 1.0]


def test_what_cannot_be_read_is_put_again_and_then_kept(tmp_path: Path) -> None:
    class Run:
        out = tmp_path

    client = Judge(rule=lambda first, second: "Hm.")
    metric = WinRate(client=client, prompt=PAIRWISE, title="mine")
    metric.setup(Run())
    metric.measure({"ours": LONG[:1], "theirs": SHORT[:1]}, baseline="theirs")
    assert len(client.asked) == 4
    assert metric.counts()["failed: unreadable"] == 2
    kept = (tmp_path / "judgements-mine.jsonl").read_text()
    assert kept.count('"said": "Hm."') == 2
    assert '"first": "theirs"' in kept


def test_every_order_of_every_pair_is_asked_once_with_the_question_and_both_answers() -> None:
    client = Judge(rule=longer)
    metric = WinRate(client=client, prompt=PAIRWISE)
    models = {"a": LONG[:3], "b": SHORT[:3], "theirs": answers("x", "y", "z")}
    metric.measure(models, baseline="theirs")
    assert len(client.asked) == metric.calls(to_draw(models, prompts=3)) == 12
    texts = [request.messages[-1].content for request in client.asked]
    assert len(set(texts)) == 12
    assert all("Question " in text and "{" not in text for text in texts)


def test_models_have_differences_when_the_rival_is_not_the_baseline() -> None:
    metric = WinRate(client=Judge(rule=longer), prompt=PAIRWISE, versus="rival")
    found = metric.measure({"sft": SHORT, "policy": LONG, "rival": answers(*["middle.."] * 8)}, baseline="sft")[
        "win_rate"
    ]
    assert found["sft"]["win_rate"]["mean"] == 0.0
    assert found["differences"]["policy"]["win_rate"]["mean"] == 1.0
    assert "rival" not in found


def test_conversations_are_judged_whole() -> None:
    client = Judge(rule=longer)
    chat = [Message(role="system", content="Be brief."), Message(role="user", content="Why?")]
    ours = [answer("So.", "0", prompt=chat, follow_ups=[("And?", "Then.")])]
    WinRate(client=client, prompt=PAIRWISE).measure({"a": ours, "b": answers("No.")}, baseline="b")
    text = client.asked[0].messages[-1].content
    assert all(
        part in text for part in ("[system]\nBe brief.", "[user]\nWhy?", "So.\n\n[user]\nAnd?\n\n[assistant]\nThen.")
    )


def test_several_answers_meet_those_of_the_other_model_in_turn() -> None:
    ours = [answer("a", "0"), answer("b", "0"), answer("c", "0"), answer("d", "1")]
    theirs = [answer("x", "1"), answer("y", "0"), answer("z", "0")]
    pairs = [(own.text, other.text) for own, other in matched("ours", ours, "theirs", theirs)]
    assert pairs == [("a", "y"), ("b", "z"), ("c", "y"), ("d", "x")]
    with pytest.raises(DataError, match="only ours has an answer to prompt 7"):
        matched("ours", [answer("a", "7")], "theirs", theirs)


@pytest.mark.parametrize(
    ("fields", "names", "said"),
    [
        ({"versus": "gpt"}, ["sft"], "versus 'gpt' is not one of the models: sft"),
        ({}, ["sft"], "compares other models with 'sft', and there is none"),
    ],
)
def test_models_are_checked_with_the_recipe(fields: dict[str, Any], names: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        WinRate(client=Judge(rule=longer), prompt=PAIRWISE, **fields).check_models(names, "sft")


# -- five levels -------------------------------------------------------------------------------------------------------


def test_strong_verdicts_count_three_times() -> None:
    def rule(first: str, second: str) -> str:
        label = {"great": ">>", "bad": ">"}[first if first != "theirs" else second]
        better = (first == "great") or (second == "bad")
        return f"[[{'1' + label + '2' if better else '2' + label + '1'}]]"

    prompt = str(PROMPTS / "judge_five_levels.txt")
    found = judged(rule, answers("great", "bad"), answers("theirs", "theirs"), scale=5, prompt=prompt)
    assert found["win_rate"].mean == 3 / 4  # one strong win, one slight loss
    assert found["inconsistent"].mean == 0


def test_levels_have_no_log_probabilities() -> None:
    with pytest.raises(ValueError, match="labels of five levels have no single token"):
        WinRate(client=Judge(rule=longer), prompt=PAIRWISE, scale=5, weighting="logprob")


# -- log-probabilities -------------------------------------------------------------------------------------------------

CHOICE = str(PROMPTS / "judge_choice.txt")


def told(p: float, text: str = "1") -> Completion:
    return Completion(text=text, finish="length", logprobs={"1": math.log(p), " 2": math.log(1 - p), "The": -9.0})


def test_soft_preferences_are_means_of_probabilities() -> None:
    def rule(first: str, second: str) -> Completion:
        return told(0.9) if first == "long answer" else told(0.3)

    found = judged(rule, LONG, SHORT, weighting="logprob", prompt=CHOICE)
    assert found["win_rate"].mean == pytest.approx((0.9 + 0.7) / 2)
    assert found["hard"].mean == 0.0
    assert found["position_bias"].mean == 0.0


def test_a_soft_judge_of_places_has_half_too() -> None:
    found = judged(lambda first, second: told(0.8), LONG, SHORT, weighting="logprob", prompt=CHOICE)
    assert (found["win_rate"].mean, found["position_bias"].mean) == (pytest.approx(0.5), 1.0)


def test_without_log_probabilities_the_verdict_counts_and_is_counted() -> None:
    said = {"0": Completion(text="1", finish="length"), "1": told(0.6), "2": SORRY, "3": "what?"}
    found = judged(lambda first, second: said[max(first, second)], answers("0", "1", "2", "3"), answers(*["-"] * 4),
                   weighting="logprob", prompt=CHOICE)  # fmt: skip
    assert found["hard"].mean == 0.5
    assert (found["refused"].mean, found["unparsed"].mean) == (0.25, 0.25)
    assert found["win_rate"].mean == pytest.approx(0.5)
    assert found["win_rate"].n == 2


# -- reading -----------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_any_text_is_a_verdict_or_a_value_error(text: str) -> None:
    for read in (read_label, lambda t: read_label(t, 5), read_mark):
        with contextlib.suppress(ValueError):
            assert isinstance(read(text), int | float)


# -- equal length ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.1, 1.0, 10.0])
def test_the_fit_is_scikit_learn_s(ridge: float) -> None:
    draw = np.random.default_rng(3)
    x, y = np.tanh(draw.normal(size=60)), draw.uniform(size=60)
    times = draw.integers(0, 4, size=(5, 60)).astype(float)
    a, b = fit(x, y, times, ridge)
    for d in range(5):
        oracle = LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=10_000)
        oracle.fit(
            np.concatenate([x, x])[:, None],
            np.concatenate([np.ones(60), np.zeros(60)]),
            sample_weight=np.concatenate([times[d] * y, times[d] * (1 - y)]),
        )
        assert a[d] == pytest.approx(oracle.intercept_[0], abs=1e-5)
        assert b[d] == pytest.approx(oracle.coef_[0, 0], abs=1e-5)


def adjusted(wins: list[float | None], lengths: list[float]) -> Estimate:
    return estimate(length_adjusted(wins, lengths, list(range(len(wins))), 0.01), resamples=200)


def test_wins_that_length_explains_come_to_half() -> None:
    lengths = [float(n) for n in range(-10, 11) if n] + [5.0, 6.0, 7.0, 8.0] * 3
    wins: list[float | None] = [1 / (1 + math.exp(-3 * math.tanh(n / np.std(lengths)))) for n in lengths]
    raw = sum(map(float, filter(None, wins))) / len(wins)
    assert raw > 0.6
    assert adjusted(wins, lengths).mean == pytest.approx(0.5, abs=0.01)


def test_without_differences_in_length_it_is_the_win_rate() -> None:
    assert adjusted([1.0, 1.0, 0.0, 1.0, None], [0.0] * 5).mean == pytest.approx(0.75)
    weighted = length_adjusted([1.0, 0.0, None], [0.0] * 3, [0, 1, 2], 1.0, [3.0, 1.0, 9.0])
    assert estimate(weighted, resamples=200).mean == pytest.approx(0.75)


@pytest.mark.parametrize("won", [0.0, 1.0])
def test_all_or_nothing_is_all_or_nothing(won: float) -> None:
    found = adjusted([won] * 6, [3.0, -1.0, 2.0, 9.0, -4.0, 0.0])
    assert (found.mean, found.low, found.high) == tuple([pytest.approx(won, abs=1e-6)] * 3)


# -- marks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "mark"), [("So.\n[[7]]", 7), ("[[ 6.5 ]]", 6.5), ('{"rating": 3}', 3), ("10", 10), ("```json\n{\"rating\": 4}\n```", 4)]
)  # fmt: skip
def test_marks_are_read(text: str, mark: float) -> None:
    assert read_mark(text) == mark


@pytest.mark.parametrize(
    "text",
    ["[[0]]", "[[11]]", "[[7]] [[8]]", "7/10", "Rating: 7", "", "[[true]]", "true", "[[nan]]", "NaN", "[" * 100_000],
)
def test_what_is_no_mark(text: str) -> None:
    with pytest.raises(ValueError, match="mark"):
        read_mark(text)


class Marker(Client):
    rule: Any
    asked: list[str] = []

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        self.asked += [request.messages[-1].content for request in requests]
        return [Completion(text=self.rule(request.messages[1].content), finish="stop") for request in requests]


def test_every_turn_has_its_mark() -> None:
    def rule(text: str) -> str:
        return SORRY if "Q-bad" in text else "[[8]]" if "<conversation>\n(none)" in text else "[[4]]"

    client = Marker(rule=rule)
    metric = Rating(client=client, prompt=str(PROMPTS / "judge_rating.txt"), references="turns")
    found = [
        answer_of("0", "Q-one", "A-one", references=["R-one", "R-two"], follow_ups=[("Q-two", "A-two")]),
        answer_of("1", "Q-bad", "A", follow_ups=[("Q-bad", "A-two")]),
    ]
    numbers = metric.measure({"m": found})["rating"]["m"]
    assert {name: numbers[name]["mean"] for name in ("mark", "turn_1", "turn_2", "refused", "unparsed", "failed")} == {
        "mark": 6.0, "turn_1": 8.0, "turn_2": 4.0, "refused": 0.5, "unparsed": 0.0, "failed": 0.0,
    }  # fmt: skip
    second = client.asked[1]
    assert "<conversation>\n[user]\nQ-one\n\n[assistant]\nA-one\n</conversation>" in second
    assert "<reference>\nR-two\n</reference>" in second
    assert "<answer>\nA-two\n</answer>" in second
    assert metric.calls(to_draw(["m"], prompts=2, turns=2)) == 4

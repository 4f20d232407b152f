"""Two responses compared: by a judge in both orders, by a rule, by recorded verdicts of people; and the table of many models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from answer_helpers import answer_of
from hypothesis import given
from hypothesis import strategies as st

from fgrl.base.errors import DataError
from fgrl.components.verifiers.ifeval.punctuation import NoComma
from fgrl.feedback.llm.asking import Question, ask
from fgrl.feedback.llm.reading import read_verdict
from fgrl.kinds import Client
from fgrl.measuring import pairwise
from fgrl.measuring.answer import Answer
from fgrl.measuring.pairwise import Ballot, Disagreement, Game, PairOutcome, compare
from fgrl.types import Completion, Message, PairVerdict, Request, Response, Sample, read_jsonl, write_jsonl

FIRST, SECOND, TIE, MISSING = (Ballot.of_verdict(verdict) for verdict in ("first", "second", "tie", None))


def answers(*texts: str) -> list[Answer]:
    return [answer_of(str(n), f"Question {n}?", text) for n, text in enumerate(texts)]


# -- ballots and comparisons -------------------------------------------------------------------------------------------


def test_one_order_is_taken_as_it_is() -> None:
    assert compare([FIRST], "average") == PairOutcome("first", 1.0)
    assert compare([MISSING], "average") == PairOutcome(None)
    assert compare([Ballot.of_probability(0.25)], "drop") == PairOutcome("second", 0.25)


@pytest.mark.parametrize("disagreement", ["average", "drop", "tie"])
def test_two_orders_that_agree_give_their_verdict_whatever_the_policy(disagreement: Disagreement) -> None:
    # the second ballot saw the two responses exchanged
    assert compare([FIRST, SECOND], disagreement) == PairOutcome("first", 1.0, agree=True)
    assert compare([SECOND, FIRST], disagreement) == PairOutcome("second", 0.0, agree=True)
    assert compare([TIE, TIE], disagreement) == PairOutcome("tie", 0.5, agree=True)


@pytest.mark.parametrize(
    ("ballots", "verdicts"),
    [
        ([FIRST, FIRST], {"average": "tie", "drop": None, "tie": "tie"}),  # whoever is shown first
        ([FIRST, TIE], {"average": "first", "drop": None, "tie": "tie"}),
        ([TIE, FIRST], {"average": "second", "drop": None, "tie": "tie"}),
    ],
)
def test_two_orders_that_disagree_are_settled_by_the_policy(
    ballots: list[Ballot], verdicts: dict[Disagreement, str | None]
) -> None:
    for disagreement, verdict in verdicts.items():
        comparison = compare(ballots, disagreement)
        assert (comparison.verdict, comparison.agree) == (verdict, False)
        assert comparison.value == {"first": 1.0, "second": 0.0, "tie": 0.5, None: None}[verdict]


def test_a_missing_ballot_makes_the_comparison_missing_and_weights_are_averaged() -> None:
    assert compare([FIRST, MISSING], "average") == compare([MISSING, SECOND], "tie") == PairOutcome(None)
    assert compare([Ballot("first", 1.0, 3.0), SECOND], "tie").weight == 2.0


@given(st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=2), st.sampled_from(["average", "drop", "tie"]))
def test_exchanging_the_responses_exchanges_the_verdict(
    probabilities: list[float | None], disagreement: Disagreement
) -> None:
    ballots = [Ballot.of_probability(p) for p in probabilities]
    one = compare(ballots, disagreement)
    other = compare([ballot.exchanged() for ballot in ballots], disagreement)
    assert one.agree == other.agree
    if one.p is None or other.p is None:
        assert one.p is other.p is one.verdict is other.verdict is None
    elif abs(one.p - 0.5) > 1e-9:
        assert other.p == pytest.approx(1 - one.p)
        assert (one.verdict, other.verdict) in {("first", "second"), ("second", "first"), ("tie", "tie"), (None, None)}


def test_position_bias_and_counts() -> None:
    ballots = [FIRST, FIRST, TIE, MISSING, SECOND, FIRST, FIRST, SECOND]
    assert pairwise.share_for_first(ballots) == 4 / 6
    assert pairwise.share_for_first([TIE, MISSING]) is None
    comparisons = pairwise.compare_each(ballots, "both", "tie")
    assert [comparison.verdict for comparison in comparisons] == ["tie", None, "second", "first"]
    assert pairwise.counts(comparisons) == {"pairs": 4, "disagreements": 1, "ties": 1, "missing": 1}
    assert len(pairwise.compare_each(ballots, "one", "tie")) == 8


# -- three sources -----------------------------------------------------------------------------------------------------


class Longer(Client):
    """Prefers the longer of two texts; never answers about "?"."""

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        found = []
        for request in requests:
            first, second = re.findall("<(.*?)>", request.messages[0].content)
            text = "Hm." if "?" in (first, second) else "1" if len(first) > len(second) else "2"
            found.append(Completion(text="tie" if len(first) == len(second) else text, finish="stop"))
        return found


def test_a_judge_s_verdicts_on_any_number_of_models_make_a_table() -> None:
    models = {"a": answers("long one", "long"), "b": answers("long", "long"), "c": answers("x", "?")}
    meetings = list(pairwise.pairings(models))
    assert [(name, opponent) for name, opponent, *_ in meetings] == [
        ("a", "b"), ("a", "b"), ("a", "c"), ("a", "c"), ("b", "c"), ("b", "c"),
    ]  # fmt: skip
    questions = [
        Question(Request(messages=[Message(role="user", content=f"<{first}><{second}>")]), read_verdict)
        for _name, _opponent, own, other in meetings
        for first, second in pairwise.in_orders(own.text, other.text)
    ]
    ballots = [Ballot.of_verdict(answer.value) for answer in ask(Longer(), questions)]
    comparisons = pairwise.compare_each(ballots, "both", "average")
    games = [
        Game.of(own.id, name, opponent, comparison, "judge")
        for (name, opponent, own, _other), comparison in zip(meetings, comparisons, strict=True)
    ]
    found = [(game.id, game.first, game.second, game.verdict) for game in games]
    (one, two) = (meetings[place][2].id for place in (0, 1))
    assert found == [
        (one, "a", "b", "first"), (two, "a", "b", "tie"), (one, "a", "c", "first"), (two, "a", "c", None),
        (one, "b", "c", "first"), (two, "b", "c", None),
    ]  # fmt: skip


def test_a_rule_compares_by_its_scores() -> None:
    rule = NoComma()
    kept, broken = rule.verdict("Red sky"), rule.verdict("Red, sky")
    assert pairwise.by_score(kept, broken) == FIRST
    assert pairwise.by_score(broken, kept) == SECOND
    assert pairwise.by_score(kept, kept) == pairwise.by_score(broken, broken) == TIE
    assert pairwise.by_score(kept, None) == pairwise.by_score(None, 1.0) == MISSING
    assert pairwise.by_score(0.5, 0.4, margin=0.2) == TIE
    assert compare([pairwise.by_score(0.9, 0.2)], "average") == PairOutcome("first", 1.0)


def annotated(id: str, *verdicts: PairVerdict, authors: Sequence[str | None] = ("a", "b", "c")) -> Sample:
    responses = [Response(text=f"{id} {author}", by=author) for author in authors]
    return Sample(id=id, prompt="p", responses=responses, verdicts=list(verdicts))


def test_verdicts_of_people_come_from_a_file_of_samples(tmp_path: Path) -> None:
    write_jsonl(
        tmp_path / "samples.jsonl",
        [
            annotated("1", PairVerdict(first=0, second=1, verdict="first", reason="It is kind.", by="Ada"),
                      PairVerdict(first=0, second=1, verdict="second", by="Bob")),
            annotated("2", PairVerdict(first=2, second=0, verdict="tie", by="Ada"),
                      PairVerdict(first=2, second=1, verdict=None, by="Ada")),
            Sample(id="3", prompt="nobody compared these"),
        ],
    )  # fmt: skip
    samples = list(read_jsonl(tmp_path / "samples.jsonl", Sample))
    games = list(pairwise.recorded_games(samples))
    assert games[0] == Game.of("1", "a", "b", PairOutcome("first", 1.0), "Ada")
    assert [(game.first, game.second, game.value) for game in games] == [
        ("a", "b", 1.0), ("a", "b", 0.0), ("c", "a", 0.5), ("c", "b", None),
    ]  # fmt: skip
    of_bob = pairwise.recorded_games(samples, by=["Bob"])
    assert [(game.first, game.second, game.value) for game in of_bob] == [("a", "b", 0.0)]


def test_a_verdict_that_belongs_to_no_two_models_is_refused() -> None:
    verdict = PairVerdict(first=0, second=1, verdict="first")
    with pytest.raises(DataError, match="sample 1: response 1 was compared, but `by` does not name"):
        list(pairwise.recorded_games([annotated("1", verdict, authors=["a", None])]))
    with pytest.raises(DataError, match="responses 0 and 1 are both from 'a'"):
        list(pairwise.recorded_games([annotated("1", verdict, authors=["a", "a"])]))

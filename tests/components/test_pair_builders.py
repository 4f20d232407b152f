"""Pairs by a rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgrl.base.errors import DataError
from fgrl.components.pair_builders.by_rule import ByRule
from fgrl.components.verifiers.all_of import AllOf
from fgrl.components.verifiers.ifeval.length import NumberWords
from fgrl.components.verifiers.ifeval.punctuation import NoComma
from fgrl.types import Response, Sample

texts = st.lists(st.text(alphabet="ab, ", max_size=6), min_size=1, max_size=10)


def sample(*answers: str | Response, id: str = "s") -> Sample:
    found = [Response(text=answer) if isinstance(answer, str) else answer for answer in answers]
    return Sample(id=id, prompt="p", responses=found)


def members(pairs) -> list[tuple[str, str]]:
    return [(pair.chosen, pair.rejected) for pair in pairs]


@given(texts, st.integers(1, 30), st.booleans())
def test_pairs_keep_and_break_the_rule(answers, most, match):
    pairs = ByRule(rule=NoComma(), max_per_prompt=most, match_length=match).build(sample(*answers))
    distinct = {answer.strip() for answer in answers}
    kept = {answer for answer in distinct if answer and "," not in answer}
    assert len(pairs) == min(most, len(kept) * (len(distinct) - len(kept)))
    assert all(NoComma().check(pair.chosen) and not NoComma().check(pair.rejected) for pair in pairs)
    assert len(set(members(pairs))) == len(pairs)
    assert [pair.id for pair in pairs] == [f"s#{n}" for n in range(len(pairs))]


@given(texts, st.booleans())
def test_members_repeat_only_when_they_must(answers, match):
    """As many pairs as the smaller side has members use each of its members once, and the other side's at most once."""
    distinct = {answer.strip() for answer in answers}
    kept = {answer for answer in distinct if answer and "," not in answer}
    smaller = min(len(kept), len(distinct) - len(kept))
    pairs = members(ByRule(rule=NoComma(), max_per_prompt=100, match_length=match).build(sample(*answers)))[:smaller]
    assert len({chosen for chosen, _ in pairs}) == len({rejected for _, rejected in pairs}) == smaller


def test_members_are_used_evenly():
    """2 kept, 4 broken, 4 pairs: each broken one once, each kept one twice."""
    answers = ["a", "b", "c,", "d,", "e,", "f,"]
    pairs = members(ByRule(rule=NoComma(), max_per_prompt=4).build(sample(*answers)))
    assert sorted(rejected for _, rejected in pairs) == ["c,", "d,", "e,", "f,"]
    assert sorted(chosen for chosen, _ in pairs) == ["a", "a", "b", "b"]


def test_equal_texts_are_one_response():
    assert members(ByRule(rule=NoComma()).build(sample("a", "a ", "\na", "b,", "b,"))) == [("a", "b,")]


@pytest.mark.parametrize("answers", [("a", "b"), ("a,", "b,"), ("a",), ("", " ")])
def test_one_side_alone_makes_no_pair(answers):
    assert ByRule(rule=NoComma()).build(sample(*answers)) == []


def test_without_responses_it_says_what_is_missing():
    with pytest.raises(DataError, match="sample s has no responses"):
        ByRule(rule=NoComma()).build(Sample(id="s", prompt="p"))


def test_silence_is_never_chosen():
    pairs = members(ByRule(rule=NoComma()).build(sample("", "a b")))
    assert pairs == [("a b", "")]


def test_match_length_takes_the_closest():
    kept = ["a" * 10, "b" * 50, "c" * 90]
    broken = ["d," * 45, "e," * 25, "f," * 5]
    pairs = ByRule(rule=NoComma(), max_per_prompt=3, match_length=True).build(sample(*kept, *broken))
    assert sorted(members(pairs)) == sorted(zip(kept, reversed(broken), strict=True))
    apart = [
        abs(len(a) - len(b)) for a, b in members(ByRule(rule=NoComma(), max_per_prompt=9).build(sample(*kept, *broken)))
    ]
    assert max(apart[:3]) > 0  # without it, chance decides


def test_same_seed_same_pairs_whatever_came_before():
    answers = list("abcdef") + [f"{c}," for c in "ghijkl"]
    builder = ByRule(rule=NoComma(), max_per_prompt=3)
    first = builder.build(sample(*answers))
    builder.build(sample(*answers, id="other"))
    assert builder.build(sample(*answers)) == first
    others = [
        members(ByRule(rule=NoComma(), max_per_prompt=3, seed=seed).build(sample(*answers))) for seed in range(1, 6)
    ]
    assert any(other != members(first) for other in others)
    elsewhere = [members(builder.build(sample(*answers, id=str(id)))) for id in range(5)]
    assert any(other != members(first) for other in elsewhere)


def test_meta_keeps_scores_and_what_was_broken():
    rule = AllOf(rules=[NoComma(), NumberWords(relation="at least", num_words=2)])
    given = sample(Response(text="a b", score=0.5), Response(text="a,", score=None))
    given.meta["line"] = "lamps"
    (pair,) = ByRule(rule=rule).build(given)
    assert pair.meta == {
        "line": "lamps",
        "chosen_score": 0.5,
        "rejected_score": None,
        "broken": ["punctuation:no_comma", "length_constraints:number_words at least 2"],
    }
    assert pair.prompt == "p"


def test_finished_only_leaves_cut_answers_out():
    given = sample(Response(text="a", finished=False), "b", "c,", Response(text="d,", finished=False))
    assert members(ByRule(rule=NoComma(), finished_only=True).build(given)) == [("b", "c,")]
    assert len(ByRule(rule=NoComma()).build(given)) == 4

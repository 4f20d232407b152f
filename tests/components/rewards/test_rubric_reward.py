"""Rewards from rubrics: verdicts, what they make of a response, and which tokens they land on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from conftest import train_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import PrivateAttr
from quote_texts import TOKENIZERS
from scratch_registry import scratch

from fgrl import registry, rollouts
from fgrl.base.errors import DataError, Undecided
from fgrl.base.mergeable import as_numbers
from fgrl.components.rewards.rubric import Rubric
from fgrl.kinds import Judge, Verifier
from fgrl.registry import build
from fgrl.types import Criterion, Rollout, Sample

NAN = float("nan")
NO_CAT = Criterion(text="No cats.", check={"name": "keywords:forbidden_words", "forbidden_words": ["cat"]})
LAMP = Criterion(text="Name a lamp.", check={"name": "keywords:existence", "keywords": ["lamp"]})
THREE = Criterion(
    text="At least three words.",
    check={"name": "length_constraints:number_words", "relation": "at least", "num_words": 3},
)
KIND = Criterion(text="Be kind.")


class Fixed(Judge):
    """Says what it is told, in turn; remembers what it was asked."""

    _says: list[bool | None] = PrivateAttr(default_factory=list)
    _asked: list[Any] = PrivateAttr(default_factory=list)

    def decide(self, cases: Sequence[tuple[Sample, str, Criterion]]) -> list[bool | None]:
        self._asked.append([(sample.id, text, criterion.text) for sample, text, criterion in cases])
        return [self._says[i % len(self._says)] for i in range(len(cases))]

    def counts(self) -> dict[str, float]:
        return {"failed": 1.0}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer()


def rollout_of(tokenizer: Any, answers: Sequence[tuple[str, Sequence[Criterion]]], *, ended: bool = True) -> Rollout:
    """Every answer to a prompt of its own, with its offsets."""
    eos = tokenizer.eos_token_id
    ids = [tokenizer(text, add_special_tokens=False).input_ids + [eos] * ended for text, _rubric in answers]
    tokens = rollouts.pad([[1]] * len(ids), ids, pad_id=0, eos_ids=[eos])
    return Rollout(
        **vars(tokens), group=torch.arange(len(ids)),
        samples=[Sample(id=f"s{i}", prompt="?", rubric=list(rubric)) for i, (_text, rubric) in enumerate(answers)],
        texts=[rollouts.decode(tokenizer, row) for row in ids], offsets=[rollouts.offsets(tokenizer, row) for row in ids],
    )  # fmt: skip


def made(**fields: Any) -> Rubric:
    reward = build("reward", {"name": "rubric", **fields})
    reward.setup(None)
    return reward


def judged(*says: bool | None, **fields: Any) -> Rubric:
    reward, judge = made(**fields), Fixed()
    judge._says = list(says)
    reward.judge = judge
    return reward


ANSWERS = [
    ("the lamp and the table", [NO_CAT, LAMP, THREE]),
    ("a cat", [NO_CAT, LAMP, THREE]),
    ("a lamp, a cat", [NO_CAT]),
]


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_verdicts_and_what_they_are_worth(tokenizer: Any) -> None:
    rollout = rollout_of(tokenizer, ANSWERS)
    found = {how: made(response=how).score(rollout) for how in ("csr", "aon")}
    assert found["csr"].verdict.nan_to_num(0).tolist() == [[1, 1, 1], [-1, -1, -1], [-1, 0, 0]]
    assert found["csr"].response.tolist() == [1.0, 0.0, 0.0]
    assert made().score(rollout_of(tokenizer, [("cat and a lamp", [NO_CAT, LAMP, THREE])])).response.tolist() == [
        pytest.approx(2 / 3)
    ]
    assert found["aon"].response.tolist() == [1.0, 0.0, 0.0]
    signed = build("reward", "rubric_signed")
    signed.setup(None)
    assert signed.score(rollout).response.tolist() == [1.0, -1.0, -1.0]
    assert as_numbers(found["csr"].metrics)["csr"] == pytest.approx(3 / 7)
    assert as_numbers(found["csr"].metrics)["aon"] == pytest.approx(1 / 3)
    assert as_numbers(found["csr"].metrics)["missing_verdicts"] == 0
    assert found["csr"].criterion is None


def test_without_relevance_the_reward_lies_on_the_last_token(tokenizer: Any) -> None:
    rollout = rollout_of(tokenizer, ANSWERS)
    found = made().score(rollout)
    last = rollout.mask.sum(dim=1) - 1
    assert found.token.sum(dim=1).tolist() == found.response.tolist()
    assert found.token[0, last[0]] == 1
    assert found.credit_mask.nonzero()[:, 1].tolist() == last.tolist()


VERDICTS = st.lists(st.lists(st.sampled_from([1.0, -1.0, NAN, None]), min_size=3, max_size=3), min_size=1, max_size=6)


@settings(max_examples=80, deadline=None)
@given(rows=VERDICTS)
def test_aon_and_csr_by_definition(rows: list[list[float | None]]) -> None:
    """None: the response was not asked; NaN: nobody knows."""
    csr_reward, aon_reward, signed_reward = made(), made(response="aon"), build("reward", "rubric_signed")
    for row in rows:
        asked = [value for value in row if value is not None]
        known = [value for value in asked if value == value]
        verdicts = [None if value != value else value == 1.0 for value in asked]
        csr, aon = csr_reward.response_reward(verdicts), aon_reward.response_reward(verdicts)
        assert csr == pytest.approx(known.count(1.0) / len(known)) if known else csr is None
        assert signed_reward.response_reward(verdicts) == (pytest.approx(sum(known) / len(known)) if known else None)
        if -1.0 in known:
            assert aon == 0
        elif asked and len(known) == len(asked):
            assert aon == 1
        else:
            assert aon is None


def test_a_judge_is_asked_once_for_all_and_its_failures_are_missing(tokenizer: Any) -> None:
    rollout = rollout_of(tokenizer, [("a lamp", [LAMP, KIND]), ("none", [KIND, LAMP]), ("lamp", [KIND])])
    reward = judged(True, False, None, response="csr", relevance={"name": "uniform"})
    found = reward.score(rollout)
    assert reward.judge._asked == [
        [("s0", "a lamp", "Be kind."), ("s1", "none", "Be kind."), ("s2", "lamp", "Be kind.")]
    ]
    assert found.verdict.tolist()[:2] == [[1, 1], [-1, -1]]
    assert torch.isnan(found.verdict[2]).all()
    assert found.response.tolist()[:2] == [1.0, 0.0]
    assert torch.isnan(found.response[2])  # never 0
    assert as_numbers(found.metrics)["missing_verdicts"] == pytest.approx(1 / 5)
    assert as_numbers(found.metrics)["judge_failed"] == 1
    assert torch.isnan(found.criterion[2]).all()
    aon = judged(True, True, None, response="aon").score(rollout)
    assert aon.response.tolist()[:2] == [1.0, 0.0]
    assert torch.isnan(aon.response[2])
    assert torch.isfinite(aon.token).all()


def test_a_rule_that_cannot_decide_is_missing_too(tokenizer: Any) -> None:
    class Unsure(Verifier):
        """Never knows."""

        def check(self, response: str) -> bool:
            raise Undecided("no idea")

    with scratch():
        registry.register("unsure")(Unsure)
        rollout = rollout_of(tokenizer, [("a lamp", [LAMP, Criterion(text="?", check={"name": "unsure"})])])
        found = made(relevance={"name": "oracle"}).score(rollout)
    assert found.response.tolist() == [1.0]
    assert torch.isnan(found.verdict[0, 1])
    assert torch.isnan(found.criterion[0, 1]).all()
    assert as_numbers(found.metrics)["missing_verdicts"] == 0.5


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rubric", "message"),
    [
        ([], "sample x has no rubric"),
        ([KIND], "no verifier decides 'Be kind.': set `judge`"),
        (
            [Criterion(text="?", check={"name": "keywords:existense"})],
            """(?s)sample x, criterion '.'.*did you mean "keywords:existence\"""",
        ),
        ([Criterion(text="?", check={"name": "keywords:existence", "keywords": []})], "sample x, criterion"),
    ],
)
def test_prompts_that_cannot_be_scored_are_told_before_training(rubric: list[Criterion], message: str) -> None:
    with pytest.raises(DataError, match=message):
        made().check_prompts([Sample(id="fine", prompt="?", rubric=[LAMP]), Sample(id="x", prompt="?", rubric=rubric)])


def test_a_cap_leaves_out_the_last_criteria(tokenizer: Any) -> None:
    rollout = rollout_of(tokenizer, [("cat", [LAMP, NO_CAT, KIND])])
    assert made(max_criteria=2).score(rollout).verdict.tolist() == [[-1, -1]]


# -- relevance ---------------------------------------------------------------------------------------------------------


def weighed(tokenizer: Any, rollout: Rollout, row: int, weights: torch.Tensor) -> str:
    """The text of the tokens with a weight of 1."""
    ids = rollout.response_ids[row][rollout.mask[row]]
    return tokenizer.decode(ids[weights[: len(ids)].abs() == 1])


def test_the_oracle_marks_what_the_verdict_hangs_on(tokenizer: Any) -> None:
    rollout = rollout_of(tokenizer, ANSWERS)
    found = made(relevance={"name": "oracle"}).score(rollout)
    assert found.criterion.shape == (3, 3, rollout.mask.shape[1])
    assert not found.criterion[0, 0][rollout.mask[0]].any()  # nothing forbidden is there
    assert "lamp" in weighed(tokenizer, rollout, 0, found.criterion[0, 1]) != ANSWERS[0][0]
    assert found.criterion[0, 1].max() == 1
    assert "cat" in weighed(tokenizer, rollout, 1, found.criterion[1, 0])
    assert found.criterion[1, 0].min() == -1
    assert not found.criterion[1, 1][rollout.mask[1]].any()  # what is not there has no token
    assert torch.isnan(found.criterion[2, 1:]).all()  # not asked
    assert not found.criterion[:2][~rollout.mask[:2, None].expand(-1, 3, -1)].any()
    # the token that ends the response counts where all of it does
    assert found.criterion[0, :, int(rollout.mask[0].sum()) - 1].abs().tolist() == [0, 0, 1]
    # a token's reward is the mean over the criteria that were asked
    torch.testing.assert_close(found.token[:2], found.criterion[:2].mean(dim=1))
    torch.testing.assert_close(found.token[2], found.criterion[2, 0])
    assert torch.equal(found.credit_mask, (found.criterion.nan_to_num() != 0).any(dim=1))
    assert as_numbers(found.metrics)["relevance_uncovered"] == 0
    assert as_numbers(found.metrics)["unweighed"] == 0


def test_a_demand_on_the_whole_response_marks_tokens_without_characters_too() -> None:
    """As the mark that sentencepiece puts before a first word: nothing may stand out, or all of the advantage would be its."""
    tokenizer = TOKENIZERS["metaspace"]()
    rollout = rollout_of(tokenizer, [("\u4f60\u597d", [THREE]), ("\u4f60 lamp", [LAMP])])
    assert rollout.offsets is not None
    assert rollout.offsets[0][0] == (0, 0), "a token without characters"
    found = made(relevance={"name": "oracle"}).score(rollout)
    length = int(rollout.mask[0].sum())
    assert found.criterion[0, 0, :length].tolist() == [-1.0] * length, "too few words: all of it"
    assert found.criterion[1, 0, 0] == 0
    assert found.criterion[1, 0].max() == 1
    cut = made(relevance={"name": "oracle", "include_eos": False}).score(rollout)
    assert cut.criterion[0, 0, :length].tolist() == [*[-1.0] * (length - 1), 0.0]


def test_the_oracle_says_nothing_of_what_a_judge_decides(tokenizer: Any) -> None:
    rollout = rollout_of(tokenizer, [("a lamp", [LAMP, KIND])])
    found = judged(False, relevance={"name": "oracle"}).score(rollout)
    assert found.verdict.tolist() == [[1, -1]]
    assert torch.isnan(found.criterion[0, 1]).all()
    assert as_numbers(found.metrics)["unweighed"] == 0.5
    assert torch.isfinite(found.token).all()


def test_random_weights_depend_on_the_response_and_the_criterion_alone(tokenizer: Any) -> None:
    rollout = rollout_of(tokenizer, [("the lamp and the cat", [NO_CAT, LAMP]), ("a lamp", [LAMP, NO_CAT])])
    reward = made(relevance={"name": "random", "seed": 5})
    found = reward.score(rollout)
    weights = found.criterion * found.verdict[:, :, None]
    real = weights[rollout.mask[:, None].expand_as(weights)]
    assert 0 <= real.min() < 0.3 < 0.7 < real.max() <= 1
    assert torch.equal(reward.score(rollout).criterion, found.criterion)
    back = rollout_of(tokenizer, [("a lamp", [NO_CAT, LAMP]), ("the lamp and the cat", [NO_CAT, LAMP])])
    again = reward.score(back)
    assert torch.equal(again.criterion[0], found.criterion[1].flip(0))
    assert torch.equal(again.criterion[1], found.criterion[0])
    assert not torch.equal(weights[0, 0], weights[0, 1])
    other = made(relevance={"name": "random", "seed": 6}).score(rollout)
    assert not torch.equal(other.criterion, found.criterion)


def test_uniform_weights_leave_nothing_of_a_token_advantage(tokenizer: Any) -> None:
    rollout = rollout_of(tokenizer, [(text, [NO_CAT, LAMP, THREE]) for text, _ in ANSWERS])
    rollout.group = torch.zeros(3).long()
    rewards = made(relevance={"name": "uniform"}).score(rollout)
    rtt, grpo = (build("online_algorithm", node) for node in ({"name": "rtt_grpo"}, {"name": "grpo"}))
    assert torch.equal(rtt.advantages(rollout, rewards).advantage, grpo.advantages(rollout, rewards).advantage)


def test_what_is_needed_and_what_is_filled() -> None:
    assert made().needs() == frozenset()
    assert made(relevance={"name": "oracle"}).needs() == {"offsets"}
    assert "criterion" not in made().fills()
    assert "criterion" in made(relevance={"name": "uniform"}).fills()
    assert not Rubric.reads_reference


def test_a_judge_is_a_component(tokenizer: Any) -> None:
    with scratch():
        registry.register("fixed")(Fixed)
        assert isinstance(made(judge="fixed").judge, Fixed)

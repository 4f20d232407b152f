"""Token rewards from critiques: what is asked, what becomes of answers, and where the rewards are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import train_tokenizer
from fault_server import FaultServer
from pydantic import PrivateAttr
from training_helpers import a_run

from fgrl import registry, rollouts
from fgrl.base.mergeable import as_numbers
from fgrl.components.rewards.critic import token_importance
from fgrl.kinds import Client, ToDraw
from fgrl.kinds.specs import Sampling
from fgrl.registry import Problems, build
from fgrl.types import Completion, Request, Rollout, Sample
from fgrl.types.tensors import concatenate

LAMP, CAT, EMPTY = "the lamp and the table", "a cat sat, a cat ran", ""


class Fixed(Client):
    """The answer to the question that contains a text; counts what it is asked."""

    answers: dict[str, Any]
    finish: str = "stop"
    _asked: list[Request] = PrivateAttr(default_factory=list)

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        self._asked += requests
        return [self._answer(request.messages[-1].content) for request in requests]

    def _answer(self, question: str) -> Completion:
        answer = next((answer for part, answer in self.answers.items() if part in question), None)
        if answer is None:
            return Completion(error="nobody is there")
        return Completion(text=answer if isinstance(answer, str) else json.dumps(answer), finish=self.finish)


def says(good: Any = (), poor: Any = (), text: str = "so so") -> dict[str, Any]:
    return {"textual_feedback": text, "good_spans": list(good), "poor_spans": list(poor)}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer()


def rollout_of(tokenizer: Any, texts: Sequence[str]) -> Rollout:
    eos = tokenizer.eos_token_id
    ids = [[*tokenizer(text, add_special_tokens=False).input_ids, eos] for text in texts]
    tokens = rollouts.pad([[1]] * len(ids), ids, pad_id=0, eos_ids=[eos])
    return Rollout(
        **vars(tokens), group=torch.arange(len(ids)),
        samples=[Sample(id=f"s{i}", prompt="Say something.") for i in range(len(ids))],
        texts=[rollouts.decode(tokenizer, row) for row in ids], offsets=[rollouts.offsets(tokenizer, row) for row in ids],
    )  # fmt: skip


@pytest.fixture
def reward(tmp_path: Path) -> Any:
    (tmp_path / "prompt.txt").write_text("Prompt: {prompt}\nResponse: {response}")

    def make(answers: dict[str, Any], finish: str = "stop", **fields: Any) -> Any:
        made = build(
            "reward",
            {
                "name": "critic",
                "client": {"name": "replay", "answers": __file__},
                "prompt": str(tmp_path / "prompt.txt"),
                **fields,
            },
        )
        made.client = Fixed(answers=answers, finish=finish)
        made.setup(SimpleNamespace())
        return made

    return make


def marked(rewards: Any, rollout: Rollout, row: int) -> list[tuple[str, float]]:
    """The characters of each token with a reward, and the reward."""
    text, offsets = rollout.texts[row], rollout.filled("offsets")[row]
    return [
        (text[start:end], round(value, 4))
        for (start, end), value in zip(offsets, rewards.token[row].tolist(), strict=False)
        if value
    ]


def joined(tokens: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Characters of the same reward, one after the other, as one text without spaces."""
    whole: list[tuple[str, float]] = []
    for text, value in ((text.replace(" ", ""), value) for text, value in tokens):
        if whole and whole[-1][1] == value:
            whole[-1] = (whole[-1][0] + text, value)
        else:
            whole.append((text, value))
    return whole


def test_quotes_become_token_rewards_and_their_sum_is_the_response_s(tokenizer: Any, reward: Any) -> None:
    rollout = rollout_of(tokenizer, [LAMP, CAT])
    scored = reward({LAMP: says(["lamp"], ["the table"]), CAT: says(["cat", "cat"])}, token_policy="words").score(
        rollout
    )
    assert joined(marked(scored, rollout, 0)) == [("lamp", 1), ("thetable", -1)]
    assert joined(marked(scored, rollout, 1)) == [("catcat", 1)]
    assert torch.equal(scored.response, scored.token.sum(dim=1))
    assert torch.equal(scored.credit_mask, scored.token != 0)
    assert [annotation.critique for annotation in scored.annotations] == ["so so", "so so"]
    assert [len(annotation.spans) for annotation in scored.annotations] == [2, 2]
    numbers = as_numbers(scored.metrics)
    real = int(rollout.mask.sum())
    assert numbers["positive"] == pytest.approx(int((scored.token > 0).sum()) / real)
    assert numbers["positive"] + numbers["negative"] + numbers["neutral"] == pytest.approx(1)
    assert (numbers["unmatched"], numbers["quotes_exact"], numbers["quotes"]) == (0, 1, 2)


def test_the_rule_of_the_paper_drops_tokens_that_begin_with_the_space_before_a_span(
    tokenizer: Any, reward: Any
) -> None:
    rollout = rollout_of(tokenizer, [LAMP])
    rollout.offsets = [[(0, 3), (3, 8), (8, 12), (12, 16), (16, 22), (22, 22)]]  # words with the space before them
    rollout = rollout.take(torch.tensor([0]))
    rollout.mask, rollout.eos = torch.ones(1, 6, dtype=torch.bool), torch.zeros(1, 6, dtype=torch.bool)
    answer = {LAMP: says(["lamp and"], ["tab"])}
    inside, words = (reward(answer, token_policy=policy).score(rollout) for policy in ("inside", "words"))
    assert inside.token.tolist() == [[0, 0, 1, 0, 0, 0]]
    assert words.token.tolist() == [[0, 1, 1, 0, 0, 0]]
    assert as_numbers(words.metrics)["uncovered"] == 0.5, "no token is inside `tab`"


def test_a_critique_that_cannot_be_read_is_missing_and_counted_never_zero(tokenizer: Any, reward: Any) -> None:
    rollout = rollout_of(tokenizer, [LAMP, CAT, "a lamp", "a table", EMPTY])
    made = reward({LAMP: "It is fine.", CAT: says(), "a lamp": "I'm sorry, I cannot do that."})
    scored = made.score(rollout)
    assert scored.response.isnan().tolist() == [True, False, True, True, False]
    assert [annotation is None for annotation in scored.annotations] == [True, False, True, True, False]
    assert not scored.token.any()
    assert not scored.credit_mask.any()
    numbers = as_numbers(scored.metrics)
    assert (numbers["unparsed"], numbers["refused"], numbers["failed"]) == (0.25, 0.25, 0.25)
    assert "unmatched" not in numbers, "a share of no quotes is no number"
    assert len(made.client._asked) == 4, (
        "a response without text is not criticised, and each other one asked about once"
    )


def test_an_answer_that_was_cut_off_is_missing(tokenizer: Any, reward: Any) -> None:
    scored = reward({LAMP: says(["lamp"])}, finish="length").score(rollout_of(tokenizer, [LAMP]))
    assert scored.response.isnan().all()
    assert as_numbers(scored.metrics)["unparsed"] == 1


def test_a_quote_that_is_not_there_loses_only_itself(tokenizer: Any, reward: Any) -> None:
    rollout = rollout_of(tokenizer, [LAMP])
    scored = reward({LAMP: says(["lamp", "sofa"], ["tables, chairs"])}, token_policy="words").score(rollout)
    assert joined(marked(scored, rollout, 0)) == [("lamp", 1)]
    assert as_numbers(scored.metrics)["unmatched"] == pytest.approx(2 / 3)


def test_repaired_answers_are_counted(tokenizer: Any, reward: Any) -> None:
    answer = json.dumps(says(["cat"]))[:-1] + ",}"
    numbers = as_numbers(reward({CAT: answer, LAMP: says(["t"])}).score(rollout_of(tokenizer, [CAT, LAMP])).metrics)
    assert numbers["repaired"] == 0.5


def test_code_wrong_is_minus_one_improvable_zero_and_the_rest_plus_one(tokenizer: Any, reward: Any) -> None:
    form = {"text": "code_feedback", "labels": {"wrong_code": -1.0, "improvement_code": 0.0}}
    answer = {"code_feedback": "no", "wrong_code": [" lamp"], "improvement_code": [" table"]}
    rollout = rollout_of(tokenizer, [LAMP])
    scored = reward({LAMP: answer}, format=form, unmarked=1.0).score(rollout)
    assert joined(marked(scored, rollout, 0)) == [("the", 1), ("lamp", -1), ("andthe", 1)]
    covering = torch.tensor([start < end for start, end in rollout.filled("offsets")[0]])
    assert torch.equal(scored.credit_mask[0], covering), "everything but the end of the response, improvable code too"
    assert scored.response[0] == scored.token.sum()


@pytest.mark.parametrize("settings", [{}, {"unmarked": 1.0}, {"within": "linear_decay"}, {"fade_after": 3.0}])
def test_on_the_last_token_the_sum_is_the_same(settings: dict[str, Any], tokenizer: Any, reward: Any) -> None:
    """Appendix A: setting A and setting B have equal totals and differ in placement alone."""
    rollout = rollout_of(tokenizer, [LAMP, CAT, "a table"])
    answers = {LAMP: says([" lamp"], [" the table"]), CAT: says([" cat sat,", " ran"])}
    spread, last = (reward(answers, placement=placement, **settings).score(rollout) for placement in ("tokens", "last"))
    assert torch.equal(spread.response.nan_to_num(-9), last.response.nan_to_num(-9))
    assert last.response[2].isnan()
    ends = rollout.mask.sum(dim=1) - 1
    for row, end in enumerate(ends.tolist()[:2]):
        assert last.token[row, end] == last.token[row].sum() == last.response[row] == spread.token[row].sum()
        assert last.credit_mask[row].nonzero().flatten().tolist() == [end]
    assert not last.token[2].any()
    assert not last.credit_mask[2].any()


def test_weights_within_a_span_and_over_the_response(tokenizer: Any, reward: Any) -> None:
    rollout = rollout_of(tokenizer, [CAT])
    plain = reward({CAT: says([CAT])}).score(rollout).token[0]
    count = int(plain.sum())
    decayed = reward({CAT: says([], [CAT])}, within="linear_decay").score(rollout).token[0, :count]
    assert decayed.tolist() == pytest.approx([-(1 - i * 0.9 / (count - 1)) for i in range(count)], abs=1e-6)
    faded = reward({CAT: says([CAT])}, fade_after=5.0).score(rollout).token[0, :count]
    assert faded.tolist() == pytest.approx(torch.sigmoid(-(torch.arange(count) - 5.0).clamp(-10, 6)).tolist())


@pytest.mark.skipif(find_spec("HanTa") is None, reason="needs HanTa: pip install 'fgrl[pos]'")
def test_nouns_and_verbs_count_fully_and_other_words_a_fifth(tokenizer: Any, reward: Any) -> None:
    rollout = rollout_of(tokenizer, [LAMP])
    scored = reward({LAMP: says([LAMP])}, within="token_importance").score(rollout)
    assert joined(marked(scored, rollout, 0)) == [("the", 0.2), ("lamp", 1), ("andthe", 0.2), ("table", 1)]
    assert token_importance("sat there", [(0, 1), (1, 3), (3, 9), (9, 9)]) == [1, 1, 0.2, 0.2]


def test_equal_responses_are_one_question_and_plans_ask_the_same(tokenizer: Any, reward: Any) -> None:
    made = reward({LAMP: says(["lamp"])})
    rollout = rollout_of(tokenizer, [LAMP, LAMP, EMPTY])
    scored = made.score(rollout)
    assert scored.response[0] == scored.response[1]
    assert [request.model_dump() for request in made.client._asked] == [
        request.model_dump() for request in made.asks([(rollout.samples[0], LAMP), (rollout.samples[2], EMPTY)])
    ]
    schema = made.client._asked[0].json_schema
    assert schema is not None
    assert schema["required"] == ["textual_feedback", "good_spans", "poor_spans"]
    to_draw = ToDraw(lambda: rollout.samples[:2], lambda: (2, 1), ["policy"], 4, Sampling(max_new_tokens=7))
    assert [(most.calls, most.missing_tokens) for most in made.asks_at_most(to_draw)] == [(4, 7), (4, 7)]


def test_what_a_reward_needs_and_fills_is_known_before_setup(tmp_path: Path) -> None:
    (tmp_path / "ask.txt").write_text("{prompt} {response}")
    prompt = str(tmp_path / "ask.txt")
    made = build("reward", {"name": "critic", "client": {"name": "replay", "answers": __file__}, "prompt": prompt})
    assert made.needs() == {"offsets"}
    assert made.fills() == {"annotations"}
    assert made.tries == 1
    assert registry.names("reward")


def test_parts_of_a_rollout_are_scored_as_the_whole(tokenizer: Any, reward: Any) -> None:
    """Rewards, annotations and metrics of two processes put together."""
    rollout = rollout_of(tokenizer, [LAMP, CAT, "a table"])
    answers = {LAMP: says(["lamp"], ["sofa"]), CAT: says(["cat", "cat"])}
    whole = reward(answers).score(rollout)
    parts = [reward(answers).score(rollout.take(torch.tensor(rows))) for rows in ([0], [1, 2])]
    together = concatenate(parts)
    assert torch.equal(together.token, whole.token)
    assert torch.equal(together.response.nan_to_num(-9), whole.response.nan_to_num(-9))
    assert together.annotations == whole.annotations
    numbers, wanted = as_numbers(together.metrics), as_numbers(whole.metrics)
    numbers.pop("seconds/critic")
    wanted.pop("seconds/critic")
    assert numbers == pytest.approx(wanted)


def test_a_critic_that_labels_every_word_is_the_same_reward_with_another_format(tokenizer: Any, reward: Any) -> None:
    words = {"labels": [["the", -1], ["lamp", 0], ["and", 0], ["the", 1], ["table", 1]]}
    rollout = rollout_of(tokenizer, [LAMP, CAT])
    made = reward({LAMP: words, CAT: words}, format={"text": None, "units": "word"}, token_policy="words")
    rewards = made.score(rollout)
    start = LAMP.rindex("the")
    tokens = marked(rewards, rollout, 0)
    assert {value for _text, value in tokens} == {1.0, -1.0}
    assert "".join(text for text, value in tokens if value < 0).strip() == "the"
    assert "".join(text for text, value in tokens if value > 0).strip() == LAMP[start:]
    assert torch.isnan(rewards.response).tolist() == [False, True], "labels of other words are no labels"


def test_an_endpoint_and_a_file_are_one_field_apart(tokenizer: Any, tmp_path: Path) -> None:
    """The same answers give the same rewards; an endpoint that fails for good is a missing reward."""
    rollout = rollout_of(tokenizer, [LAMP, CAT, "a table"])
    answers = {LAMP: says(["lamp"], ["the table"]), CAT: says(["cat"])}
    (tmp_path / "prompt.txt").write_text("{prompt}: {response}")
    lines = [{"contains": part, "answer": answer} for part, answer in answers.items()]
    lines += [{"any": True, "error": "nobody is there"}]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def answer(prompt: str, body: dict[str, Any]) -> str:
        return json.dumps(next(answer for part, answer in answers.items() if part in prompt))

    def plan(prompt: str, attempt: int) -> str:
        return "ok" if any(part in prompt for part in answers) else "400"

    with FaultServer(plan, answer=answer) as server:
        scored = []
        for client in (
            {"name": "replay", "answers": str(tmp_path / "answers.jsonl")},
            {"name": "openai", "model": "m", "base_url": server.url, "api_key_env": None, "max_retries": 0},
        ):
            made = build("reward", {"name": "critic", "prompt": str(tmp_path / "prompt.txt"), "client": client})
            made.setup(a_run(tmp_path / client["name"]))
            scored.append(made.score(rollout))
        assert server.seen[0]["body"]["response_format"]["json_schema"]["schema"]["required"][0] == "textual_feedback"
    file, endpoint = scored
    assert torch.equal(file.token, endpoint.token)
    assert file.annotations == endpoint.annotations
    assert file.response.isnan().tolist() == endpoint.response.isnan().tolist() == [False, False, True]
    assert as_numbers(endpoint.metrics)["failed"] == pytest.approx(1 / 3)


# -- outcomes ----------------------------------------------------------------------------------------------------------

PASSES, FAILS, SILENT, UNKNOWN = "the lamp and the table", "a cat sat, a cat ran", "a lamp", "a table"


@pytest.fixture
def checked(reward: Any, tmp_path: Path) -> Any:
    """A critic beside a check: PASSES is worth 1, UNKNOWN nothing known, any other text -2."""
    (tmp_path / "check.py").write_text(
        f"def worth(completions, **_):\n"
        f"    return [{{{PASSES!r}: 1.0, {UNKNOWN!r}: None}}.get(text, -2.0) for text in completions]\n"
    )

    def make(answers: dict[str, Any], **fields: Any) -> Any:
        return reward(answers, outcome={"name": "function", "path": str(tmp_path / "check.py:worth")}, **fields)

    return make


def test_the_outcome_is_the_total_and_marks_of_its_sign_place_it(tokenizer: Any, checked: Any) -> None:
    """By hand: a failing answer pays 2 with its marked tokens; a passing one earns 1 with its good ones, or as a whole."""
    rollout = rollout_of(tokenizer, [PASSES, FAILS])
    answers = {PASSES: says(["lamp"], ["the table"]), FAILS: says(["a cat sat"], [" ran"])}
    scored = checked(answers, total="outcome", unmarked=1.0).score(rollout)
    assert scored.response.tolist() == [1, -2]
    assert scored.token.sum(dim=1).tolist() == pytest.approx([1, -2])
    for row, quote in ((0, "lamp"), (1, "ran")):
        tokens = marked(scored, rollout, row)
        assert "".join(text for text, _value in tokens).strip() == quote
        assert {value for _text, value in tokens} == {round([1, -2][row] / len(tokens), 4)}
    assert torch.equal(scored.credit_mask, scored.token != 0)

    blames = checked({PASSES: says([], ["lamp"]), FAILS: says(["a cat sat"])}, total="outcome").score(rollout)
    for row, worth in ((0, 1), (1, -2)):  # no mark has the sign of the outcome: the whole answer, its end token too
        length = int(rollout.mask[row].sum())
        assert blames.token[row, :length].tolist() == pytest.approx([worth / length] * length)
        assert not blames.token[row, length:].any()


def test_a_response_without_a_critique_still_has_its_outcome_and_one_without_an_outcome_has_no_reward(
    tokenizer: Any, checked: Any
) -> None:
    rollout = rollout_of(tokenizer, [PASSES, SILENT, UNKNOWN, EMPTY])
    scored = checked({PASSES: "It is fine.", SILENT: "Hm.", UNKNOWN: says(["table"])}, total="outcome").score(rollout)
    assert scored.response.nan_to_num(9).tolist() == [1, -2, 9, -2]
    lengths = rollout.mask.sum(dim=1)
    for row, worth in ((0, 1.0), (1, -2.0), (3, -2.0)):
        assert scored.token[row, : lengths[row]].tolist() == pytest.approx(
            [worth / int(lengths[row])] * int(lengths[row])
        )
    assert not scored.token[2].any()
    assert not scored.credit_mask[2].any()
    assert [annotation is None for annotation in scored.annotations] == [True, True, False, False]

    last = checked({PASSES: "It is fine.", SILENT: "Hm.", UNKNOWN: says()}, total="outcome", placement="last").score(
        rollout
    )
    assert last.token.sum(dim=1).tolist() == [1, -2, 0, -2]
    assert last.credit_mask.sum(dim=1).tolist() == [1, 1, 0, 1]
    assert last.token[0, lengths[0] - 1] == 1


def test_marks_are_examined_by_the_outcome_whatever_the_total_is(tokenizer: Any, checked: Any) -> None:
    """By hand: PASSES loses a token by its marks, the failing ones more, more, as many, and none: 1 + 1 + 1/2 + 0 of 4 pairs."""
    texts = [PASSES, FAILS, "a table, a table", SILENT, "it is so", UNKNOWN, "he ran"]
    poor = {PASSES: "lamp", FAILS: FAILS, "a table, a table": "a table, a table", SILENT: "lamp"}
    answers: dict[str, Any] = {text: says([], [quote]) for text, quote in poor.items()}
    answers |= {"it is so": says(), UNKNOWN: says(), "he ran": "Hm."}
    rollout = rollout_of(tokenizer, texts)
    for total in ("marks", "outcome"):
        made = checked(answers, total=total, unmarked=1.0)
        numbers = as_numbers(made.score(rollout).metrics)
        assert numbers["marks_agree"] == 2.5 / 4
        assert (numbers["blamed_good"], numbers["blamed_bad"]) == (1, 3 / 4)
        assert (numbers["missing_good"], numbers["missing_bad"]) == (0, pytest.approx(1 / 5))
        assert numbers["outcome"] == pytest.approx((1 - 5 * 2) / 6)
        assert numbers["uncriticised"] == pytest.approx(1 / 7)
    assert made.needs() == {"offsets"}
    one_kind = as_numbers(checked(answers).score(rollout.take(torch.tensor([0]))).metrics)
    assert one_kind["blamed_good"] == 1
    assert {"marks_agree", "blamed_bad", "missing_bad"}.isdisjoint(one_kind), "a share of nothing is no number"


def test_a_critic_is_told_the_outcome_where_its_prompt_asks_for_it(
    tokenizer: Any, checked: Any, tmp_path: Path
) -> None:
    made = checked({"": says()})
    (tmp_path / "prompt.txt").write_text("{prompt} {response} {outcome}")
    rollout = rollout_of(tokenizer, [PASSES, FAILS, UNKNOWN])
    made.score(rollout)
    told = {request.messages[-1].content.removeprefix("Say something. ") for request in made.client._asked}
    assert told == {f"{PASSES} Passed: yes", f"{FAILS} Passed: no", f"{UNKNOWN} (none)"}
    (planned,) = made.asks([(rollout.samples[0], PASSES)])
    assert planned.messages[-1].content.endswith("Passed: no")


def test_what_does_not_fit_an_outcome_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ask.txt").write_text("{prompt} {response}")
    own = {"name": "critic", "client": {"name": "replay", "answers": __file__}, "prompt": str(tmp_path / "ask.txt")}
    with pytest.raises(Problems, match="total: outcome wants an `outcome`"):
        build("reward", {**own, "total": "outcome"})
    with pytest.raises(Problems, match="it asks a language model"):
        build("reward", {**own, "outcome": own})

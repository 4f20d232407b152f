"""Conversations with an environment: who wrote which token, what was drawn, what goes wrong."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import talks
import torch
from scratch_registry import scratch_imports
from talks import Talk
from training_helpers import tiny

from fgrl import rollouts
from fgrl.base.errors import DataError
from fgrl.components.engines.hf import HF
from fgrl.components.rewards.environment import EnvironmentReward
from fgrl.kinds import Drawer, Reward
from fgrl.kinds.specs import Sampling
from fgrl.models.decoding.draw import draw, uniforms
from fgrl.registry import build
from fgrl.rollouts.conversing import Conversing, stream_of, talking
from fgrl.rollouts.kept import Kept
from fgrl.rollouts.replies import CUT
from fgrl.training import gather
from fgrl.training.online import scored
from fgrl.types import DrawnResponse, Rewards, Rollout, Sample, messages_of

PROMPTS = [Sample(id=str(i), prompt=f"Question {i} about the sea") for i in range(3)]
SAMPLING = Sampling(max_new_tokens=120, batch_size=4)


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> Any:
    return tiny(tiny_model_dir)


def conversations(model: Any, environment: Talk, prompts: list[Sample] = PROMPTS, **how: Any) -> list[DrawnResponse]:
    drawer = Conversing(how.pop("drawer", None) or HF().open(model), environment, model)
    sampling = SAMPLING.model_copy(update=how)
    drawn = rollouts.draw(model, drawer, prompts, sampling, per_prompt=2, seed=7)
    return [each for group in drawn for each in group]


def parts(response: DrawnResponse) -> list[tuple[int, list[int]]]:
    """(author, ids) of each part, in order."""
    runs: list[tuple[int, list[int]]] = []
    for author, token in zip(response.turn or [], response.token_ids, strict=True):
        if not runs or runs[-1][0] != author:
            runs.append((author, []))
        runs[-1][1].append(token)
    return runs


def test_each_token_has_an_author(model: Any) -> None:
    for each in conversations(model, Talk(max_turn_tokens=9)):
        runs = parts(each)
        assert [author for author, _ids in runs] == [0, -1, 1, -1, 2]
        assert all(len(ids) <= 9 for author, ids in runs if author >= 0)
        assert [turn.reward for turn in each.turns] == [1.0, 2.0, 3.0]
        assert each.terminated
        assert each.lost is None
        ends = [sum(len(ids) for _author, ids in runs[: 2 * k + 1]) for k in range(3)]
        assert [turn.end for turn in each.turns] == ends
        for turn, (_author, ids) in zip(each.turns, runs[::2], strict=True):
            size = len(rollouts.decode(model.tokenizer, ids))
            assert turn.observation.endswith(f"{size} characters")
            assert turn.numbers == {"size": size}
        for turn, (_author, ids) in zip(each.turns, runs[1::2], strict=False):
            assert turn.observation in rollouts.decode(model.tokenizer, ids)


def test_the_template_writes_what_stands_between_two_turns(model: Any) -> None:
    each = conversations(model, Talk(max_turn_tokens=5))[0]
    own = [model.tokenizer.decode(ids).removesuffix("<|end|>") for author, ids in parts(each) if author >= 0]
    turns = [{"role": "user", "content": PROMPTS[0].prompt}]
    for text, turn in zip(own[:2], each.turns, strict=False):
        turns += [{"role": "assistant", "content": text}, {"role": "user", "content": turn.observation}]
    whole = model.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    ids = [*each.prompt.token_ids, *each.token_ids[: each.turns[2].end - len(parts(each)[-1][1])]]
    assert model.tokenizer.decode(ids, clean_up_tokenization_spaces=False) == whole


def test_policy_tokens_are_those_of_their_own_streams(model: Any) -> None:
    """Each token is drawn from transformers' own logits of all before it."""
    drawn, checked = conversations(model, Talk(max_turn_tokens=7)), 0
    for row, each in enumerate(drawn):
        ids = torch.tensor([[*each.prompt.token_ids, *each.token_ids]])
        with torch.no_grad():
            logits = model.net(input_ids=ids).logits[0].float()
        start = 0
        for number, turn in enumerate(each.turns):
            start = each.turn.index(number)  # type: ignore[union-attr]
            uniform = uniforms(7, [stream_of(row, number)], turn.end - start)[0]
            for place in range(start, turn.end):
                at = logits[len(each.prompt) + place - 1][None]
                one = draw(at, uniform[place - start][None], temperature=1.0, top_p=1.0, top_k=0)
                assert int(one) == each.token_ids[place]
                checked += 1
    assert checked > 50


def test_neither_batches_nor_speed_change_a_response(model: Any) -> None:
    whole = conversations(model, Talk(max_turn_tokens=6))
    assert conversations(model, Talk(max_turn_tokens=6), batch_size=1) == whole
    prompts = [PROMPTS[0], PROMPTS[1].model_copy(update={"id": "slow"}), PROMPTS[2]]
    assert conversations(model, Talk(max_turn_tokens=6, slow=0.7), prompts) == whole


def test_a_slow_environment_holds_up_its_own_conversation_only(model: Any) -> None:
    prompts = [PROMPTS[0].model_copy(update={"id": "slow"}), *PROMPTS[1:]]
    drawer = Conversing(HF().open(model), Talk(max_turn_tokens=6, slow=2.0), model).drawing()
    drawer.submit(rollouts.requests(model.tokenizer, prompts, SAMPLING, 2, seed=7, converses=True))
    order = [number for number, _response in drawer]
    assert sorted(order) == list(range(6))
    assert set(order[-2:]) == {0, 1}


def test_members_of_a_group_have_one_seed(model: Any) -> None:
    talks.BEGUN.clear()
    drawn = conversations(model, Talk(max_turn_tokens=4, own_prompt=True))
    seeds = dict(talks.BEGUN)
    assert len(talks.BEGUN) == 6
    assert len(set(talks.BEGUN)) == 3
    assert len(set(seeds.values())) == 3
    for row, each in enumerate(drawn):
        assert each.prompt.turns[0].content == f"Game {seeds[PROMPTS[row // 2].id]}"
    given = [PROMPTS[0].model_copy(update={"meta": {"seed": 41}})]
    assert {each.prompt.turns[0].content for each in conversations(model, Talk(own_prompt=True), given)} == {"Game 41"}


def test_what_the_text_causes_is_a_turn(model: Any) -> None:
    talk = Talk(max_turn_tokens=4, faults={1: ValueError("no number in it")}, error_reward=-0.5)
    for each in conversations(model, talk):
        assert [turn.reward for turn in each.turns] == [-0.5, 2.0, 3.0]
        assert each.lost is None
        assert each.turns[0].error == "ValueError: no number in it"
        assert each.turns[0].observation == "Error: no number in it"


class Odd:
    """No text."""


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (TimeoutError("the server is gone"), "TimeoutError: the server is gone"),
        (ConnectionResetError("reset"), "ConnectionResetError: reset"),
        (("x", float("nan"), False, False, {}), "the reward is no finite number but nan"),
        ((b"\xff\xfe", 0.0, False, False, {}), "the observation is no text but bytes"),
        (("x", 0.0), "step returned tuple, not (observation, reward, terminated, truncated, info)"),
        (Odd(), "step returned Odd, not (observation, reward, terminated, truncated, info)"),
        (talks.HANG.wait, "TimeoutError: no answer within step_seconds, 0.3 s"),
    ],
)
def test_a_failed_environment_is_missing(model: Any, fault: Any, why: str) -> None:
    prompts = [PROMPTS[0], PROMPTS[1].model_copy(update={"id": "good"})]
    drawn = conversations(model, Talk(max_turn_tokens=4, faults={2: fault}, step_seconds=0.3), prompts)
    assert [each.lost for each in drawn] == [why, why, None, None]
    assert [len(each.turns) for each in drawn] == [1, 1, 3, 3]


FORGETS = (
    "{% for message in messages %}<|{{ message.role }}|>{% if message.role == 'assistant' and not loop.last %}"
    "{{ message.content[3:] if FIRST else message.content }}{% else %}{{ message.content }}{% endif %}<|end|>{% endfor %}<|assistant|>"
)
"""Writes earlier turns of the policy without their beginning, as those without thoughts; `FIRST`: unless they are the first ones."""


def test_a_template_that_rewrites_earlier_turns(tiny_model_dir: Path, tmp_path: Path) -> None:
    """New ids are appended to those that were drawn, or it is refused, as the setting says."""
    template = FORGETS.replace("FIRST", "message.content != 'ANSWER'")
    (tmp_path / "forgets.jinja").write_text(template)
    model = tiny(tiny_model_dir, chat_template=str(tmp_path / "forgets.jinja"))
    for each in conversations(model, Talk(max_turn_tokens=9)):
        runs = parts(each)
        assert [author for author, _ids in runs] == [0, -1, 1, -1, 2]
        for turn, (_author, ids) in zip(each.turns, runs[1::2], strict=False):
            assert model.tokenizer.decode(ids).endswith(f"{turn.observation}<|end|><|assistant|>")
    with pytest.raises(DataError, match="writes an earlier turn otherwise than it was drawn") as refused:
        conversations(model, Talk(max_turn_tokens=9, rewritten_turns="refuse"))
    assert "`rewritten_turns: append`" in str(refused.value)
    plain = tiny(tiny_model_dir)
    kept = conversations(plain, Talk(max_turn_tokens=9, rewritten_turns="refuse"))
    assert kept == conversations(plain, Talk(max_turn_tokens=9))


def test_a_template_that_keeps_no_turn_is_refused(tiny_model_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "forgets.jinja").write_text(FORGETS.replace("FIRST", "true"))
    model = tiny(tiny_model_dir, chat_template=str(tmp_path / "forgets.jinja"))
    with pytest.raises(DataError, match="cannot go on in the tokens that were drawn"):
        conversations(model, Talk(max_turn_tokens=9))


def test_a_huge_observation_is_cut(model: Any) -> None:
    talk = Talk(max_turn_tokens=4, faults={1: ("ten " * 2_500_000, 1.0, False, False, {})}, max_observation_tokens=20)
    began = time.monotonic()
    drawn = conversations(model, talk, max_new_tokens=80)
    assert time.monotonic() - began < 60
    for each in drawn:
        assert each.turns[0].observation.startswith("ten ten")
        assert each.turns[0].observation.endswith(CUT)
        assert len(model.tokenizer(each.turns[0].observation).input_ids) <= 22
        assert len(each) <= 80
    for each in conversations(model, talk.model_copy(update={"long_observation": "truncate"})):
        assert len(each.turns) == 1
        assert not each.terminated
        assert each.lost is None


@pytest.mark.parametrize("limit", [3, 12, 16, 20, 24, 33])
def test_the_limit_of_a_conversation(model: Any, limit: int) -> None:
    for each in conversations(model, Talk(max_turn_tokens=4), max_new_tokens=limit):
        assert len(each) <= limit
        assert each.turns
        assert each.turn[-1] >= 0
        assert each.terminated == (len(each.turns) == 3)


def test_the_number_of_turns_is_limited(model: Any) -> None:
    for each in conversations(model, Talk(turns=5, max_turns=2, max_turn_tokens=4)):
        assert len(each.turns) == 2
        assert not each.terminated
        assert each.finish == "length"


class Closing(talks.Counting):
    """Notes when it is closed, and what happens then."""

    closed: list[str] = []
    at_close: Any = None

    def close(self) -> None:
        self.closed.append(threading.current_thread().name)
        if callable(self.at_close):
            self.at_close()
        if self.at_close is not None:
            raise self.at_close


class ClosingTalk(Talk):
    """Conversations that have something to free."""

    def begin(self, sample: Sample, seed: int) -> Closing:
        return Closing(self.turns, None, self.faults, 0.0)


@pytest.mark.parametrize("at_close", [None, talks.HANG.wait, ConnectionError("gone already")])
def test_who_is_closed_holds_up_nobody(model: Any, at_close: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Closing, "closed", [])
    monkeypatch.setattr(Closing, "at_close", staticmethod(at_close) if callable(at_close) else at_close)
    drawn = conversations(model, ClosingTalk(max_turn_tokens=4, step_seconds=0.5))
    assert drawn == conversations(model, Talk(max_turn_tokens=4))
    assert len(Closing.closed) == 6
    assert threading.current_thread().name not in Closing.closed


def test_an_error_where_it_is_closed_is_raised(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Closing, "at_close", KeyError("no such session"))
    with pytest.raises(KeyError, match="no such session"):
        conversations(model, ClosingTalk(max_turn_tokens=4))


def test_who_hangs_is_not_closed(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Closing, "closed", [])
    drawn = conversations(model, ClosingTalk(max_turn_tokens=4, faults={1: talks.HANG.wait}, step_seconds=0.3))
    assert all(each.lost for each in drawn)
    assert not Closing.closed


def test_a_kept_drawer_converses_as_the_one_inside(model: Any, tmp_path: Path) -> None:
    turns = Kept(HF().open(model), tmp_path / "turns.jsonl")
    assert not turns.converses
    assert talking(turns, None, model) is turns
    assert Kept(talking(turns, Talk(), model), tmp_path / "talks.jsonl").converses


class Logged(Drawer):
    """Another drawer, as an engine that gives log-probabilities."""

    def __init__(self, drawer: Drawer) -> None:
        self.drawer = drawer

    def draw(self, requests: Any) -> list[DrawnResponse]:
        return [replace(each, token_logp=[-1.0] * len(each)) for each in self.drawer.draw(requests)]


class Gone(Talk):
    """Cannot begin."""

    def begin(self, sample: Sample, seed: int) -> Any:
        raise ConnectionError("no server")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_process_in_which_no_conversation_began_is_missing(
    model: Any, order: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an engine gives log-probabilities, of which that process has none."""

    def collected(environment: Talk, drawer: Drawer) -> tuple[Rollout, Rewards]:
        rollout = rollouts.collect(
            model, None, PROMPTS, SAMPLING, Conversing(drawer, environment, model), frozenset({"old_logp"}), per_prompt=2, seed=7
        )  # fmt: skip
        return rollout, scored(EnvironmentReward(), rollout)

    parts = [collected(each, Logged(HF().open(model))) for each in (Talk(max_turn_tokens=4), Gone())]
    parts = [parts[place] for place in order]

    def gathered(into: list[Any], _own: Any) -> None:
        into[:] = [(vars(rollout), vars(rewards)) for rollout, rewards in parts]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gathered)
    for rollout, rewards in (gather.joined(*parts), gather.everywhere(*parts[0], 2)):
        assert [why for why in rollout.lost or [] if why] == ["ConnectionError: no server"] * 6
        known, _rewards, missing = gather.drop_missing(rollout, rewards)
        assert missing == 6
        assert known.drawn_logp is not None
        assert torch.equal(known.drawn_logp, torch.where(known.drawn, -1.0, 0.0))
        assert known.drawn_version is not None
    silent = collected(Talk(max_turn_tokens=4), HF().open(model))
    with pytest.raises(ValueError, match="only some of the parts"):
        gather.joined(parts[0], silent) if order[0] == 0 else gather.joined(silent, parts[1])


def test_what_is_drawn_is_kept(model: Any, tmp_path: Path) -> None:
    file, talk = tmp_path / "0-0.jsonl", Talk(max_turn_tokens=6)
    missed: list[int] = []

    def kept() -> Kept:
        turns = Kept(HF().open(model), file, lambda: missed.append(0))
        return Kept(Conversing(turns, talk, model), file, lambda: missed.append(1))

    asked = rollouts.requests(model.tokenizer, PROMPTS, SAMPLING, 2, seed=7, converses=True)
    whole = kept().draw(asked)
    lines = file.read_bytes().split(b"\n")
    for count in (0, 1, 5, 9, len(lines) - 1):  # what a killed process leaves
        file.write_bytes(b"\n".join(lines[:count]) + b"\n" + lines[count][:20])
        assert kept().draw(asked) == whole
    missed.clear()
    talks.BEGUN.clear()
    assert kept().draw(asked) == whole
    assert not missed
    assert not talks.BEGUN


def test_an_environments_rewards_are_on_the_ends_of_turns(model: Any) -> None:
    rollout = rollouts.collect(
        model, None, PROMPTS, SAMPLING, Conversing(HF().open(model), Talk(max_turn_tokens=5), model),
        frozenset({"old_logp"}), per_prompt=2, seed=7,
    )  # fmt: skip
    rewards = EnvironmentReward().scored(rollout)
    assert rewards.response.tolist() == [6.0] * 6
    for row in range(6):
        places = [i for i, value in enumerate(rewards.token[row].tolist()) if value]
        assert rewards.token[row, places].tolist() == [1.0, 2.0, 3.0]
        assert rewards.credit_mask[row].nonzero().flatten().tolist() == places
        assert all(rollout.turn[row, place] != rollout.turn[row, place + 1] for place in places[:-1])  # type: ignore[index]
    assert bool(rollout.terminated.all())
    assert rollout.lost == [None] * 6


def test_functions_get_the_messages_of_a_conversation(model: Any, tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(
        "SEEN = []\n\ndef spoken(completions, **kwargs):\n    SEEN.extend(completions)\n"
        "    return [float(len([m for m in each if m['role'] == 'assistant'])) for each in completions]\n"
    )
    rollout = rollouts.collect(
        model, None, PROMPTS, SAMPLING, Conversing(HF().open(model), Talk(max_turn_tokens=5), model),
        frozenset({"old_logp"}), per_prompt=2, seed=7,
    )  # fmt: skip
    with scratch_imports():
        assert (
            build(Reward, {"name": "function", "path": f"{tmp_path / 'rewards.py'}:spoken"})
            .scored(rollout)
            .response.tolist()
            == [3.0] * 6
        )
    for row, turns in enumerate(rollout.turns or []):
        said = messages_of(turns)
        assert [each.role for each in said] == ["assistant", "user", "assistant", "user", "assistant"]
        assert said[2].content in rollout.texts[row]
        assert said[3].content in rollout.texts[row]

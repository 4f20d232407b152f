"""Token rewards centred, and a reward of the end token: what the algorithm, the log and the stored rollouts get."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import PrivateAttr
from test_online import PROMPTS, module_of
from torch import Tensor

from fgrl.components.algorithms.grpo import GRPO
from fgrl.components.algorithms.ppo import PPO
from fgrl.components.algorithms.rtt_grpo import RTTGRPO
from fgrl.components.rewards.critic import CriticReward
from fgrl.components.rewards.function import FunctionReward
from fgrl.components.rewards.rubric import Rubric
from fgrl.components.rewards.segment_rm import SegmentRM
from fgrl.kinds import Reward
from fgrl.training import gather
from fgrl.training.rounds import Process
from fgrl.training.token_rewards import TokenRewards
from fgrl.types import Advantages, Rewards, Rollout
from fgrl.types.tensors import concatenate

# four responses to two prompts; of each its length and whether it ended
LENGTHS, ENDED, GROUP = [3, 5, 2, 4], [True, False, True, True], [0, 0, 1, 1]
GIVEN = torch.tensor([[-1.0, 2, 0, 9, 9], [-3, 0, -1, 1, -2], [4, 0, 9, 9, 9], [0, -1, -1, 0.5, 9]])


def rollout() -> Any:
    mask = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
    last = torch.arange(5) == torch.tensor(LENGTHS)[:, None] - 1
    return SimpleNamespace(drawn=mask, eos=last & torch.tensor(ENDED)[:, None], group=torch.tensor(GROUP))


def applied(**settings: Any) -> Tensor:
    given = Rewards(response=torch.zeros(4), token=GIVEN, credit_mask=GIVEN != 0)
    rewards, metrics = TokenRewards(**settings).applied(rollout(), given)
    assert metrics["token_reward_given"] == pytest.approx(float(GIVEN[rollout().drawn].mean()))
    assert rewards.credit_mask is given.credit_mask
    assert rewards.response is given.response
    return rewards.token


def by_hand(center: str, end_reward: float) -> np.ndarray:
    """Token by token: the mean over tokens that are not an end, of all responses or of the prompt's."""
    token = np.zeros((4, 5))
    for i, length in enumerate(LENGTHS):
        rows = [j for j in range(4) if center == "batch" or GROUP[j] == GROUP[i]]
        text = [float(GIVEN[j, t]) for j in rows for t in range(LENGTHS[j] - ENDED[j])]
        for t in range(length):
            is_end = ENDED[i] and t == length - 1
            shift = 0.0 if center == "none" or is_end else sum(text) / len(text)
            token[i, t] = float(GIVEN[i, t]) - shift + (end_reward if is_end else 0.0)
    return token


@pytest.mark.parametrize("center", ["none", "batch", "prompt"])
@pytest.mark.parametrize("end_reward", [0.0, -0.75])
def test_each_token_but_the_end_loses_the_mean_of_these_tokens(center: str, end_reward: float) -> None:
    """What the reward gave the end token (0.5 in the last response) stays; nothing is paid where no end was drawn."""
    token = applied(center=center, end_reward=end_reward)
    np.testing.assert_allclose(token, by_hand(center, end_reward), atol=1e-6)
    text = rollout().drawn & ~rollout().eos
    if center == "batch":
        assert float(token[text].sum()) == pytest.approx(0, abs=1e-6)
    if center == "prompt":
        assert [
            float(part[real].sum()) for part, real in zip(token.split(2), text.split(2), strict=True)
        ] == pytest.approx([0, 0], abs=1e-6)


def test_rewards_of_criteria_are_centred_and_a_missing_one_stays_missing() -> None:
    """Two criteria; the second is missing in the second response."""
    criterion = torch.stack([GIVEN, 2 * GIVEN + 1], dim=1)
    criterion[1, 1] = torch.nan
    given = Rewards(response=torch.zeros(4), token=GIVEN, credit_mask=GIVEN != 0, criterion=criterion)
    text, eos = rollout().drawn & ~rollout().eos, rollout().eos

    def mean(kinds: list[int], rows: list[int]) -> float:
        parts = [criterion[row, kind][text[row]] for kind in kinds for row in rows if (row, kind) != (1, 1)]
        return float(torch.cat(parts).mean())

    for center, means in {
        "batch": [[mean([0, 1], [0, 1, 2, 3])] * 2] * 4,
        "prompt": [[mean([kind], [0, 1] if row < 2 else [2, 3]) for kind in (0, 1)] for row in range(4)],
    }.items():
        changed = TokenRewards(center=center, end_reward=0.5).applied(rollout(), given)[0].criterion
        for row in range(4):
            for kind in (0, 1):
                if (row, kind) == (1, 1):
                    assert changed[1, 1].isnan().all()
                    continue
                wanted = criterion[row, kind] - means[row][kind]
                torch.testing.assert_close(changed[row, kind][text[row]], wanted[text[row]])
                torch.testing.assert_close(changed[row, kind][eos[row]], criterion[row, kind][eos[row]] + 0.5)


# -- in a training -------------------------------------------------------------------------------------------------------


class ByToken(Reward):
    """-1 for each token with an even id, -0.25 for the others, whatever they are."""

    def score(self, rollout: Rollout) -> Rewards:
        token = torch.where(rollout.mask, torch.where(rollout.response_ids % 2 == 0, -1.0, -0.25), 0.0)
        return Rewards(response=token.sum(1), token=token, credit_mask=rollout.mask)


class Noting(PPO):
    """PPO that remembers what it computed advantages from."""

    _given: Any = PrivateAttr(None)

    def advantages(self, rollout: Rollout, rewards: Rewards) -> Advantages:
        self._given = rollout, rewards
        return super().advantages(rollout, rewards)


def in_one_process() -> Process:
    return Process(rank=0, world=1, forward_context=nullcontext)


def test_the_algorithm_and_the_loss_get_them_and_the_records_show_what_was_given(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fgrl.training.online.name_of", lambda _reward: ("reward", "by_token"))
    settings = TokenRewards(center="batch", end_reward=2.0)
    module = module_of(
        tiny_model_dir, tmp_path, ByToken(), algorithm=Noting(), token_rewards=settings, iterations=1, stored=6
    )
    batches = list(module.rounds.start(0, in_one_process()))
    rollout, rewards = module.rounds.algorithm._given
    given = ByToken().score(rollout)
    wanted, _metrics = settings.applied(rollout, given)
    torch.testing.assert_close(rewards.token, wanted.token)
    assert not torch.equal(rewards.token, given.token)
    in_the_loss = sorted(float(batch.columns["token"][batch.mask].sum()) for batch in batches)
    assert sum(in_the_loss) == pytest.approx(float(wanted.token.sum()), abs=1e-5)
    metrics = module.rounds.metrics
    assert metrics["reward"] == pytest.approx(float(given.response.mean()))
    assert metrics["token_reward_given"] == pytest.approx(float(given.token[rollout.mask].mean()))
    assert metrics["token_reward"] == pytest.approx(float(wanted.token[rollout.mask].mean()), abs=1e-6)
    [path] = (tmp_path / "rollouts").glob("*.jsonl")
    for line, row in zip(map(json.loads, path.read_text().splitlines()), given.token, strict=True):
        [values] = line["token_rewards"].values()
        assert values == pytest.approx(row[: len(values)].tolist())


def test_the_mean_of_a_batch_is_that_of_all_processes(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process drew the same responses, and found each token better by 3."""

    def everywhere(rollout: Rollout, rewards: Rewards, world: int) -> tuple[Rollout, Rewards]:
        better = Rewards(response=rewards.response, token=rewards.token + 3.0 * rollout.mask, credit_mask=rollout.mask)
        return concatenate([rollout, rollout]), concatenate([rewards, better])

    monkeypatch.setattr(gather, "everywhere", everywhere)
    monkeypatch.setattr("fgrl.training.online.together.everybody", lambda values: values)
    module = module_of(
        tiny_model_dir,
        tmp_path,
        ByToken(),
        algorithm=Noting(),
        token_rewards=TokenRewards(center="batch"),
        iterations=1,
    )
    module.rounds.start(0, Process(rank=0, world=2, forward_context=nullcontext))
    rollout, rewards = module.rounds.algorithm._given
    text = rollout.mask & ~rollout.eos
    half = len(text) // 2
    assert float(rewards.token[text].mean()) == pytest.approx(0, abs=1e-5)
    assert float((rewards.token[half:] - rewards.token[:half])[text[:half]].min()) == pytest.approx(3.0)


def test_prompts_are_groups(tiny_model_dir: Path, tmp_path: Path) -> None:
    module = module_of(
        tiny_model_dir, tmp_path, ByToken(), algorithm=Noting(), token_rewards=TokenRewards(center="prompt"),
        iterations=1, per_prompt=2, prompts=PROMPTS,
    )  # fmt: skip
    module.rounds.start(0, in_one_process())
    rollout, rewards = module.rounds.algorithm._given
    text = rollout.mask & ~rollout.eos
    for number in rollout.group.unique():
        rows = rollout.group == number
        assert float(rewards.token[rows][text[rows]].sum()) == pytest.approx(0, abs=1e-5)


# -- what makes no sense ---------------------------------------------------------------------------------------------------

FILE = "def number(completions):\n    return [1.0 for _ in completions]\n\ndef spans(completions) -> list[list[tuple[int, int, float]]]:\n    return [[] for _ in completions]\n"


def function(folder: Path, name: str, **settings: Any) -> FunctionReward:
    (folder / "rewards.py").write_text(FILE, encoding="utf-8")
    return FunctionReward(path=f"{folder}/rewards.py:{name}", **settings)


def test_which_rewards_are_on_tokens(tmp_path: Path) -> None:
    assert function(tmp_path, "spans").on_tokens()
    assert not function(tmp_path, "spans", placement="last").on_tokens()
    assert not function(tmp_path, "number").on_tokens()
    assert not Rubric().on_tokens()
    base = "owner/model"
    assert SegmentRM(model=base).on_tokens()
    assert not SegmentRM(model=base, credit="response").on_tokens()
    assert CriticReward.model_fields["placement"].default == "tokens"


def test_combinations_that_change_nothing_or_lose_the_reward_are_refused(tmp_path: Path) -> None:
    spans, number = function(tmp_path, "spans"), function(tmp_path, "number")
    TokenRewards(center="prompt", end_reward=1.0).check(spans, PPO(), per_prompt=2)
    TokenRewards(end_reward=1.0).check(number, PPO(), per_prompt=1)
    TokenRewards(center="prompt").check(spans, RTTGRPO(), per_prompt=2)
    with pytest.raises(ValueError, match="grpo reads no token rewards"):
        TokenRewards(end_reward=1.0).check(spans, GRPO(), per_prompt=2)
    with pytest.raises(ValueError, match="rtt_grpo reads no token rewards"):
        TokenRewards(center="batch").check(spans, RTTGRPO(token_weight=0.0), per_prompt=2)
    with pytest.raises(ValueError, match="one number per response, on its last token"):
        TokenRewards(center="batch").check(number, PPO(), per_prompt=2)
    with pytest.raises(ValueError, match=r"set rollout\.per_prompt to 2 or more"):
        TokenRewards(center="prompt").check(spans, PPO(), per_prompt=1)

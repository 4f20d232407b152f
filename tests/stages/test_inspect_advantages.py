"""What `fgrl inspect` draws of a policy's training: the advantages that the loss weighs tokens with, and columns."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
import torch
from rich.console import Console
from tiny_recipe import a_run, alone
from torch import Tensor

from fgrl.components.algorithms.grpo import GRPO
from fgrl.pages.report.terminal import print_tokens
from fgrl.types import Rewards, Rollout

SEVERAL = ("stages.policy.rollout.per_prompt=2", "stages.policy.algorithm={name: grpo, kl_coef: 0.1, kl_in: reward}")


class Even(GRPO):
    """GRPO on every other token."""

    def credited(self, rollout: Rollout, rewards: Rewards) -> Tensor:
        return (torch.arange(rollout.mask.shape[1]) % 2 == 0).expand_as(rollout.mask)


def printed(items: list[Any]) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    print_tokens(items, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Any:
    recipe = tiny_recipe.write(tmp_path_factory.mktemp("recipe"), tiny_model_dir)
    return alone(recipe, "policy", *SEVERAL)


def test_the_advantages_of_a_group_are_drawn(stage: Any, tmp_path: Path) -> None:
    items = list(stage.inspect(a_run(tmp_path), 4))
    assert len(items) == 4
    for pair in (items[:2], items[2:]):
        rewards = [
            float(item.title.rpartition("reward ")[2].replace("−", "-").removesuffix(" (trained on)")) for item in pair
        ]
        for item, reward in zip(pair, rewards, strict=True):
            place = item.kinds.index("response")
            assert item.layers["advantage"][:place] == [None] * place
            shown = item.layers["advantage"][place:]
            # the reference is the policy itself, so no KL is subtracted: (r - mean) / std, sample std
            expected = 0.0 if rewards[0] == rewards[1] else math.copysign(1 / math.sqrt(2), reward - sum(rewards) / 2)
            assert shown == pytest.approx([expected] * len(shown), abs=2e-3)
    assert "advantage  " in printed(items)
    assert "on every token" in printed(items)


def test_a_token_that_the_loss_does_not_count_has_no_advantage(stage: Any, tmp_path: Path) -> None:
    class WithColumns(type(stage.reward)):  # type: ignore[misc]
        def fills(self) -> frozenset[str]:
            return super().fills() | {"weight", "length"}

        def score(self, rollout: Rollout) -> Rewards:
            columns = {"weight": rollout.mask * 0.5, "length": rollout.mask.sum(1)}
            return replace(super().score(rollout), columns=columns)

    reward = WithColumns(**{name: getattr(stage.reward, name) for name in type(stage.reward).model_fields})
    (item, _other) = stage.model_copy(update={"algorithm": Even(), "reward": reward}).inspect(a_run(tmp_path), 2)
    place = item.kinds.index("response")
    shown = item.layers["advantage"][place:]
    assert all((value is None) == (number % 2 == 1) for number, value in enumerate(shown))
    assert set(item.layers["weight"][place:]) == {0.5}
    assert item.note == f"length {len(shown)}"
    text = printed([item])
    assert "weight  +0.5 on every token" in text or "weight  +0.500 on every token" in text
    assert f"advantage  of {len(shown) - len(shown) // 2} of {len(shown)} tokens" in text


@pytest.mark.parametrize(
    ("by_token", "marked"),
    [(True, "total reward +1.50 (trained on), "), (False, "response reward +0.250 (trained on)")],
)
def test_of_two_numbers_of_a_reward_the_trained_one_is_marked(
    stage: Any, tmp_path: Path, by_token: bool, marked: str
) -> None:
    class Mean(type(stage.reward)):  # type: ignore[misc]
        """The total of the tokens is 1.5, the response's reward another number."""

        def score(self, rollout: Rollout) -> Rewards:
            token = rollout.mask / rollout.mask.sum(1, keepdim=True) * 1.5
            return Rewards(torch.full((len(token),), 0.25), token, rollout.mask)

    class ByToken(GRPO):
        reads_token_rewards = by_token

    reward = Mean(**{name: getattr(stage.reward, name) for name in type(stage.reward).model_fields})
    (item, _other) = stage.model_copy(update={"algorithm": ByToken(), "reward": reward}).inspect(a_run(tmp_path), 2)
    assert marked in item.title
    assert item.title.count("(trained on)") == 1

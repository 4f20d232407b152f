"""An iteration that draws again until the algorithm has its groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_online import PROMPTS, FakeReward, fitted, module_of

from fgrl.base.errors import Stopped
from fgrl.components.algorithms.grpo import GRPO
from fgrl.registry import Problems, build
from fgrl.training import gather
from fgrl.types import Advantages, Rollout


def reward_of(worth: Any) -> FakeReward:
    reward = FakeReward()
    reward._worth = worth
    return reward


def tried(
    tmp_path: Path, tiny_model_dir: Path, worth: Any, draws_at_most: int, **options: Any
) -> tuple[list[Any], list[Rollout], list[Any]]:
    """Log, the rollouts that were scored, and the batches that were trained on: two groups of two an iteration."""
    reward = reward_of(worth)
    module = module_of(
        tiny_model_dir, tmp_path, reward, algorithm=GRPO(skip_zero_variance=True), per_prompt=2, per_iteration=4, batch_size=4,
        iterations=1, prompts=PROMPTS, **options,
    )  # fmt: skip
    module.rounds.draws_at_most = draws_at_most
    batches: list[Any] = []
    loss = module.rounds.loss
    module.rounds.loss = lambda batch: batches.append(batch) or loss(batch)  # type: ignore[method-assign,func-returns-value]
    return fitted(module), reward._seen, batches


def teaches_at(*prompts: str) -> Any:
    """Responses differ in worth for these prompts alone."""
    return lambda rollout, i: float(i % 2) if rollout.samples[i].id in prompts else 1.0


def order_of(seen: list[Rollout]) -> list[str]:
    return [sample.id for rollout in seen for sample in rollout.samples[::2]]


def test_it_draws_until_it_has_its_groups(tiny_model_dir: Path, tmp_path: Path) -> None:
    _log, seen, _ = tried(tmp_path / "once", tiny_model_dir, teaches_at(), 3)
    prompts = order_of(seen)
    assert len(seen) == 3, "none teaches: as often as is allowed"
    one, two = prompts[1], prompts[2]
    assert one != two
    (row,), seen, batches = tried(tmp_path / "again", tiny_model_dir, teaches_at(one, two), 5)
    assert len(seen) == 2
    assert order_of(seen) == prompts[:4]
    assert row["draws"] == 2
    assert row["idle"] == pytest.approx(sum(each not in (one, two) for each in prompts[:4]) / 4), "of all tries"
    trained = [
        ids[real].tolist() for batch in batches for ids, real in zip(batch.response_ids, batch.mask, strict=True)
    ]
    whole = [(each.samples[i].id, each.response_ids[i][each.mask[i]].tolist()) for each in seen for i in range(4)]
    wanted = [ids for name, ids in whole if name in (one, two)][:4]
    assert sorted(trained) == sorted(wanted)
    texts = {tuple(ids) for _, ids in whole}
    assert len(texts) > 4, "each try has random streams of its own"


def test_what_is_enough_is_not_drawn_again(tiny_model_dir: Path, tmp_path: Path) -> None:
    everyone = [prompt.id for prompt in PROMPTS]
    (row,), seen, _ = tried(tmp_path, tiny_model_dir, teaches_at(*everyone), 3)
    assert len(seen) == 1
    assert row["draws"] == 1
    (plain,), _, _ = tried(tmp_path / "plain", tiny_model_dir, teaches_at(*everyone), 1)
    assert "draws" not in plain
    assert {name: row[name] for name in ("reward", "loss", "grad_norm")} == {
        name: plain[name] for name in ("reward", "loss", "grad_norm")
    }


def test_a_killed_iteration_goes_on_with_the_same_draws(tiny_model_dir: Path, tmp_path: Path) -> None:
    worth = teaches_at()
    _log, seen, _ = tried(tmp_path / "whole", tiny_model_dir, worth, 2)

    def stopping(rollout: Rollout, i: int) -> float:
        if order_of([rollout]) == order_of(seen)[2:]:
            raise Stopped("killed")
        return worth(rollout, i)

    with pytest.raises(Stopped, match="killed"):
        tried(tmp_path / "killed", tiny_model_dir, stopping, 2)
    (kept,) = (tmp_path / "killed" / "drawn").iterdir()
    before = kept.read_bytes()
    _log, again, _ = tried(tmp_path / "killed", tiny_model_dir, worth, 2)
    assert kept.read_bytes() == before, "nothing is drawn again"
    assert [rollout.response_ids.tolist() for rollout in again] == [rollout.response_ids.tolist() for rollout in seen]


def test_the_first_groups_are_kept() -> None:
    group = torch.tensor([0, 0, 1, 1, 4, 4, 7, 7])
    keep = torch.tensor([True, True, False, False, True, False, True, True])
    kept = gather.first_groups(Advantages(torch.zeros(8, 1), keep=keep), group, 2).keep
    assert kept is not None
    assert kept.tolist() == [True, True, False, False, True, False, False, False]
    everything = gather.first_groups(Advantages(torch.zeros(8, 1)), group, 3).keep
    assert everything is not None
    assert everything.tolist() == [True] * 6 + [False] * 2


@pytest.mark.parametrize("algorithm", ["ppo", {"name": "grpo"}])
def test_it_is_refused_where_nothing_is_left_out(algorithm: Any, tiny_model_dir: Path) -> None:
    stage: dict[str, Any] = {
        "name": "rl", "prompts": {"name": "lines", "path": __file__}, "model": {"base": str(tiny_model_dir)}, "reward": "environment",
        "rollout": {"batch_size": 4, "per_prompt": 2, "draws_at_most": 2, "sampling": {"max_new_tokens": 4, "max_prompt_tokens": 8}},
        "train": {"lr": 1e-3, "iterations": 1, "batch_size": 4, "micro_batch_size": 4},
    }  # fmt: skip
    with pytest.raises(Problems, match="leaves no group out"):
        build("stage", stage | {"algorithm": algorithm})
    build("stage", stage | {"algorithm": {"name": "grpo", "skip_zero_variance": True}})

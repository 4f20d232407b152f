"""The loss that PPO and GRPO share, on tensors alone: no model takes part."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from training_helpers import fake_batch

from fgrl.components.algorithms.grpo import GRPO
from fgrl.components.algorithms.ppo import PPO
from fgrl.registry import Problems, build

LENGTHS = [3, 1]
NAN = float("nan")
OLD = torch.tensor([[-1.0, -2.0, -0.5], [-3.0, NAN, NAN]])
LOGP = OLD + torch.tensor([[0.5, -0.1, 0.0], [-0.7, NAN, NAN]])
ENTROPY = torch.tensor([[1.0, 2.0, 3.0], [4.0, NAN, NAN]])
ADVANTAGE = torch.tensor([[1.0, -1.0, 2.0], [-0.5, NAN, NAN]])
ALGORITHMS = {"grpo": GRPO, "ppo": PPO}


def loss_of(name: str, **fields: Any) -> tuple[float, Any]:
    algorithm = ALGORITHMS[name](aggregate="token_mean", kl="k3", kl_in="loss", **fields)
    batch = fake_batch(LENGTHS, {"advantage": ADVANTAGE, "ref_logp": OLD - 0.2})
    loss, metrics = algorithm.policy_loss(batch, logp=LOGP, old_logp=OLD, entropy=ENTROPY)
    return float(loss), metrics


@pytest.mark.parametrize("name", ALGORITHMS)
def test_surrogate_kl_and_entropy_add_up_to_the_closed_form(name: str) -> None:
    tokens = [(0.5, 1.0, 1.0), (-0.1, -1.0, 2.0), (0.0, 2.0, 3.0), (-0.7, -0.5, 4.0)]
    surrogate = kl = entropy = 0.0
    for log_ratio, advantage, uncertainty in tokens:
        ratio = math.exp(log_ratio)
        surrogate -= min(ratio * advantage, min(max(ratio, 0.8), 1.3) * advantage) / 4
        back = -(log_ratio + 0.2)
        kl += (math.exp(back) - 1 - back) / 4
        entropy += uncertainty / 4
    loss, metrics = loss_of(name, clip_high=0.3, kl_coef=0.7, entropy_coef=0.1)
    assert loss == pytest.approx(surrogate + 0.7 * kl - 0.1 * entropy, rel=1e-5)
    assert float(metrics["policy_loss"]) == pytest.approx(surrogate, rel=1e-5)
    assert float(metrics["kl_loss"]) == pytest.approx(kl, rel=1e-5)
    assert float(metrics["clip_fraction"]) == 0.5
    assert float(metrics["max_log_ratio"]) == pytest.approx(0.7)
    assert float(metrics["approx_kl"]) == pytest.approx((0.25 + 0.01 + 0.49) / 8, rel=1e-5)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_without_coefficients_only_the_surrogate_counts(name: str) -> None:
    loss, metrics = loss_of(name, kl_coef=0.0)
    assert loss == pytest.approx(float(metrics["policy_loss"]), rel=1e-6)
    assert "kl_loss" not in metrics


def test_ppo_s_kl_in_the_loss_follows_its_controller() -> None:
    batch = fake_batch(LENGTHS, {"advantage": ADVANTAGE, "ref_logp": OLD - 0.2})
    algorithm = PPO(kl="k3", kl_in="loss", kl_coef=0.5, adaptive_kl={"target": 1.0})
    tensors = {"logp": LOGP, "old_logp": OLD, "entropy": None}
    before, metrics = algorithm.policy_loss(batch, **tensors)
    algorithm.load_state_dict({"coefficient": 1.5})
    after, _ = algorithm.policy_loss(batch, **tensors)
    assert float(after - before) == pytest.approx(1.0 * float(metrics["kl_loss"]), rel=1e-5)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_k1_in_the_loss_is_refused(name: str) -> None:
    with pytest.raises(Problems, match="gradient of k1 is zero"):
        build("online_algorithm", {"name": name, "kl": "k1", "kl_in": "loss", "kl_coef": 0.1})

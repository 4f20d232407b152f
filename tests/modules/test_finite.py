"""Numbers that are not finite stop a training, whichever quantity they are of, before a checkpoint or a product has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import test_offline
import test_online
import torch
from function_helpers import write
from scratch_registry import scratch
from training_helpers import tiny

from fgrl import models
from fgrl.base.errors import Stopped, UserCodeError
from fgrl.components.algorithms.grpo import GRPO
from fgrl.components.algorithms.sft import SFT
from fgrl.registry import build, import_file
from fgrl.training import finite
from fgrl.training.alarms import Alarms
from fgrl.training.online import check_known
from fgrl.training.training_module import TrainingModule
from fgrl.types import Rewards

LORA = {"r": 4, "alpha": 8}
INFINITY = float("inf")


def online(base: Path, folder: Path, reward: Any = None, **train: Any) -> TrainingModule:
    return test_online.module_of(
        base, folder, reward or test_online.reward_of(test_online.by_ids), algorithm=GRPO(kl_coef=0.0), per_prompt=2, **train
    )  # fmt: skip


def offline(base: Path, folder: Path, **train: Any) -> TrainingModule:
    return test_offline.module_of(
        folder, tiny(base, trainable=True, lora=LORA), SFT(), test_offline.samples(12), **train
    )


KINDS = {"online": (online, "iteration 0, step "), "offline": (offline, "step ")}


def stopped(module: TrainingModule, says: str) -> None:
    with pytest.raises(Stopped, match=says):
        module.fit(checkpoint_every=1)
    assert not list(module.run.dir.glob("*.ckpt"))
    assert not list(module.run.out.iterdir())


@pytest.mark.parametrize("clip_norm", [1.0, None])
@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient(kind: str, clip_norm: float | None, tiny_model_dir: Path, tmp_path: Path) -> None:
    """The loss is finite, and its gradient is not."""
    of_kind, when = KINDS[kind]
    module = of_kind(tiny_model_dir, tmp_path, clip_norm=clip_norm)
    trained = [value for value in module.parameters() if value.requires_grad]
    before = [value.detach().clone() for value in trained]
    loss = module.rounds.algorithm.loss

    def steep(model: Any, batch: Any) -> Any:
        value, metrics = loss(model, batch)
        return value + (trained[0].sum() * 0).sqrt(), metrics

    object.__setattr__(module.rounds.algorithm, "loss", steep)
    stopped(module, f"the gradient of the (model|actor) is not finite at {when}0. Likely causes: model.lora.alpha")
    assert all(torch.equal(value, old) for value, old in zip(trained, before, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight(kind: str, tiny_model_dir: Path, tmp_path: Path) -> None:
    of_kind, when = KINDS[kind]
    module = of_kind(tiny_model_dir, tmp_path)
    name, weight = next((name, value) for name, value in module.named_parameters() if value.requires_grad)
    batch_end = module.on_train_batch_end

    def broken(*arguments: Any) -> None:
        batch_end(*arguments)
        weight.data[0, 0] = INFINITY

    module.on_train_batch_end = broken  # type: ignore[method-assign]
    stopped(module, "not finite")
    with pytest.raises(Stopped, match=rf"1 trained weights, the first of them in {name}, are not finite at {when}"):
        finite.check_weights([(name, weight)], f"{when}1", lambda own: own)


def test_what_another_process_found_stops_this_one_too() -> None:
    with pytest.raises(Stopped, match="some trained weights are not finite at step 1"):
        finite.check_weights([("weight", torch.ones(2))], "step 1", lambda _own: False)
    with pytest.raises(Stopped, match="the loss is not finite at step 1"):
        finite.check_loss(torch.tensor(1.0), "step 1", 1e-3, lambda _own: False)


def test_only_the_part_of_a_weight_in_this_process_is_looked_at() -> None:
    weight = torch.nn.Parameter(torch.empty(0))  # as ZeRO-3 leaves it
    weight.ds_tensor = torch.tensor([1.0, INFINITY])
    with pytest.raises(Stopped, match="in weight"):
        finite.check_weights([("weight", weight)], "step 1", lambda own: own)


def test_a_reward(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Of a component of fgrl: finite in float32, but not its square."""
    reward = test_online.reward_of(lambda rollout, i: 3e38 * (-1) ** i)
    stopped(
        online(tiny_model_dir, tmp_path, reward),
        "score of .*FakeReward.* returned a response reward that is not finite, or beyond 1e.18",
    )


def test_an_advantage(tiny_model_dir: Path, tmp_path: Path) -> None:
    module = online(tiny_model_dir, tmp_path)
    advantages = module.rounds.algorithm.advantages

    def broken(rollout: Any, rewards: Any) -> Any:
        made = advantages(rollout, rewards)
        return replace(made, advantage=made.advantage * INFINITY)

    object.__setattr__(module.rounds.algorithm, "advantages", broken)
    stopped(module, "the advantage of a token is not finite in iteration 0. The rewards of the responses are between ")


def test_a_model_that_is_saved(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = tiny(tiny_model_dir, trainable=True)
    weight = next(model.parameters())
    weight.data[0, 0] = float("nan")
    with pytest.raises(
        Stopped, match=r"1 weights of the model to save are not finite, the first of them .*embed_tokens"
    ):
        models.save(model, tmp_path / "out", {})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("metric", ["reward", "loss", "grad_norm", "critic_grad_norm"])
def test_alarms_watch_it(metric: str) -> None:
    from fgrl.training.alarms import Watch

    said: list[str] = []
    watch = Watch(Alarms(), said.append)
    assert watch.look({metric: 1e9}, example="") == []
    assert watch.look({metric: INFINITY}, example="") == [metric]
    assert "not a finite number" in said[0]


# -- components of the user --------------------------------------------------------------------------------------------

OWN = '''
import torch
from fgrl.components.algorithms.grpo import GRPO
from fgrl.kinds import Reward
from fgrl.registry import register
from fgrl.types import Rewards

@register("own_algorithm")
class Own(GRPO):
    """One of my own."""

    def state_dict(self):
        return {state}

    def load_state_dict(self, state):
        pass

@register("own_reward")
class OwnReward(Reward):
    """One of my own."""

    def score(self, rollout):
        {score}
        last = rollout.mask
        return Rewards(torch.arange(len(last)) * {scale}, torch.zeros(last.shape), last)
'''


def own(base: Path, folder: Path, *, state: str = "{}", score: str = "pass", scale: str = "1.0") -> TrainingModule:
    import_file(write(folder, OWN.format(state=state, score=score, scale=scale), "own.py"))
    reward, algorithm = (
        build("reward", "own_reward"),
        build("online_algorithm", {"name": "own_algorithm", "kl_coef": 0.0}),
    )
    return test_online.module_of(base, folder, reward, algorithm=algorithm, per_prompt=2)


def test_an_infinite_reward_is_reported_at_its_class(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of float64 numbers that float32 does not hold."""
    monkeypatch.chdir(tmp_path)
    with (
        scratch(),
        pytest.raises(
            UserCodeError,
            match=r"own\.py:\d+: score of the reward 'own_reward' returned a response reward that is not finite, or beyond",
        ),
    ):
        own(tiny_model_dir, tmp_path, scale="torch.tensor(1e39, dtype=torch.float64)").fit(1)


def test_a_component_that_ends_the_process_is_reported(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with scratch(), pytest.raises(UserCodeError, match=r"own\.py:23: OwnReward.score raised SystemExit: 0"):
        own(tiny_model_dir, tmp_path, score="raise SystemExit(0)").fit(1)


def test_an_algorithm_of_criteria_does_not_train_when_all_their_rewards_are_missing() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    rollout = SimpleNamespace(drawn=mask)
    criterion = torch.full((2, 2, 3), torch.nan)
    rewards = Rewards(torch.zeros(2), torch.zeros(2, 3), mask, criterion=criterion)
    algorithm = build("online_algorithm", "rtt_grpo")
    with pytest.raises(Stopped, match="reads the rewards of single criteria, and all of iteration 3 are missing"):
        check_known(rewards, rollout, algorithm, 3)
    criterion[1, 1, 0] = 0.0
    check_known(rewards, rollout, algorithm, 3)
    criterion[1, 1, 0], criterion[0, 0, 2] = torch.nan, 1.0  # behind the response
    with pytest.raises(Stopped):
        check_known(rewards, rollout, algorithm, 3)
    check_known(rewards, rollout, GRPO(), 3)


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ("{'best': object()}", r"\(object\) as 'best'"),
        ("{'seen': [1, lambda: 0]}", r"a list of 2 int, function as 'seen'"),
        ("{'mean': __import__('numpy').float64(1)}", r"as 'mean'"),
    ],
)
def test_a_state_that_no_checkpoint_gives_back_is_refused_at_the_first(
    state: str, place: str, tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with scratch():
        module = own(tiny_model_dir, tmp_path, state=state)
        with pytest.raises(
            UserCodeError, match=rf"own\.py:\d+: state_dict of the online_algorithm 'own_algorithm' returned .*{place}"
        ):
            module.fit(1)
    assert not list(tmp_path.glob("*.ckpt"))


def test_a_state_of_tensors_and_numbers_is_kept(tiny_model_dir: Path, tmp_path: Path) -> None:
    with scratch():
        own(tiny_model_dir, tmp_path, state="{'mean': torch.ones(2), 'seen': {1: (2.0, None, 'x')}}").fit(1)
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["algorithm"]["seen"] == {1: (2.0, None, "x")}

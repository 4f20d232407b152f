"""Training on the policy's own samples, on a tiny model: what is collected, and where the probability ratio starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import PrivateAttr
from torch import Tensor
from training_helpers import a_run, distance, tiny

from fgrl.base.errors import DataError, Stopped
from fgrl.components.algorithms.grpo import GRPO
from fgrl.components.algorithms.ppo import PPO, AdaptiveKL
from fgrl.components.engines.hf import HF
from fgrl.components.rewards.bundle import RewardBundle
from fgrl.experiments.pipeline.log import read_log
from fgrl.kinds import Reward
from fgrl.kinds.specs import Sampling
from fgrl.models import ActorCritic
from fgrl.training.alarms import Alarm, Alarms
from fgrl.training.online import OnlineRounds
from fgrl.training.trainer import OnlineSettings
from fgrl.training.training_module import TrainingModule
from fgrl.types import Rewards, Rollout, Sample, per_response, per_token

QUIET = Alarms(**dict.fromkeys(Alarms.model_fields))
PROMPTS = [
    Sample(id=str(i), prompt=f"Question {i} about the {word}")
    for i, word in enumerate(["sea", "mill", "lamp", "birds", "bread", "salt"])
]
LORA = {"r": 4, "alpha": 8, "dropout": 0.5}
NAN = float("nan")


class FakeReward(Reward):
    """A number for each response, on its last token; remembers the rollouts that it saw."""

    _worth: Any = PrivateAttr()
    _seen: list[Rollout] = PrivateAttr(default_factory=list)

    def score(self, rollout: Rollout) -> Rewards:
        self._seen.append(rollout)
        response = torch.tensor([self._worth(rollout, i) for i in range(len(rollout.mask))])
        last = torch.zeros_like(rollout.mask)
        last[torch.arange(len(last)), rollout.mask.sum(1) - 1] = True
        return Rewards(response=response, token=torch.where(last, response[:, None], 0.0), credit_mask=last)


@dataclass
class Weighted(Rewards):
    """Rewards with columns that fgrl does not know."""

    weight: Tensor = field(kw_only=True, metadata={"column": per_token(fill=3.0)})
    difficulty: Tensor = field(kw_only=True, metadata={"column": per_response()})


class Weighing(FakeReward):
    """Gives each token a weight, which its id tells, and each response a difficulty."""

    def score(self, rollout: Rollout) -> Rewards:
        rewards = super().score(rollout)
        weight = torch.where(rollout.mask, rollout.response_ids * 0.5, NAN)
        return Weighted(
            **vars(rewards) | {"segment_ids": torch.where(rollout.mask, torch.arange(rollout.mask.shape[1]) // 2, -1)},
            weight=weight, difficulty=rollout.mask.sum(dim=1),
        )  # fmt: skip


class Curious(FakeReward):
    """Looks at the log-probabilities of what was drawn."""

    def needs(self) -> frozenset[str]:
        return frozenset({"old_logp"})


class Scored(GRPO):
    """GRPO that wants the policy's pass over a rollout before training, always."""

    def can_skip_old_logp(self) -> bool:
        return False


def reward_of(worth: Callable[[Rollout, int], float]) -> FakeReward:
    reward = FakeReward()
    reward._worth = worth
    return reward


def by_ids(rollout: Rollout, i: int) -> float:
    return float(rollout.response_ids[i][rollout.mask[i]].sum() % 7) / 3 - 1


def module_of(
    model_dir: Path, folder: Path, reward: Any, *, algorithm: Any = None, temperature: float = 1.0, lora: Any = LORA,
    min_new_tokens: int = 0, token_rewards: Any = None, stored: int = 0, per_iteration: int = 6, per_prompt: int = 1, prompts: Any = PROMPTS, alarms: Alarms = QUIET, seed: int = 0,
    engine: Any = None, **train: Any,
) -> Any:  # fmt: skip
    spec = {"lora": lora} if lora else {}
    actor = tiny(model_dir, trainable=True, **spec)
    critic = tiny(model_dir, head="scalar", trainable=True, seed=1, **spec)
    settings = {"lr": 1e-30, "batch_size": 3, "micro_batch_size": 2, "accelerator": "cpu", "iterations": 2} | train
    engine = engine or HF()
    rounds = OnlineRounds(
        ActorCritic(actor, critic), algorithm or PPO(), reward, prompts, OnlineSettings(**settings),
        a_run(folder, seed=seed), drawer=engine.open(actor), token_rewards=token_rewards, stored_rollouts=stored,
        sampling=Sampling(max_new_tokens=8, min_new_tokens=min_new_tokens, temperature=temperature),
        rollout_batch_size=per_iteration, per_prompt=per_prompt, alarms=alarms,
        reference=None if lora else tiny(model_dir), correction=engine.correction(), ahead=engine.draws_ahead(),
    )  # fmt: skip
    return TrainingModule(rounds)


def fitted(module: TrainingModule) -> list[dict[str, Any]]:
    """Train; the logged rows."""
    module.fit(checkpoint_every=1)
    return read_log(module.run.dir / "log.jsonl")


@pytest.mark.parametrize(("temperature", "min_new_tokens"), [(1.0, 0), (0.6, 0), (1.7, 0), (1.7, 6)])
def test_the_ratio_is_one_while_nothing_is_learned(
    temperature: float, min_new_tokens: int, tiny_model_dir: Path, tmp_path: Path
) -> None:
    """With dropout in the adapter, at any temperature, in every micro-batch of every step of every pass."""
    module = module_of(
        tiny_model_dir, tmp_path, reward_of(by_ids), temperature=temperature, algorithm=PPO(epochs=2, whiten=False),
        min_new_tokens=min_new_tokens,
    )  # fmt: skip
    with torch.no_grad():  # an adapter that does something, so that its dropout would too
        for name, parameter in module.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.3, generator=torch.Generator().manual_seed(len(name)))
    rows = fitted(module)
    assert [row["step"] for row in rows] == [0, 1]
    assert module.trainer.global_step == 2 * 2 * 2
    for row in rows:
        assert row["max_log_ratio"] < 1e-5
        assert row["clip_fraction"] == row["value_clip_fraction"] == 0
        assert abs(row["kl"]) > 0.01  # the adapter makes a difference
        assert row["grad_norm"] > 1e-3
        assert row["critic_grad_norm"] > 1e-3


def test_the_ratio_leaves_one_when_something_is_learned(tiny_model_dir: Path, tmp_path: Path) -> None:
    rows = fitted(module_of(tiny_model_dir, tmp_path, reward_of(by_ids), lr=1e-2, warmup=0.0))
    assert rows[0]["max_log_ratio"] > 1e-3


def test_missing_rewards_are_dropped_and_counted(tiny_model_dir: Path, tmp_path: Path) -> None:
    """What remains is all that anything is computed of: as if the others had never been drawn."""
    reward = reward_of(lambda rollout, i: NAN if i in (1, 4) else by_ids(rollout, i))
    module = module_of(tiny_model_dir, tmp_path, reward, iterations=1, batch_size=4)
    batches: list[Any] = []
    loss = module.rounds.algorithm.loss
    object.__setattr__(
        module.rounds.algorithm, "loss", lambda model, batch: batches.append(batch) or loss(model, batch)
    )
    (row,) = fitted(module)
    assert row["missing"] == pytest.approx(2 / 6)
    (rollout,) = reward._seen
    kept = [0, 2, 3, 5]
    assert sum(len(batch.mask) for batch in batches) == 4
    assert {batch.total_rows for batch in batches} == {4.0}
    assert {batch.total_tokens for batch in batches} == {float(rollout.mask[kept].sum())}
    trained = sorted(ids[real].tolist() for b in batches for ids, real in zip(b.response_ids, b.mask, strict=True))
    assert trained == sorted(rollout.response_ids[i][rollout.mask[i]].tolist() for i in kept)
    assert row["reward"] == pytest.approx(sum(by_ids(rollout, i) for i in kept) / 4, abs=1e-7)
    assert all(torch.isfinite(column).all() for batch in batches for column in batch.columns.values())


@pytest.mark.parametrize(
    ("missing", "steps"),
    [
        ((), [(3, 1.0), (3, 0.75), (3, 0.5), (3, 0.25)]),
        ((1, 4), [(2, 1.0), (2, 0.75), (2, 0.5), (2, 0.25)]),  # not 3 and 1
        ((0, 1, 4), [(3, 1.0), (3, 0.5)]),  # 2 of 4 steps, in longer strides through the schedule
    ],
)
def test_missing_rewards_leave_no_tiny_step_and_the_schedule_ends_on_time(
    missing: tuple[int, ...], steps: list[tuple[int, float]], tiny_model_dir: Path, tmp_path: Path
) -> None:
    reward = reward_of(lambda rollout, i: NAN if i in missing else by_ids(rollout, i))
    module = module_of(
        tiny_model_dir, tmp_path, reward, lr=1e-6, schedule="linear", warmup=0.0, min_lr_ratio=0.0, iterations=2
    )
    assert steps_of(module) == [(rows, pytest.approx(share * 1e-6)) for rows, share in steps]


def test_groups_that_teach_nothing_leave_no_tiny_step(tiny_model_dir: Path, tmp_path: Path) -> None:
    reward = reward_of(lambda rollout, i: 0.0 if i < 2 else float(i))
    module = module_of(
        tiny_model_dir, tmp_path, reward, algorithm=GRPO(skip_zero_variance=True), per_prompt=2, per_iteration=6,
        iterations=1, batch_size=3,
    )  # fmt: skip
    assert [rows for rows, _lr in steps_of(module)] == [2, 2], "4 of 6 responses, not 3 and 1"


@pytest.mark.parametrize("micro", [1, 6])
def test_a_sum_is_divided_by_the_responses_that_a_step_was_to_have(
    micro: int, tiny_model_dir: Path, tmp_path: Path
) -> None:
    """Responses without a reward, and groups that are left out because they teach nothing, change no other's part."""
    found: dict[str, Any] = {}
    for name, missing, skip in (("all", (), False), ("skipped", (), True), ("missing", (0, 1), False)):
        reward = reward_of(lambda rollout, i, missing=missing: NAN if i in missing else float(max(i, 1)))  # 0 and 1 tie
        module = module_of(
            tiny_model_dir, tmp_path / name, reward, algorithm=GRPO(aggregate="sum", skip_zero_variance=skip),
            per_prompt=2, iterations=1, batch_size=6, micro_batch_size=micro if skip else 6, lora={"r": 4, "alpha": 8},
        )  # fmt: skip
        module.on_before_optimizer_step = lambda optimizer, name=name: found.update(
            {name: [each.grad.clone() for group in optimizer.param_groups[:1] for each in group["params"]]}
        )
        (row,) = fitted(module)
        assert row["missing"] == len(missing) / 6
    assert max(float(each.abs().max()) for each in found["all"]) > 1e-3
    for name in ("skipped", "missing"):
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found["all"], found[name], strict=True))


@pytest.mark.parametrize("left_out", [False, True])
def test_rewards_on_tokens_that_are_left_out_are_said_once(
    left_out: bool, tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = PPO(skip_text=["never written"])
    module = module_of(tiny_model_dir, tmp_path, reward_of(by_ids), algorithm=algorithm, iterations=2)
    said: list[str] = []
    monkeypatch.setattr(type(module.run), "say", lambda _run, text: said.append(text))
    if left_out:
        monkeypatch.setattr(
            PPO, "skipped", lambda _self, rollout: (torch.arange(rollout.mask.shape[1]) > 0).expand_as(rollout.mask)
        )
    fitted(module)
    warned = [text for text in said if "rewards are on tokens that no loss counts" in text]
    assert len(warned) == left_out, said


@pytest.mark.parametrize("iterations", [1, 3])
def test_schedules_of_weights_reach_their_end_in_training(
    iterations: int, tiny_model_dir: Path, tmp_path: Path
) -> None:
    parts = {"first": FakeReward(), "second": FakeReward()}
    for part in parts.values():
        part._worth = lambda rollout, i: float(i)
    bundle = RewardBundle(rewards=parts, last_weights={"first": 0.0, "second": 5.0}, normalize="none")
    rows = fitted(module_of(tiny_model_dir, tmp_path, bundle, algorithm=GRPO(), per_prompt=2, iterations=iterations))
    found = [(row["reward/first/weight"], row["reward/second/weight"]) for row in rows]
    assert found == ([(0.0, 5.0)] if iterations == 1 else [(1.0, 1.0), (0.5, 3.0), (0.0, 5.0)])


def steps_of(module: TrainingModule) -> list[tuple[int, float]]:
    """Rows and learning rate of each optimizer step."""
    steps: list[tuple[int, float]] = []
    step, loss = module.on_before_optimizer_step, module.rounds.loss
    rows: list[int] = []

    def watched_loss(batch: Any) -> Any:
        rows.append(len(batch.mask) if batch.scale else 0)
        return loss(batch)

    def watched_step(optimizer: Any) -> None:
        step(optimizer)
        steps.append((sum(rows), optimizer.param_groups[0]["lr"]))
        rows.clear()

    module.rounds.loss = watched_loss  # type: ignore[method-assign]
    module.on_before_optimizer_step = watched_step  # type: ignore[method-assign]
    module.fit(checkpoint_every=1)
    return steps


def test_no_reward_at_all_stops(tiny_model_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(
        Stopped,
        match=r"the reward FakeReward is missing for each of the 6 responses of iteration 0: for example .*, the answer to '",
    ):
        fitted(module_of(tiny_model_dir, tmp_path, reward_of(lambda rollout, i: NAN)))


def test_columns_sit_beside_the_tokens_they_were_computed_for(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Every row of every micro-batch, put through the models alone and without padding, gives its columns back."""
    module = module_of(tiny_model_dir, tmp_path, reward_of(by_ids), iterations=1, lora=None)
    batches: list[Any] = []
    loss = module.rounds.algorithm.loss
    object.__setattr__(
        module.rounds.algorithm, "loss", lambda model, batch: batches.append(batch) or loss(model, batch)
    )
    fitted(module)
    reference, actor, critic = tiny(tiny_model_dir), module.model.actor, module.model.critic
    assert sum(len(batch.mask) for batch in batches) == 6
    for batch in batches:
        for i in range(len(batch.mask)):
            prompt, real = batch.prompt_ids[i][batch.prompt_mask[i]], batch.mask[i]
            ids = torch.cat([prompt, batch.response_ids[i][real]])[None]
            with torch.no_grad():
                before = slice(len(prompt) - 1, -1)
                for name, model in (("old_logp", actor), ("ref_logp", reference)):
                    logp = model.transformer(input_ids=ids).logits[0, before].log_softmax(-1)
                    wanted = logp.gather(1, ids[0, len(prompt) :, None])[:, 0]
                    torch.testing.assert_close(batch.columns[name][i][real], wanted, atol=1e-4, rtol=1e-4)
                states = critic.net(input_ids=ids).last_hidden_state[0, before]
            values = states @ critic.number.weight
            torch.testing.assert_close(batch.columns["values"][i][real], values.detach(), atol=1e-4, rtol=1e-4)


def test_columns_of_a_reward_reach_the_loss_unchanged(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Columns that only the reward declares, and the library's own: cut to the micro-batch, with the declared fill."""
    reward = Weighing()
    reward._worth = lambda rollout, i: NAN if i == 2 else by_ids(rollout, i)
    module = module_of(tiny_model_dir, tmp_path, reward, algorithm=GRPO(), per_prompt=3, iterations=1, batch_size=5)
    batches: list[Any] = []
    loss = module.rounds.algorithm.loss
    object.__setattr__(
        module.rounds.algorithm, "loss", lambda model, batch: batches.append(batch) or loss(model, batch)
    )
    fitted(module)
    assert sum(len(batch.mask) for batch in batches) == 5, "the response without a reward takes its columns with it"
    for batch in batches:
        column, mask = batch.columns, batch.mask
        assert torch.equal(column["weight"], torch.where(mask, batch.response_ids * 0.5, 3.0))
        assert column["difficulty"].tolist() == mask.sum(dim=1).tolist()
        assert torch.equal(column["segment_ids"], torch.where(mask, torch.arange(mask.shape[1]) // 2, -1))
        assert column["credit_mask"].sum(dim=1).tolist() == [1] * len(mask)
        assert torch.equal(
            column["credit_mask"] & (column["difficulty"][:, None] - 1 == torch.arange(mask.shape[1])),
            column["credit_mask"],
        )


def test_the_micro_batch_size_changes_nothing_that_is_learned(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Two plain optimizer steps in pieces of 1, 2 and 6 rows end at the same weights, up to rounding."""
    moved = {}
    for size in (1, 2, 6):
        module = module_of(
            tiny_model_dir, tmp_path / str(size), reward_of(by_ids), lora=None, micro_batch_size=size, iterations=1,
            batch_size=6, lr=1e-3, warmup=0.0, eps=1.0,
        )  # fmt: skip
        start = {name: parameter.detach().clone() for name, parameter in module.model.named_parameters()}
        fitted(module)
        moved[size] = {name: p.detach() - start[name] for name, p in module.model.named_parameters()}
    assert max(float(change.abs().max()) for change in moved[6].values()) > 1e-5
    assert distance(moved[6], moved[1]) < 1e-2
    assert distance(moved[6], moved[2]) < 1e-2


# -- one optimizer step an iteration: the policy is not asked before it ------------------------------------------------

ONE_STEP = {"per_iteration": 6, "per_prompt": 3, "batch_size": 6, "lora": None}


def passes_of(module: TrainingModule) -> list[str]:
    """What each pass of the policy over whole rows is for, as they come: "score" or "train"."""
    seen: list[str] = []
    actor = module.model.actor
    hidden = actor.hidden

    def noted(*args: Any, **options: Any) -> Any:
        seen.append("train" if torch.is_grad_enabled() else "score")
        return hidden(*args, **options)

    object.__setattr__(actor, "hidden", noted)
    return seen


@pytest.mark.parametrize("reference", [0.0, 0.3])
def test_one_step_needs_no_pass_before_it(reference: float, tiny_model_dir: Path, tmp_path: Path) -> None:
    module = module_of(tiny_model_dir, tmp_path, reward_of(by_ids), algorithm=GRPO(kl_coef=reference), **ONE_STEP)
    seen = passes_of(module)
    rows = fitted(module)
    assert seen.count("score") == 0
    assert seen.count("train") == 2 * 3  # iterations x micro-batches
    assert module.trainer.global_step == 2
    for row in rows:
        assert row["max_log_ratio"] == row["approx_kl"] == row["clip_fraction"] == 0
        assert row["entropy"] > 0
        assert ("kl" in row) == bool(reference)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (GRPO(), {"batch_size": 3}),
        (GRPO(epochs=2), {}),
        (GRPO(kl_coef=0.1, kl_in="reward"), {}),
        (GRPO(skip_zero_variance=True), {}),
        (PPO(epochs=1), {}),
        (Scored(), {}),
    ],
)
def test_where_it_is_read_the_pass_is_made(
    algorithm: Any, settings: dict[str, Any], tiny_model_dir: Path, tmp_path: Path
) -> None:
    module = module_of(
        tiny_model_dir, tmp_path, reward_of(by_ids), algorithm=algorithm, **(ONE_STEP | {"iterations": 1} | settings)
    )
    seen = passes_of(module)
    (row,) = fitted(module)
    assert seen.count("score") == 3
    assert row["entropy"] > 0


def test_a_reward_that_reads_it_gets_it(tiny_model_dir: Path, tmp_path: Path) -> None:
    reward = Curious()
    reward._worth = lambda rollout, i: float(rollout.old_logp[i][rollout.mask[i]].mean())
    module = module_of(tiny_model_dir, tmp_path, reward, algorithm=GRPO(), **(ONE_STEP | {"iterations": 1}))
    seen = passes_of(module)
    (row,) = fitted(module)
    assert seen.count("score") == 3
    (rollout,) = reward._seen
    assert row["entropy"] == pytest.approx(-float(rollout.old_logp[rollout.mask].mean()), rel=1e-6)


@pytest.mark.parametrize("reference", [0.0, 0.3])
def test_without_the_pass_the_same_is_learned(reference: float, tiny_model_dir: Path, tmp_path: Path) -> None:
    """Weights and log of two iterations, in micro-batches of 1, 2 and 6, beside those of GRPO that scores first.

    Not bit by bit: the pass has its rows in another order and padding, so that its ratio is 1 but for rounding. (`eps`
    keeps Adam from making steps of rounding.) One reward is missing.
    """
    worth = reward_of(lambda rollout, i: NAN if i == 4 else by_ids(rollout, i))
    found: dict[str, tuple[dict[str, torch.Tensor], list[dict[str, Any]]]] = {}
    for name, kind, size in (("with", Scored, 2), ("1", GRPO, 1), ("2", GRPO, 2), ("6", GRPO, 6)):
        module = module_of(
            tiny_model_dir, tmp_path / name, worth, algorithm=kind(kl_coef=reference),
            **ONE_STEP, micro_batch_size=size, lr=0.3, warmup=0.0, eps=1.0,
        )  # fmt: skip
        start = {name: parameter.detach().clone() for name, parameter in module.model.named_parameters()}
        rows = fitted(module)
        found[name] = {n: p.detach() - start[n] for n, p in module.model.named_parameters()}, rows
    moved, rows = found.pop("with")
    assert max(float(change.abs().max()) for change in moved.values()) > 1e-3
    for other, others in found.values():
        assert max(float((moved[name] - other[name]).abs().max()) for name in moved) < 1e-6
        for mine, theirs in zip(rows, others, strict=True):
            assert mine.keys() == theirs.keys()
            clocks = {name for name in mine if name == "time" or name.startswith("seconds/")}
            for name in mine.keys() - clocks:
                assert theirs[name] == pytest.approx(mine[name], rel=1e-4, abs=1e-5), name
    if reference:
        assert abs(rows[1]["kl"]) > 1e-3


@pytest.mark.parametrize("name", ["entropy", "kl"])
def test_its_alarms_ring_in_the_same_iteration(name: str, tiny_model_dir: Path, tmp_path: Path) -> None:
    """They hear of it after the step, which nobody has saved by then; the alarms that know before stop before."""
    broken = {"entropy": Alarm(above=0.0, action="stop"), "kl": Alarm(above=-100.0, action="stop")}[name]
    for folder, kind, trained in (("with", Scored, 1), ("without", GRPO, 2)):
        module = module_of(
            tiny_model_dir, tmp_path / folder, reward_of(by_ids), algorithm=kind(kl_coef=0.1), iterations=4,
            alarms=QUIET.model_copy(update={name: broken}), **ONE_STEP,
        )  # fmt: skip
        with pytest.raises(Stopped, match=rf"alarm: {name} is .*A response: (['\"]).+\1\nstopped by alarms.{name}"):
            fitted(module)
        assert len(read_log(tmp_path / folder / "log.jsonl")) == trained
        assert module.round == 1
        assert torch.load(tmp_path / folder / "last.ckpt", weights_only=False)["round"] == 1


def test_inexact_sampling_is_refused_also_without_the_pass(tiny_model_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="draws from another distribution"):
        module_of(tiny_model_dir, tmp_path, reward_of(by_ids), algorithm=GRPO(), temperature=0.0, **ONE_STEP)


# -- over several iterations -------------------------------------------------------------------------------------------


def test_a_reward_for_a_token_makes_it_more_frequent(tiny_model_dir: Path, tmp_path: Path) -> None:
    """The sign of everything at once: after some iterations the policy does what it is paid for."""

    def share(rollout: Rollout, i: int) -> float:
        ids = rollout.response_ids[i][rollout.mask[i]]
        return float((ids < 150).float().mean())

    rows = fitted(
        module_of(
            tiny_model_dir,
            tmp_path,
            reward_of(share),
            lora=None,
            per_iteration=24,
            per_prompt=4,
            batch_size=12,
            micro_batch_size=12,
            lr=2e-2,
            critic_lr=1e-2,
            warmup=0.0,
            iterations=12,
            algorithm=PPO(kl_coef=0.0, epochs=2),
        )
    )
    first, last = (sum(row["reward"] for row in part) / 2 for part in (rows[:2], rows[-2:]))
    assert last > first + 0.2
    assert rows[-1]["kl"] > 0.05
    assert rows[0]["zero_variance"] < 1


def test_the_kl_coefficient_follows_from_iteration_to_iteration(tiny_model_dir: Path, tmp_path: Path) -> None:
    algorithm = PPO(kl_coef=0.5, adaptive_kl=AdaptiveKL(target=1e-3, horizon=60))
    rows = fitted(module_of(tiny_model_dir, tmp_path, reward_of(by_ids), algorithm=algorithm, iterations=3))
    coefficients = [row["kl_coef"] for row in rows]
    assert coefficients[0] == 0.5
    for row, following in zip(rows, [*coefficients[1:], algorithm.state_dict()["coefficient"]], strict=True):
        error = min(0.2, max(-0.2, row["kl"] / 1e-3 - 1))
        assert following == pytest.approx(row["kl_coef"] * (1 + error * 6 / 60))
    assert len(set(coefficients)) == 3


def test_an_adaptive_kl_in_the_loss_has_the_coefficient_of_its_own_rollout(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    algorithm = PPO(kl="k3", kl_in="loss", kl_coef=0.5, adaptive_kl=AdaptiveKL(target=1e-3, horizon=60))
    module = module_of(tiny_model_dir, tmp_path, reward_of(by_ids), algorithm=algorithm, iterations=3, lr=1e-2)
    used: dict[int, set[float]] = {}
    loss = module.rounds.loss

    def watched(batch: Any) -> Any:
        used.setdefault(module.round, set()).add(algorithm.current_kl_coef())
        return loss(batch)

    module.rounds.loss = watched
    rows = fitted(module)
    assert [used[i] for i in range(3)] == [{row["kl_coef"]} for row in rows]
    assert len(set.union(*used.values())) == 3


def test_every_pass_over_the_prompts_visits_each_once_in_an_order_of_its_own(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    module = module_of(
        tiny_model_dir, tmp_path, reward_of(by_ids), per_iteration=4, per_prompt=2, epochs=2, iterations=None
    )
    assert module.rounds.count == 6
    passes = [[sample.id for r in range(n, n + 3) for sample in module.rounds.prompts_of(r)] for n in (0, 3)]
    assert [sorted(one) for one in passes] == [sorted(sample.id for sample in PROMPTS)] * 2
    assert passes[0] != passes[1]


def test_the_same_seed_draws_the_same_and_another_one_does_not(tiny_model_dir: Path, tmp_path: Path) -> None:
    texts = []
    for place, seed in enumerate((0, 0, 1)):
        reward = reward_of(by_ids)
        fitted(module_of(tiny_model_dir, tmp_path / str(place), reward, prompts=PROMPTS[:1], per_prompt=6, seed=seed))
        texts.append([rollout.texts for rollout in reward._seen])
    assert texts[0] == texts[1] != texts[2]
    assert texts[0][0] != texts[0][1]  # the same prompt in two iterations


def test_more_prompts_a_round_than_there_are_is_a_data_error(tiny_model_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="takes 12 prompts, but there are 6"):
        module_of(tiny_model_dir, tmp_path, reward_of(by_ids), per_iteration=12)


def test_alarms_look_at_every_rollout(tiny_model_dir: Path, tmp_path: Path) -> None:
    stop = QUIET.model_copy(update={"tokens": Alarm(below=100.0, patience=2, action="stop")})
    module = module_of(tiny_model_dir, tmp_path, reward_of(by_ids), alarms=stop, iterations=5)
    with pytest.raises(Stopped, match=r"tokens is .* below 100\.0"):
        fitted(module)
    assert len(read_log(tmp_path / "log.jsonl")) == 1  # the first iteration was trained on, the second never


def test_prompts_that_are_cut_are_in_the_log(tiny_model_dir: Path, tmp_path: Path) -> None:
    for limit, share in ((1, 1.0), (64, 0.0)):
        module = module_of(tiny_model_dir, tmp_path / str(limit), reward_of(by_ids), iterations=1)
        module.rounds.sampling = module.rounds.sampling.model_copy(update={"max_prompt_tokens": limit})
        fitted(module)
        (logged,) = read_log(tmp_path / str(limit) / "log.jsonl")
        assert logged["prompts_cut"] == share

"""Training on the policy's own samples: one rollout is one round, and one Lightning epoch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fgrl import models, rollouts, seeds
from fgrl.errors import DataError, Stopped
from fgrl.kinds import Engine, Numbers, OnlineAlgorithm, Reward, Run
from fgrl.modules import gather
from fgrl.modules.alarms import Alarms, Watch
from fgrl.modules.base import RoundModule
from fgrl.modules.steps import StepLoader, micro_batches_per_step, order, split
from fgrl.modules.trainer import OnlineSettings
from fgrl.modules.units import RolloutUnits
from fgrl.specs import Sampling
from fgrl.types import Advantages, Batch, Rewards, Rollout, Sample
from fgrl.types.metrics import as_numbers


class OnlineModule(RoundModule):
    """An `OnlineAlgorithm` on prompts. `reference` None means the policy with its adapter switched off."""

    settings: OnlineSettings
    counted = "iterations"

    def __init__(
        self, model: models.ActorCritic, algorithm: OnlineAlgorithm, reward: Reward, prompts: Sequence[Sample],
        settings: OnlineSettings, run: Run, *, engine: Engine, sampling: Sampling, per_iteration: int, per_prompt: int,
        reference: Any = None, alarms: Alarms | None = None,
    ) -> None:  # fmt: skip
        self.algorithm, self.reward, self.prompts = algorithm, reward, prompts
        self.engine, self.sampling, self.per_prompt = engine, sampling, per_prompt
        self.prompts_per_iteration = per_iteration // per_prompt
        if self.prompts_per_iteration > len(prompts):
            raise DataError(f"an iteration takes {self.prompts_per_iteration} prompts, but there are {len(prompts)}")
        rounds = settings.iterations or settings.epochs * (len(prompts) // self.prompts_per_iteration)
        steps = -(-per_iteration // settings.batch_size) * algorithm.epochs
        super().__init__(model, settings, run, rounds=rounds, total_steps=rounds * steps)
        self.pieces = micro_batches_per_step(settings.batch_size, settings.micro_batch_size, settings.devices)
        self._frozen = (reference,)  # a tuple: not registered, so neither trained nor saved
        self.watch = Watch(alarms or Alarms(), run.say)
        needs = algorithm.needs()
        if steps == 1 and algorithm.can_skip_old_logp():
            rollouts.check_exact(sampling)  # as where `old_logp` is computed: the gradient takes that distribution
            needs -= {"old_logp"}
        self.needs = needs | reward.needs()
        reward.check_prompts(prompts)
        self.collected: dict[str, float] = {}
        self._example = ""

    # -- one iteration ------------------------------------------------------------------------------------------------

    def prompts_of(self, round_number: int) -> list[Sample]:
        """The prompts of a round: passes over all prompts, each in an order of its own."""
        per_epoch = len(self.prompts) // self.prompts_per_iteration
        epoch, place = divmod(round_number, per_epoch)
        generator = torch.Generator().manual_seed(seeds.of_round(self.run.seed, epoch))
        shuffled = torch.randperm(len(self.prompts), generator=generator).tolist()
        start = place * self.prompts_per_iteration
        return [self.prompts[i] for i in shuffled[start : start + self.prompts_per_iteration]]

    @torch.no_grad()
    def collect(self) -> tuple[Rollout, Rewards, Advantages]:
        """1. prompts, 2. responses with log-probabilities and values, 3. rewards, 4. advantages."""
        clock = [time.perf_counter()]
        self.model.eval()
        prompts = self.prompts_of(self.round)
        world = self.trainer.world_size
        mine = split(range(len(prompts)), world)[self.global_rank]
        rollout = rollouts.collect(
            self.model.actor, self._frozen[0], [prompts[i] for i in mine],
            self.sampling, self.engine, self.needs, per_prompt=self.per_prompt, critic=self.model.critic,
            seed=seeds.of_round(self.run.seed, self.round), first_row=mine[0] * self.per_prompt,
            micro_batch_size=self.settings.micro_batch_size,
        )  # fmt: skip
        clock.append(time.perf_counter())
        rewards = self.reward.score(rollout)
        clock.append(time.perf_counter())
        if world > 1:
            rollout, rewards = gather.everywhere(rollout, rewards, world)
        rollout, rewards, missing = gather.drop_missing(rollout, rewards)
        if not len(rollout.mask):
            raise Stopped(f"all {missing} rewards of iteration {self.round} are missing")
        advantages = self.algorithm.advantages(rollout, rewards)
        self.collected = (
            describe(rollout, rewards)
            | {
                name if name.startswith("seconds/") else f"reward/{name}": value
                for name, value in as_numbers(rewards.metrics).items()
            }
            | as_numbers(advantages.metrics)
            | {"seconds/collect": clock[1] - clock[0], "seconds/score": clock[2] - clock[1]}
            | {"missing": missing / (missing + len(rollout.mask))}
        )
        return rollout, rewards, advantages

    def progress(self) -> tuple[int, int]:
        return self.round, self.rounds

    def loader(self) -> StepLoader:
        with self.trainer.strategy.precision_plugin.forward_context():  # as in `training_step`, or the ratio is not 1
            rollout, rewards, advantages = self.collect()
        self._example = rollout.texts[0]
        self.watch.look(self.collected, example=self._example)
        if advantages.keep is not None:
            kept = advantages.keep.nonzero().flatten()
            rollout, rewards, advantages = rollout.take(kept), rewards.take(kept), advantages.take(kept)
        units = RolloutUnits(rollout, rewards, advantages, pad_id=self.model.actor.pad_id)
        steps = order(
            len(units), self.settings.batch_size, self.algorithm.epochs,
            seed=seeds.of_round(self.run.seed, self.round),
        )  # fmt: skip
        if not steps:
            raise Stopped(
                f"only {len(units)} responses of iteration {self.round} have a reward: not enough for one step of "
                f"{self.pieces * self.settings.devices} micro-batches"
            )
        self._started = time.perf_counter()
        return StepLoader(
            units, steps, micro_batches=self.pieces, rank=self.global_rank, world=self.trainer.world_size, temperature=self.sampling.temperature,
            shared=self.model.actor.shares_prompts(gradient=True),
        )  # fmt: skip

    # -- training -----------------------------------------------------------------------------------------------------

    def parameter_groups(self) -> list[dict[str, Any]]:
        critic_lr = self.settings.critic_lr or self.settings.lr
        return self.model.parameter_groups(self.settings.lr, critic_lr, self.settings.weight_decay)

    def loss(self, batch: Batch) -> tuple[Tensor, Numbers]:
        return self.algorithm.loss(self.model, batch)

    def on_train_epoch_end(self) -> None:
        trained = self.noted()
        metrics = self.collected | trained | {"seconds/train": time.perf_counter() - self._started}
        self.run.log(metrics, step=self.round)
        late = {name: value for name, value in trained.items() if name not in self.collected}
        # before the checkpoint: what is stopped here has not been saved
        self.watch.look(late, example=self._example)
        self.collected |= late
        if self.ticker is not None:
            shown = ("reward", "kl", "tokens", "entropy", "clip_fraction")
            self.ticker.advance(1, **{name: metrics[name] for name in shown if name in metrics})
        self.round += 1

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["algorithm"] = self.algorithm.state_dict()
        checkpoint["watch"] = self.watch.state_dict()
        checkpoint["collected"] = {name: float(value) for name, value in self.collected.items()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self.algorithm.load_state_dict(checkpoint["algorithm"])
        self.watch.load_state_dict(checkpoint["watch"])
        self.collected = checkpoint["collected"]


def describe(rollout: Rollout, rewards: Rewards) -> dict[str, float]:
    """What a rollout looks like: reward, length, endings, entropy, repetition, agreement inside groups."""
    mask = rollout.mask
    lengths = mask.sum(dim=1).float()
    found = {
        "reward": float(rewards.response.mean()),
        "reward_std": float(rewards.response.std(correction=0)),
        "tokens": float(lengths.mean()),
        "empty": sum(not text.strip() for text in rollout.texts) / len(rollout.texts),
        "finished": float(rollout.eos.any(dim=1).float().mean()),
        "credited": float((rewards.credit_mask & mask).sum() / mask.sum()),
        "distinct": distinct_pairs(rollout),
    }
    if rollout.old_logp is not None:
        found["entropy"] = float(-torch.where(mask, rollout.old_logp, 0.0).sum() / mask.sum())
    if rollout.ref_entropy is not None:
        found["ref_entropy"] = float(torch.where(mask, rollout.ref_entropy, 0.0).sum() / mask.sum())
    sizes = torch.bincount(rollout.group)
    if int(sizes.max()) > 1:
        spread = [rewards.response[rollout.group == group].std(correction=0) for group in sizes.nonzero().flatten()]
        found["zero_variance"] = float((torch.stack(spread) < 1e-8).float().mean())
    return found


def distinct_pairs(rollout: Rollout) -> float:
    """Distinct two-token sequences over all two-token sequences of the rollout."""
    pairs = [
        pair
        for ids, length in zip(rollout.response_ids.tolist(), rollout.mask.sum(dim=1).tolist(), strict=True)
        for pair in pairwise(ids[:length])
    ]
    return len(set(pairs)) / len(pairs) if pairs else 0.0

"""Training on the policy's own samples. One iteration is one round: `start`, `loss` for each micro-batch, `report`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from fgrl import models, rollouts
from fgrl.base import console, seeds
from fgrl.base.errors import DataError, Stopped
from fgrl.feedback.llm import together
from fgrl.kinds import Correction, Drawer, Environment, OnlineAlgorithm, Reward, Run, note_step, scorers
from fgrl.kinds.functions import checked_advantages, checked_state, own_code, report_failures
from fgrl.kinds.needs import Divisible
from fgrl.kinds.specs import Sampling
from fgrl.registry import name_of
from fgrl.rollouts import policies
from fgrl.rollouts.conversing import talking
from fgrl.rollouts.kept import Draws
from fgrl.training import auxiliaries, finite, gather, mismatch
from fgrl.training.alarms import Alarms, Watch
from fgrl.training.rollout_metrics import rollout_metrics
from fgrl.training.rounds import Process, Rounds
from fgrl.training.steps import Step, StepLoader, micro_batches_per_step, order, split
from fgrl.training.stored_rollouts import RolloutStore
from fgrl.training.token_rewards import TokenRewards
from fgrl.training.trainer import OnlineSettings
from fgrl.training.units import RolloutUnits
from fgrl.types import Advantages, Batch, Numbers, Rewards, Rollout, Sample

SHOWN = 80
"""Maximum number of characters of a text in an error message."""


class OnlineRounds(Rounds):
    """Training of an `OnlineAlgorithm` on prompts. If `reference` is None, it is the policy with its adapter switched
    off; `correction` and `ahead` are those of the engine. `draws` is a context that is open while it trains.
    """

    unit = "iterations"
    reports = "round"
    settings: OnlineSettings

    def __init__(
        self, model: models.ActorCritic, algorithm: OnlineAlgorithm, reward: Reward, prompts: Sequence[Sample],
        settings: OnlineSettings, run: Run, *, drawer: Drawer, sampling: Sampling, rollout_batch_size: int, per_prompt: int,
        reference: Any = None, alarms: Alarms | None = None, stored_rollouts: int = 0, token_rewards: TokenRewards | None = None,
        auxiliary: Mapping[str, auxiliaries.Loaded] | None = None, correction: Correction | None = None, ahead: int = 0,
        environment: Environment | None = None, draws_at_most: int = 1,
    ) -> None:  # fmt: skip
        self.draws_at_most = draws_at_most
        self.model, self.algorithm, self.reward, self.prompts = model, algorithm, reward, prompts
        self.settings, self.run, self.reference = settings, run, reference
        self.drawer, self.sampling, self.per_prompt = drawer, sampling, per_prompt
        self.correction, self.ahead, self.environment = correction, ahead, environment
        self.draws = Draws(drawer, run.dir, run.rank, lambda turns: talking(turns, environment, model.actor))
        self.token_rewards, self.auxiliary = token_rewards, auxiliary or {}
        references = [reference, *(each.reference for each in self.auxiliary.values())]
        references = [frozen for frozen in references if frozen is not None]
        for frozen in references:
            frozen.pack_rows(settings.micro_batch_tokens)
        dividing = [part for part in scorers(reward).values() if isinstance(part, Divisible)]
        self.frozen = [*references, *(model for part in dividing for model in part.divisible_models())]
        self.prompts_per_iteration = rollout_batch_size // per_prompt
        if self.prompts_per_iteration > len(prompts):
            raise DataError(f"an iteration takes {self.prompts_per_iteration} prompts, but there are {len(prompts)}")
        self.count = settings.iterations or settings.epochs * (len(prompts) // self.prompts_per_iteration)
        per_epoch = -(-rollout_batch_size // settings.batch_size)
        steps, self.planned_rows = per_epoch * algorithm.epochs, rollout_batch_size / per_epoch
        self.total_steps = self.count * steps
        self.steps: list[Step] = []
        """Steps of the iteration: fewer than planned if rewards are missing or responses are left out."""
        self.micro_batches = micro_batches_per_step(settings.batch_size, settings.micro_batch_size, settings.world)
        needs = algorithm.needs()
        if correction is not None:  # also where an iteration is one step: the engine's policy is another one
            needs |= {"old_logp"}
        elif steps == 1 and algorithm.can_skip_old_logp():
            rollouts.check_exact(sampling)  # as where `old_logp` is computed: the gradient takes that distribution
            needs -= {"old_logp"}
        self.needs = needs | reward.needs()
        note_step(reward, 0, self.total_steps)
        reward.check_prompts(prompts)
        self.watch = Watch(alarms or Alarms(), run.say, run.record_alarms)
        self.metrics: dict[str, float] = {}
        """Metrics of the last iteration."""
        self._example = self._warned = ""
        self._training_since = 0.0
        self.store: RolloutStore | None = None
        """Store of the rollouts in the product; only on rank 0, and only if some are stored."""
        if stored_rollouts and run.rank == 0:
            reward_name = name_of(reward)[1]
            self.store = RolloutStore(
                stored_rollouts, self.count, run.dir, reward_name, model.actor.tokenizer, algorithm.reads_token_rewards
            )

    # -- one iteration ------------------------------------------------------------------------------------------------

    def start(self, number: int, process: Process) -> StepLoader:
        """Return the micro-batches of an iteration's optimizer steps, computed from its prompts."""
        self.model.eval()
        seed = seeds.of_round(self.run.seed, number)
        lent_policy = self._lent_policy(seed, number) if "policy" in self.needs else None
        # the precision is that of training steps, or the probability ratio would not start at 1
        with process.forward_context(), torch.no_grad(), nullcontext() if lent_policy is None else lent_policy.lend():
            # 1. to 4. responses, and their rewards; 5. advantages
            drawer = together.in_all(lambda: self.draws.of(number))  # when nothing is drawn ahead any more
            self.draws.forget(before=self.resumable)
            self.drawer.wake()
            self.drawer.take(self.model.actor, number)
            spent = {"seconds/collect": 0.0, "seconds/score": 0.0}
            everything = self._draw(number, 0, drawer, process, lent_policy, spent)
            rollout, rewards, missing = gather.drop_missing(*everything)
            draws = 1
            while draws < self.draws_at_most:
                if len(rollout.mask):
                    tried = self._advantages(rollout, rewards)[2]
                    if self.algorithm.short_of(rollout, rewards, tried, self.prompts_per_iteration) <= 0:
                        break
                everything = gather.joined(everything, self._draw(number, draws, drawer, process, lent_policy, spent))
                draws += 1
                rollout, rewards, missing = gather.drop_missing(*everything)
            failures = [why for why in everything[0].lost or [] if why is not None]
            if failures and self.environment is not None:
                where = f"conversations of iteration {number}"
                report_failures(self.environment, failures, len(everything[0].mask), where, self.run.say)
            if not len(rollout.mask):
                text, prompt = everything[0].texts[0], everything[0].samples[0].prompt
                asked = prompt if isinstance(prompt, str) else prompt[-1].content
                example = f"for example {text[:SHOWN]!r}, the answer to {asked[:SHOWN]!r}"
                raise self.reward.nothing_scored(f"{missing} responses of iteration {number}", example)
            given = rewards
            check_known(rewards, rollout, self.algorithm, number)
            rewards, changes, advantages = self._advantages(rollout, rewards)
            if draws > 1:
                advantages = gather.first_groups(advantages, rollout.group, self.prompts_per_iteration)
            if lent_policy is not None:  # which has drawn continuations until now
                self._draw_ahead(number, process)
            if not self.ahead:
                self.drawer.rest()
            finite.check_advantages(advantages, rollout, rewards, f"iteration {number}")
            if self.algorithm.reads_token_rewards and not self._warned:
                self._warned = finite.lost_rewards(advantages, rollout, rewards)
                if self._warned:
                    self.run.say(self._warned)
            if self.store is not None:
                self.store.add(number, *everything, advantages)
            if self.correction is not None:
                changes |= mismatch.staleness(rollout, number, self.ahead)
                advantages, of_engine = mismatch.corrected(advantages, rollout, self.correction)
                changes |= of_engine
        # 6. metrics, and the alarms on them
        self.metrics = rollout_metrics(rollout, given, advantages) | {
            **changes,
            **spent,
            "missing": missing / (missing + len(rollout.mask)),
            **({} if self.environment is None else {"environment_failed": len(failures) / len(everything[0].mask)}),
            **({"draws": float(draws)} if self.draws_at_most > 1 else {}),
            "prompts_cut": self._cut(number),
        }
        if lent_policy is not None:
            self.metrics |= policies.metrics_of(together.everybody([lent_policy.use]))
        self._example = rollout.texts[0]
        self.watch.look(self.metrics, example=self._example, iteration=number)
        # 7. the responses to train on, in optimizer steps of micro-batches; 8. their losses
        if advantages.keep is not None:
            kept = advantages.keep.nonzero().flatten()
            rollout, rewards, advantages = rollout.take(kept), rewards.take(kept), advantages.take(kept)
        if not len(rollout.mask):
            raise Stopped(f"the algorithm keeps none of the responses of iteration {number}")
        units = RolloutUnits(rollout, rewards, advantages, pad_id=self.model.actor.pad_id)
        self.steps = order(len(units), self.settings.batch_size, self.algorithm.epochs, seed, even=True)
        self._training_since = time.perf_counter()
        console.phase("training")
        loader = StepLoader(
            units, self.steps, micro_batches=self.micro_batches, rank=process.rank, world=process.world,
            temperature=self.sampling.temperature, shared=self.model.actor.shares_prompts(gradient=True),
            planned_rows=self.planned_rows, packed=self.settings.micro_batch_tokens,
        )  # fmt: skip
        self.micro_batches = loader.micro_batches
        return loader

    def _draw(
        self, number: int, again: int, drawer: Drawer, process: Process, lent_policy: Any, spent: dict[str, float]
    ) -> tuple[Rollout, Rewards]:
        """Return the responses of all processes, and their rewards. again: number of earlier draws of the iteration."""
        begin = time.perf_counter()
        # 1. the iteration's prompts (those of later passes, where it draws again), and this process's share of them
        prompts = self.prompts_of(number + again * self.count)
        share = split(range(len(prompts)), process.world)[process.rank]
        # 2. responses, with the log-probabilities, entropies and values that the algorithm and the reward need
        console.phase("drawing")
        rollout = together.in_all(lambda: rollouts.collect(
            self.model.actor, self.reference, [prompts[i] for i in share],
            self.sampling, drawer, self.needs, per_prompt=self.per_prompt, critic=self.model.critic,
            seed=seeds.of_round(self.run.seed, number), first=again * len(prompts) + share[0], lent_policy=lent_policy,
            micro_batch_size=self.settings.micro_batch_size,
        ))  # fmt: skip
        rollout.columns = auxiliaries.columns(rollout, self.auxiliary, self.settings.micro_batch_size)
        if lent_policy is None:
            self._draw_ahead(number, process)
        collected = time.perf_counter()
        # 3. rewards
        console.phase("scoring")
        progress = number / (self.count - 1) if self.count > 1 else 1.0
        note_step(self.reward, number * self.total_steps // self.count, self.total_steps, progress)
        rewards = together.in_all(lambda: self._scored(rollout))
        spent["seconds/collect"] += collected - begin
        spent["seconds/score"] += time.perf_counter() - collected
        # 4. those of all processes
        return gather.everywhere(rollout, rewards, process.world) if process.world > 1 else (rollout, rewards)

    def _advantages(self, rollout: Rollout, rewards: Rewards) -> tuple[Rewards, dict[str, float], Advantages]:
        """Return the rewards for training, metrics of their changes, and the advantages."""
        changes: dict[str, float] = {}
        if self.token_rewards is not None:
            rewards, changes = self.token_rewards.applied(rollout, rewards)
        with own_code(self.algorithm, "advantages"):
            returned = self.algorithm.advantages(rollout, rewards)
        return rewards, changes, checked_advantages(self.algorithm, returned, rollout)

    def loss(self, batch: Batch) -> tuple[torch.Tensor, Numbers]:
        """Return the loss and the metrics of a micro-batch, including those of the auxiliary models."""
        loss, metrics = super().loss(batch)
        others, numbers = auxiliaries.loss(self.auxiliary, batch)
        return loss + others, metrics | numbers

    def report(self, metrics: dict[str, float], number: int) -> dict[str, float]:
        """Write the log, and check the alarms on metrics of the training itself (step 9). The checkpoint follows, if no
        alarm has stopped the training.
        """
        trained = time.perf_counter()
        everything = self.metrics | metrics | {"seconds/train": trained - self._training_since}
        if self.ahead:  # before the checkpoint, which the responses of the next iteration belong to
            self.draws.wait()
            everything["seconds/wait"] = time.perf_counter() - trained
        self.run.log(everything, step=number)
        late = {name: value for name, value in metrics.items() if name not in self.metrics}
        self.watch.look(late, example=self._example, iteration=number)
        self.metrics |= late
        by_token = self.algorithm.reads_token_rewards and "total_reward" in everything
        shown = ("total_reward" if by_token else "reward", "kl", "tokens", "entropy", "clip_fraction", "mismatch")
        return {name: everything[name] for name in shown if name in everything}

    def _draw_ahead(self, number: int, process: Process) -> None:
        """Start drawing the responses of the next iteration from the weights of this one."""
        if self.ahead and number + 1 < self.count:
            prompts = self.prompts_of(number + 1)
            share = split(range(len(prompts)), process.world)[process.rank]
            asked = rollouts.requests(
                self.model.actor.tokenizer, [prompts[i] for i in share], self.sampling, self.per_prompt,
                seed=seeds.of_round(self.run.seed, number + 1), first=share[0], converses=self.environment is not None,
            )  # fmt: skip
            self.draws.begin(number + 1, asked)

    def _scored(self, rollout: Rollout) -> Rewards:
        """Return the rewards of this process's responses."""
        rewards = scored(self.reward, rollout)
        check_columns(self.reward, rewards, self.algorithm)
        return rewards

    def _cut(self, number: int) -> float:
        """Return the share of an iteration's prompts that lose their beginning."""
        return rollouts.cut_prompts(
            self.model.actor.tokenizer, self.prompts_of(number), self.sampling.max_prompt_tokens
        ).share

    def _lent_policy(self, seed: int, number: int) -> policies.LentPolicy:
        return policies.LentPolicy(
            self.model.actor, self.drawer, self.sampling, seed=seed, name=f"in iteration {number}",
            micro_batch_size=self.settings.micro_batch_size,
        )  # fmt: skip

    # -- what it takes ------------------------------------------------------------------------------------------------

    def prompts_of(self, number: int) -> list[Sample]:
        """Return the prompts of a round: passes over all prompts, each in a different order."""
        per_epoch = len(self.prompts) // self.prompts_per_iteration
        epoch, place = divmod(number, per_epoch)
        generator = torch.Generator().manual_seed(seeds.of_round(self.run.seed, epoch))
        shuffled = torch.randperm(len(self.prompts), generator=generator).tolist()
        start = place * self.prompts_per_iteration
        return [self.prompts[i] for i in shuffled[start : start + self.prompts_per_iteration]]

    def parameter_groups(self) -> list[dict[str, Any]]:
        critic_lr = self.settings.critic_lr or self.settings.lr
        auxiliary_lr = {name: each.lr for name, each in self.auxiliary.items()}
        groups: list[dict[str, Any]] = self.model.parameter_groups(
            self.settings.lr, critic_lr, self.settings.weight_decay, auxiliary_lr
        )
        return groups

    def position(self, number: int, done: int) -> float:
        """Return the place in the learning-rate schedule. An iteration with fewer steps than planned goes through its
        part of the schedule in longer strides.
        """
        planned = self.total_steps // self.count
        return number * planned + (done * planned / len(self.steps) if done else 0)

    def progress(self, number: int) -> tuple[int, int]:
        return number, self.count

    def state_dict(self) -> dict[str, Any]:
        return {
            "algorithm": checked_state(self.algorithm, self.algorithm.state_dict()),
            "watch": self.watch.state_dict(),
            "collected": {name: float(value) for name, value in self.metrics.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.algorithm.load_state_dict(state["algorithm"])
        self.watch.load_state_dict(state["watch"])
        self.metrics = state["collected"]


def scored(reward: Reward, rollout: Rollout) -> Rewards:
    """Return the rewards of a rollout; the reward of a conversation in which the environment failed is missing."""
    rewards = reward.scored(rollout)
    if rollout.lost is not None:
        lost = torch.tensor([why is not None for why in rollout.lost], device=rewards.response.device)
        rewards.response = rewards.response.masked_fill(lost, torch.nan)
    return rewards


def check_known(rewards: Rewards, rollout: Rollout, algorithm: OnlineAlgorithm, number: int) -> None:
    """Raise `Stopped` if an algorithm reads the rewards of single criteria, and all of them are missing in an
    iteration.
    """
    criterion = rewards.criterion
    if (
        "criterion" in algorithm.reads()
        and criterion is not None
        and bool(criterion.isnan().all(dim=1)[rollout.drawn].all())
    ):
        raise Stopped(
            f"{name_of(algorithm)[1]} reads the rewards of single criteria, and all of iteration {number} are missing: no prompt has a "
            "rubric, or every verdict or relevance failed. Look at them with `fgrl inspect`"
        )


def check_columns(reward: Reward, rewards: Rewards, algorithm: OnlineAlgorithm) -> None:
    """Raise `DataError` if rewards have columns that the reward does not declare, or lack columns that the algorithm
    reads.
    """
    undeclared = sorted(rewards.columns.keys() - reward.fills())
    if undeclared:
        raise DataError(
            f'the reward {name_of(reward)[1]} fills the column "{undeclared[0]}": name it in its `fills()`, so that a recipe can be '
            "checked before it runs"
        )
    for name in sorted(algorithm.reads()):
        try:
            rewards.column(name)
        except ValueError as missing:
            raise DataError(f"the algorithm {name_of(algorithm)[1]}: {missing}") from None

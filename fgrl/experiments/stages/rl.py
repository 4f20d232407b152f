"""Training of a policy on its own samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from fgrl.base import console, lazy
from fgrl.base.errors import DataError
from fgrl.data.sliced_reader import SlicedReader
from fgrl.experiments.stages.training import TrainingStage
from fgrl.kinds import (
    REFERENCE_OUTPUTS,
    AuxiliarySettings,
    Engine,
    Environment,
    MadeModel,
    OnlineAlgorithm,
    Peek,
    Reader,
    Reward,
    Run,
    ToDraw,
    auxiliaries,
    check_needs,
    check_scorer,
    default_engine,
    note_step,
    scorers,
)
from fgrl.kinds.auxiliary import Declared
from fgrl.kinds.specs import ModelSpec, Sampling
from fgrl.registry import Key, Settings, Unkeyed, dump, get, name_of, names, register, walk
from fgrl.training.alarms import Alarms
from fgrl.training.evaluations import TrainingEvaluation
from fgrl.training.token_rewards import TokenRewards
from fgrl.training.trainer import OnlineSettings
from fgrl.types import Sample

if TYPE_CHECKING:
    from fgrl.experiments.stages.counting import Work
    from fgrl.training.memory import Role
    from fgrl.training.training_module import TrainingModule
conversing = lazy.load("fgrl.rollouts.conversing")
auxiliary_models = lazy.load("fgrl.training.auxiliaries")
estimating = lazy.load("fgrl.feedback.llm.estimating")
memory = lazy.load("fgrl.training.memory")
models = lazy.load("fgrl.models")
counting = lazy.load("fgrl.experiments.stages.counting")
gather = lazy.load("fgrl.training.gather")
kept = lazy.load("fgrl.rollouts.kept")
online = lazy.load("fgrl.training.online")
overlaps = lazy.load("fgrl.experiments.stages.overlaps")
policies = lazy.load("fgrl.rollouts.policies")
previews = lazy.load("fgrl.experiments.stages.previews")
rollouts = lazy.load("fgrl.rollouts")
sizes = lazy.load("fgrl.experiments.stages.sizes")
sources = lazy.load("fgrl.models.sources")
trained_prompts = lazy.load("fgrl.rollouts.trained_prompts")
torch = lazy.load("torch")
training = lazy.load("fgrl.training.trainer")


class RolloutSettings(Settings):
    """Number of samples of an iteration, and the settings of sampling."""

    batch_size: int = Field(ge=1, le=10_000_000)
    """Number of responses of one iteration, over all devices."""
    per_prompt: int = Field(1, ge=1, le=100_000)
    """Number of responses to each prompt."""
    draws_at_most: int = Field(1, ge=1, le=1_000)
    """Maximum number of draws of an iteration. Each draw answers the same number of new prompts, until the algorithm
    has as many groups as it wants. More than 1 is for algorithms that leave groups out and replace them, such as DAPO.
    Whether another draw is made depends on the responses drawn so far, which is a bias.
    """
    sampling: Sampling
    """Settings of sampling: temperature, limits and more."""
    drop_long_prompts: bool = False
    """True if prompts of more than `sampling.max_prompt_tokens` tokens are left out before the first iteration;
    otherwise they lose their beginning.
    """
    engine: Engine = Field(default_factory=default_engine)
    """Engine that draws the responses."""
    environment: Environment | None = None
    """Environment that the policy interacts with; null: a response is one turn."""

    @model_validator(mode="after")
    def _check(self) -> RolloutSettings:
        if self.batch_size % self.per_prompt:
            below = self.batch_size // self.per_prompt * self.per_prompt
            near = " and ".join(str(size) for size in (below, below + self.per_prompt) if size)
            raise ValueError(
                f"batch_size {self.batch_size} is not a multiple of per_prompt {self.per_prompt}; {near} would be"
            )
        if reasons := self.sampling.inexact():
            raise ValueError(
                f"sampling.{reasons[0].partition(':')[0]}: training needs the exact probability of each sampled token, which top_p < 1, top_k "
                "and greedy decoding change; sample with temperature > 0 alone, or set sampling.truncated to allow top_p and "
                "top_k all the same"
            )
        if why := self.engine.refuses(self.sampling):
            raise ValueError(f"sampling.{why}")
        self._check_correction()
        if self.draws_at_most > 1 and self.engine.draws_ahead():
            raise ValueError("draws_at_most: an engine that draws ahead cannot draw again; set engine.ahead: 0")
        return self

    def _check_correction(self) -> None:
        """Raise ValueError if the correction for an engine's probabilities would be biased, or is missing."""
        correction, engine = self.engine.correction(), name_of(self.engine)[1]
        kind = "none" if correction is None else correction.kind
        if kind != "none" and self.sampling.truncated:
            raise ValueError(
                f"sampling.truncated: true with engine.correct: {kind} of {engine} would be biased: top_p and top_k change "
                "the probabilities with which tokens are drawn, and the importance weights would undo that instead of correcting "
                "for the engine; set engine.correct: none, or sample without top_p, top_k and truncated"
            )
        if self.engine.draws_ahead() and kind == "none":
            raise ValueError(
                f"engine.ahead: 1 of {engine} trains on responses of the policy before the last update, without a correction for "
                "it: set engine.correct to truncate or mask, or engine.ahead: 0"
            )


_IN_WORDS = {"criterion": "rewards of single tokens, spans or criteria"}
"""Names of fields of `Rewards` in messages."""


def _algorithms() -> Iterator[tuple[str, type[OnlineAlgorithm]]]:
    known = ((name, get("online_algorithm", name)) for name in names("online_algorithm"))
    return ((name, cls) for name, cls in known if issubclass(cls, OnlineAlgorithm))


@register("rl")
class RLStage(TrainingStage):
    """Training with an online algorithm and a reward on prompts."""

    prompts: Reader
    """Reader of the prompts that the policy answers."""
    model: ModelSpec
    """Model from which the policy starts. In its initial state it is also the reference."""
    critic: ModelSpec | None = None
    """Model from which the critic starts; null: the policy's start with a new head."""
    reward: Reward
    """Reward of a response, for each of its tokens."""
    token_rewards: TokenRewards | None = None
    """Changes to the token rewards before the algorithm reads them; null: no changes."""
    algorithm: OnlineAlgorithm
    """Algorithm that updates the policy."""
    rollout: RolloutSettings
    """Number of samples of an iteration, and the settings of sampling."""
    train: OnlineSettings
    """Optimizer, schedule, hardware."""
    evaluate: TrainingEvaluation | None = None
    """Evaluation of the policy on held-out prompts during training; null: no evaluation."""
    alarms: Annotated[Alarms, Unkeyed] = Alarms()
    """Conditions of the training to watch for."""
    stored_rollouts: Annotated[int, Unkeyed] = Field(4, ge=0, le=1_000_000)
    """Number of rollouts of each of the first, the middle and the last iteration that are stored in the product
    (rollouts.jsonl), which the report draws. 0 stores none.
    """

    @model_validator(mode="after")
    def _known_needs(self) -> RLStage:
        check_needs(self.algorithm, self.algorithm.needs(), field="algorithm")
        check_scorer(self.reward, field="reward", trains=True)
        return self

    @model_validator(mode="after")
    def _auxiliaries(self) -> RLStage:
        for path, (spec, _head) in self._auxiliary_starts().items():
            self.check_type(".".join(map(str, path)), spec)
        return self

    def auxiliaries(self) -> dict[str, Declared]:
        """Return the models that the reward and the algorithm train in addition to the policy, by name."""
        return auxiliaries([self.algorithm, self.reward])

    def _auxiliary_starts(self) -> dict[Key, tuple[ModelSpec, str]]:
        """Return the start of each auxiliary model and the kind of its head, by the place in the recipe that names the
        start.
        """
        heads = {id(each.auxiliary.settings): each.auxiliary.head for each in self.auxiliaries().values()}
        return {
            (*path, "start"): (part.start, heads[id(part)])
            for path, part in walk(self)
            if isinstance(part, AuxiliarySettings) and part.start is not None and id(part) in heads
        }

    @model_validator(mode="after")
    def _enough_prompts(self) -> RLStage:
        limit = self.prompts.limit if isinstance(self.prompts, SlicedReader) else None
        at_once = self.rollout.batch_size // self.rollout.per_prompt
        if limit is not None and limit < at_once:
            raise ValueError(
                f"prompts.limit {limit} is below the {at_once} prompts of one iteration (rollout.batch_size / per_prompt)"
            )
        return self

    @model_validator(mode="after")
    def _check(self) -> RLStage:
        if self.evaluate is not None and not self.evaluate.sets:
            raise ValueError("evaluate: nothing to evaluate: name held-out prompts under `sets`")
        if self.rollout.batch_size % self.train.batch_size:
            raise ValueError(
                f"rollout.batch_size {self.rollout.batch_size} is not a multiple of "
                f"train.batch_size {self.train.batch_size}"
            )
        if self.critic is not None and self.algorithm.uses_critic():
            self.check_type("critic", self.critic)
        least = self.algorithm.min_per_prompt
        if self.rollout.per_prompt < least:
            raise ValueError(
                f"{name_of(self.algorithm)[1]} compares the responses to a prompt with each other: set "
                f"rollout.per_prompt to {least} or more"
            )
        leaves_out = type(self.algorithm).short_of is not OnlineAlgorithm.short_of
        if self.rollout.draws_at_most > 1 and not (leaves_out and getattr(self.algorithm, "skip_zero_variance", True)):
            raise ValueError(
                f"rollout.draws_at_most: {name_of(self.algorithm)[1]} as it is set here leaves no group out, so that nothing is drawn again: "
                "set algorithm.skip_zero_variance, or draws_at_most to 1"
            )
        if self.token_rewards is not None:
            self.token_rewards.check(self.reward, self.algorithm, self.rollout.per_prompt)
        unfilled = self.algorithm.reads() - self.reward.fills()
        if unfilled:
            fitting = [name for name, cls in _algorithms() if cls.columns_read <= self.reward.fills()]
            raise ValueError(
                f"{name_of(self.algorithm)[1]} learns from {' and '.join(_IN_WORDS.get(name, name) for name in sorted(unfilled))}, "
                f"and the reward {name_of(self.reward)[1]} as it is set here gives none: use a reward that does, or an "
                f"algorithm that fits this one: {', '.join(fitting)}"
            )
        if self.train.sharded and "policy" in self.algorithm.needs() | self.reward.needs():
            raise ValueError(
                f"train.strategy {self.train.strategy} leaves each device with a part of the weights, which all devices have to read "
                "equally often, and the reward or the algorithm makes passes of its own through the policy: use ddp or deepspeed_stage_2"
            )
        if self.rollout.batch_size // self.rollout.per_prompt < self.train.world:
            raise ValueError(
                f"rollout.batch_size {self.rollout.batch_size} has {self.rollout.batch_size // self.rollout.per_prompt} "
                f"prompts, fewer than devices {self.train.world}: a device would have nothing to sample"
            )
        return self

    def engines(self) -> dict[str, Engine]:
        return {"rollout.engine": self.rollout.engine, **super().engines()}

    def warnings(self) -> list[str]:
        warnings, environment = self.train.warnings(), self.rollout.environment
        if environment is not None and not environment.reproducible:
            warnings.append(
                f"rollout.environment: {name_of(environment)[1]} is not reproducible: after a kill unfinished conversations are begun "
                "again and may go otherwise, so weights are not those of an undisturbed run"
            )
        if not self.reward.on_tokens() or self.algorithm.reads_token_rewards or self.algorithm.reads():
            return warnings
        using = ", ".join(name for name, cls in _algorithms() if cls.reads_token_rewards or cls.columns_read)
        return [
            *warnings,
            f"algorithm: {name_of(self.algorithm)[1]} trains on the reward of the whole response alone; which tokens the reward "
            f"{name_of(self.reward)[1]} is on is ignored (algorithms that use token rewards: {using})",
        ]

    def heads(self) -> dict[Key, tuple[ModelSpec, str]]:
        critic: dict[Key, tuple[ModelSpec, str]] = {} if self.critic is None else {("critic",): (self.critic, "scalar")}
        return {("model",): (self.model, "lm"), **critic, **self._auxiliary_starts()}

    def makes_model(self) -> MadeModel:
        others = {
            name: MadeModel(each.auxiliary.start(self.model), each.auxiliary.head)
            for name, each in self.auxiliaries().items()
        }
        return replace(super().makes_model(), auxiliaries=others)

    def estimate(self, peek: Peek) -> dict[str, Any]:
        rollout, train = self.rollout, self.train
        roles, notes = self._roles()
        drawn = sizes.drawn(rollout.sampling, -(-rollout.batch_size // train.world), rollout.per_prompt)
        here = ([drawn] if rollout.engine.elsewhere() is None else []) + self.drawn_in_evaluations()
        sampled = max(here, key=lambda shape: shape.rows * shape.tokens, default=None)
        workload = memory.Workload(
            [*roles, *self.models_of_evaluations()], train, sampled=sampled, sampler="actor", trained=sizes.trained(train, drawn.tokens, scored=drawn.scored), passed=sizes.drawn(rollout.sampling.model_copy(update={"batch_size": self._read_at_once()}), None, rollout.per_prompt), copies=rollout.engine.copies_weights(), notes=notes,
        )  # fmt: skip
        engine = sizes.of_engine(rollout.engine, self.model, rollout.sampling, rollout.batch_size, train, peek)
        talks = sizes.conversations(rollout.environment, rollout.sampling)
        return memory.estimate(workload, peek) | engine | talks | self._calls(peek) | overlaps.in_training(self, peek)

    def _read_at_once(self) -> int:
        """Return the largest number of responses that a pass without gradients reads at a time."""
        parts = (self.reward, *(part for _path, part in walk(self.reward)))
        most = max(getattr(part, "micro_batch_size", 0) for part in parts)
        return min(-(-self.rollout.batch_size // self.train.world), max(self.train.micro_batch_size, most))

    def _roles(self) -> tuple[list[Role], dict[str, str]]:
        """Return the models that an iteration uses, and notes on roles that need no weights of their own."""
        frozen = self.reads_reference()
        roles = [memory.Role("actor", self.model, "lm", trained=True)]
        if self.algorithm.uses_critic():
            roles.append(memory.Role("critic", self.critic or self.model, "scalar", trained=True))
        if frozen and not self.model.lora:
            roles.append(memory.Role("reference", self.model, divisible=True))
        notes = {"reference": "actor without its adapter"} if frozen and self.model.lora else {}
        for name, made in self.makes_model().auxiliaries.items():
            roles.append(memory.Role(name, made.start, made.head, trained=True))
            if self.auxiliaries()[name].auxiliary.reference and made.start.lora:
                notes[f"{name} reference"] = f"{name} without its adapter"
            elif self.auxiliaries()[name].auxiliary.reference:
                roles.append(memory.Role(f"{name} reference", made.start, made.head, divisible=True))
        roles += sizes.scorers("reward_model", self.reward)
        return roles, notes

    def work(self, peek: Peek) -> Iterator[Work]:
        """Yield the work of all iterations: drawing, passes through each model, and training. Evaluations are not
        included.
        """
        roles, _notes = self._roles()
        rollout, sampling, (at_once, train) = self.rollout, self.rollout.sampling, self._prompts_at_once(peek.limit)
        given = counting.texts(self.prompts, peek, sampling.max_prompt_tokens, sampling.max_new_tokens)
        times = train.iterations or train.epochs * (given.rows // at_once)
        drawn = replace(given, rows=at_once * rollout.per_prompt, per_prompt=rollout.per_prompt)
        yield from counting.drawing(roles[0], drawn, sampling, rollout.engine, peek, devices=train.world, times=times)
        yield from counting.answering(
            self.reward, drawn.rows, given.prompt + given.response, peek, devices=train.world, times=times
        )
        shards = train if train.strategy == "fsdp" else None
        reference = [memory.Role("reference", self.model)] if self.reads_reference() and self.model.lora else []
        for role in [*roles, *reference]:
            if not counting.is_asked(self.reward, role.spec):
                often = times * counting.readings([self.reward], role, drawn)
                yield counting.passing(f"pass of {role.name}", role, drawn, peek, train.world, often, shards)
            if role.trained:
                again = times * self.algorithm.epochs
                yield counting.training(role, drawn, peek, train, times // train.checkpoint_every, again)

    def total_steps(self) -> int | None:
        return self.train.iterations

    def _calls(self, peek: Peek) -> dict[str, Any]:
        """Return an upper bound on the number of questions that the reward, the environment and the evaluations ask in
        the whole training, for a plan.

        In the last, incomplete pass over the prompts, the prompts with the most questions are counted, since their
        order is not known.
        """
        parts = [part for part in (self.reward, self.rollout.environment) if part is not None]
        asking = [(part, client) for part in parts if (client := part.asked_client()) is not None]
        if not asking and not (self.evaluate and self.evaluate.asks()):
            return {}

        def compute() -> dict[str, Any] | None:
            self.prompts.setup(peek)
            at_once, train = self._prompts_at_once(peek.limit)
            prompts = list(islice(self.prompts.read(), peek.limit and max(peek.limit, at_once)))
            per_pass = len(prompts) // at_once * at_once
            if not per_pass:
                raise DataError(f"an iteration takes {at_once} prompts, but there are {len(prompts)}")
            iterations = train.iterations or train.epochs * (per_pass // at_once)
            asked = self.evaluate.loads(iterations, peek) if self.evaluate else []
            for part, client in asking:
                bounds = [estimating.at_most(part, self._to_draw(prompt), peek) for prompt in prompts]
                if not all(bounds):
                    return None
                loads = [load for ((_client, load),) in bounds]
                drawn = iterations * at_once * self.rollout.draws_at_most
                asked.append((client, estimating.of_passes(loads, drawn, per_pass)))
            return estimating.bill(asked, bound=True)

        return estimating.section(compute)

    def _prompts_at_once(self, limit: int | None) -> tuple[int, OnlineSettings]:
        """Return the number of prompts of an iteration, and `train`. With `--limit` all iterations together take that
        many prompts, or as many as there are devices.
        """
        at_once = self.rollout.batch_size // self.rollout.per_prompt
        if limit is None:
            return at_once, self.train
        at_once = max(self.train.world, min(at_once, limit))
        return at_once, self.limited("iterations", max(1, limit // at_once))

    def _to_draw(self, prompt: Sample) -> ToDraw:
        return ToDraw(lambda: [prompt], lambda: (1, 1), ["policy"], self.rollout.per_prompt, self.rollout.sampling)

    def reads_reference(self) -> bool:
        """Return True if the algorithm, the reward or an evaluation needs log-probabilities or entropies of the
        reference.
        """
        scoring = scorers(self.reward).values()
        needs = self.algorithm.needs().union(*(part.needs() for part in scoring))
        declared = any(part.reads_reference for part in scoring)
        evaluated = self.evaluate is not None and self.evaluate.reads_reference()
        return declared or evaluated or bool(needs & REFERENCE_OUTPUTS)

    def run(self, run: Run) -> dict[str, Any]:
        # 1. components and models: the policy, its critic, the frozen reference (with an adapter: the policy without it)
        self.train.check_machine()
        run.sampling = self.rollout.sampling
        self.setup(run)
        check_scorer(self.reward, field="reward", trains=True)
        shards = self.train.strategy == "fsdp"
        actor = run.model(self.model, head="lm", trainable=True, shards=shards)
        critic = None
        if self.algorithm.uses_critic():
            critic = run.model(self.critic or self.model, head="scalar", trainable=True, shards=shards)
        beside = auxiliary_models.load(self.auxiliaries(), run, self.model)
        tokenizers = {name: each.model.tokenizer for name, each in beside.items()}
        rollouts.check_same_tokens(
            actor, critic=critic and critic.tokenizer, reward=self.reward.tokenizer(), **tokenizers
        )
        reference = None
        if self.reads_reference() and not self.model.lora:
            reference = run.model(self.model, head="lm", shards=shards)
        for warning in self.warnings():
            run.say(f"warning: {warning}")
        # 2. training: `OnlineRounds.start` is one iteration, from prompts to micro-batches
        at_once, train = self._prompts_at_once(run.limit)
        prompts = list(islice(self.prompts.read(), run.limit and max(run.limit, at_once)))
        cut = rollouts.cut_prompts(actor.tokenizer, prompts, self.rollout.sampling.max_prompt_tokens)
        if cut.cut and self.rollout.drop_long_prompts:
            prompts = [each for each, long in zip(prompts, cut.long, strict=True) if not long]
            run.say(f"{cut.cut:,} of {cut.count:,} prompts are longer than max_prompt_tokens {cut.limit}, and left out")
            if len(prompts) < at_once:
                raise DataError(f"an iteration takes {at_once} prompts, and {len(prompts)} are short enough")
        elif cut.cut:
            run.say(cut.warning())
        responses = at_once * self.rollout.per_prompt
        if train.sharded:
            run.forget_models()  # judges draw from the same ones, and need whole weights
        drawer = self.rollout.engine.open(actor)
        rounds = online.OnlineRounds(
            models.ActorCritic(actor, critic, {name: each.model for name, each in beside.items()}),
            self.algorithm, self.reward, prompts, train, run,
            drawer=drawer, sampling=self.rollout.sampling, rollout_batch_size=responses,
            per_prompt=self.rollout.per_prompt, reference=reference, alarms=self.alarms,
            stored_rollouts=self.stored_rollouts, token_rewards=self.token_rewards, auxiliary=beside,
            correction=self.rollout.engine.correction(), ahead=self.rollout.engine.draws_ahead(),
            environment=self.rollout.environment, draws_at_most=self.rollout.draws_at_most,
        )  # fmt: skip
        named = [prompt.prompt for prompt in prompts if prompt.prompt]  # not those that an environment brings
        digests = [digest for prompt in named for digest in trained_prompts.digests(prompt)]
        made = self.evaluations(run, actor, reference, self.trained_before(run).union(digests))
        with drawer, rounds.draws:
            module = self.fit(run, rounds, self.train.checkpoint_every, made)
        for name, each in beside.items() if run.rank == 0 else ():
            made_of = self.trained(run, module, each.model, prefix=f"auxiliary.{name}.", start=each.start)
            models.save(made_of, run.out / sources.AUXILIARIES / name, {"auxiliary of": dump(each.declared.owner)})
        if rounds.store is not None:
            rounds.store.hand_on(run.out)
        self.record_prompts(run, digests)
        summary: dict[str, Any] = {"iterations": module.round, "responses": module.round * responses} | {
            f"last {'response ' * (name == 'reward')}{name}": value
            for name, value in rounds.metrics.items()
            if name in ("reward", "kl", "tokens")
        }
        return summary | (made.summary() if made else {})

    def temporary(self) -> Sequence[str]:
        return (*super().temporary(), kept.FOLDER)

    def save(self, run: Run, module: TrainingModule, folder: Path) -> None:
        """Save only the policy."""
        actor = self.trained(run, module, module.model.actor, prefix="actor.")
        models.save(actor, folder, {"algorithm": dump(self.algorithm)})

    def inspect(self, run: Run, count: int) -> Iterator[Any]:
        """Yield responses of the policy before training, `per_prompt` for each prompt, with segments, token rewards,
        and the advantages that the tokens would have in the loss if these responses were the iteration.
        """
        run.sampling = self.rollout.sampling
        self.setup(run)
        model = run.model(self.model.model_copy(update={"lora": None}))
        needs, per_prompt = self.reward.needs() | self.algorithm.needs(), self.rollout.per_prompt
        critic = None
        if "values" in needs:
            critic = run.model((self.critic or self.model).model_copy(update={"lora": None}), head="scalar")
        drawer = self.rollout.engine.open(model)
        lent = policies.LentPolicy(
            model, drawer, self.rollout.sampling, seed=run.seed, name="before training",
            micro_batch_size=self.train.micro_batch_size,
        )  # fmt: skip
        prompts = list(islice(self.prompts.read(), -(-count // per_prompt)))
        talker = conversing.talking(drawer, self.rollout.environment, model)
        with drawer, torch.no_grad(), lent.lend():
            drawer.take(model, 0)
            console.phase("drawing")
            rollout = rollouts.collect(
                model, model, prompts, self.rollout.sampling, talker, needs, per_prompt=per_prompt,
                seed=run.seed, critic=critic, micro_batch_size=self.train.micro_batch_size, lent_policy=lent,
            )  # fmt: skip
            beside = auxiliary_models.load(self.auxiliaries(), run, self.model, trainable=False)
            rollout.columns = auxiliary_models.columns(rollout, beside, self.train.micro_batch_size)
            note_step(self.reward, 0, self.train.iterations or self.train.epochs)
            console.phase("scoring")
            rewards = online.scored(self.reward, rollout)
            online.check_columns(self.reward, rewards, self.algorithm)
            scored, known, _missing = gather.drop_missing(rollout, rewards)
            if self.token_rewards is not None and len(scored.mask):
                known, _metrics = self.token_rewards.applied(scored, known)
            new = critic is not None and not critic.number.trained
            advantages = self.algorithm.advantages(scored, known) if len(scored.mask) and not new else None
        if new:
            run.say(
                "advantages are not shown: they would be computed from the critic's new head, which is noise before training"
            )
        by_token = self.algorithm.reads_token_rewards
        yield from previews.of_rollout(rollout, rewards, model.tokenizer, advantages=advantages, by_token=by_token)

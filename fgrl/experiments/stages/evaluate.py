"""Evaluation of several models on the same prompts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fgrl.base import lazy, ranks
from fgrl.base.errors import DataError
from fgrl.base.files import write_json
from fgrl.experiments.stages import names
from fgrl.kinds import Asker, Metric, Peek, Reader, Reward, Run, Stage, check_scorer
from fgrl.kinds.needs import REFERENCE_OUTPUTS
from fgrl.kinds.specs import ModelSpec, Sampling
from fgrl.measuring import answer_files, comparison, given
from fgrl.measuring.answer import Answer, read_answers, write_answers
from fgrl.measuring.comparison import Compared, Comparison
from fgrl.measuring.held_out import HeldOut, judged, meanings, measure
from fgrl.measuring.number_names import NumberName
from fgrl.measuring.overlap import HeldOutItem, settle
from fgrl.measuring.reward_numbers import OfRewards
from fgrl.registry import Key, Unkeyed, build, name_of, register, walk
from fgrl.types import Product, Ref, Report, Sample

if TYPE_CHECKING:
    from fgrl.experiments.stages.counting import Work
    from fgrl.training.memory import Role
answering = lazy.load("fgrl.measuring.answering")
counting = lazy.load("fgrl.experiments.stages.counting")
estimating = lazy.load("fgrl.feedback.llm.estimating")
memory = lazy.load("fgrl.training.memory")
overlaps = lazy.load("fgrl.experiments.stages.overlaps")
policy_records = lazy.load("fgrl.measuring.policy_records")
rollouts = lazy.load("fgrl.rollouts")
sizes = lazy.load("fgrl.experiments.stages.sizes")
trained_prompts = lazy.load("fgrl.rollouts.trained_prompts")


MEASURES_REWARDS = ("metric", "token_reward")
"""Kind and name of the metric that measures rewards."""


@register("evaluate")
class EvaluateStage(Stage, HeldOut):
    """Answers of every model to held-out prompts, metrics with intervals, differences to a baseline."""

    makes: ClassVar[type[Product]] = Report

    models: dict[str, ModelSpec] = {}
    """Models to compare, by the names that tables show."""
    given: dict[str, Reader] = {}
    """Readers of existing answers to compare, by name: samples with one or several responses to each prompt, with the
    same ids as the prompts.
    """
    baseline: str
    """Name of the model for differences, in `models` or `given`."""
    reference: str | None = None
    """Name of the reference model for KL and likelihood; null: the baseline, if it is one of `models`."""
    rewards: dict[str, Reward] = {}
    """Rewards whose token values are recorded for every answer. The metric `token_reward` measures them, also if it is
    not listed.
    """
    sampling: Sampling | None = None
    """Settings of sampling; required if there are `models`."""
    temperatures: dict[str, Annotated[float, Field(ge=0, le=100)]] = {}
    """Temperatures other than that of `sampling`, by the prompts' `meta.category`, as in MT-Bench: {writing: 0.7}."""
    files: list[Literal["alpaca_eval", "arena_hard", "mt_bench"]] = []
    """Benchmarks in whose formats the answers are also written, for their own judges (see `answer_files`)."""
    show: Annotated[int, Unkeyed] = Field(10, ge=0)
    """Number of answers printed at the end."""
    devices: Annotated[int, Unkeyed] = Field(1, ge=1, le=100_000)
    """Number of processes that share the drawing and scoring of answers, and the questions of metrics to a `local`
    model, one per device. It must be 1 if servers draw. The result is the same as with one process.
    """

    def processes(self) -> int:
        """Return `devices` if models answer, or if metrics ask a model of this machine."""
        return super().processes() if self.models or self._asks_here() else 1

    def _asks_here(self) -> bool:
        """Return True if metrics ask a model of this machine, so that all processes measure together."""
        return any(counting.local_clients(metric) for metric in self.metrics)

    @property
    def names(self) -> list[str]:
        """Return the names of everything that is compared."""
        return [*self.models, *self.given]

    @property
    def likelihoods_of(self) -> str | None:
        """Return the name of the reference model for KL and likelihood, or None if there is none."""
        return self.reference or (self.baseline if self.baseline in self.models else None)

    @model_validator(mode="after")
    def _names(self) -> EvaluateStage:
        if not self.names:
            raise ValueError("nothing to compare: name models under `models`, or answers under `given`")
        if self.models and self.sampling is None:
            raise ValueError("models are asked for answers: say how to draw them under `sampling`")
        twice = next((name for name in self.given if name in self.models), None)
        if twice is not None:
            raise ValueError(f"{twice!r} is under `models` and under `given`: one of them needs another name")
        names.check("model", self.names, self.baseline)
        if self.reference is not None and self.reference not in self.models:
            known = ", ".join(self.models) or "none"
            raise ValueError(f"reference {self.reference!r} is not one of the models that are drawn from: {known}")
        return self

    @model_validator(mode="after")
    def _metrics(self) -> EvaluateStage:
        for name, reward in self.rewards.items():
            check_scorer(reward, field=f"rewards.{name}")
        for metric in self.metrics:
            metric.check_rewards(self.rewards)
            metric.check_models(self.names, self.baseline)
            if self.likelihoods_of is None and metric.needs() & {"ref_logp", "kl"}:
                raise ValueError(
                    f"{name_of(metric)[1]} is taken to a model, and the baseline {self.baseline!r} is only answers: name "
                    "one of `models` as `reference`"
                )
        return self

    def draws(self) -> bool:
        return bool(self.models)

    def every_metric(self) -> list[Metric]:
        """Return `metrics`, and `token_reward` if there are rewards that no listed metric measures."""
        if not self.rewards or any(name_of(metric) == MEASURES_REWARDS for metric in self.metrics):
            return self.metrics
        return [*self.metrics, build(*MEASURES_REWARDS)]

    def number_names(self) -> list[str]:
        """Return the names of the numbers that its metrics measure, `METRIC.NUMBER`. Names that are known only after
        measuring, such as those of a user's metric, are given as patterns.
        """
        found = []
        for metric in self.every_metric():
            declares_all = isinstance(metric, Comparison) and type(metric).__module__.startswith("fgrl.")
            own = metric.meanings if declares_all else {}
            called = metric.called if isinstance(metric, Compared) else "*"
            rewards = self.rewards if isinstance(metric, OfRewards) else ("*",)
            keys = [pattern.replace("*", reward) for pattern in own for reward in rewards]
            found += [str(NumberName(called, key)) for key in keys or ("", "*")]
        return list(dict.fromkeys(found))

    def heads(self) -> dict[Key, tuple[ModelSpec, str]]:
        return {("models", name): (model, "lm") for name, model in self.models.items()}

    def estimate(self, peek: Peek) -> dict[str, Any]:
        roles = self._measuring()
        return (
            sizes.drawing(self.models, self.sampling, self.engine, peek, roles, self.per_prompt)
            | ({} if self.sampling is None else sizes.conversations(self.environment, self.sampling))
            | self._calls(peek)
            | overlaps.in_plan(self.models, self.prompts, peek)
        )

    def _measuring(self) -> list[Role]:
        """Return the models of rewards and metrics."""
        roles = [role for name, reward in self.rewards.items() for role in sizes.scorers(f"reward {name}", reward)]
        return [*roles, *sizes.of_metrics(self.every_metric())]

    def work(self, peek: Peek) -> Iterator[Work]:
        """Yield the work of drawing from every model, of passes of its answers through the model and the reference, of questions
        to local models about all answers, and of one pass of these answers through each other model that measures them.
        """
        if self.sampling is None:  # all answers are given
            raise counting.Uncounted("its answers are given")
        texts = counting.texts(self.prompts, peek, self.sampling.max_prompt_tokens, self.sampling.max_new_tokens)
        drawn = replace(texts, rows=texts.rows * self.per_prompt, per_prompt=self.per_prompt)
        devices = self.processes()
        read = self.needs().union(*(reward.needs() for reward in self.rewards.values()))
        own = not read.isdisjoint({"logp", "kl", "old_logp", "ref_kl", "entropy"})
        other = any(reward.reads_reference for reward in self.rewards.values())
        other = other or not read.isdisjoint(REFERENCE_OUTPUTS | {"kl"})
        for name, model in self.models.items():
            role, often = memory.Role(name, model), max(own, other) if name == self.likelihoods_of else own + other
            yield from counting.drawing(role, drawn, self.sampling, self.engine, peek, devices=devices)
            if often:
                yield counting.passing(f"pass of {name}", role, drawn, peek, devices, often)
        asking, answers = [*self.rewards.values(), *self.metrics], drawn.rows * len(self.models)
        for part in asking:
            yield from counting.answering(part, answers, texts.prompt + texts.response, peek, devices=devices)
        of_rewards = [part for reward in self.rewards.values() for _path, part in walk(reward)]
        for role in self._measuring():
            if not any(counting.is_asked(part, role.spec) for part in asking):
                often = len(self.models) * counting.readings(asking, role, drawn)
                sharing = devices if any(part is role.spec for part in of_rewards) else 1
                yield counting.passing(f"pass of {role.name}", role, drawn, peek, sharing, often)

    def _calls(self, peek: Peek) -> dict[str, Any]:
        """Return the number of questions, for a plan: exact if all answers are given, else an upper bound."""
        drawn = list(self.models)
        askers: list[tuple[Asker, list[str]]] = [(metric, self.names) for metric in self.metrics]
        askers += [(reward, drawn) for reward in self.rewards.values() if drawn]
        askers += [] if self.environment is None else [(self.environment, drawn)]
        if not any(asker.asked_client() for asker, _models in askers):
            return {}

        def compute() -> dict[str, Any] | None:
            if not drawn:
                return self._exact_calls(peek)
            assert self.sampling is not None  # always, where models are drawn from
            loads = [
                load
                for asker, models in askers
                for load in estimating.at_most(asker, self.to_draw(models, self.sampling, peek), peek)
            ]
            return estimating.bill(loads, bound=True)

        return estimating.section(compute)

    def _exact_calls(self, peek: Peek) -> dict[str, Any] | None:
        """Return the number of the metrics' questions, which is exact because all answers are given."""
        for reader in (self.prompts, *self.given.values()):
            reader.setup(peek)
        prompts, cut = self.asked(peek.limit), peek.limit is not None
        answers = {name: given.answers(name, reader.read(), prompts, cut=cut) for name, reader in self.given.items()}
        return estimating.bill(
            [
                (client, estimating.known(client, metric.asks(answers, baseline=self.baseline), peek))
                for metric in self.metrics
                if (client := metric.asked_client()) is not None
            ]
        )

    def run(self, run: Run) -> dict[str, Any]:
        run.sampling = self.sampling
        self.setup(run)
        prompts = self.asked(run.limit)
        for name, reward in self.rewards.items():
            check_scorer(reward, field=f"rewards.{name}")
        for reward in self.rewards.values():
            reward.check_prompts(prompts)
        for metric in self.metrics:
            metric.check_prompts(prompts)
        categories = {str(prompt.meta.get("category")) for prompt in prompts}
        unknown = sorted(set(self.temperatures) - categories)
        if unknown and run.limit is None:
            raise DataError(
                f"temperatures: no prompt has the category {unknown[0]!r}; there are: {', '.join(sorted(categories))}"
            )
        cut = run.limit is not None or self.overlap == "drop"
        prompts = self._unseen(prompts, run)
        # 1. answers, one file a model
        answers: dict[str, list[Answer]] = {}
        reference = self.likelihoods_of
        credits_policy = any("policy" in reward.needs() for reward in self.rewards.values())
        answered_by: dict[str, str] = {}
        counts: dict[str, Any] = {}
        for name, spec in self.models.items():
            part = run.dir / f"answers-{name}.jsonl"
            if credits_policy:
                answered_by[name] = policy_records.checked(run, name, spec, part)
            if not part.exists():
                other = None if reference is None else run.model(self.models[reference])
                model = run.model(spec)
                if self.sampling is not None:
                    lost = rollouts.cut_prompts(model.tokenizer, prompts, self.sampling.max_prompt_tokens)
                    if run.rank == 0:
                        write_json(run.dir / f"cut-{name}.json", lost.summary())
                    if lost.cut:
                        run.say(f"{name}: {lost.warning()}")
                if credits_policy:
                    policy_records.record(run, name, spec, answered_by[name], model, part)
                ranks.meet()  # all have seen what an earlier start left
                own: list[Answer] = []
                first = 0
                for sampling, group in self._samplings(prompts):
                    own += answering.answers(
                        self, name, model, other, group, run, sampling=sampling, rewards=self.rewards, seed=run.seed,
                        first=first, fingerprint=answered_by.get(name),
                        parts=part.with_suffix(""),
                    )  # fmt: skip
                    first += len(group)
                if run.rank == 0:
                    self.check_conversations(name, own, run.say)
                    write_answers(part, {name: own})
                    shutil.rmtree(part.with_suffix(""), ignore_errors=True)
                ranks.meet()
            answers[name] = read_answers(part)[name]
            if (cut_of_model := run.dir / f"cut-{name}.json").exists():  # of an earlier start, too
                counts |= {f"{what} of {name}": number for what, number in json.loads(cut_of_model.read_text()).items()}
            run.stop_if_interrupted()
        together = self._asks_here()
        if not together and not ranks.leave():
            return {}
        for name, reader in self.given.items():
            answers[name] = given.answers(name, reader.read(), prompts, cut=cut)
        if run.rank == 0:
            if answered_by:
                write_json(run.out / policy_records.FILE, answered_by)
            write_answers(run.out / "answers.jsonl", {name: judged(self.metrics, own) for name, own in answers.items()})
            for benchmark in self.files:
                answer_files.write(benchmark, run.out, answers)
        # 2. numbers
        measured, observed = measure(self.every_metric(), answers, self.baseline)
        if together and not ranks.leave():
            return {}
        about = meanings(self.every_metric(), measured)
        means = comparison.write(run.out, self.baseline, measured, about, observed)
        # 3. a look
        shown = next((name for name in answers if name != self.baseline), self.baseline)
        for answer in answers[shown][: self.show]:
            run.say(f"{shown}: {answer.question!r} -> {answer.text!r}")
        return {"prompts": len(prompts), "models": list(answers), "measured": means} | counts | self._counts()

    def _samplings(self, prompts: Sequence[Sample]) -> Iterator[tuple[Sampling, list[Sample]]]:
        """Yield the settings of sampling and the prompts in order. Consecutive prompts with the same temperature are
        together.
        """
        assert self.sampling is not None  # always, where models are drawn from
        usual = self.sampling.temperature
        for temperature, group in groupby(
            prompts, lambda prompt: self.temperatures.get(str(prompt.meta.get("category")), usual)
        ):
            yield self.sampling.model_copy(update={"temperature": temperature}), list(group)

    def _unseen(self, prompts: Sequence[Sample], run: Run) -> list[Sample]:
        """Return the prompts to ask. Prompts that models were trained on are reported, or treated as `overlap` says."""
        known = {
            name: trained_prompts.read(run.path(spec.base))
            for name, spec in self.models.items()
            if isinstance(spec.base, Ref)
        }
        return settle(self.overlap, known, [HeldOutItem.of(prompt, prompt.prompt) for prompt in prompts], run.say)

    def _counts(self) -> dict[str, Any]:
        """Return the counts of the metrics' judges."""
        return {
            f"{metric.called}: {k}": n
            for metric in self.metrics
            if isinstance(metric, Compared)
            for k, n in metric.counts().items()
        }

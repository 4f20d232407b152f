"""One model's answers, scored by the reference and the rewards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from fgrl import rollouts
from fgrl.base import ranks, seeds, stops
from fgrl.base.errors import DataError
from fgrl.kinds import Drawer, Reward
from fgrl.kinds.specs import Sampling
from fgrl.measuring.answer import Answer, FollowUp, read_answers, write_answers
from fgrl.measuring.attributing import as_rollout, attributions
from fgrl.measuring.given import follow_ups, prompt_alone
from fgrl.measuring.held_out import HeldOut
from fgrl.rollouts.conversing import talking
from fgrl.rollouts.padding import FROZEN_MICRO_BATCH_SIZE
from fgrl.rollouts.policies import LentPolicy
from fgrl.types import DrawnResponse, Message, Rewards, Rollout, Sample

LOST = ".failed.jsonl"
"""Suffix of a part in which an environment failed."""


@torch.no_grad()
def answers(
    asked: HeldOut, name: str, model: Any, reference: Any, prompts: Sequence[Sample], run: Any, *, sampling: Sampling,
    rewards: Mapping[str, Reward], seed: int, first: int = 0, without_adapter: bool = False, fingerprint: str | None = None,
    parts: Path | None = None,
) -> list[Answer]:  # fmt: skip
    """Return `asked.per_prompt` answers to every prompt, in the prompts' order.

    Log-probabilities are nats per response; the KL is the exact KL(model || reference) of each visited next-token
    distribution, summed over the response, which has less noise than the log-ratio of the sampled tokens. All of them
    are computed at temperature 1, whatever the temperature of the answers: they describe the models, not the sampling.
    With `sampling.min_new_tokens` the end tokens have probability 0 before the bound, in both models: there the answers
    cannot continue after an end. They and the rewards are of the first answer; a prompt's follow-ups are asked after
    the model's own answers.

    With an environment an answer is a conversation. A conversation in which the environment failed is recorded as
    failed, without numbers; a process that continues draws it again.

    first: number of the first prompt among all prompts, if a process answers a part of them: the random stream of an
    answer depends on its prompt's number. without_adapter: True if a missing `reference` is the model with its adapter
    switched off. fingerprint: identification of the model's weights, for rewards that need "policy". parts: folder that
    stores the answers of every batch, for a process that continues. With it the processes of the stage share the
    batches, and rank 0 returns all answers.
    """
    others = {f"reward {key}": reward.tokenizer() for key, reward in rewards.items()}
    rollouts.check_same_tokens(model, reference=None if reference is None else reference.tokenizer, **others)
    fields = {"logp": "old_logp", "ref_logp": "ref_logp", "kl": "ref_kl", "offsets": "offsets"}
    needs_of_rewards = frozenset().union(*(reward.needs() for reward in rewards.values()))
    needs = needs_of_rewards | {"offsets"} | {fields[need] for need in asked.needs()}
    if reference is None and not without_adapter and needs & {"ref_logp", "ref_kl", "ref_entropy"}:
        raise DataError("a reward reads the reference model, and there is none: name one of `models` as `reference`")
    drawer = asked.engine.open(model)
    talker = talking(drawer, asked.environment, model)
    lent_policy = None
    if needs_of_rewards & {"policy", "entropy"}:
        lent_policy = LentPolicy(
            model, drawer, sampling, seed=seed, name=name, fingerprint=fingerprint,
            micro_batch_size=FROZEN_MICRO_BATCH_SIZE,
        )  # fmt: skip

    def answers_of(asked_now: Sequence[Sample], place: int, groups: Sequence[Sequence[DrawnResponse]]) -> list[Answer]:
        # 1. score
        drawn = [response for group in groups for response in group]
        samples = rollouts.answered([sample for sample in asked_now for _ in range(asked.per_prompt)], drawn)
        rollout = as_rollout(
            drawn, model, needs=needs, reference=reference, samples=samples, lent_policy=lent_policy,
            first_row=place * asked.per_prompt, min_new_tokens=sampling.min_new_tokens,
        )  # fmt: skip
        with nullcontext() if lent_policy is None else lent_policy.lend():
            scored = {key: reward.scored(rollout) for key, reward in rewards.items()}
        answers = [
            recorded(name, sample, response, rollout, i, scored, model.tokenizer)
            for i, (sample, response) in enumerate(zip(samples, drawn, strict=True))
        ]
        # 2. ask on
        streams = range(place * asked.per_prompt, place * asked.per_prompt + len(drawn))
        ask_follow_ups(model, drawer, sampling, samples, answers, seed=seed, streams=streams)
        return answers

    if parts is not None:
        parts.mkdir(parents=True, exist_ok=True)
    # all processes read shards equally often, also one without prompts
    at_once = len(prompts) if model.sharded else asked.engine.at_once(sampling.batch_size) // asked.per_prompt
    chunk = max(1, at_once)
    cut = [(first + at, prompts[at : at + chunk]) for at in range(0, max(len(prompts), model.sharded), chunk)]
    stored = [] if parts is None else [parts / f"{place:08d}-{place + len(few):08d}.jsonl" for place, few in cut]
    missing = [each for i, each in enumerate(cut) if parts is None or (ranks.is_mine(i) and not stored[i].exists())]
    own: dict[int, list[Answer]] = {}
    left = sum(len(few) for _place, few in missing) * asked.per_prompt
    with drawer, run.progress(f"answers of {name}", left) as ticker:
        drawer.take(model, 0)  # all processes, also one without prompts
        drawn_parts = rollouts.draw_parts(
            model, talker, missing, sampling, asked.per_prompt, seed=seed,
            together=asked.engine.elsewhere() is not None and asked.environment is None and not model.sharded,
        )  # fmt: skip
        for number, groups in drawn_parts:
            place, asked_now = missing[number]
            with nullcontext() if parts is None else ranks.apart():
                answers = answers_of(asked_now, place, groups)
            if parts is None:
                own[number] = answers
            else:
                part = stored[(place - first) // chunk]
                again = any(answer.lost is not None for answer in answers)  # by a process that continues
                write_answers(part.with_suffix(LOST) if again else part, {name: answers})
            ticker.advance(len(asked_now) * asked.per_prompt)
            stops.point()
    if stored:
        ranks.meet()
        stored = stored if ranks.place() == 0 else []  # which it may remove at once
    for number, part in enumerate(stored):
        own[number] = read_answers(part if part.exists() else part.with_suffix(LOST))[name]
    return [answer for _number, answers in sorted(own.items()) for answer in answers]


def ask_follow_ups(
    model: Any, drawer: Drawer, sampling: Sampling, prompts: Sequence[Sample], answers: Sequence[Answer], *,
    seed: int, streams: Sequence[int],
) -> None:  # fmt: skip
    """Ask each prompt's follow-ups in turn and append the responses to `Answer.follow_ups`. Answer i is drawn from the
    random stream `streams[i]`.
    """
    asked = [follow_ups(prompt) for prompt in prompts]
    for turn in range(max(map(len, asked), default=0)):
        rows = [i for i, texts in enumerate(asked) if len(texts) > turn]
        chats = [_chat(answers[i], asked[i][turn]) for i in rows]
        encoded = [rollouts.encode_prompt(model.tokenizer, chat, sampling.max_prompt_tokens) for chat in chats]
        drawn = rollouts.sample(
            model, drawer, encoded, sampling, seed=seeds.of_turn(seed, turn + 1), rows=[streams[i] for i in rows]
        )
        for i, each in zip(rows, drawn, strict=True):
            follow_up = FollowUp(question=asked[i][turn], response=each.record, n_tokens=len(each))
            answers[i].follow_ups.append(follow_up)


def _chat(answer: Answer, question: str) -> list[Message]:
    """Return the conversation so far, and the user's next question."""
    chat = [*answer.chat, Message(role="assistant", content=answer.text)]
    for turn in answer.follow_ups:
        chat.append(Message(role="user", content=turn.question))
        chat.append(Message(role="assistant", content=turn.response.text))
    return [*chat, Message(role="user", content=question)]


def recorded(
    name: str, sample: Sample, drawn: DrawnResponse, rollout: Rollout, i: int, scored: dict[str, Any], tokenizer: Any
) -> Answer:
    """Return row `i` of the rollout as an answer."""
    length = len(drawn)
    assert rollout.offsets is not None
    lost = drawn.lost is not None

    def summed(field: Any) -> float | None:
        return None if field is None or lost else float(torch.where(rollout.drawn, field, 0.0)[i, :length].sum())

    return Answer(
        model=name,
        sample=prompt_alone(sample),
        response=drawn.record,
        turn=drawn.turn or [],
        turns=list(drawn.turns),
        terminated=drawn.terminated,
        lost=drawn.lost,
        tokens=rollouts.token_texts(tokenizer, drawn),
        offsets=rollout.offsets[i],
        logp=summed(rollout.old_logp),
        ref_logp=summed(rollout.ref_logp),
        kl=summed(rollout.ref_kl),
        rewards={key: None if lost else response_reward(reward, i) for key, reward in scored.items()},
        token_rewards={key: token_rewards(reward, i, length) for key, reward in scored.items()},
        segments={
            key: reward.segment_ids[i, :length].tolist()
            for key, reward in scored.items()
            if reward.segment_ids is not None
        },
        criteria={
            key: criteria
            for key, reward in scored.items()
            if (criteria := attributions(reward, sample, i, length)) is not None
        },
        annotations={key: reward.annotations[i] for key, reward in scored.items() if reward.annotations is not None},
    )


def response_reward(reward: Rewards, i: int) -> float | None:
    """Return the reward of one answer as a whole; None if it is missing."""
    value = float(reward.response[i])
    return value if math.isfinite(value) else None


def token_rewards(reward: Rewards, i: int, length: int) -> list[float | None]:
    """Return the rewards of one answer's tokens; None if the reward assigns none, which differs from a reward of 0."""
    values, assigned = reward.token[i, :length].tolist(), reward.credit_mask[i, :length].tolist()
    return [value if known else None for value, known in zip(values, assigned, strict=True)]

"""One model's answers, with what the reference and the rewards say of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fgrl import rollouts, seeds
from fgrl.errors import DataError
from fgrl.evaluation.answer import Answer, Turn
from fgrl.evaluation.attributing import as_rollout, attributions
from fgrl.evaluation.given import asked_for, follow_ups
from fgrl.rollouts import vocabulary
from fgrl.rollouts.drawing import draw
from fgrl.types import Message, Rewards, Rollout, Sample


@torch.no_grad()
def answers(stage: Any, name: str, model: Any, reference: Any, prompts: Sequence[Sample], run: Any) -> list[Answer]:
    """`per_prompt` answers to every prompt, in the prompts' order.

    Log-probabilities are nats a response; the KL is the exact KL(model || reference) of each visited next-token
    distribution, summed over the response, which has less noise than the log-ratio of the sampled tokens. All of them are
    taken at temperature 1, whatever the answers were drawn at: they are about the models, not about the sampling.
    They and the rewards are of the first answer; a prompt's follow-ups are asked after the model's own answers.
    """
    others = {f"reward {key}": reward.tokenizer() for key, reward in stage.rewards.items()}
    vocabulary.check(model, reference=None if reference is None else reference.tokenizer, **others)
    asked = frozenset().union(*(metric.needs() for metric in stage.metrics))
    fields = {"logp": "old_logp", "ref_logp": "ref_logp", "kl": "ref_kl", "offsets": "offsets"}
    needs = frozenset({"offsets"} | {fields[need] for need in asked}).union(
        *(reward.needs() for reward in stage.rewards.values())
    )
    if reference is None and needs & {"ref_logp", "ref_kl", "ref_entropy"}:
        raise DataError("a reward reads the reference model, and there is none: name one of `models` as `reference`")
    found: list[Answer] = []
    size = max(1, stage.sampling.batch_size // stage.per_prompt)
    with run.progress(f"answers of {name}", len(prompts) * stage.per_prompt) as ticker:
        for start in range(0, len(prompts), size):
            some = prompts[start : start + size]
            drawn = draw(model, stage.engine, some, stage.sampling, stage.per_prompt, seed=run.seed, first=start)
            flat = [(sample, answer) for sample, group in zip(some, drawn, strict=True) for answer in group]
            rows = [{"prompt": answer.prompt_ids, "response": answer.ids} for _sample, answer in flat]
            rollout = as_rollout(
                rows, model, needs=needs, reference=reference, samples=[sample for sample, _answer in flat]
            )
            scored = {key: reward.score(rollout) for key, reward in stage.rewards.items()}
            new = [one(sample, answer, rollout, i, scored, model.tokenizer) for i, (sample, answer) in enumerate(flat)]
            go_on(stage, model, [sample for sample, _ in flat], new, seed=run.seed, first=start * stage.per_prompt)
            found += new
            ticker.advance(len(flat))
    return found


def go_on(
    stage: Any, model: Any, prompts: Sequence[Sample], answers: Sequence[Answer], *, seed: int, first: int
) -> None:
    """Ask each prompt's follow-ups in turn and append the answers to `Answer.turns`. Row i is answer `first` + i."""
    asked = [follow_ups(prompt) for prompt in prompts]
    for turn in range(max(map(len, asked), default=0)):
        rows = [i for i, texts in enumerate(asked) if len(texts) > turn]
        chats = [_chat(prompts[i], answers[i], asked[i][turn]) for i in rows]
        limit = stage.sampling.max_prompt_tokens
        encoded = [rollouts.encode_prompt(model.tokenizer, chat, limit) for chat in chats]
        streams = [first + i for i in rows]
        drawn = rollouts.sample(
            model, encoded, stage.sampling, stage.engine, seed=seeds.of_turn(seed, turn + 1), rows=streams
        )
        for i, ids in zip(rows, drawn, strict=True):
            finished = bool(ids) and ids[-1] in model.eos_ids
            answers[i].turns.append(Turn(asked[i][turn], rollouts.decode(model.tokenizer, ids), finished, len(ids)))


def _chat(prompt: Sample, answer: Answer, question: str) -> list[Message]:
    """The conversation until now, and what the user says next."""
    chat = [Message(role="user", content=prompt.prompt)] if isinstance(prompt.prompt, str) else list(prompt.prompt)
    said = [(None, answer.response), *((turn.question, turn.response) for turn in answer.turns)]
    for asked, response in said:
        chat += [] if asked is None else [Message(role="user", content=asked)]
        chat.append(Message(role="assistant", content=response))
    return [*chat, Message(role="user", content=question)]


def one(sample: Sample, drawn: Any, rollout: Rollout, i: int, scored: dict[str, Any], tokenizer: Any) -> Answer:
    """One answer as it is stored."""
    length = len(drawn.ids)
    assert rollout.offsets is not None

    def summed(field: Any) -> float | None:
        return None if field is None else float(field[i, :length].sum())

    return Answer(
        response=drawn.response.text,
        tokens=rollouts.token_texts(tokenizer, drawn.ids),
        offsets=rollout.offsets[i],
        finished=drawn.response.finished,
        n_tokens=length,
        logp=summed(rollout.old_logp),
        ref_logp=summed(rollout.ref_logp),
        kl=summed(rollout.ref_kl),
        token_rewards={key: told(reward, i, length) for key, reward in scored.items()},
        segments={
            key: reward.segment_ids[i, :length].tolist()
            for key, reward in scored.items()
            if reward.segment_ids is not None
        },
        criteria={
            key: found
            for key, reward in scored.items()
            if (found := attributions(reward, sample, i, length)) is not None
        },
        **asked_for(sample),
    )


def told(reward: Rewards, i: int, length: int) -> list[float | None]:
    """The rewards of one answer's tokens; None where nothing was said, which is not a reward of 0."""
    values, said = reward.token[i, :length].tolist(), reward.credit_mask[i, :length].tolist()
    return [value if known else None for value, known in zip(values, said, strict=True)]

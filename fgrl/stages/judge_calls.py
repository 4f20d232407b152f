"""How many questions an evaluation or a training puts to its judges, before anything is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fgrl.components.metrics.rubric import RubricAccuracy
from fgrl.errors import DataError, NotYet, Unavailable
from fgrl.evaluation import given
from fgrl.evaluation.judging import Judged
from fgrl.kinds import Client, Judge, Peek, Reward
from fgrl.llm.estimating import MILLION, estimate, longest_answer
from fgrl.registry import Settings, walk
from fgrl.specs import Sampling
from fgrl.types import Criterion, Message, Request, Sample

if TYPE_CHECKING:
    from fgrl.stages.evaluate import EvaluateStage
    from fgrl.stages.rl import RLStage

SOME = "."
"""Stands for a response that is not drawn yet: a blank one is not judged."""

Asking = tuple[RubricAccuracy | Reward, Judge, Client]
"""What has criteria judged, by whom, and which client that asks."""


@dataclass(frozen=True)
class Took:
    """What the questions about one response to a prompt come to, when it is as long as it may be."""

    calls: int
    prompt: int
    """Tokens."""
    completion: int | None
    """Tokens, at most; None: no limit is set."""


def evaluate(stage: EvaluateStage, peek: Peek) -> dict[str, Any]:
    """For `Stage.estimate`, under "calls": how many exactly (but for questions that are put again).

    Tokens are exact where all answers are given; else they are bounded by the longest that the stage's sampling allows.
    Where rubrics are judged the calls are a bound then, too ("fewer"): equal answers are one question.
    """
    judged = [metric for metric in stage.metrics if isinstance(metric, Judged)]
    rubrics = [
        (metric, *held) for metric in stage.metrics if isinstance(metric, RubricAccuracy) and (held := _judge(metric))
    ]
    rewards = [(reward, *held) for reward in stage.rewards.values() if stage.models and (held := _judge(reward))]
    if not (judged or rubrics or rewards):
        return {}
    try:
        for client in [metric.client for metric in judged] + [client for *_, client in (*rubrics, *rewards)]:
            client.look(peek)
        if not stage.models:
            return {"calls": _exactly(stage, judged, rubrics, peek)}
        found = _at_most(stage, judged, [*rubrics, *rewards], peek)
    except NotYet as upstream:
        return {"after": str(upstream)}
    except (DataError, Unavailable) as problem:
        return {"calls": {"unknown": str(problem).split("\n")[0]}}
    total = {name: _sum([one[name] for one in found]) for name in found[0]}
    return {"calls": {**total, "cached": 0, "bound": True} | ({"fewer": True} if rubrics or rewards else {})}


def rl(stage: RLStage, peek: Peek) -> dict[str, Any]:
    """For `Stage.estimate`, under "calls": at most how many questions the reward's judge gets in the whole training.

    Of a pass that is not finished the prompts with the most criteria are counted, whichever come.
    """
    held = _judge(stage.reward)
    if held is None:
        return {}
    judge, client = held
    try:
        client.look(peek)
        stage.prompts.setup(peek)
        prompts = list(stage.prompts.read())
        each = [_took(judge, client, one, stage.reward.judged(one), stage.rollout.sampling) for one in prompts]
    except NotYet as upstream:
        return {"after": str(upstream)}
    except (DataError, Unavailable) as problem:
        return {"calls": {"unknown": str(problem).split("\n")[0]}}
    at_once = stage.rollout.batch_size // stage.rollout.per_prompt
    a_pass = len(prompts) // at_once * at_once
    if not a_pass:
        return {"calls": {"unknown": f"an iteration takes {at_once} prompts, but there are {len(prompts)}"}}
    rounds = stage.train.iterations or stage.train.epochs * (a_pass // at_once)
    if peek.limit is not None:
        rounds = min(stage.train.iterations or peek.limit, peek.limit)
    passes, rest = divmod(rounds * at_once, a_pass)

    def most(values: Sequence[int]) -> int:
        ordered = sorted(values, reverse=True)
        return stage.rollout.per_prompt * (passes * sum(ordered[:a_pass]) + sum(ordered[:rest]))

    return {"calls": {**_bill(client, _added(each, most)), "cached": 0, "bound": True, "fewer": True}}


def _judge(component: Settings) -> tuple[Judge, Client] | None:
    """The judge of rubrics that a component holds, and the client that it asks; None when nobody is asked."""
    judge = next((held for _path, held in walk(component) if isinstance(held, Judge)), None)
    if judge is None:
        return None
    client = next((held for _path, held in walk(judge) if isinstance(held, Client)), None)
    return None if client is None else (judge, client)


def _took(judge: Judge, client: Client, prompt: Sample, criteria: Sequence[Criterion], sampling: Sampling) -> Took:
    requests = judge.requests([(prompt, SOME, criterion) for criterion in criteria])
    limits = [longest_answer(client, request) for request in requests]
    asked = sum(client.count_tokens(request) + sampling.max_new_tokens for request in requests)
    return Took(len(requests), asked, None if None in limits else sum(limit for limit in limits if limit is not None))


def _added(each: Sequence[Took], add: Callable[[list[int]], int]) -> Took:
    limits = [one.completion for one in each]
    completion = None if None in limits else add([limit for limit in limits if limit is not None])
    return Took(add([one.calls for one in each]), add([one.prompt for one in each]), completion)


def _bill(client: Client, took: Took, times: int = 1) -> dict[str, Any]:
    calls, prompt = times * took.calls, times * took.prompt
    completion = None if took.completion is None else times * took.completion
    price = client.price()
    usd = None if price is None or completion is None else (prompt * price[0] + completion * price[1]) / MILLION
    return {"calls": calls, "prompt tokens": prompt, "completion tokens": completion, "usd": usd}


def _at_most(
    stage: EvaluateStage, judged: Sequence[Judged], rubrics: Sequence[Asking], peek: Peek
) -> list[dict[str, Any]]:
    """Of an evaluation that draws answers."""
    found = []
    if judged:
        prompts, turns = _prompts(stage, peek)
        found += [_of(metric, stage, prompts, turns) for metric in judged]
    if rubrics:
        assert stage.sampling is not None  # always, where models are drawn from
        stage.prompts.setup(peek)
        read = stage.asked(peek.limit)
        for asker, judge, client in rubrics:
            times = stage.per_prompt * len(stage.names if isinstance(asker, RubricAccuracy) else stage.models)
            each = [_took(judge, client, prompt, asker.judged(prompt), stage.sampling) for prompt in read]
            found.append(_bill(client, _added(each, sum), times))
    return found


def _exactly(
    stage: EvaluateStage, judged: Sequence[Judged], rubrics: Sequence[tuple[RubricAccuracy, Judge, Client]], peek: Peek
) -> dict[str, Any]:
    """Of an evaluation whose answers are all there: its very questions."""
    for reader in (stage.prompts, *stage.given.values()):
        reader.setup(peek)
    prompts, cut = stage.asked(peek.limit), peek.limit is not None
    answers = {name: given.answers(name, reader.read(), prompts, cut=cut) for name, reader in stage.given.items()}
    asking = [
        (metric.client, [question.request for _, question in metric.plan(answers, stage.baseline)]) for metric in judged
    ]
    asking += [(client, metric.requests(answers)) for metric, _, client in rubrics]
    found = [estimate(client, requests, peek) for client, requests in asking]
    return {name: _sum([one[name] for one in found]) for name in found[0]}


def _prompts(stage: EvaluateStage, peek: Peek) -> tuple[int, int]:
    """How many, and how many turns each has at most; read only where the recipe does not tell."""
    expected = stage.prompts.expects(peek)
    if expected is not None and stage.turns is not None:
        return expected.after(0, peek.limit).samples, stage.turns
    stage.prompts.setup(peek)
    read = stage.asked(peek.limit)
    return len(read), max((1 + len(given.follow_ups(prompt)) for prompt in read), default=1)


def _of(metric: Judged, stage: EvaluateStage, prompts: int, turns: int) -> dict[str, Any]:
    calls = metric.calls(stage.names, stage.baseline, prompts, stage.per_prompt, turns)
    template = metric.client.count_tokens(Request(messages=metric.template().fill({})))
    longest = 0
    if stage.sampling is not None:  # always, where models are drawn from
        longest = stage.sampling.max_prompt_tokens + metric.shows * turns * stage.sampling.max_new_tokens
    question = Request(messages=[Message(role="user", content="")], max_tokens=metric.longest)
    limit = longest_answer(metric.client, question)
    return _bill(metric.client, Took(1, template + longest, limit), calls)


def _sum(values: list[Any]) -> Any:
    return None if None in values else sum(values)

"""Answers of several models to the same prompts, their segments drawn, their tokens coloured by reward."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fgrl.measuring.answer import Answer
from fgrl.pages.report.drawing import Drawing, Exchange, Scale, ShownAnswer, of_conversation, scales_of
from fgrl.pages.report.escaping import long, turns
from fgrl.pages.report.marked_tokens import PASSES, VERDICTS, MarkedTokens
from fgrl.runs.results.text import OF_RESPONSE, TOTAL, number, reward_facts

MOST_PROMPTS = 24
"""Maximum number of prompts shown in the order of the file, from its start."""
MOST_RANKED = 6
"""Maximum number of best, of worst and of most changed answers that are also shown."""
MOST_REWARDS = 3


@dataclass
class Answers:
    """Part of an evaluation's `answers.jsonl` that the page shows."""

    exchanges: list[Exchange]
    models: list[str]
    scales: list[tuple[Scale, Scale]]
    """Scales of tokens and of segments, for each reward; empty without rewards."""
    prompts: int
    """Number of prompts in the file; `exchanges` has some of them."""
    more_rewards: list[str] = field(default_factory=list)
    """Rewards that are not drawn."""
    segmented: bool = True
    """True if a reward that is drawn has segments."""
    orders: list[tuple[str, str]] = field(default_factory=list)
    """(class, words) of the orders that the reader may choose besides the file's."""
    ordered_by: str = ""
    """Description of the number that the orders compare."""
    marked: bool = False
    """True if parts of answers that break a rule are marked."""

    @property
    def first(self) -> int:
        """Return the number of exchanges that are shown in the order of the file."""
        return sum(exchange.is_first for exchange in self.exchanges)


ORDERS = {"best": "best first", "worst": "worst first", "changed": "most changed first"}


def answers_section(answers: Iterable[Answer], baseline: str = "") -> Answers:
    """Group answers by prompt, with the baseline's answer on the left. If a model has several answers to a prompt, the
    first is shown. The first prompts are shown, and also the best, worst and most changed of all prompts.
    """
    prompts: dict[str, dict[str, Answer]] = {}
    models: dict[str, None] = {}
    for answer in answers:
        models.setdefault(answer.model)
        prompts.setdefault(answer.id, {}).setdefault(answer.model, answer)
    order = sorted(models, key=lambda model: model != baseline)
    first = dict.fromkeys(list(prompts)[:MOST_PROMPTS])
    ranked, ordered_by = _ranked(prompts, order)
    shown_ids = dict.fromkeys([*first, *(id for ids in ranked.values() for id in ids[:MOST_RANKED])])
    shown = [(id, prompts[id]) for id in prompts if id in shown_ids]
    every = [answer for _, by_model in shown for answer in by_model.values()]
    rewards = list(dict.fromkeys(name for answer in every for name in answer.token_rewards))
    drawn, rest = rewards[:MOST_REWARDS], rewards[MOST_REWARDS:]
    items = {reward: [MarkedTokens.of(answer, reward) for answer in every] for reward in drawn}
    # the sign of a critic's labels has a meaning
    scales = [scales_of(name, own, any(name in each.annotations for each in every)) for name, own in items.items()]
    places = {name: {id: n for n, id in enumerate(id for id in ids if id in shown_ids)} for name, ids in ranked.items()}
    exchanges = []
    for id, by_model in shown:
        made = [_answer(model, by_model.get(model), scales) for model in order]
        asked = turns(next(iter(by_model.values())).sample.prompt)
        exchanges.append(Exchange(asked, made, id, id in first, {name: own[id] for name, own in places.items()}))
    segmented = any(segment >= 0 for own in items.values() for item in own for segment in item.segments or [])
    orders = [(name, words) for name, words in ORDERS.items() if name in ranked]
    marked = any(any(answer.violations.values()) for answer in every)
    return Answers(exchanges, order, scales, len(prompts), rest, segmented, orders, ordered_by, marked)


def _ranked(prompts: Mapping[str, Mapping[str, Answer]], order: Sequence[str]) -> tuple[dict[str, list[str]], str]:
    """Return the ids of all prompts in each order of `ORDERS`, and a description of the compared number: the first
    reward of the first trained model's answers, or else the share of verdicts that they pass. Without either, only the
    differences of the texts from the baseline's are compared.
    """
    trained = order[1] if len(order) > 1 else next(iter(order), "")
    own = {id: by_model[trained] for id, by_model in prompts.items() if trained in by_model}
    if len(prompts) < 2 or not own:
        return {}, ""
    reward = next((name for answer in own.values() for name in (*answer.rewards, *answer.token_rewards)), None)
    scores = {id: _score(answer, reward) for id, answer in own.items()}
    known = {id: value for id, value in scores.items() if value is not None}
    result: dict[str, list[str]] = {}
    what = f"the reward {reward}" if reward is not None else "the share of passed checks"
    if known:
        rest = [id for id in prompts if id not in known]
        result["best"] = [*sorted(known, key=lambda id: -known[id]), *rest]
        result["worst"] = [*sorted(known, key=lambda id: known[id]), *rest]
    if len(order) > 1:
        changes = {}
        for id, answer in own.items():
            before = prompts[id].get(order[0])
            if before is None:
                continue
            start, end = _score(before, reward), scores[id]
            by_score = abs(end - start) if start is not None and end is not None else -1.0
            changes[id] = (by_score, _unlike(before.text, answer.text))
        result["changed"] = [
            *sorted(changes, key=lambda id: changes[id], reverse=True), *(id for id in prompts if id not in changes)
        ]  # fmt: skip
    return result, f"{what} of {trained}" if known else f"the texts of {trained}"


def _score(answer: Answer, reward: str | None) -> float | None:
    """Return the reward of an answer, or the share of its verdicts that are a pass; None if it is missing."""
    if reward is not None:
        if reward in answer.rewards:
            return answer.rewards[reward]
        known = [value for value in answer.token_rewards.get(reward, []) if value is not None]
        return math.fsum(known) if known else None
    decided = [passed for passed in _verdicts(answer).values() if passed is not None]
    return sum(decided) / len(decided) if decided else None


def _unlike(before: str, after: str) -> float:
    """Return the share of the different words of two texts that occur in only one of them."""
    words = set(before.lower().split()), set(after.lower().split())
    either = words[0] | words[1]
    return len(words[0] ^ words[1]) / len(either) if either else 0.0


def _verdicts(answer: Answer) -> dict[str, bool | None]:
    """Return the verdicts of metrics on an answer, and for a reward that reads rubrics, whether all criteria are
    satisfied.
    """
    decided = dict(answer.verdicts)
    for name, criteria in answer.criteria.items():
        kept = [criterion.kept for criterion in criteria]
        if kept:
            passed = False if False in kept else None if None in kept else True
            decided[f"{name} ({kept.count(True)} of {len(kept)})"] = passed
    return decided


def _answer(model: str, answer: Answer | None, scales: Sequence[tuple[Scale, Scale]]) -> ShownAnswer:
    if answer is None:
        return ShownAnswer(model)
    size = ("tokens", answer.n_tokens) if answer.tokens else ("characters", len(answer.text))
    whole = {"logp": answer.logp, "ref logp": answer.ref_logp, "kl": answer.kl}
    names = [tint.reward for tint, _segments in scales]
    whole |= {f"response reward ({name})": value for name, value in answer.rewards.items() if name not in names}
    facts = [(name, number(value)) for name, value in (size, *whole.items()) if value is not None]
    sums = []
    for name in names:
        shown = dict(reward_facts(answer.rewards.get(name), answer.token_rewards.get(name, [])))
        sums.append(shown.get(TOTAL, ""))
        facts += [(f"{OF_RESPONSE} ({name})", shown[OF_RESPONSE])] if OF_RESPONSE in shown else []
    about, failed = of_conversation(answer)
    facts += about
    warnings = failed or ([] if answer.text.strip() else ["empty"])
    if answer.response.finished is False:
        warnings.append("cut off")
    later = [
        (role, long(text))
        for turn in answer.follow_ups
        for role, text in (("user", turn.question), ("assistant", turn.response.text))
    ]
    verdicts = [(VERDICTS[passed][0], f"{PASSES[passed]} {name}") for name, passed in _verdicts(answer).items()]
    drawing = Drawing.of([MarkedTokens.of(answer, name) for name in names or [""]], scales or [(None, None)])
    return ShownAnswer(model, drawing, facts, sums, warnings, verdicts, later=later)

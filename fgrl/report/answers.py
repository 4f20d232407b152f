"""Answers of several models to the same prompts, their segments drawn, their tokens coloured by reward."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from fgrl.evaluation.answer import Answer
from fgrl.report.escaping import long, render, turns
from fgrl.report.marks import ShownAnnotation, annotations_of_answer
from fgrl.results.text import TOTAL, number, reward_facts, signed

LEVELS = 5
"""Steps of colour on each side of the middle."""
MOST_PROMPTS = 24
"""The first ones."""
MOST_RANKED = 6
"""Best, worst and most changed answers of all prompts that are shown besides the first ones, each."""
MOST_TOKENS = 320
MOST_REWARDS = 3


@dataclass
class Token:
    """A token of an answer with its color and its numbers."""

    html: Markup
    level: str
    """Class of the stylesheet: "n5" .. "n1", "z", "p1" .. "p5", or "" without a reward."""
    title: str
    ends: bool = False
    """The end-of-sequence token, which belongs to no segment."""
    breaks: bool = False
    """It is a part of what breaks a rule."""


@dataclass
class Segment:
    """Neighbouring tokens that are one action; `index` None: tokens outside of every segment.

    The space that most first tokens begin with is drawn before the segment (`lead`), so that words do not touch.
    """

    index: int | None
    tokens: list[Token]
    level: str
    total: str
    title: str
    lead: str = ""


@dataclass
class ShownAnswer:
    """An answer as the page shows it."""

    model: str
    missing: bool
    facts: list[tuple[str, str]]
    sums: list[str]
    """Total of the token rewards, one for each reward; empty where no token has one."""
    warnings: list[str]
    layers: list[list[Segment]]
    """One drawing for each reward of the page, in its order."""
    left_out: int = 0
    """Tokens that are not shown."""
    later: list[tuple[str, Markup]] = field(default_factory=list)
    """(role, text) of what followed in the conversation."""
    annotations: list[ShownAnnotation] = field(default_factory=list)
    """Annotations by critics and people."""
    verdicts: list[ShownVerdict] = field(default_factory=list)
    """Verdicts on whether it passes."""


@dataclass(frozen=True)
class ShownVerdict:
    """Pass or fail of an answer, by a metric or by the criteria of a reward."""

    name: str
    passed: bool | None

    @property
    def kind(self) -> str:
        """Class of the stylesheet."""
        return {True: "kept", False: "broken", None: "missing"}[self.passed]

    @property
    def words(self) -> str:
        return {True: "✓ passes", False: "✗ fails", None: "? undecided:"}[self.passed] + f" {self.name}"


@dataclass
class Exchange:
    """A prompt with one answer of every model."""

    id: str
    turns: list[tuple[str, Markup]]
    """(role, text); the role is "" when the prompt is plain text."""
    answers: list[ShownAnswer]
    is_first: bool = True
    """Among the first prompts of the file; the others are shown because of their rank."""
    ranks: dict[str, int] = field(default_factory=dict)
    """Place in each order other than the file's."""

    @property
    def classes(self) -> str:
        """Classes of the stylesheet, which orders the exchanges."""
        places = (f"{order}-{place}" for order, place in self.ranks.items())
        return " ".join(["exchange", *([] if self.is_first else ["extra"]), *places])


@dataclass
class Scale:
    """Colours of one reward: the middle is neutral, `reach` away from it the colour is full."""

    reward: str
    middle: float
    reach: float
    why: str

    def level(self, value: float | None) -> str:
        if value is None:
            return ""
        step = round((value - self.middle) / self.reach * LEVELS)
        step = max(-LEVELS, min(LEVELS, step))
        return "z" if step == 0 else f"{'p' if step > 0 else 'n'}{abs(step)}"

    def legend(self) -> list[tuple[str, str]]:
        """(class, value in the middle of the class), from low to high."""
        steps = range(-LEVELS, LEVELS + 1)
        return [(self.level(at := self.middle + self.reach * step / LEVELS), signed(at, 2)) for step in steps]


@dataclass
class Answers:
    """The part of an evaluation's `answers.jsonl` that the page shows."""

    exchanges: list[Exchange]
    models: list[str]
    scales: list[Scale]
    """One for each reward; empty without rewards."""
    segment_scales: list[Scale]
    prompts: int
    """Number of prompts; `exchanges` has the first of them."""
    more_rewards: list[str] = field(default_factory=list)
    """Rewards that are not drawn."""
    segmented: bool = True
    """True if a reward that is drawn has segments."""
    orders: list[tuple[str, str]] = field(default_factory=list)
    """(class, words) of the orders that the reader may choose besides the file's."""
    ordered_by: str = ""
    """The number that the orders compare, in words."""
    marked: bool = False
    """True if parts of answers that break a rule are marked."""

    @property
    def first(self) -> int:
        """Return the number of exchanges that are shown in the order of the file."""
        return sum(exchange.is_first for exchange in self.exchanges)


ORDERS = {"best": "best first", "worst": "worst first", "changed": "most changed first"}


def answers_section(answers: Iterable[Answer], baseline: str = "") -> Answers:
    """Group answers by prompt (first ones first), the baseline's on the left. Of several answers of one model to one
    prompt the first is shown. Of all prompts the best, worst and most changed ones are shown, too.
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
    scales, segment_scales = [], []
    for reward in drawn:
        values = [value for answer in every for value in numbers(answer, reward) if value is not None]
        labels = of_critic(every, reward)
        scales.append(scale(reward, values, around_zero=labels))
        sums = [total for answer in every for total in totals(answer, reward)]
        segment_scales.append(scale(reward, sums, around_zero=labels))
    places = {name: {id: n for n, id in enumerate(id for id in ids if id in shown_ids)} for name, ids in ranked.items()}
    exchanges = [
        Exchange(
            id=id,
            turns=turns(next(iter(by_model.values())).sample.prompt),
            answers=[_answer(model, by_model.get(model), scales, segment_scales) for model in order],
            is_first=id in first,
            ranks={name: own[id] for name, own in places.items()},
        )
        for id, by_model in shown
    ]
    segmented = any(segment >= 0 for answer in every for reward in drawn for segment in _segments(answer, reward))
    orders = [(name, words) for name, words in ORDERS.items() if name in ranked]
    marked = any(map(_broken_places, every))
    return Answers(exchanges, order, scales, segment_scales, len(prompts), rest, segmented, orders, ordered_by, marked)


def _ranked(prompts: Mapping[str, Mapping[str, Answer]], order: Sequence[str]) -> tuple[dict[str, list[str]], str]:
    """Ids of all prompts in each order of `ORDERS`, and what it compares: the first reward of the first trained model's
    answers, or else the share of verdicts that they pass. Without either, only the texts' differences to the
    baseline's.
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
    """Return the reward of an answer, or the share of its verdicts that are a pass; None when it is missing."""
    if reward is not None:
        if reward in answer.rewards:
            return answer.rewards[reward]
        known = [value for value in numbers(answer, reward) if value is not None]
        return math.fsum(known) if known else None
    decided = [verdict.passed for verdict in _verdicts(answer) if verdict.passed is not None]
    return sum(decided) / len(decided) if decided else None


def _unlike(before: str, after: str) -> float:
    """Share of the different words of two texts that only one of them has."""
    words = set(before.lower().split()), set(after.lower().split())
    either = words[0] | words[1]
    return len(words[0] ^ words[1]) / len(either) if either else 0.0


def _verdicts(answer: Answer) -> list[ShownVerdict]:
    """Return the verdicts of metrics on an answer, and for a reward that reads rubrics whether all criteria are
    satisfied.
    """
    decided = [ShownVerdict(name, passed) for name, passed in answer.verdicts.items()]
    for name, criteria in answer.criteria.items():
        kept = [criterion.kept for criterion in criteria]
        if kept:
            passed = False if False in kept else None if None in kept else True
            decided.append(ShownVerdict(f"{name} ({kept.count(True)} of {len(kept)})", passed))
    return decided


def _broken_places(answer: Answer) -> list[tuple[int, int]]:
    """Characters of the response that break a rule."""
    return [(span.start, span.end) for own in answer.violations.values() for span in own if span.start < span.end]


def _broken_tokens(answer: Answer) -> set[int]:
    """Places of the tokens that share a character with what breaks a rule."""
    broken = _broken_places(answer)
    return {
        place
        for place, (left, right) in enumerate(answer.offsets)
        if any(left < end and start < right for start, end in broken)
    }


def scale(reward: str, values: Sequence[float], *, around_zero: bool = False) -> Scale:
    """Zero is neutral, unless nearly all values lie on one side of it and differ: then their median is. `around_zero`:
    zero is in any case, because the sign has a meaning, as that of a critic's labels and of an advantage.
    """
    if not values:
        return Scale(reward, 0.0, 1.0, "no values")
    ordered = sorted(values)
    low, high = _quantile(ordered, 0.05), _quantile(ordered, 0.95)
    middle, why = 0.0, "neutral is 0"
    if not around_zero and low < high and (low > 0 or high < 0):
        middle = _quantile(ordered, 0.5)
        why = f"nearly all values lie on one side of 0, so neutral is their median, {number(middle)}"
    reach = _quantile(sorted(abs(value - middle) for value in ordered), 0.95)
    return Scale(reward, middle, reach if reach > 0 else 1.0, why)


def of_critic(answers: Iterable[Answer], reward: str) -> bool:
    """Return True if the reward asks a critic, whose labels it hands on."""
    return any(reward in answer.annotations for answer in answers)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.floor(share * len(ordered)))]


def _answer(model: str, answer: Answer | None, scales: Sequence[Scale], segment_scales: Sequence[Scale]) -> ShownAnswer:
    if answer is None:
        return ShownAnswer(model, True, [], [], [], [])
    tokens, finished = tokens_of(answer), answer.response.finished
    size = ("tokens", answer.n_tokens) if answer.tokens else ("characters", len(answer.text))
    whole = {"logp": answer.logp, "ref logp": answer.ref_logp, "kl": answer.kl}
    drawn = {tint.reward for tint in scales}
    whole |= {f"rewards {name}": value for name, value in answer.rewards.items() if name not in drawn}
    facts = [(name, number(value)) for name, value in (size, *whole.items()) if value is not None]
    sums = []
    for tint in scales:
        shown = dict(reward_facts(answer.rewards.get(tint.reward), numbers(answer, tint.reward)))
        sums.append(shown.get(TOTAL, ""))
        if "response reward" in shown:
            facts.append((f"response reward ({tint.reward})", shown["response reward"]))
    warnings = []
    if not any(token.strip() for token in tokens[: -1 if finished else None]):
        warnings.append("empty")
    if finished is False:
        warnings.append("cut off")
    pairs = list(zip(scales, segment_scales, strict=True))
    layers = [layer(answer, *pair) for pair in pairs] if pairs else [layer(answer, None, None)]
    later = [
        (role, long(text))
        for turn in answer.follow_ups
        for role, text in (("user", turn.question), ("assistant", turn.response.text))
    ]
    left_out = max(0, len(tokens) - MOST_TOKENS)
    return ShownAnswer(
        model, False, facts, sums, warnings, layers, left_out, later, annotations_of_answer(answer), _verdicts(answer)
    )


def tokens_of(answer: Answer) -> list[str]:
    """Return the pieces of an answer; where it has none the whole text is one."""
    return answer.tokens or ([answer.text] if answer.text else [])


def layer(answer: Answer, tint: Scale | None, segment_tint: Scale | None, what: str = "reward") -> list[Segment]:
    """Tokens grouped by segment. Without segments every token is its own group. `what` the values are, for people."""
    reward = tint.reward if tint else ""
    tokens, values, ids = tokens_of(answer), numbers(answer, reward), _segments(answer, reward)
    broken = _broken_tokens(answer)
    result: list[Segment] = []
    for place, text in enumerate(tokens[:MOST_TOKENS]):
        value = values[place] if place < len(values) else None
        segment = ids[place] if place < len(ids) else -1
        last = place == len(tokens) - 1
        texts = [f"token {place + 1} of {len(tokens)}"]
        texts.append(f"{what} {signed(value)}" if value is not None else f"no {what}")
        if segment >= 0:
            texts.append(f"segment {segment + 1}")
        ends = bool(last and answer.response.finished and segment < 0)
        if ends:
            texts.append("ends the answer")
        if place in broken:
            texts.append("breaks a rule")
        index = segment if segment >= 0 else None
        if not result or result[-1].index != index or index is None:
            lead = " " if index is not None and text[:1] == " " and text[1:2].strip() else ""
            result.append(Segment(index, [], "", "", "", lead))
            text = text[len(lead) :]
        html = render(text) if text else Markup('<b class="hidden" title="part of the next character">·</b>')
        token = Token(html, tint.level(value) if tint else "", " · ".join(texts), ends, place in broken)
        result[-1].tokens.append(token)
    sums = _sums(values, ids)
    for item in result:
        if item.index is not None and segment_tint and item.index in sums:
            total = sums[item.index]
            item.level, item.total = segment_tint.level(total), signed(total, 2)
            item.title = f"segment {item.index + 1}: {what} {signed(total)} on {len(item.tokens)} tokens"
    return result


def _sums(values: Sequence[float | None], ids: Sequence[int]) -> dict[int, float]:
    """Sum of the token rewards of each segment; a segment without any has none."""
    totals: dict[int, float] = {}
    for value, segment in zip(values, ids, strict=False):
        if segment >= 0 and value is not None:
            totals[segment] = totals.get(segment, 0.0) + value
    return totals


def totals(answer: Answer, reward: str) -> list[float]:
    """Return the rewards of an answer's segments."""
    return list(_sums(numbers(answer, reward), _segments(answer, reward)).values())


def numbers(answer: Answer, reward: str) -> list[float | None]:
    """Return the token rewards of an answer; None where the reward has none."""
    return answer.token_rewards.get(reward, [])


def _segments(answer: Answer, reward: str) -> list[int]:
    return answer.segments.get(reward) or ([] if reward else next(iter(answer.segments.values()), []))

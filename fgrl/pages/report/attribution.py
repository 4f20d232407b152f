"""The tokens that each verdict depends on: answers that satisfy a criterion beside answers that violate it, shaded by
relevance (after Table 6 of "Rubrics to Tokens").

Answers to different prompts are never shown side by side, even if their rubrics have a criterion in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from fgrl.measuring.answer import Answer, Attribution
from fgrl.pages.report.answers import MOST_REWARDS
from fgrl.pages.report.drawing import MOST_TOKENS, Drawing, Scale, ShownAnswer, draw
from fgrl.pages.report.escaping import long, turns
from fgrl.pages.report.marked_tokens import VERDICTS, MarkedTokens
from fgrl.runs.results.text import number

MOST_PROMPTS = 12
MOST_CRITERIA = 8
"""Maximum number of criteria per prompt."""
MOST_DRAWN = 20_000
"""Number of drawn tokens after which no further prompt is added."""
RELEVANT = 0.5
"""Relevance from which a token counts as relevant, and is underlined."""
BEFORE = 40
"""Number of tokens of a long answer that are shown before its first relevant token."""
SCALES = {
    kept: Scale("relevance", 0.0, side, zero="", strong=RELEVANT, words=number)
    for kept, side in ((True, 1), (False, -1))
}
"""Scales of relevance: blue if the answer satisfies the criterion, orange if it violates it."""


@dataclass
class RewardCases:
    """Answers under a criterion of one reward."""

    reward: str
    tally: str
    answers: list[ShownAnswer | str]
    """An answer that satisfies the criterion and an answer that violates it, or a text if there is none; an answer
    without a verdict if no verdict is known.
    """


@dataclass
class Criterion:
    """A criterion with its verdict and relevant tokens."""

    text: Markup
    rows: list[RewardCases]


@dataclass
class Prompt:
    """A prompt with the criteria of its responses."""

    turns: list[tuple[str, Markup]]
    criteria: list[Criterion]
    more: int
    """Number of criteria that are not shown."""


@dataclass
class Attributions:
    """Criteria in an evaluation's `answers.jsonl` that the page shows."""

    prompts: list[Prompt]
    with_rubric: int
    """Number of prompts whose answers have criteria."""
    rewards: list[str]
    more_rewards: list[str]

    @staticmethod
    def legend() -> list[tuple[str, list[tuple[str, str]]]]:
        """Return (text of the verdict, (class, relevance in the middle of the class) from 0 to 1)."""
        return [(VERDICTS[kept][1], tint.legend()) for kept, tint in SCALES.items()]


def criteria_section(answers: Iterable[Answer], baseline: str = "") -> Attributions | None:
    """Return some prompts with all their criteria; None if no answer has any.

    Prompts with answers on both sides of a criterion come first, then the file's order. On each side, the first answer
    with text and relevances is drawn, the baseline's before others.
    """
    # 1. what there is: rewards, and for every prompt whether there is something to see
    rewards: dict[str, None] = {}
    by_prompt: dict[str, list[Answer]] = {}
    sides: dict[str, dict[tuple[str, int], set[bool]]] = {}
    for answer in answers:
        for reward, criteria in criteria_of(answer).items():
            rewards.setdefault(reward)
            for place, criterion in enumerate(criteria):
                if criterion.kept is not None and criterion.relevance is not None:
                    sides.setdefault(answer.id, {}).setdefault((reward, place), set()).add(criterion.kept)
        if criteria_of(answer):
            by_prompt.setdefault(answer.id, []).append(answer)
    if not by_prompt:
        return None
    drawn, more = list(rewards)[:MOST_REWARDS], list(rewards)[MOST_REWARDS:]
    ids = [id for id in by_prompt if any(reward in drawn for reward, _place in sides.get(id, ()))]
    ids.sort(key=lambda id: all(len(kept) < 2 for (reward, _), kept in sides[id].items() if reward in drawn))
    # 2. until the page is full
    prompts: list[Prompt] = []
    size = 0
    for id in ids[:MOST_PROMPTS]:
        if size >= MOST_DRAWN:
            break
        prompts.append(_prompt(sorted(by_prompt[id], key=lambda answer: answer.model != baseline), drawn))
        drawn_of = [row.answers for criterion in prompts[-1].criteria for row in criterion.rows]
        longest = max(min(len(answer.tokens), MOST_TOKENS) for answer in by_prompt[id])
        size += longest * sum(isinstance(answer, ShownAnswer) for answers in drawn_of for answer in answers)
    return Attributions(prompts, len(by_prompt), drawn, more)


def criteria_of(answer: Answer) -> dict[str, list[Attribution]]:
    """Return the criteria of an answer by reward; rewards without criteria are left out."""
    return {reward: criteria for reward, criteria in answer.criteria.items() if criteria}


def _prompt(answers: Sequence[Answer], rewards: Sequence[str]) -> Prompt:
    count = max(len(criteria) for answer in answers for criteria in answer.criteria.values())
    criteria = [_criterion(answers, rewards, place) for place in range(min(count, MOST_CRITERIA))]
    return Prompt(turns(answers[0].sample.prompt), criteria, max(0, count - MOST_CRITERIA))


def _criterion(answers: Sequence[Answer], rewards: Sequence[str], place: int) -> Criterion:
    text, rows = "", []
    for reward in rewards:
        cases = [(answer, own[place]) for answer in answers if len(own := answer.criteria.get(reward, [])) > place]
        if cases:
            text = text or cases[0][1].text
            rows.append(_row(reward, cases))
    return Criterion(long(text), rows)


def _row(reward: str, cases: Sequence[tuple[Answer, Attribution]]) -> RewardCases:
    def first(kept: bool | None) -> ShownAnswer | None:
        fitting = [case for case in cases if case[1].kept is kept]
        fitting.sort(key=lambda case: (case[1].relevance is None, not case[0].text.strip()))
        return _case(*fitting[0]) if fitting else None

    kept, broken = first(True), first(False)
    sides: list[ShownAnswer | str | None] = [kept or "No answer keeps it.", broken or "No answer breaks it."]
    return RewardCases(reward, _tally(cases), [side for side in (sides if kept or broken else [first(None)]) if side])


def _tally(cases: Sequence[tuple[Answer, Attribution]]) -> str:
    """Return counts of an answer's verdicts by model, as in `kept: sft 3 of 4, policy 4 of 4; 1 verdict is missing`.
    Only answers with a known verdict are in the denominators.
    """
    kept: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for answer, criterion in cases:
        asked[answer.model] += criterion.kept is not None
        kept[answer.model] += criterion.kept is True
    missing = len(cases) - asked.total()
    parts = [f"{model} {kept[model]} of {count}" for model, count in asked.items() if count]
    text = f"kept: {', '.join(parts)}" if parts else "no verdict is known"
    return text + (f"; {missing} verdict{'s are' if missing > 1 else ' is'} missing" if missing and parts else "")


def _case(answer: Answer, criterion: Attribution) -> ShownAnswer:
    kept, relevance, count = criterion.kept, criterion.relevance, len(answer.tokens)
    if relevance is None:
        note = (
            "Which tokens the verdict depends on is not known."
            if kept is not None
            else "There is no verdict that could depend on tokens."
        )
    elif len(relevance) != count:
        note = f"{len(relevance)} relevances do not fit {count} tokens, so none is drawn."
        relevance = None
    else:
        strong = sum(value >= RELEVANT for value in relevance)
        note = f"{strong} of {count} tokens have a relevance of {RELEVANT} or more."
    values: list[float | None] | None = None if relevance is None else [*relevance]
    item = replace(MarkedTokens.of(answer), values=values, segments=None, violations=[], what="relevance")
    start = first_drawn(relevance or [])
    warnings = [] if answer.text.strip() else ["empty"]
    drawing = draw(item, None if kept is None else SCALES[kept], start=start)
    return ShownAnswer(answer.model, Drawing([drawing], []), warnings=warnings, verdicts=[VERDICTS[kept]], notes=[note])


def first_drawn(relevance: Sequence[float]) -> int:
    """Return the place of the first token to draw: 0, unless the tokens drawn from there have no relevant token and a
    later token is relevant.
    """
    first = next((i for i, value in enumerate(relevance) if value >= RELEVANT), 0)
    return 0 if first < MOST_TOKENS else first - BEFORE

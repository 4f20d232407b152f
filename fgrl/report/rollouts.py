"""Stored rollouts of a training: what a critic recorded, the raw reward and the trained advantage of each token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from fgrl.report.answers import MOST_TOKENS, Scale, Segment, layer, numbers, of_critic, scale, totals
from fgrl.report.escaping import turns
from fgrl.report.lines import Line, prompt_of, tokens_of
from fgrl.report.marks import ShownAnnotation, annotations_of_line
from fgrl.results.reading import finite, mapping
from fgrl.results.text import number, reward_facts

ADVANTAGE = "advantage"
MOST_ROLLOUTS = 16
"""Of an iteration."""


@dataclass
class Row:
    """The tokens of an answer, shaded by one of their values."""

    what: str
    segments: list[Segment]


@dataclass
class ShownRollout:
    turns: list[tuple[str, Markup]]
    facts: list[tuple[str, str]]
    warnings: list[str]
    annotations: list[ShownAnnotation]
    rows: list[Row]
    left_out: int
    """Tokens that are not drawn."""
    not_stored: int
    """Tokens that are not in the file."""
    spans_not_stored: int
    """Marked passages that are not in the file."""


@dataclass
class Iteration:
    number: int
    place: str
    """"first", "middle" or "last" ("newest" while the training goes on)."""
    rollouts: list[ShownRollout]


@dataclass
class StoredRollouts:
    """What the page shows of a training's `rollouts.jsonl`."""

    iterations: list[Iteration]
    scales: list[Scale]
    """Of the rewards, then of the advantages."""
    marked: bool
    """Are there annotations?"""


def rollouts_section(lines: Iterable[Line], *, ended: bool = True) -> StoredRollouts | None:
    """The stored rollouts by iteration; None when there are none. `ended`: the training has a last iteration."""
    by_iteration: dict[int, list[Line]] = {}
    for line in lines:
        iteration = line.get("iteration")
        if type(iteration) is int and len(rollouts := by_iteration.setdefault(iteration, [])) < MOST_ROLLOUTS:
            rollouts.append(line)
    if not by_iteration:
        return None
    every = [line for rollouts in by_iteration.values() for line in rollouts]
    rewards = list(dict.fromkeys(str(name) for line in every for name in mapping(line.get("token_rewards"))))
    segment_scales = {name: scale(name, [total for line in every for total in totals(line, name)]) for name in rewards}
    scales = [_scale(every, name, around_zero=of_critic(every, name)) for name in rewards]
    scales.append(_scale([*map(_as_reward, every)], ADVANTAGE, around_zero=True))
    places = dict.fromkeys(sorted(by_iteration), "middle")
    places[max(places)] = "last" if ended else "newest"
    places[min(places)] = "first"
    iterations = [
        Iteration(iteration, place, [_shown(line, scales, segment_scales) for line in by_iteration[iteration]])
        for iteration, place in places.items()
    ]
    return StoredRollouts(iterations, scales, any(shown.annotations for each in iterations for shown in each.rollouts))


def _scale(lines: Iterable[Line], name: str, *, around_zero: bool) -> Scale:
    return scale(
        name, [value for line in lines for value in numbers(line, name) if value is not None], around_zero=around_zero
    )


def _as_reward(line: Line) -> Mapping[str, Any]:
    """The line with its advantages in the place of its rewards, so that both are drawn alike; they have no segments."""
    values = line.get("advantages")
    return {**line, "token_rewards": {ADVANTAGE: values} if isinstance(values, list) else {}, "segments": {}}


def _shown(line: Line, scales: list[Scale], segment_scales: Mapping[str, Scale]) -> ShownRollout:
    response, count = mapping(line.get("response")), len(tokens_of(line))
    score = finite(response.get("score"))
    not_stored, spans = _count(line, "tokens_left_out"), _count(line, "spans_left_out")
    # 1. the tokens, shaded by each of their values
    rows, facts = [], []
    for place, tint in enumerate(scales):
        rewarded = place < len(segment_scales)  # the last scale is that of the advantages
        row = line if rewarded else _as_reward(line)
        if known := [value for value in numbers(row, tint.reward) if value is not None]:
            name = f"raw reward ({tint.reward})" if rewarded else "advantage that was trained on"
            segments = segment_scales[tint.reward] if rewarded else None
            rows.append(Row(name, layer(row, tint, segments, "reward" if rewarded else ADVANTAGE)))
            if rewarded:
                facts += reward_facts(score, known)
        elif rewarded and score is not None:
            facts += [*reward_facts(score, ()), (f"raw reward ({tint.reward})", "on no token")]
    if not rows:
        rows.append(Row("", layer({**line, "token_rewards": {}}, None, None)))
    if not segment_scales:
        facts += reward_facts(score, ())
    # 2. what else there is to say
    facts.append(("tokens", number(count + not_stored)))
    warnings = [] if str(response.get("text") or "").strip() else ["empty"]
    if score is None:
        warnings.append("the reward is missing, so the response was not trained on")
    elif not isinstance(line.get("advantages"), list):
        warnings.append("the algorithm left the response out of training")
    if response.get("finished") is False:
        warnings.append("cut off")
    return ShownRollout(
        turns(prompt_of(line)), facts, warnings, annotations_of_line(line), rows, max(0, count - MOST_TOKENS), not_stored, spans
    )  # fmt: skip


def _count(line: Line, name: str) -> int:
    value = line.get(name)
    return value if type(value) is int else 0

"""Stored responses of a training: what a critic recorded, the raw reward, the trained advantage and other numbers of
each token; of offline training the credit of each token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from markupsafe import Markup

from fgrl.evaluation.answer import Answer
from fgrl.modules.stored_rollouts import SIDES, CreditedResponse, StoredRollout
from fgrl.report.answers import MOST_TOKENS, Scale, Segment, layer, numbers, of_critic, scale, tokens_of, totals
from fgrl.report.escaping import turns
from fgrl.report.marks import ShownAnnotation, annotations_of_answer
from fgrl.results.text import number, reward_facts

ADVANTAGE = "advantage"
MOST_ROLLOUTS = 16
"""Per iteration, and of an offline training."""
MOST_COLUMNS = 8
"""Numbers of a token besides reward and advantage."""


@dataclass
class Row:
    """The tokens of an answer, shaded by one of their values."""

    what: str
    segments: list[Segment]


@dataclass
class ShownRollout:
    """A stored response with its rewards and advantages, as the page shows it."""

    title: str
    """Which response of a pair it is; "" for one that stands alone."""
    turns: list[tuple[str, Markup]]
    """The prompt; empty where it is that of the response before."""
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
    """The stored responses of one iteration."""

    number: int
    place: str
    """"first", "middle" or "last" ("newest" while the training goes on)."""
    rollouts: list[ShownRollout]


@dataclass
class Columns:
    """Numbers of tokens besides reward and advantage."""

    scales: list[Scale]
    """One for each that is drawn."""
    left_out: list[str]
    """Those that are not drawn."""

    @classmethod
    def of(cls, responses: Sequence[CreditedResponse]) -> Columns:
        names = list(dict.fromkeys(name for response in responses for name in response.columns))
        drawn = [
            _scale([_only(r, name, r.columns.get(name)) for r in responses], name) for name in names[:MOST_COLUMNS]
        ]
        return cls(drawn, names[MOST_COLUMNS:])

    def rows(self, response: CreditedResponse) -> list[Row]:
        """Return the response once for each of them that it has."""
        return [
            Row(
                tint.reward, layer(_only(response, tint.reward, response.columns[tint.reward]), tint, None, tint.reward)
            )
            for tint in self.scales
            if tint.reward in response.columns
        ]


@dataclass
class Credit:
    """The part of an offline training's `credit.jsonl` that the page shows."""

    responses: list[ShownRollout]
    columns: Columns


@dataclass
class StoredRollouts:
    """The part of a training's `rollouts.jsonl` that the page shows."""

    iterations: list[Iteration]
    scales: list[Scale]
    """Scales of the rewards, then that of the advantages."""
    columns: Columns
    marked: bool
    """True if there are annotations."""


def rollouts_section(stored: Iterable[StoredRollout], *, ended: bool = True) -> StoredRollouts | None:
    """Return the stored rollouts by iteration; None when there are none. `ended`: the training has a last iteration."""
    by_iteration: dict[int, list[StoredRollout]] = {}
    for rollout in stored:
        if len(own := by_iteration.setdefault(rollout.iteration, [])) < MOST_ROLLOUTS:
            own.append(rollout)
    if not by_iteration:
        return None
    every = [rollout for own in by_iteration.values() for rollout in own]
    rewards = list(dict.fromkeys(name for rollout in every for name in rollout.token_rewards))
    segment_scales = {name: scale(name, [total for each in every for total in totals(each, name)]) for name in rewards}
    scales = [_scale(every, name, around_zero=of_critic(every, name)) for name in rewards]
    scales.append(_scale([_only(each, ADVANTAGE, each.advantages) for each in every], ADVANTAGE, around_zero=True))
    columns = Columns.of(every)
    places = dict.fromkeys(sorted(by_iteration), "middle")
    places[max(places)] = "last" if ended else "newest"
    places[min(places)] = "first"
    iterations = [
        Iteration(iteration, place, [_shown(each, scales, segment_scales, columns) for each in by_iteration[iteration]])
        for iteration, place in places.items()
    ]
    return StoredRollouts(
        iterations, scales, columns, any(shown.annotations for each in iterations for shown in each.rollouts)
    )


def credit_section(stored: Iterable[CreditedResponse]) -> Credit | None:
    """Return the stored responses of an offline training; None when there are none."""
    every = list(islice(stored, MOST_ROLLOUTS))
    columns = Columns.of(every)
    shown = [
        ShownRollout(
            response.model if response.model in SIDES else "",
            [] if response.model == SIDES[1] else turns(response.sample.prompt),
            [("tokens", number(len(response.tokens) + response.tokens_left_out))],
            [], [], columns.rows(response), max(0, len(response.tokens) - MOST_TOKENS), response.tokens_left_out, 0,
        )
        for response in every
    ]  # fmt: skip
    return Credit(shown, columns) if every else None


def _scale(answers: Iterable[Answer], name: str, *, around_zero: bool = False) -> Scale:
    known = [value for answer in answers for value in numbers(answer, name) if value is not None]
    return scale(name, known, around_zero=around_zero)


def _only(response: CreditedResponse, name: str, values: list[float | None] | None) -> Answer:
    """Return the response with these values in place of its rewards, so that all are drawn alike; they have no
    segments.
    """
    return response.model_copy(update={"token_rewards": {} if values is None else {name: values}, "segments": {}})


def _shown(
    rollout: StoredRollout, scales: list[Scale], segment_scales: Mapping[str, Scale], columns: Columns
) -> ShownRollout:
    response, count = rollout.response, len(tokens_of(rollout))
    score = response.score
    # 1. the tokens, shaded by each of their values
    rows, facts = [], []
    for place, tint in enumerate(scales):
        rewarded = place < len(segment_scales)  # the last scale is that of the advantages
        if not rewarded:
            rows += columns.rows(rollout)
        row = rollout if rewarded else _only(rollout, ADVANTAGE, rollout.advantages)
        if known := [value for value in numbers(row, tint.reward) if value is not None]:
            name = f"raw reward ({tint.reward})" if rewarded else "advantage that was trained on"
            segments = segment_scales[tint.reward] if rewarded else None
            rows.append(Row(name, layer(row, tint, segments, "reward" if rewarded else ADVANTAGE)))
            if rewarded:
                facts += reward_facts(score, known, rollout.by_token)
        elif rewarded and score is not None:
            facts += [*reward_facts(score, numbers(row, tint.reward)), (f"raw reward ({tint.reward})", "on no token")]
    if not rows:
        rows.append(Row("", layer(rollout.model_copy(update={"token_rewards": {}}), None, None)))
    if not segment_scales:
        facts += reward_facts(score, ())
    # 2. what else there is to say
    facts.append(("tokens", number(count + rollout.tokens_left_out)))
    warnings = [] if response.text.strip() else ["empty"]
    if score is None:
        warnings.append("the reward is missing, so the response was not trained on")
    elif rollout.advantages is None:
        warnings.append("the algorithm left the response out of training")
    if response.finished is False:
        warnings.append("cut off")
    return ShownRollout(
        "", turns(rollout.sample.prompt), facts, warnings, annotations_of_answer(rollout), rows,
        max(0, count - MOST_TOKENS), rollout.tokens_left_out, rollout.spans_left_out,
    )  # fmt: skip

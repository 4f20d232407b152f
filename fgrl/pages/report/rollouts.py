"""Stored responses of a training: annotations of a critic, the raw reward, the trained advantage and other numbers of
each token; for offline training, the credit of each token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from fgrl.pages.report.drawing import Drawing, Exchange, Scale, ShownAnswer, of_conversation, scales_of
from fgrl.pages.report.escaping import turns
from fgrl.pages.report.marked_tokens import MarkedTokens
from fgrl.runs.results.text import number, reward_facts
from fgrl.training.stored_rollouts import SIDES, CreditedResponse, StoredRollout

ADVANTAGE = "advantage"
MOST_ROLLOUTS = 16
"""Maximum number of rollouts per iteration, and of an offline training."""
MOST_COLUMNS = 8
"""Maximum number of quantities of a token besides reward and advantage."""


@dataclass
class Numbers:
    """Numbers of the tokens of some responses, one of which colours them at a time."""

    labels: list[str]
    scales: list[tuple[Scale, Scale]]
    """Scales of tokens and of segments, for each number."""
    items: list[list[MarkedTokens]]
    """Each response, repeated for each number."""
    left_out: list[str]
    """Numbers that are not drawn."""

    @classmethod
    def of(cls, responses: Sequence[CreditedResponse], trained: bool) -> Numbers:
        """Return the rewards, then columns, then the advantages if the responses were `trained` on."""
        rewards = list(dict.fromkeys(name for response in responses for name in response.token_rewards))
        columns = list(dict.fromkeys(name for response in responses for name in response.columns))
        drawn = columns[:MOST_COLUMNS]
        names = [*rewards, *drawn, *([ADVANTAGE] if trained else [])]
        labels = [*(f"token reward ({name})" for name in rewards), *drawn]
        labels += ["advantage that was trained on"] if trained else []
        items = [
            [MarkedTokens.of(response, name) for name in rewards]
            + [_only(response, name, response.columns.get(name)) for name in drawn]
            + ([_only(response, ADVANTAGE, getattr(response, "advantages", None))] if trained else [])
            for response in responses
        ]
        last = len(names) - 1
        scales = [
            scales_of(
                name, [response[place] for response in items],
                any(name in each.annotations for each in responses) or (trained and place == last),
            )
            for place, name in enumerate(names)
        ]  # fmt: skip
        return cls(labels, scales, items, columns[MOST_COLUMNS:])

    def drawing(self, response: CreditedResponse, place: int) -> Drawing:
        """Return the response at this place."""
        return Drawing.of(self.items[place] or [MarkedTokens.of(response)], self.scales or [(None, None)])


@dataclass
class Credit:
    """Part of an offline training's `credit.jsonl` that the page shows."""

    exchanges: list[Exchange]
    numbers: Numbers


@dataclass
class Iteration:
    """Stored responses of one iteration."""

    number: int
    place: str
    """Position of the iteration: "first", "middle" or "last" ("newest" while the training is running)."""
    exchanges: list[Exchange]


@dataclass
class StoredRollouts:
    """Part of a training's `rollouts.jsonl` that the page shows."""

    iterations: list[Iteration]
    numbers: Numbers
    marked: bool
    """True if there are annotations."""


def rollouts_section(stored: Iterable[StoredRollout], *, ended: bool = True) -> StoredRollouts | None:
    """Return the stored rollouts by iteration; None if there are none. `ended`: True if the training has a last
    iteration.
    """
    by_iteration: dict[int, list[StoredRollout]] = {}
    for rollout in stored:
        if len(own := by_iteration.setdefault(rollout.iteration, [])) < MOST_ROLLOUTS:
            own.append(rollout)
    if not by_iteration:
        return None
    places = dict.fromkeys(sorted(by_iteration), "middle")
    places[max(places)] = "last" if ended else "newest"
    places[min(places)] = "first"
    every = [rollout for iteration in places for rollout in by_iteration[iteration]]
    numbers = Numbers.of(every, trained=True)
    shown = iter([_shown(rollout, numbers.drawing(rollout, place)) for place, rollout in enumerate(every)])
    iterations = [
        Iteration(iteration, place, list(islice(shown, len(by_iteration[iteration]))))
        for iteration, place in places.items()
    ]
    return StoredRollouts(iterations, numbers, any(item[0].annotations for item in numbers.items))


def credit_section(stored: Iterable[CreditedResponse]) -> Credit | None:
    """Return the stored responses of an offline training; None if there are none."""
    every = list(islice(stored, MOST_ROLLOUTS))
    numbers = Numbers.of(every, trained=False)
    shown: list[Exchange] = []
    for place, response in enumerate(every):
        facts = [("tokens", number(len(response.tokens) + response.tokens_left_out))]
        title = response.model if response.model in SIDES else ""
        answer = ShownAnswer(title, numbers.drawing(response, place), facts, notes=_left_out(response.tokens_left_out))
        if title == SIDES[1] and shown:
            shown[-1].answers.append(answer)
        else:
            shown.append(Exchange(turns(response.sample.prompt), [answer]))
    return Credit(shown, numbers) if every else None


def _left_out(tokens: int, spans: int = 0) -> list[str]:
    """Return notes on the parts of a response that are not stored."""
    notes = [f"The last {tokens} tokens of the response are not stored."] if tokens else []
    return [*notes, *([f"{spans} marked passages of the response are not stored."] if spans else [])]


def _only(response: CreditedResponse, name: str, values: list[float | None] | None) -> MarkedTokens:
    """Return the response with these values in place of its rewards, and without their segments."""
    held = {"token_rewards": {} if values is None else {name: values}, "segments": {}}
    return MarkedTokens.of(response.model_copy(update=held), name, what=name)


def _shown(rollout: StoredRollout, drawing: Drawing) -> Exchange:
    response, score = rollout.response, rollout.response.score
    facts = [] if rollout.token_rewards else reward_facts(score, ())
    for name, values in rollout.token_rewards.items():
        if known := [value for value in values if value is not None]:
            facts += reward_facts(score, known, rollout.by_token)
        elif score is not None:
            facts += [*reward_facts(score, values), (f"token reward ({name})", "on no token")]
    about, failed = of_conversation(rollout)
    facts += [("tokens", number(len(rollout.tokens) + rollout.tokens_left_out)), *about]
    warnings = failed or ([] if response.text.strip() else ["empty"])
    if score is None and not failed:
        warnings.append("the reward is missing, so the response was not trained on")
    elif rollout.advantages is None and not failed:
        warnings.append("the algorithm left the response out of training")
    if response.finished is False:
        warnings.append("cut off")
    notes = _left_out(rollout.tokens_left_out, rollout.spans_left_out)
    return Exchange(turns(rollout.sample.prompt), [ShownAnswer("", drawing, facts, warnings=warnings, notes=notes)])

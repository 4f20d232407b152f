"""A text with a value for each of its tokens: it draws itself in a notebook and prints as text in a terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.base.visible import visible
from fgrl.pages.report.marked_tokens import MarkedTokens
from fgrl.pages.report.terminal import plain
from fgrl.registry.problems import unknown
from fgrl.runs.results.text import number, reward_facts, signed

if TYPE_CHECKING:
    from fgrl.measuring.answer import Answer, Attribution
    from fgrl.types import Annotation
fragment = lazy.load("fgrl.pages.report.fragment")
terminal = lazy.load("fgrl.pages.report.terminal")


@dataclass(frozen=True)
class TokenSpan:
    """A segment of a text: neighbouring tokens that share one reward."""

    start: int
    end: int
    """Position after the last character: the segment is `start:end` of the text."""
    text: str
    reward: float | None
    """Sum of the rewards of its tokens; None if no token has a reward."""


@dataclass(frozen=True)
class ScoredText:
    """A response with a value for each of its T tokens, by default the reward of each token.

    At the end of a notebook's cell it draws itself: colours show values, brackets show segments, and pointing at a
    token shows its value. `draw()` does the same in the middle of a cell, and in a terminal; `print` shows the same as
    plain text.
    """

    answer: Answer
    """Record of the answer: prompt, response, and everything that the reward recorded."""
    name: str
    """Name of the shown entry of its records; "" if the text has no values."""
    what: str = "reward"
    """Kind of the values: "reward", or "log-probability"."""
    total: float | None = None
    """Value of the whole text: the reward of the response, or the sum of the log-probabilities. None if it is
    missing.
    """

    @property
    def text(self) -> str:
        return self.answer.text

    @property
    def tokens(self) -> list[str]:
        """[T] the decoded tokens; the last one may be the end-of-sequence token."""
        return self.answer.tokens

    @property
    def values(self) -> list[float | None]:
        """[T] the value of each token; None if there is no value, which differs from a value of 0."""
        return self.answer.token_rewards.get(self.name, [])

    @property
    def reward(self) -> float | None:
        """Reward of the whole response; None if it is missing."""
        return self.answer.rewards.get(self.name)

    @property
    def token_rewards(self) -> list[float | None]:
        """[T] the `values` of a reward. Raises `UsageError` for other values."""
        if self.what != "reward":
            raise UsageError(f"these values are not rewards but the {self.what} of each token; see `values`")
        return self.values

    @property
    def segments(self) -> list[int]:
        """[T] the segment of each token, -1 outside of all segments; empty for a reward without segments."""
        return self.answer.segments.get(self.name, [])

    @property
    def spans(self) -> list[TokenSpan]:
        """Segments as passages of the text, in order; empty for a reward without segments."""
        result = []
        for segment in dict.fromkeys(index for index in self.segments if index >= 0):
            places = [place for place, index in enumerate(self.segments) if index == segment]
            offsets = [self.answer.offsets[place] for place in places]
            start, end = min(first for first, _ in offsets), max(last for _, last in offsets)
            known = [value for place in places if (value := self.values[place]) is not None]
            result.append(TokenSpan(start, end, self.text[start:end], math.fsum(known) if known else None))
        return result

    @property
    def criteria(self) -> list[Attribution]:
        """Criteria of the prompt with their verdicts, for a reward that reads a rubric; empty otherwise."""
        return self.answer.criteria.get(self.name, [])

    @property
    def annotation(self) -> Annotation | None:
        """Annotation of the text by the reward's critic; None if it is missing, or the reward has no critic."""
        return self.answer.annotations.get(self.name)

    def draw(self) -> None:
        """Draw the tokens: as HTML in a notebook, else as text in the terminal, with colours if the terminal has
        them.
        """
        if in_notebook():
            from IPython.display import display  # the notebook's own

            display(self)
        else:
            terminal.print_tokens([self._marked()])

    def _marked(self) -> MarkedTokens:
        """Return the text for the terminal: the turns of the prompt, then the tokens."""
        turns = [f"{turn.role}: {turn.content}\n" for turn in self.answer.chat]
        own = MarkedTokens.of(self.answer, self.name)
        none: list[None] = [None] * len(turns)
        return replace(
            own,
            title=self._title(),
            tokens=[*turns, *own.tokens],
            kinds=["prompt"] * len(turns) + own.kinds,
            segments=None if own.segments is None else [-1] * len(turns) + own.segments,
            values=None if own.values is None else [*none, *own.values],
            offsets=[],
            criteria=self.criteria,
            annotations=[marked for marked in own.annotations if marked[0] == self.name],
        )

    def _title(self) -> str:
        facts = [f"{name} {value}, " for name, value in self._facts()]
        return f"{''.join(facts)}{len(self.tokens)} tokens"

    def _facts(self) -> list[tuple[str, str]]:
        """Return names and numbers of the whole text."""
        if not self.name:
            return []
        if self.total is None:
            return [(self.what, "missing")]
        return reward_facts(self.total, self.values) if self.what == "reward" else [(self.what, signed(self.total))]

    def __repr__(self) -> str:
        return f"{self._title()}\n{visible(plain(self._marked()))}"

    def _repr_html_(self) -> str:
        facts = [*self._facts(), ("tokens", number(len(self.tokens)))]
        return str(
            fragment.html(self.answer, self.name, what=self.what, around_zero=self.what == "reward", facts=facts)
        )


def of_answer(answer: Answer, reward: str | None = None) -> ScoredText:
    """Return a recorded answer with the token rewards of one of its rewards, by default the first. Raises `UsageError`
    for a reward that did not score it.
    """
    known = list(answer.token_rewards)
    if reward is not None and reward not in known:
        raise UsageError(unknown("reward", reward, known))
    name = reward or next(iter(known), "")
    return ScoredText(answer, name, total=answer.rewards.get(name))


def of_values(answer: Answer, what: str, values: Sequence[float], total: float) -> ScoredText:
    """Return an answer with values other than rewards: `values` [T]."""
    held: Mapping[str, Any] = {"token_rewards": {what: [float(value) for value in values]}}
    return ScoredText(answer.model_copy(update=held), what, what=what, total=total)


def in_notebook() -> bool:
    """Return True if this process runs the cells of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config

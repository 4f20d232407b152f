"""Token rewards from the critiques of a language model (Text2Grad, sections 3.3 and 3.5)."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from fgrl.base import lazy, ops
from fgrl.base.errors import FgrlError
from fgrl.feedback.critic import TESTS, Critic
from fgrl.feedback.critiques import Critique
from fgrl.feedback.llm.asking import Asked, missing
from fgrl.feedback.quotes import KINDS
from fgrl.feedback.quoting import counted
from fgrl.feedback.rules import parts_of_speech
from fgrl.kinds import AtMost, Numbers, Reward, ToDraw
from fgrl.registry import register
from fgrl.types import Annotation, Mean, Request, Response, Rewards, Rollout, Sample, Span

torch = lazy.load("torch")

UNIMPORTANT = 0.2
"""Weight of tokens that are part of no noun and no verb, with `token_importance`."""


@register("critic")
class CriticReward(Critic, Reward):
    """A critic quotes what is good and poor in a response; each token of a quote gets its label as reward.

    The critic is any client with the prompt that it was trained with, or instructed by: the trained model in this
    process (`client: {name: local, model: {base: "${out:reward_model}"}}`) or an endpoint. The response's reward is the
    sum over its tokens. A response whose critique is unparseable has no reward, and is counted; a critique that quotes
    nothing is a reward of `unmarked` for every token; a response without text is not criticised, its reward is 0.

    With `outcome` something else than the critic says what a response is worth, for example its tests. The log then has
    how much the marks say about it (`marks_agree`), and with `total: outcome` they only place it.
    """

    version = 2

    tries: int = Field(1, ge=1)
    """How often a critique is asked for at most when it is unparseable. A trained critic without sampling writes the
    same again.
    """
    unmarked: float = 0.0
    """Reward of tokens outside all spans. Text2Grad's section 4.6 has +1 for code, its section 3.3 has 0."""
    spread: ops.SpanSpread = "each"
    """Each token of a span has its label (`each`, Text2Grad's section 3.3), or the label is the value of the whole
    span: shared out among its tokens (`even`), so that totals do not depend on the tokenizer, or on the last of them
    (`last`).
    """
    within: ops.Within = "uniform"
    """Weights of the tokens of a span: all 1; decreasing from 1 to 0.1; or 1 for nouns and verbs of English and 0.2 for
    other words (`pip install 'fgrl[pos]'`) (appendix I.1).
    """
    token_policy: ops.TokenPolicy = ops.TOKEN_POLICY
    """Tokens of a span: those inside it apart from white space before them (`words`), inside it (`inside`), that begin
    in it (`start`), or that share a character with it (`overlap`). Most vocabularies put the space before a word into
    the word's token: then `inside` loses the first word of most spans, `words` does not.
    """
    conflict: ops.Conflict = "poor"
    """Whose the characters are where good and poor spans meet: the poor one's, the good one's, or nobody's (`cancel`).
    A token across the place where they meet gets 0.
    """
    outcome: Reward | None = None
    """What a response is worth by a check: a reward that asks no language model, such as `rubric_signed` for programs with
    tests. Above 0 the response is good, else bad. A prompt that has {outcome} tells the critic: "Passed: yes" or
    "Passed: no"; without a known outcome it has "(none)".
    """
    total: Literal["marks", "outcome"] = "marks"
    """The reward of a response is the sum over its tokens (`marks`), or `outcome`, and marks only place it: it is shared
    out evenly among the tokens whose marks have its sign, and where there are none, or no critique, among all tokens of
    the response. Of the marks their places and signs count, and `unmarked` does not. A response without a known outcome
    has no reward.
    """
    placement: Literal["tokens", "last"] = "tokens"
    """Rewards on the tokens of the spans, or their sum on the last token (appendix A, settings A and B)."""
    fade_after: float | None = None
    """Multiply the reward of token t = 0, 1, ... by 1 / (1 + exp(clip(t - fade_after, -10, 6))); null does not. The
    authors' release counts tokens from 1 and has 54 for summaries: 53 here.
    """

    _failed: Asked[Critique] | None = PrivateAttr(None)
    """The first failure of the last responses."""

    @model_validator(mode="after")
    def _check_outcome(self) -> CriticReward:
        if self.total == "outcome" and self.outcome is None:
            raise ValueError("total: outcome wants an `outcome`: name a reward, such as rubric_signed")
        if self.outcome is not None and self.outcome.asked_client() is not None:
            raise ValueError("outcome: it asks a language model; wants a check, such as rubric_signed with verifiers")
        return self

    def check_machine(self) -> None:
        if self.within == "token_importance":
            parts_of_speech.HANTA.check()

    def needs(self) -> frozenset[str]:
        return frozenset({"offsets"}) | (frozenset() if self.outcome is None else self.outcome.needs())

    def tokenizer(self) -> Any:
        return None if self.outcome is None else self.outcome.tokenizer()

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        if self.outcome is not None:
            self.outcome.check_prompts(samples)

    def fills(self) -> frozenset[str]:
        return frozenset({"annotations"})

    def on_tokens(self) -> bool:
        return self.placement == "tokens"

    def asks(self, given: Sequence[tuple[Sample, str]]) -> list[Request]:
        """Return the requests. Where the critic is told outcomes, that of each is stated as bad: the longer prompt."""
        template, worth = self.template(), math.nan if self.outcome is None else 0.0
        return [
            self.critique_request(template, sample, _response(text, worth)) for sample, text in given if text.strip()
        ]

    def asks_at_most(self, expected: ToDraw) -> list[AtMost]:
        return expected.about_each(lambda prompt, response: self.asks([(prompt, response)]))

    def score(self, rollout: Rollout) -> Rewards:
        """1. outcomes and critiques, 2. spans to tokens, 3. placement. Shapes as in `Rewards`."""
        mask = rollout.mask.cpu()
        # 1.
        outcome = torch.full((len(mask),), torch.nan)
        if self.outcome is not None:
            outcome = self.outcome.scored(rollout).response.cpu()
        began = time.perf_counter()
        responses = [_response(text, worth) for text, worth in zip(rollout.texts, outcome.tolist(), strict=True)]
        asked = self.critiques(list(zip(rollout.samples, responses, strict=True)))
        seconds = time.perf_counter() - began
        annotations = [_annotation(each) for each in asked]
        self._failed = next((each for each in asked if each is not None and each.failure is not None), None)
        # 2. delta_t
        token, marks, credited = torch.zeros(mask.shape), torch.zeros(mask.shape), torch.zeros_like(mask)
        uncovered = overruled = 0
        for row, annotation in enumerate(annotations):
            if annotation is not None:
                rewards = self._delta(annotation, rollout.texts[row], rollout.filled("offsets")[row])
                length = len(rewards.token)
                token[row, :length] = rewards.token
                marks[row, :length] = rewards.token * rewards.marked
                credited[row, :length] = rewards.marked | (rewards.token != 0)
                uncovered += len(rewards.uncovered)
                overruled += len(rewards.overruled)
        known = torch.tensor([annotation is not None for annotation in annotations])
        response = torch.where(known, token.sum(dim=1), torch.nan)
        spans = sum(len(annotation.spans) for annotation in annotations if annotation)
        metrics = {
            **_of_critiques([each for each in asked if each is not None]),
            **_of_tokens(token, mask & known[:, None]),
            **({} if self.outcome is None else _of_outcomes(outcome, marks, known)),
            "uncovered": Mean(uncovered, spans),
            "overruled": Mean(overruled, spans),
            "seconds/critic": seconds,
        }
        # 3.
        if self.total == "outcome":
            response, known = outcome, ~outcome.isnan()
            own = (marks != 0) & (marks.sign() == outcome.sign()[:, None])
            own |= rollout.drawn.cpu() & ~own.any(dim=1, keepdim=True)
            credited = own & known[:, None]
            token = ops.spread(outcome[:, None], torch.where(credited, 0, -1), "even")
        if self.placement == "last":
            credited = ops.segment_ends(torch.where(mask, 0, -1)) & known[:, None]
            token = torch.where(credited, response[:, None], 0.0)
        return Rewards(response, token, credited, annotations=annotations, metrics=metrics).to(rollout.mask.device)

    def nothing_scored(self, where: str, example: str) -> FgrlError:
        """Return the error of what decides the total: with the first failure of the critic, or that of the outcome."""
        if self.total == "outcome" and self.outcome is not None:
            return self.outcome.nothing_scored(where, example)
        if self._failed is not None:
            why = f" ({self._failed.reason})" if self._failed.reason else ""
            example += f"; its critique is {self._failed.failure}{why}: {self._failed.completion.text[:80]!r}"
        return super().nothing_scored(where, example)

    def _delta(self, annotation: Annotation, text: str, offsets: Sequence[tuple[int, int]]) -> ops.SpanRewards:
        importance = token_importance(text, offsets) if self.within == "token_importance" else None
        rewards = ops.span_rewards(
            annotation.spans, offsets, text, self.token_policy, self.conflict,
            spread=self.spread, within=self.within, unmarked=self.unmarked, importance=importance,
        )  # fmt: skip
        if self.fade_after is None:
            return rewards
        faded = rewards.token * ops.fading_weights(len(offsets), self.fade_after)
        return replace(rewards, token=faded)


def token_importance(text: str, offsets: Sequence[tuple[int, int]]) -> list[float]:
    """Of each token: 1 where it holds a part of a noun or a verb, else `UNIMPORTANT` (Text2Grad, appendix I.1)."""
    words = [Span(start=start, end=end) for start, end in parts_of_speech.content_words(text)]
    return [1.0 if label else UNIMPORTANT for label in ops.spans_to_tokens(words, offsets, text, "overlap").tolist()]


def _response(text: str, worth: float) -> Response:
    """Return a response as its critic sees it. worth: its outcome; NaN: unknown."""
    return Response(text=text, meta={} if math.isnan(worth) else {TESTS: {"passed": worth > 0}})


def _annotation(asked: Asked[Critique] | None) -> Annotation | None:
    """Return what a critic wrote; nothing about a response without text, which is not criticised. None: it failed."""
    if asked is None:
        return Annotation()
    return None if asked.value is None else asked.value.annotation


def _of_critiques(asked: Sequence[Asked[Critique]]) -> Numbers:
    """Metrics of the critiques that were asked for: shares that are missing and repaired, and how quotes were found."""
    written = [outcome.value for outcome in asked if outcome.value is not None]
    located = counted(quotes for critique in written for quotes in critique.quotes.values())
    metrics: Numbers = {name: Mean(count, len(asked)) for name, count in missing(asked).items()}
    metrics["repaired"] = Mean(sum(outcome.repaired for outcome in asked), len(asked))
    metrics["quotes"] = Mean(located.quotes, len(written))
    if located.quotes:  # a share of no quotes is no number, which would set off the alarm
        metrics["unmatched"] = Mean(located.unmatched, located.quotes)
        metrics |= {f"quotes_{kind}": Mean(located.kinds[kind], located.quotes) for kind in KINDS}
    return metrics


def _of_tokens(token: Any, real: Any) -> Numbers:
    """Shares of the tokens `real` [B,T] whose reward is above 0, below 0, and 0."""
    signs = torch.sign(token[real])
    return {
        name: Mean((signs == sign).sum(), len(signs))
        for name, sign in (("positive", 1), ("negative", -1), ("neutral", 0))
    }


def _of_outcomes(outcome: Any, marks: Any, known: Any) -> Numbers:
    """Metrics of what marks [B,T] say about outcomes [B]. known [B]: whether there is a critique.

    `uncriticised`, `missing_good`, `missing_bad`: of all, the good and the bad responses, the share without a critique. `blamed_good`,
    `blamed_bad`: of those with one, the share with a mark below 0. `marks_agree`: of the pairs of responses with
    different outcomes (in one process), the share in which the marks of the better one have the greater sum, where both
    have the same a half: 0.5 says nothing.
    """
    numbers: Numbers = {
        "outcome": Mean(outcome.nansum(), (~outcome.isnan()).sum()),
        "uncriticised": Mean((~known).sum(), len(known)),
    }
    for kind, of_kind in (("good", outcome > 0), ("bad", outcome <= 0)):
        for name, inside, every in (
            ("missing", ~known, of_kind),
            ("blamed", (marks < 0).any(dim=1), of_kind & known),
        ):
            if every.any():  # a share of nothing is no number
                numbers[f"{name}_{kind}"] = Mean((inside & every).sum(), every.sum())
    pairs = (outcome[:, None] > outcome) & known[:, None] & known
    if pairs.any():
        total = marks.sum(dim=1).round(decimals=4)
        preferred = ((total[:, None] - total).sign() + 1) / 2
        numbers["marks_agree"] = Mean(preferred[pairs].sum(), pairs.sum())
    return numbers

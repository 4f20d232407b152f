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
"""Weight of tokens outside of nouns and verbs, with `token_importance`."""


@register("critic")
class CriticReward(Critic, Reward):
    """A critic quotes good and poor passages of a response; each token of a quote gets its label as reward.

    The critic is any client, with the prompt of its training or with instructions: the trained model in this process
    (`client: {name: local, model: {base: "${out:reward_model}"}}`) or an endpoint. The response's reward is the sum
    over its tokens. A response with an unparseable critique has no reward, and is counted. A critique without quotes
    gives every token the reward `unmarked`. A response without text is not criticised, and its reward is 0.

    With `outcome`, a separate check determines the value of a response, for example its tests. The log then shows how
    well the marks agree with it (`marks_agree`). With `total: outcome`, the marks only distribute this value over the
    tokens.
    """

    version = 2

    tries: int = Field(1, ge=1)
    """Maximum number of times a critique is requested while it is unparseable. A trained critic without sampling gives
    the same answer again.
    """
    unmarked: float = 0.0
    """Reward of tokens outside all spans. Text2Grad's section 4.6 uses +1 for code, its section 3.3 uses 0."""
    spread: ops.SpanSpread = "each"
    """Distribution of a span's label over its tokens. `each`: every token has the label (Text2Grad's section 3.3).
    `even`: the label is the value of the whole span and is shared among its tokens, so that totals do not depend on the
    tokenizer. `last`: the value is on the last token of the span.
    """
    within: ops.Within = "uniform"
    """Weights of the tokens of a span: all 1 (`uniform`); decreasing from 1 to 0.1 (`linear_decay`); or 1 for English
    nouns and verbs and 0.2 for other words (`token_importance`, `pip install 'fgrl[pos]'`) (appendix I.1).
    """
    token_policy: ops.TokenPolicy = ops.TOKEN_POLICY
    """Rule by which a token belongs to a span: it lies inside apart from white space before it (`words`), lies
    completely inside (`inside`), begins inside (`start`), or shares a character with the span (`overlap`). Most
    vocabularies put the space before a word into the word's token: then `inside` loses the first word of most spans,
    `words` does not.
    """
    conflict: ops.Conflict = "poor"
    """Owner of the characters where good and poor spans overlap: the poor span (`poor`), the good span (`good`), or
    neither (`cancel`). A token across the boundary gets 0.
    """
    outcome: Reward | None = None
    """Check that determines the value of a response: a reward that asks no language model, such as `rubric_signed` for
    programs with tests. Above 0 the response is good, else bad. A prompt with {outcome} shows it to the critic:
    "Passed: yes" or "Passed: no", and "(none)" if it is unknown.
    """
    total: Literal["marks", "outcome"] = "marks"
    """Source of a response's total reward. `marks`: the sum over its tokens. `outcome`: the value of `outcome`, shared
    evenly among the tokens whose marks have its sign; without such tokens, or without a critique, among all tokens of
    the response. Only the places and signs of marks count then, and `unmarked` does not. A response without a known
    outcome has no reward.
    """
    placement: Literal["tokens", "last"] = "tokens"
    """Place of the rewards: on the tokens of the spans, or their sum on the last token (appendix A, settings A and B).
    """
    fade_after: float | None = None
    """Token number after which rewards fade: the reward of token t = 0, 1, ... is multiplied by 1 / (1 + exp(clip(t -
    fade_after, -10, 6))); null disables fading. The authors' release counts tokens from 1 and uses 54 for summaries: 53
    here.
    """

    _failed: Asked[Critique] | None = PrivateAttr(None)
    """First failure among the last responses."""

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
        """Return the requests. If the critic is shown outcomes, every outcome is stated as bad, which gives the longer
        prompt.
        """
        template, worth = self.template(), math.nan if self.outcome is None else 0.0
        return [
            self.critique_request(template, sample, _response(text, worth)) for sample, text in given if text.strip()
        ]

    def asks_at_most(self, expected: ToDraw) -> list[AtMost]:
        return expected.about_each(lambda prompt, response: self.asks([(prompt, response)]))

    def score(self, rollout: Rollout) -> Rewards:
        """Return the rewards: 1. outcomes and critiques, 2. conversion of spans to token rewards, 3. placement. Shapes
        as in `Rewards`.
        """
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
        """Return the error of the source of the total: with the first failure of the critic, or the error of the
        outcome.
        """
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
    """Return for each token 1 if it contains a part of a noun or a verb, else `UNIMPORTANT` (Text2Grad, appendix I.1)."""
    words = [Span(start=start, end=end) for start, end in parts_of_speech.content_words(text)]
    return [1.0 if label else UNIMPORTANT for label in ops.spans_to_tokens(words, offsets, text, "overlap").tolist()]


def _response(text: str, worth: float) -> Response:
    """Return a response in the form for its critic. worth: its outcome; NaN if it is unknown."""
    return Response(text=text, meta={} if math.isnan(worth) else {TESTS: {"passed": worth > 0}})


def _annotation(asked: Asked[Critique] | None) -> Annotation | None:
    """Return the annotation of a critic; None if the critique failed. A response without text is not criticised, and
    its annotation is empty.
    """
    if asked is None:
        return Annotation()
    return None if asked.value is None else asked.value.annotation


def _of_critiques(asked: Sequence[Asked[Critique]]) -> Numbers:
    """Return metrics of the requested critiques: shares of missing and repaired ones, and matches of quotes."""
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
    """Return the shares of the tokens `real` [B,T] with a reward above 0, below 0, and equal to 0."""
    signs = torch.sign(token[real])
    return {
        name: Mean((signs == sign).sum(), len(signs))
        for name, sign in (("positive", 1), ("negative", -1), ("neutral", 0))
    }


def _of_outcomes(outcome: Any, marks: Any, known: Any) -> Numbers:
    """Return metrics of the relation between marks [B,T] and outcomes [B]. known [B]: True if there is a critique.

    `uncriticised`, `missing_good`, `missing_bad`: the share of all, of good and of bad responses without a critique.
    `blamed_good`, `blamed_bad`: the share of criticised good and bad responses with a mark below 0. `marks_agree`: the
    share of pairs of responses with different outcomes (in one process) in which the marks of the better response have
    the greater sum; equal sums count half. A value of 0.5 means no agreement beyond chance.
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

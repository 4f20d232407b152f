"""Rewards from the rubrics of prompts: verdicts on criteria, and the tokens on which they depend ("Rubrics to Tokens").

Not supported: weights of criteria, and partial credit for a criterion.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from fgrl.base import lazy, ops
from fgrl.feedback.rules import rubrics
from fgrl.feedback.rules.rubrics import RubricChecker
from fgrl.kinds import Numbers, Relevance, Reward
from fgrl.registry import register
from fgrl.types import Criterion, Mean, Request, Rewards, Rollout, Sample

torch = lazy.load("torch")


@register("rubric")
class Rubric(RubricChecker, Reward):
    """Share of its prompt's rubric that a response satisfies: verifiers decide hard criteria, a judge decides soft
    ones.

    Without `relevance` the reward is on the last token. With `relevance`, each criterion has its own token rewards: its
    verdict (+1 or -1) times each token's relevance. The token reward is their mean.
    """

    response: Literal["csr", "aon"] = "csr"
    """Reward of the response. `csr`: the share of satisfied criteria (Eq. 3). `aon`: 1 if all are satisfied, else 0
    (Eq. 2).
    """
    relevance: Relevance | None = None
    """Relevance of the tokens for each verdict; null gives no token rewards for single criteria."""
    max_criteria: int | None = Field(None, ge=1)
    """Maximum number of criteria of a rubric that count, from its beginning (20 in the authors' release); null counts
    all.
    """

    def needs(self) -> frozenset[str]:
        return frozenset() if self.relevance is None else self.relevance.needs()

    def tokenizer(self) -> Any:
        return None if self.relevance is None else self.relevance.tokenizer()

    def fills(self) -> frozenset[str]:
        return frozenset({"verdict"} if self.relevance is None else {"verdict", "criterion"})

    def asks(self, given: Sequence[tuple[Sample, str]]) -> list[Request]:
        return self.judge_requests(given)

    def on_tokens(self) -> bool:
        return self.relevance is not None

    def criteria(self, sample: Sample) -> list[Criterion]:
        return sample.rubric[: self.max_criteria]

    def response_reward(self, verdicts: Sequence[bool | None]) -> float | None:
        """Return the reward of a response from the verdicts on its criteria; None if it is missing."""
        return rubrics.share_kept(verdicts) if self.response == "csr" else rubrics.all_kept(verdicts)

    def score(self, rollout: Rollout) -> Rewards:
        """Return the rewards: 1. verdicts, 2. the response's reward, 3. relevance, 4. token rewards. Shapes as in
        `Rewards`.
        """
        mask = rollout.mask
        # 1. the verdict on every criterion of every response: +1, -1, NaN
        checked = self.check(rollout.samples, rollout.texts)
        verdicts = [[criterion.kept for criterion in own] for own in rubrics.by_response(checked, len(mask))]
        places = [(row, place) for row, own in enumerate(verdicts) for place in range(len(own))]
        verdict = torch.full((len(mask), max(map(len, verdicts), default=0) or 1), float("nan"))
        for (row, place), criterion in zip(places, checked, strict=True):
            if criterion.kept is not None:
                verdict[row, place] = 1.0 if criterion.kept else -1.0
        # 2. what the response is worth
        worth = [self.response_reward(kept) for kept in verdicts]
        response = torch.tensor([float("nan") if value is None else value for value in worth]).to(mask.device)
        metrics: Numbers = _counted(verdicts)
        if self.judge is not None:
            metrics |= {f"judge_{name}": value for name, value in self.judge.counts().items()}
        if self.relevance is None:
            last = ops.segment_ends(torch.where(mask, 0, -1))
            token = torch.where(last, response.nan_to_num()[:, None], 0.0)
            return Rewards(response, token, last, verdict=verdict.to(mask.device), metrics=metrics)
        # 3. verdict x relevance, NaN where either is missing (r in section 4.2.2)
        began = time.perf_counter()
        weights = self.relevance.weigh(rollout, checked)
        metrics["seconds/relevance"] = time.perf_counter() - began
        relevance = torch.full((*verdict.shape, mask.shape[1]), float("nan"))
        for (row, place), weight in zip(places, weights, strict=True):
            if weight is not None:
                relevance[row, place] = 0.0
                relevance[row, place, : len(weight)] = weight
        criterion_reward = (relevance * verdict[:, :, None]).to(mask.device)
        known_weights = [weight for weight in weights if weight is not None]
        metrics["unweighed"] = Mean(len(weights) - len(known_weights), len(weights))
        metrics["relevant"] = Mean(sum(float(weight.sum()) for weight in known_weights), sum(map(len, known_weights)))
        metrics |= {f"relevance_{name}": value for name, value in self.relevance.counts().items()}
        # 4. every token's reward is the mean over the response's criteria
        known = ops.known_criteria(criterion_reward, mask)[:, :, None] & mask[:, None, :]
        return Rewards(
            response, ops.masked_mean(criterion_reward, known, dim=1), (known & (criterion_reward != 0)).any(dim=1),
            criterion=criterion_reward, verdict=verdict.to(mask.device), metrics=metrics,
        )  # fmt: skip


@register("rubric_signed")
class SignedRubric(Rubric):
    """`rubric` with the response's reward scaled from [0, 1] to [-1, 1]: the authors' release uses the reward 2 CSR -
    1.

    After standardization in its group (`grpo`, `rtt_grpo`) the two rewards are equal.
    """

    def response_reward(self, verdicts: Sequence[bool | None]) -> float | None:
        reward = super().response_reward(verdicts)
        return None if reward is None else 2.0 * reward - 1.0


def _counted(verdicts: Sequence[Sequence[bool | None]]) -> Numbers:
    """Return metrics of the verdicts: CSR over all criteria, AON over the responses for which it is known."""
    every = [kept for of_response in verdicts for kept in of_response]
    known = [kept for kept in every if kept is not None]
    all_kept = [aon for aon in map(rubrics.all_kept, verdicts) if aon is not None]
    return {
        "csr": Mean(sum(known), len(known)),
        "aon": Mean(sum(all_kept), len(all_kept)),
        "criteria": Mean(len(every), len(verdicts)),
        "missing_verdicts": Mean(len(every) - len(known), len(every)),
    }
